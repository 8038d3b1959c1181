//! The contract of DFAIR beyond DLOCK: its queue is part of the key. (The tables that
//! [`run_both`](crate::script::run_both) runs cover what they have in common.)

mod keyspace;
mod places;
mod server;
mod undelivered;

fn run(script: &str) {
    crate::script::run_as("DFAIR", script);
}
