//! Deadlock detection, over all families that can lock each other up.

mod graph;
mod random;
mod rings;
mod scene;
