//! What may happen in a world, and how often.

use super::{SERVERS, TICK};
use crate::attempt::Terms;

/// What a server that crashed still has when it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// Everything that it did: `appendfsync always`.
    DataKept,
    DataLost,
}

/// One thing that the client does wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// Sends no FENCE and behaves as if all had been acknowledged.
    NoWriteBack,
    /// Sends FENCE and does not wait for the acknowledgement.
    TrustsUnacknowledged,
    /// Takes the validity before it sends FENCE, and counts it from when it returns.
    OldValidity,
    /// Counts the lease from the first answer that it hears.
    LeaseFromFirstAnswer,
    /// Counts a renewed lease from when the renewals are answered.
    LeaseFromRenewed,
}

/// What may happen, and how often.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Which client makes which try; a client makes its next one after the one before is over.
    pub tries: &'static [u8],
    /// Ticks.
    pub lease: u8,
    /// How far each server's wall clock is ahead, in ticks.
    pub ahead: [u64; SERVERS],
    /// How many requests are lost, or later than in the same tick; those to a server that is down are not counted.
    /// Answers may all be late or lost.
    pub late: u8,
    /// How often an ACQUIRE reaches its server twice.
    pub repeats: u8,
    /// How often a client loses a connection on which it waits for an answer, and hears of it.
    pub cuts: u8,
    /// How often each try may renew.
    pub renewals: u8,
    pub crashes: u8,
    pub crash: Crash,
    /// `dlock.restart-quarantine-ms`, in ticks.
    pub quarantine: u8,
    pub mistake: Option<Mistake>,
}

impl Rules {
    pub(super) fn terms(&self) -> Terms {
        Terms { lease: TICK * u32::from(self.lease), timeout: TICK }
    }

    /// After this number of ticks without an answer no attempt changes any more.
    pub(super) fn longest(&self) -> u16 {
        u16::from(self.lease) * (u16::from(self.renewals) + 1) + 1
    }
}
