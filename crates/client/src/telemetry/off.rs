//! Without the features `tracing` and `metrics`: functions that are empty, and a type without a size. What each reports
//! is described in `on`.
#![allow(clippy::unused_self)]

use super::ConnectionEnd;
use crate::error::Error;
use crate::hold::Hold;
use crate::hold_state::RenewalReply;
use crate::lost::Lost;
use crate::tracked::TrackedHold;

#[derive(Default)]
pub(crate) struct HoldReport {}

impl HoldReport {
    pub(crate) fn end(&self, _hold: &TrackedHold, _lost: Option<Lost>) {}

    pub(crate) fn instrument<F: Future>(&self, work: F) -> F {
        work
    }
}

pub(crate) fn acquiring<A, F: Future>(_acquire: &A, call: F) -> F {
    call
}

pub(crate) fn connected(_server: &str, _address: impl Fn() -> String, _is_first: bool) {}

pub(crate) fn disconnected(_server: &str, _end: ConnectionEnd) {}

pub(crate) fn not_connected(_server: &str, _error: &Error, _is_first: bool) {}

pub(crate) fn slots_moved(_server: &str, _count: impl Fn() -> usize) {}

pub(crate) fn renewing(_hold: &Hold) {}

pub(crate) fn renewed(_reply: RenewalReply) {}

pub(crate) fn release_failed(_key: &[u8], _error: &Error) {}
