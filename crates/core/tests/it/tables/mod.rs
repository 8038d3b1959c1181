//! The contract of each family, row by row: one file for each subject. The tables of DLOCK are here. They also run with
//! DFAIR where it has the same contract.

mod crowds;
mod deadlock;
mod diverged;
mod events;
mod fair;
mod former;
mod hand_off;
mod harm;
mod holds;
mod keyspace;
mod latch;
mod late;
mod leases;
mod leftovers;
mod log;
mod multi;
mod observers;
mod operators;
mod places;
mod portions;
mod promises;
mod queue;
mod removed;
mod requests;
mod rw;
mod semaphore;
mod server;
mod tenants;
mod texts;
mod ties;
mod tokens;
mod undelivered;
mod views;
