//! What must hold after every event.

use super::*;

impl World {
    pub(super) fn check(&mut self) -> Result<(), String> {
        let now = at(self.now);
        let is_valid = !self.client.valid_for(now).is_zero();
        if is_valid && self.was_invalid {
            return Err("a hold that was not valid is valid again".to_owned());
        }
        self.was_invalid |= self.client.has_ended() || self.client.deadline <= now;
        if is_valid && (self.is_released || self.heard_of_it) {
            return Err("a hold is valid after its release, or after a refusal".to_owned());
        }
        if let Some(ends_by) = self.client.terms.ends_by {
            self.check_max_hold(ends_by, is_valid)?;
        }
        // A broken one ends before the client can know.
        if is_valid && self.hold.is_none() && !self.is_broken {
            return Err("the client counts on a hold that the server has ended".to_owned());
        }
        Ok(())
    }

    fn check_max_hold(&self, ends_by: Moment, is_valid: bool) -> Result<(), String> {
        let now = at(self.now);
        if is_valid && now >= ends_by {
            return Err("the client counts on a hold for longer than max_hold".to_owned());
        }
        let mut client = self.client.clone();
        match client.expire(now) {
            Change::Lost(Lost::MaxHold) if client.deadline() < ends_by => {
                Err("max_hold is the reason of an earlier end".to_owned())
            }
            Change::Lost(Lost::Expired) if client.deadline() >= ends_by => {
                Err("max_hold is not the reason of its end".to_owned())
            }
            _ => Ok(()),
        }
    }
}
