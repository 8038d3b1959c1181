//! Tests of the client against real servers, through real faults. One binary, so that the module is built once.
// A test stops where it cannot go on.
#![allow(
    clippy::expect_used,
    clippy::items_after_statements,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used
)]

#[macro_use]
mod places;

mod bindings;
mod blocking;
mod blocking_flight;
mod cancel;
mod close;
mod cluster;
mod connect;
mod election;
mod ended;
mod faults;
mod flushed;
mod forged;
mod gone;
mod latch;
mod leaders;
mod load;
mod lock;
mod max_hold;
mod multi;
mod named;
mod once;
mod options;
mod owner;
mod quorum;
mod replicas;
mod rw;
mod secured;
mod semaphore;
mod sentinel;
mod shards;
mod shared;
mod state;
mod support;
mod tools;
mod under;
mod watchdog;
