//! Integration tests: the module inside real servers. One binary, so that the module is built and linked once.
//! File names mirror those of `src/command`.
// A test stops where it cannot go on, and names connections as its table does.
#![allow(
    clippy::expect_used,
    clippy::many_single_char_names,
    clippy::panic,
    clippy::unchecked_time_subtraction,
    clippy::unwrap_used
)]

mod bad_input;
mod bind;
mod cluster;
mod commands;
mod deadlock;
mod delivery;
mod durability;
mod example;
mod exclusion;
mod harness;
mod hostile;
mod keyspace;
mod lock;
mod messages;
mod moves;
mod pause;
mod queue;
mod records;
mod refusal;
mod replication;
mod restart;
mod restore;
mod roles;
mod scene;
mod scripts;
mod settings;
mod soak;
mod specimens;
mod stream;
mod support;
mod time;
mod token;
mod workload;
