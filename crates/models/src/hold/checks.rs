//! What must hold after every event.

use super::*;

impl World {
    pub(super) fn check(&mut self, bug: Option<Bug>) -> Result<(), String> {
        let (now, alive) = (at(self.now), self.alive(bug));
        let is_valid = !self.client.valid_for(now, alive).is_zero();
        if is_valid && self.was_invalid {
            return Err("a hold that was not valid is valid again".to_owned());
        }
        // A connection that turns out to be alive makes it valid again if no task has looked.
        self.was_invalid |= self.client.has_ended() || self.client.deadline <= now;
        if is_valid && (self.is_released || self.heard_of_it) {
            return Err("a hold is valid after its release, or after a message".to_owned());
        }
        if let Some(ends_by) = self.client.terms.ends_by {
            self.check_max_hold(ends_by, is_valid, alive)?;
        }
        // A hold that ends with its connection ends before the client can know. So does a broken one, until the message
        // comes.
        let current = self.current();
        let is_closed = current > 0 && !self.connections[current - 1].server_has_it;
        let is_unaware = is_closed && self.client.terms.probed().is_none();
        if is_valid && self.hold.is_none() && !self.is_broken && !is_unaware {
            return Err("the client counts on a hold that the server has ended".to_owned());
        }
        Ok(())
    }

    fn check_max_hold(&self, ends_by: Moment, is_valid: bool, alive: Moment) -> Result<(), String> {
        let now = at(self.now);
        if is_valid && now >= ends_by {
            return Err("the client counts on a hold for longer than max_hold".to_owned());
        }
        let mut client = self.client.clone();
        match client.expire(now, alive) {
            Change::Lost(Lost::MaxHold) if client.deadline(alive) < ends_by => {
                Err("max_hold is the reason of an earlier end".to_owned())
            }
            Change::Lost(Lost::Expired) if client.deadline(alive) >= ends_by => {
                Err("max_hold is not the reason of its end".to_owned())
            }
            _ => Ok(()),
        }
    }
}
