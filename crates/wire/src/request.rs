//! What a client asks. [`parse`] reads it from the wire, [`Request::write`] puts it there, and
//! `parse(write(x)) == x` for every request that can be parsed.

mod admin;
mod lock;

use alloc::vec::Vec;

pub use crate::fault::{Fault, ParseError};
pub use lock::{Acquire, Release, Renew};

use crate::table::{CommandId, LockVerb};

/// One call, checked: all lengths and numbers are in range.
///
/// Families that take the same arguments share requests; which family was called is told by the
/// [`CommandId`], not by the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Take the lock, or wait for it.
    Acquire(Acquire<'a>),
    /// Give back one hold, or all.
    Release(Release<'a>),
    /// Set the end of the lease anew.
    Renew(Renew<'a>),
    /// Ask whether `token` is the one of the current hold.
    Check {
        /// The lock.
        key: &'a [u8],
        /// 1 to 2^53 - 1.
        token: u64,
    },
    /// Raise the token of the hold to at least `token`.
    Fence {
        /// The lock.
        key: &'a [u8],
        /// Who holds it.
        owner: &'a [u8],
        /// 1 to 2^53 - 1.
        token: u64,
    },
    /// End the hold by force.
    Break {
        /// The lock.
        key: &'a [u8],
    },
    /// Show the hold.
    Info {
        /// The lock.
        key: &'a [u8],
    },
    /// Show the queue.
    Waiters {
        /// The lock.
        key: &'a [u8],
        /// At most so many, 1 or more; all when None.
        count: Option<u64>,
    },
    /// Show where an owner stands.
    Position {
        /// The lock.
        key: &'a [u8],
        /// Who is asked for.
        owner: &'a [u8],
    },
    /// Leave the queue, or give back an unclaimed grant.
    Cancel {
        /// The lock.
        key: &'a [u8],
        /// Who leaves.
        owner: &'a [u8],
    },
    /// End the blocked call of a connection.
    Unblock {
        /// Client id, 1 or more.
        client: u64,
        /// Answer it with an error instead of Null.
        error: bool,
    },
    /// Replay a record; sent by servers to servers only.
    Apply {
        /// The key that the record is about.
        key: &'a [u8],
        /// The record, opaque here.
        payload: &'a [u8],
    },
}

/// Reads the arguments of one call; `args` are those after the command's name.
///
/// The arguments are looked at from left to right, after their number, and the first fault is
/// reported. Nothing is allocated, and the request borrows from the arguments.
#[inline]
pub fn parse<'a>(id: CommandId, args: &[&'a [u8]]) -> Result<Request<'a>, ParseError<'a>> {
    match id {
        CommandId::Lock(LockVerb::Acquire) => Ok(Request::Acquire(Acquire::parse(id, args)?)),
        CommandId::Lock(LockVerb::Release) => Ok(Request::Release(Release::parse(id, args)?)),
        CommandId::Lock(LockVerb::Renew) => Ok(Request::Renew(Renew::parse(id, args)?)),
        CommandId::Lock(LockVerb::Check) => lock::check(id, args),
        CommandId::Lock(LockVerb::Fence) => lock::fence(id, args),
        CommandId::Lock(LockVerb::Break) => lock::break_(id, args),
        CommandId::Lock(LockVerb::Info) => lock::info(id, args),
        CommandId::Lock(LockVerb::Waiters) => lock::waiters(id, args),
        CommandId::Lock(LockVerb::Position) => lock::position(id, args),
        CommandId::Lock(LockVerb::Cancel) => lock::cancel(id, args),
        CommandId::Unblock => admin::unblock(id, args),
        CommandId::Apply => admin::apply(id, args),
    }
}

impl Request<'_> {
    /// Appends the arguments after the command's name to `out`.
    pub fn write(&self, out: &mut Vec<Vec<u8>>) {
        self.each_arg(|arg| out.push(arg.to_vec()));
    }

    /// Hands the arguments after the command's name to `arg`, one by one and in order: for
    /// clients that put them into a buffer of their own. Leases are written as `PX`.
    pub fn each_arg(&self, arg: impl FnMut(&[u8])) {
        let mut to = Writer { arg };
        match *self {
            Self::Acquire(ref acquire) => acquire.write(&mut to),
            Self::Release(ref release) => release.write(&mut to),
            Self::Renew(ref renew) => renew.write(&mut to),
            Self::Check { key, token } => {
                to.bytes(key);
                to.number(token);
            }
            Self::Fence { key, owner, token } => {
                to.bytes(key);
                to.bytes(owner);
                to.number(token);
            }
            Self::Break { key } | Self::Info { key } => to.bytes(key),
            Self::Waiters { key, count } => {
                to.bytes(key);
                to.option_number("COUNT", count);
            }
            Self::Position { key, owner } | Self::Cancel { key, owner } => {
                to.bytes(key);
                to.bytes(owner);
            }
            Self::Unblock { client, error } => {
                to.number(client);
                to.flag("ERROR", error);
            }
            Self::Apply { key, payload } => {
                to.bytes(key);
                to.bytes(payload);
            }
        }
    }
}

/// Writes arguments: the mirror of the cursor.
struct Writer<F> {
    arg: F,
}

impl<F: FnMut(&[u8])> Writer<F> {
    fn bytes(&mut self, bytes: &[u8]) {
        (self.arg)(bytes);
    }

    fn number(&mut self, number: u64) {
        // 20 digits hold every 64-bit number.
        let mut digits = [0_u8; 20];
        let mut rest = number;
        let mut used = 0;
        for slot in digits.iter_mut().rev() {
            *slot = b"0123456789"[(rest % 10) as usize];
            used += 1;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        (self.arg)(&digits[20 - used..]);
    }

    fn flag(&mut self, word: &str, given: bool) {
        if given {
            self.bytes(word.as_bytes());
        }
    }

    fn option_number(&mut self, word: &str, value: Option<u64>) {
        if let Some(value) = value {
            self.bytes(word.as_bytes());
            self.number(value);
        }
    }

    fn option_bytes(&mut self, word: &str, value: Option<&[u8]>) {
        if let Some(value) = value {
            self.bytes(word.as_bytes());
            self.bytes(value);
        }
    }
}
