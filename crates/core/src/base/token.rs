//! Fencing tokens.

use crate::base::time::Millis;
use dlock_wire::names::TOKEN_MAX;

/// The source of fencing tokens of this server, one for all keys.
///
/// The next token is the larger of the last one plus 1 and the wall clock in microseconds. So tokens keep growing
/// across a restart that lost all data. The only condition is that the wall clock of the new process is not behind the
/// tokens already given. A clock that goes backwards never makes a token smaller. (A hybrid logical clock in one
/// integer; Kulkarni et al., "Logical Physical Clocks", 2014.)
#[derive(Debug, Default)]
pub struct Tokens {
    last: u64,
}

impl Tokens {
    /// The largest token given or learnt so far; 0 before the first.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Takes the next token, or `None` when all 2^53-1 are used up: it never repeats or wraps.
    pub fn take(&mut self, wall_us: u64) -> Option<u64> {
        let next = (self.last + 1).max(wall_us.min(TOKEN_MAX));
        if next > TOKEN_MAX {
            return None;
        }
        self.last = next;
        Some(next)
    }

    /// Whether `n` more tokens are left.
    pub fn has(&self, n: usize, wall_us: u64) -> bool {
        let next = (self.last + 1).max(wall_us.min(TOKEN_MAX));
        n == 0 || (next <= TOKEN_MAX && (n - 1) as u64 <= TOKEN_MAX - next)
    }

    /// Notes a token that came with data: later ones will be larger.
    pub fn learn(&mut self, token: u64) {
        self.last = self.last.max(token.min(TOKEN_MAX));
    }

    /// The largest token that may come from outside (`FENCE`, `RESTORE`): the last one, or `lead_ms` above the
    /// wall clock.
    pub fn ceiling(&self, wall_us: u64, lead_ms: Millis) -> u64 {
        self.last.max(wall_us.saturating_add(lead_ms.saturating_mul(1_000))).min(TOKEN_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_grow_whatever_the_wall_clock_does() {
        let mut tokens = Tokens::default();
        assert_eq!(tokens.take(1_000), Some(1_000));
        assert_eq!(tokens.take(5), Some(1_001));
        assert_eq!(tokens.take(2_000), Some(2_000));
        tokens.learn(9_000);
        tokens.learn(10);
        assert_eq!(tokens.take(2_001), Some(9_001));
    }

    #[test]
    fn the_last_token_is_given_once() {
        let mut tokens = Tokens::default();
        tokens.learn(TOKEN_MAX - 1);
        assert_eq!(tokens.take(0), Some(TOKEN_MAX));
        assert_eq!(tokens.take(0), None);
        assert_eq!(tokens.take(u64::MAX), None);
        let mut clock_beyond_range = Tokens::default();
        assert_eq!(clock_beyond_range.take(u64::MAX), Some(TOKEN_MAX));
        assert_eq!(clock_beyond_range.take(u64::MAX), None);
    }
}
