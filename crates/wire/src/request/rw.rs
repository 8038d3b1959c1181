//! Requests of the read-write lock: those of the lock, with a mode.

use super::arguments::{Positional, arguments, request};
use super::lock::{Acquire, Release, Renew};
use super::writer::Writer;
use crate::arg::Arg;
use crate::cursor::Cursor;
use crate::fault::Fault;

/// Mode of a hold of a read-write lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Shared with other readers.
    Read,
    /// Exclusive.
    Write,
}

impl Mode {
    /// Both modes.
    pub const ALL: [Self; 2] = [Self::Read, Self::Write];

    /// The word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "READ",
            Self::Write => "WRITE",
        }
    }
}

impl<'a> Positional<'a> for Mode {
    #[inline]
    fn read(at: &mut Cursor<'a>, arg: &'static Arg) -> Result<Self, Fault<'a>> {
        let word = at.next(arg)?;
        let is_it = |mode: &Self| word.eq_ignore_ascii_case(mode.as_str().as_bytes());
        Self::ALL.into_iter().find(is_it).ok_or(Fault::Mode)
    }

    fn write(self, to: &mut Writer<'_>) {
        to.bytes(self.as_str().as_bytes());
    }
}

/// Take a read-write lock, or wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RwAcquire<'a> {
    /// All fields but the mode. `no_reentry` is false: the command has no such option.
    pub acquire: Acquire<'a>,
    /// The requested mode.
    pub mode: Mode,
}

impl<'a> RwAcquire<'a> {
    /// The request without options.
    pub const fn new(key: &'a [u8], owner: &'a [u8], mode: Mode) -> Self {
        Self { acquire: Acquire::new(key, owner), mode }
    }
}

arguments! {
    RwAcquire { acquire.key: KEY; acquire.owner: OWNER; mode: MODE; }
    acquire.lease_ms: NEW_LEASE;
    acquire.block_ms: BLOCK;
    acquire.queue_ms: QUEUE;
    acquire.notify: NOTIFY;
    acquire.reqid: REQID;
    acquire.bind_ms: BIND;
    acquire.label: LABEL;
}

/// End what an ACQUIRE of that mode has. Without a request id: one hold of that mode, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RwRelease<'a> {
    /// All fields but the mode.
    pub release: Release<'a>,
    /// Mode of the hold to release.
    pub mode: Mode,
}

impl<'a> RwRelease<'a> {
    /// The request without options.
    pub const fn new(key: &'a [u8], owner: &'a [u8], mode: Mode) -> Self {
        Self { release: Release::new(key, owner), mode }
    }
}

arguments! {
    RwRelease { release.key: KEY; release.owner: OWNER; mode: MODE; }
    release.all: ALL_OF_MODE;
    release.token: IF_TOKEN;
    release.reqid: OF_ACQUIRE;
    release.delay_ms: DELAY;
}

/// Extend the lease of a read-write lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RwRenew<'a> {
    /// All fields but the mode.
    pub renew: Renew<'a>,
    /// Mode of the hold to renew.
    pub mode: Mode,
}

impl<'a> RwRenew<'a> {
    /// The request without options.
    pub const fn new(key: &'a [u8], owner: &'a [u8], mode: Mode) -> Self {
        Self { renew: Renew::new(key, owner), mode }
    }
}

arguments! {
    RwRenew { renew.key: KEY; renew.owner: OWNER; mode: MODE; }
    renew.lease_ms: HOLD_LEASE;
    renew.token: IF_TOKEN;
    renew.bind_ms: BIND_AGAIN;
}

request! {
    /// End holds of a read-write lock by force.
    RwBreak {
        /// The lock.
        key: &'a [u8] = KEY;
        /// Owner of the holds, 1 to 256 bytes; all owners if `None`.
        owner: Option<&'a [u8]> = BROKEN_OWNER;
    }
}
