//! The program around an earlier core: see `scripts/core-of`.
#![allow(warnings)] // that core's tests have parts that it does not use

extern crate self as dlock_testing;

mod dice;
mod model;
mod script;
mod simulator;
mod support;
pub mod table;

pub use dice::Dice;

fn main() {
    script::driver::serve();
}
