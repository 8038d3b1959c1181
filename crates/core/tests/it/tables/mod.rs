//! What DLOCK promises, row by row: one file for each subject.

mod holds;
mod keyspace;
mod leases;
mod operators;
mod places;
mod queue;
mod server;
mod ties;
mod tokens;
mod undelivered;
mod views;
