//! The contract of DRW: two modes, their queue, and how the rules of all locks apply to them.

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

/// As [`run`]; a real server would do something else.
fn run_here(script: &str) {
    run(script);
}
