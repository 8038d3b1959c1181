//! The machine from outside: tables of steps, a simulator against a second model, and the codec.
// A test may stop where it cannot go on.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod circles;
mod codec;
mod model;
mod script;
mod simulator;
mod support;
mod tables;
