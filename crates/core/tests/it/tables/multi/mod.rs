//! The contract of calls for several locks: all of them, or any one.

mod all;
mod any;
mod chain;
mod holds;
mod keyspace;
mod leaving;
mod replaced;
mod requests;
mod server;
mod undelivered;
