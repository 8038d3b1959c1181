//! The state machine of dlock.
//!
//! It decides everything about locks and does nothing else: it knows no Redis, reads no clock and
//! makes no system call. Time comes in as [`time::Now`], keys through the small port
//! [`store::Store`], and everything that must happen outside goes out as [`effects::Effects`].
//! So each rule can be run by the million in a second, replayed from a seed and fuzzed.
//!
//! | module | what it holds |
//! |---|---|
//! | [`machine`], [`op`], [`turn`] | the doors, what clients ask for, and the step that every operation runs in |
//! | [`tables`], [`settings`] | all volatile state; what an operator can set, with the defaults |
//! | `ops` | the operations of clients, one a file |
//! | `grant`, `hand_off`, `end` | where holds begin; who is next; where holds end |
//! | `events` | what happens without a call: lost connections, changed keys, roles, time |
//! | `regime` | who may grant: role, gate, quarantine, divergence, epoch, the clock of leases |
//! | [`divergence`] | what this server could not read |
//! | [`state`] | the durable half: the value of a key |
//! | [`queues`] | the volatile half: the waiters |
//! | [`deadlock`] | deadlock detection |
//! | [`wheel`], [`lease`] | deadlines |
//! | [`connection`] | the waiters and bindings of a connection |
//! | [`token`], [`time`], [`bytes`], [`slab`], [`buckets`] | small parts |
//! | [`observe`] | what operators see afterwards: the log of notable events, and how long waits and holds last |
//! | [`reply`] | outcomes and the answers of reading commands, as replies |
//! | [`spent`] | which requests were carried out, so that late copies do nothing |
//! | [`shares`] | what ACL users have of something limited |
//! | [`record`] | the one encoding for replicas, AOF, RDB and DUMP |
//! | [`invariants`] | the invariants after every step |
#![no_std]
#![forbid(unsafe_code)]
#![deny(missing_docs)]

extern crate alloc;

mod answers;
pub mod buckets;
pub mod bytes;
pub mod connection;
pub mod deadlock;
pub mod divergence;
pub mod effects;
mod end;
pub mod events;
mod grant;
mod hand_off;
mod holder;
pub mod ids;
pub mod invariants;
pub mod key;
pub mod kind;
pub mod lease;
pub mod machine;
pub mod observe;
pub mod op;
mod ops;
mod pending;
mod portions;
pub mod queues;
mod recent_ends;
pub mod record;
pub mod regime;
pub mod reply;
mod requests;
pub mod settings;
pub mod shares;
pub mod slab;
pub mod spent;
pub mod state;
pub mod store;
mod subject;
pub mod tables;
mod terms;
pub mod time;
pub mod token;
pub mod turn;
pub mod view;
pub mod wheel;
