//! Deadlock detection, over all families that can lock each other up.

mod cost;
mod graph;
mod order;
mod random;
mod rings;
mod scene;
