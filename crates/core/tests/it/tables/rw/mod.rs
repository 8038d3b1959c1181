//! What DRW promises: two modes, their queue, and what the rules of all locks mean for them.

mod deadlock;
mod holds;
mod keyspace;
mod operators;
mod places;
mod queue;
mod server;
mod undelivered;
mod upgrade;

fn run(script: &str) {
    crate::script::run_as("DRW", script);
}
