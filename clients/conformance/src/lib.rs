//! The conformance kit of dlock: scenes in plain text, and what runs them with a driver. README.md says how to use it.

mod driver;
mod partition;
mod pattern;
mod report;
mod scene;
mod servers;
mod stage;

pub use self::{
    driver::Stop,
    partition::{Partition, partition},
    report::{Job, Outcome, run_all, run_one, scenes, scenes_of},
    scene::{Scene, World, parse},
    stage::Halt,
};
