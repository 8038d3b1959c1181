//! The contract of DSEM: permits, their queue, and how the rules of all families apply to them.

mod keyspace;
mod operators;
mod passing;
mod permits;
mod places;
mod queue;
mod requests;
mod server;
mod size;
mod taken;
mod ties;
mod undelivered;

fn run(script: &str) {
    crate::script::run_as("DSEM", script);
}

/// As [`run`]; a real server would do something else.
fn run_here(script: &str) {
    run(script);
}
