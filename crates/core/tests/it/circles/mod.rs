//! Deadlock detection, over all families whose owners can wait for each other.

mod cost;
mod graph;
mod order;
mod random;
mod rings;
mod scene;
