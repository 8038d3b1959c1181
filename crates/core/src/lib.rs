//! The state machine of dlock.
//!
//! It decides everything about locks and does nothing else: it knows no Redis, reads no clock and
//! makes no system call. Time comes in as [`time::Now`], keys through the small port
//! [`store::Store`], and everything that must happen outside goes out as [`effects::Effects`].
//! So each rule can be run by the million in a second, replayed from a seed and fuzzed.
//!
//! | module | what it holds |
//! |---|---|
//! | [`machine`] | the verbs: acquire, release, renew, …, and the tick |
//! | [`resource`], [`hold`], [`holds`] | durable state: the value of a key |
//! | [`fair`], [`rw`], [`semaphore`], [`latch`] | the same, for each family |
//! | [`queue`], [`waits`] | volatile state: the waiters and their order |
//! | [`wheel`], [`lease`] | deadlines |
//! | [`waitgraph`] | deadlock detection |
//! | [`connection`] | the waiters and bindings of a connection |
//! | [`token`], [`time`], [`bytes`], [`slab`], [`buckets`] | small parts |
//! | [`spent`] | which requests were carried out, so that late copies do nothing |
//! | [`record`] | the one encoding for replicas, AOF, RDB and DUMP |
//! | [`invariants`] | the invariants after every step |
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

pub mod buckets;
pub mod bytes;
pub mod connection;
pub mod effects;
pub mod fair;
pub mod hold;
pub mod holds;
pub mod invariants;
pub mod latch;
pub mod lease;
pub mod machine;
pub mod op;
pub mod queue;
pub mod record;
pub mod resource;
pub mod rw;
pub mod semaphore;
pub mod slab;
pub mod spent;
pub mod store;
pub mod time;
pub mod token;
pub mod turn;
pub mod view;
pub mod waitgraph;
pub mod waits;
pub mod wheel;
