//! The state machine of dlock.
//!
//! It decides everything about locks and does nothing else: it knows no Redis, reads no clock and
//! makes no system call. Time comes in as [`Now`](base::time::Now), keys through the small port
//! [`Store`](ports::store::Store), and everything that must happen outside goes out as
//! [`Effects`](ports::effects::Effects). So each rule can be run by the million in a second, replayed from a seed and
//! fuzzed.
//!
//! To read it, begin with `step::grant` (where a hold begins), `step::hand_off` (who is next), `step::end` (where a
//! hold ends) and `run::enter` (the door to a key). The folders are storeys: a file uses its own and lower ones only,
//! and calls go the same way. From the top down:
//!
//! | storey | what it holds |
//! |---|---|
//! | [`machine`], [`reply`], [`invariants`] | the doors; outcomes and views as replies; what holds after each step |
//! | [`ops`] | what clients ask for: an operation a file |
//! | [`events`] | what happens without a call: lost connections, roles, loading, time |
//! | [`deadlock`] | owners that wait for each other: asked by calls, and by a search from the tick |
//! | `run` | what calls and events share, and what may touch several keys: the door to a key, calls for several locks |
//! | `step` | one key: how holds begin and end, who is next, waits, requests, the index, what operators see |
//! | [`view`] | the state of a key, for reading commands |
//! | [`tables`] | all volatile state and its bookkeeping: queues, leases, connections, who may grant, settings |
//! | [`ports`] | what a run gets and gives: keys, time, caller, effects |
//! | [`record`] | the one encoding for replicas, AOF, RDB and DUMP |
//! | [`value`] | the durable half: the value of a key, and the requests that are over |
//! | [`base`] | small parts that know no lock |
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

pub mod base;
pub mod deadlock;
pub mod events;
pub mod invariants;
pub mod machine;
pub mod ops;
pub mod ports;
pub mod record;
pub mod reply;
mod run;
mod step;
pub mod tables;
pub mod value;
pub mod view;
