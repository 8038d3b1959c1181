//! What DFAIR promises beyond DLOCK: its queue is part of the key. (What they have in common is
//! said once, in the tables that [`run_both`](crate::script::run_both) runs.)

mod keyspace;
mod places;
mod server;
mod undelivered;

fn run(script: &str) {
    crate::script::run_as("DFAIR", script);
}
