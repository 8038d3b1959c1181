//! Tests that measure what a command costs beside much else, and what INFO says of times. They use the release build,
//! and need a machine that does nothing else, so `make measures` runs them and CI does not.
// A test stops where it cannot go on.
#![allow(clippy::expect_used, clippy::many_single_char_names, clippy::panic, clippy::unwrap_used)]

mod harm;
mod latency;
#[path = "../../benches/bench/meter.rs"]
mod meter;
mod outliers;
#[allow(clippy::cast_precision_loss, reason = "numbers to be shown with three digits")]
#[path = "../../benches/bench/sweep/mod.rs"]
mod sweep;
mod walks;

use dlock_testing as support;
use dlock_testing::args;
