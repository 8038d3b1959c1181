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
mod dead_waiters;
mod deadlock;
mod delivery;
mod diverged;
mod durability;
mod example;
mod exclusion;
mod fair;
mod fair_keys;
mod fair_order;
mod fair_pause;
mod fair_replicas;
mod fair_restart;
mod families;
mod families_damage;
mod families_input;
mod families_keys;
mod families_load;
mod families_refusal;
mod families_replicas;
mod families_restart;
mod families_specimens;
mod gate;
mod handles;
mod harness;
mod hostile;
mod keyspace;
mod large_values;
mod latch;
mod late_reports;
mod latency;
mod leave;
mod lock;
mod log;
mod looks;
mod lost_waiters;
mod messages;
mod moved_slots;
mod moves;
mod multi;
mod pause;
mod places;
mod queue;
mod records;
mod reference;
mod refusal;
mod replication;
mod requests;
mod requests_saved;
mod restart;
mod restart_leases;
mod restore;
mod rights;
mod roles;
mod rules;
mod rw;
mod rw_load;
mod scene;
mod scripts;
mod semaphore;
mod semaphore_load;
mod settings;
mod slots;
mod soak;
mod specimens;
mod storm;

mod stream;
mod tenants;
mod tidy;
mod time;
mod token;
mod versions;
mod workload;

use dlock_testing as support;
use dlock_testing::{args, test_both_families, test_both_families_at_once};
