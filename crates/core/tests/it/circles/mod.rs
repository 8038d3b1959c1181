//! Deadlock detection, over all families whose owners can wait for each other.

mod cost;
mod graph;
mod late;
mod random;
mod rings;
mod scene;
mod sides;
