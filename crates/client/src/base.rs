//! What every other layer builds on: settings, errors, the clock, randomness, and the words of the protocol.

#[macro_use]
mod doc;

pub(crate) mod back_off;
pub(crate) mod clock;
pub(crate) mod command;
pub(crate) mod dialer;
pub(crate) mod error;
pub(crate) mod flight;
pub(crate) mod hash;
pub(crate) mod hold_ref;
pub(crate) mod lost;
pub(crate) mod options;
pub(crate) mod random;
pub(crate) mod replicas;
pub(crate) mod reply;
pub(crate) mod settings;
pub(crate) mod target;
pub(crate) mod tls;
pub(crate) mod url;
