//! Which states are taken for one: those that go on alike.

use std::hash::{Hash, Hasher};

use super::{EPOCH, Line, Reply, Rules, SERVERS, TICK, TOKENS_A_TICK, Try, World};
use crate::attempt::{Attempt, Standing};

impl World {
    /// Drops messages that nobody minds, so that states that behave alike are alike.
    pub(super) fn forget(&mut self, rules: &Rules) {
        for (owner, t) in self.tries.iter_mut().enumerate() {
            let doomed = t.is_doomed(self.now, rules);
            let Some(attempt) = &t.attempt else { continue };
            let over = attempt.is_over() || doomed;
            for (line, server) in t.lines.iter_mut().zip(&self.servers) {
                let may_hold = line.acquire || server.hold.is_some_and(|hold| hold.owner == owner);
                line.release &= may_hold;
                if over {
                    line.fence &= may_hold;
                    line.renew = line.renew.filter(|_| may_hold);
                    line.fenced = Reply::None;
                    line.renewed = Reply::None;
                    line.waits[1..].fill(None);
                    // Only a grant that can still be there is given back again.
                    if !doomed
                        && attempt.next_tick().is_none()
                        && (!may_hold || line.acquired == Reply::No)
                    {
                        line.acquired = Reply::None;
                        line.waits[0] = line.waits[0].filter(|_| line.acquire);
                    }
                }
                for (there, late) in line.requests().into_iter().zip(&mut line.late) {
                    *late &= there;
                }
            }
        }
    }

    /// Tells states apart that behave differently.
    pub fn mark(&self, rules: &Rules) -> u64 {
        let mut hasher =
            FromNow { state: 0, blind: false, wall: u64::from(self.now) * TOKENS_A_TICK };
        let left = [self.late, self.repeats, self.cuts, self.crashes];
        hasher.mix(u32::from_le_bytes(left).into());
        for (s, server) in self.servers.iter().enumerate() {
            let down = server.down.map_or(0, |since| 1 + u64::from(self.now > since));
            let quarantine = server.quarantine.saturating_sub(self.now);
            let hold = server.hold.map_or(0, |hold| {
                (hold.owner as u64 + 1) << 16 | u64::from(hold.until.saturating_sub(self.now))
            });
            hasher.mix(down << 48 | u64::from(quarantine) << 32 | hold);
            // A last token that the clock has passed is as good as none.
            hasher.token(server.last.max(self.clock(s, rules) - 1));
            if let Some(hold) = server.hold {
                let owner = &self.tries[hold.owner];
                if owner.is_blind(self.now, rules) {
                    // A renewal that is still on its way wants to know so much.
                    hasher.mix(u64::from(hold.token == owner.token));
                } else {
                    hasher.token(hold.token);
                }
            }
        }
        let passed = (0..SERVERS).map(|s| self.clock(s, rules) - 1).min().unwrap_or(0);
        for t in &self.tries[..rules.tries.len()] {
            t.mark(self.now, passed, rules, &mut hasher);
        }
        hasher.token(self.top.max(passed));
        hasher.finish()
    }
}

impl Line {
    /// All of it but the tokens in answers.
    fn bits(&self) -> u64 {
        let flags = [self.acquire, self.fence, self.release].into_iter().chain(self.late);
        let flags = flags.fold(0, |bits, flag| bits << 1 | u64::from(flag));
        let rounds = self.waits.into_iter().chain([self.renew]);
        let rounds = rounds.fold(flags, |bits, r| bits << 4 | r.map_or(0, |r| u64::from(r) + 1));
        [self.acquired, self.fenced, self.renewed].into_iter().fold(rounds, |bits, reply| {
            bits << 2
                | match reply {
                    Reply::None => 0,
                    Reply::No => 1,
                    Reply::Token(_) => 2,
                }
        })
    }
}

impl Try {
    /// Whether it has run out of time, and has not noticed.
    fn is_doomed(&self, now: u16, rules: &Rules) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| match attempt.standing() {
            Standing::Pending => now - self.begun >= u16::from(rules.lease),
            Standing::Held { until, .. } => TICK * u32::from(now - self.begun) >= until,
            _ => false,
        })
    }

    /// Whether it does nothing with tokens any more.
    fn is_blind(&self, now: u16, rules: &Rules) -> bool {
        self.attempt.as_ref().is_none_or(Attempt::is_over) || self.is_doomed(now, rules)
    }

    fn mark(&self, now: u16, passed: u64, rules: &Rules, hasher: &mut FromNow) {
        let Some(attempt) = &self.attempt else { return 0u8.hash(hasher) };
        let blind = self.is_blind(now, rules);
        let mut fences = false;
        for line in &self.lines {
            hasher.mix(line.bits());
            for reply in [line.acquired, line.fenced, line.renewed] {
                if let Reply::Token(token) = reply
                    && !blind
                {
                    hasher.token(token.into());
                }
            }
            fences |= line.fence;
        }
        if !blind {
            hasher.token(self.token);
        } else if fences {
            // What it raises to matters only to those who are behind it.
            hasher.token(self.token.max(passed));
        }
        if attempt.is_over() && attempt.next_tick().is_none() {
            return 1u8.hash(hasher);
        }
        let believes = self.believes.map_or(0, |until| 1 + until.saturating_sub(now));
        let age = (now - self.begun).min(rules.longest());
        let sent = self.sent.filter(|_| rules.mistake.is_some());
        let sent = sent.map_or(0, |sent| 1 + (now - sent).min(rules.longest()));
        let numbers = [believes, age, sent, self.renewals.into()];
        hasher.mix(numbers.into_iter().fold(0, |bits, number| bits << 16 | u64::from(number)));
        hasher.blind = blind;
        attempt.hash(hasher);
        hasher.blind = false;
    }
}

/// A hasher that counts tokens from the wall clock of now; it tells them from other numbers by their size. 64 bits:
/// with ten million states, two are taken for one in one run of 300,000.
struct FromNow {
    state: u64,
    wall: u64,
    /// Takes all tokens as equal.
    blind: bool,
}

impl FromNow {
    fn token(&mut self, token: u64) {
        self.write_u64(token);
    }

    /// As in splitmix64.
    fn mix(&mut self, number: u64) {
        let mut mixed = (self.state.rotate_left(23) ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        self.state = mixed ^ (mixed >> 31);
    }
}

impl Hasher for FromNow {
    fn finish(&self) -> u64 {
        self.state ^ (self.state >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.mix(u64::from(*byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.mix(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.mix(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.mix(match number {
            _ if number < EPOCH / 2 => number,
            _ if self.blind => EPOCH,
            _ => number.wrapping_sub(self.wall),
        });
    }

    fn write_usize(&mut self, number: usize) {
        self.mix(number as u64);
    }
}
