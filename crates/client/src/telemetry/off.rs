//! Without the features `tracing` and `metrics`: functions that are empty, and a type without a size. What each reports
//! is described in `on`.
#![allow(clippy::unused_self)]

use std::time::Duration;

use super::ConnectionEnd;
use crate::base::error::Error;
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;
use crate::base::target::Target;

#[derive(Default)]
pub(crate) struct HoldReport {}

impl HoldReport {
    pub(crate) fn open(&self, _hold: &HoldRef) {}

    pub(crate) fn end(&self, _hold: &HoldRef, _lost: Option<Lost>) {}

    pub(crate) fn instrument<F: Future>(&self, work: F) -> F {
        work
    }
}

pub(crate) fn acquiring<T, F: Future>(
    _target: Option<Target>,
    _key: &[u8],
    _server: impl FnOnce() -> Option<String>,
    _token: impl FnOnce(&T) -> u64,
    call: F,
) -> F {
    call
}

pub(crate) fn connected(_server: &str, _address: impl Fn() -> String, _is_first: bool) {}

pub(crate) fn disconnected(_server: &str, _end: ConnectionEnd) {}

pub(crate) fn not_connected(_server: &str, _error: &Error, _is_first: bool) {}

pub(crate) fn slots_moved(_server: &str, _slots: usize) {}

pub(crate) fn renewing(
    _report: &HoldReport,
    _hold: &HoldRef,
    _late: impl FnOnce() -> Option<(Duration, Duration)>,
) {
}

pub(crate) fn renewed(_outcome: &'static str) {}

pub(crate) fn release_failed(_key: &[u8], _error: &Error) {}
