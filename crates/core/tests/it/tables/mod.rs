//! What the families promise, row by row: one file for each subject. Those of DLOCK stand here, and
//! run with DFAIR, too, where that promises the same.

mod deadlock;
mod fair;
mod former;
mod holds;
mod keyspace;
mod latch;
mod leases;
mod leftovers;
mod multi;
mod operators;
mod places;
mod portions;
mod queue;
mod removed;
mod requests;
mod rw;
mod semaphore;
mod server;
mod ties;
mod tokens;
mod undelivered;
mod views;
