//! The machine from outside: tables of steps, a simulator against a second model, and the codec.
#![allow(missing_docs)]

mod circles;
mod codec;
mod model;
mod script;
mod simulator;
mod support;
mod tables;
