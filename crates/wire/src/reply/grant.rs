//! What the commands that acquire something answer. Null instead: nothing was granted (in time).
//!
//! | command | reply | type |
//! |---|---|---|
//! | `DLOCK.ACQUIRE`, `DFAIR.ACQUIRE`, `DRW.ACQUIRE` | fencing token | `u64` |
//! | `DSEM.ACQUIRE` | permit id | [`PermitId`] |
//! | `DSEM.TAKE` | 1 | `u64` |
//! | `DLOCK.MACQUIRE` | fencing tokens in the order of the keys | [`Tokens`] |
//! | `DLOCK.ANYACQUIRE` | the key and its fencing token | [`OneOf`] |

use alloc::vec::Vec;

use super::shape::{Shape, Sink, Unreadable, Value};
use crate::permit::{self, PermitId, PermitText};

/// Fencing tokens in the order of the keys.
pub type Tokens = Vec<u64>;

/// A key and its fencing token.
pub type OneOf = (Vec<u8>, u64);

impl Shape for PermitId {
    fn write(&self, to: &mut impl Sink) {
        to.bulk(&permit::text(self));
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        let text = Vec::<u8>::read(what, from)?;
        permit::parse(&text).ok_or(Unreadable::Odd(what, Value::Bytes(text)))
    }
}

impl Shape for PermitText {
    fn write(&self, to: &mut impl Sink) {
        to.bulk(self.as_bytes());
    }

    fn read(what: &'static str, from: Value) -> Result<Self, Unreadable> {
        PermitId::read(what, from).map(|id| Self::of(&id))
    }
}
