//! The encoding of durable state. Decoding reverses encoding, a step makes a replica equal to its primary, and all
//! other input is refused.

mod beside;
mod damage;
mod levels;
mod limits;
mod page;
mod random;
mod requests;
mod steps;
mod whole;

use dlock_core::base::time::{Instant, LeaseInstant};
use dlock_core::record::{self, Clocks, Level};
use dlock_core::value::resource::Resource;

const NOW: Instant = Instant(9_000_000_000);

/// A resource without an entry is written with its time left, at any time of the lease clock.
const ANY: LeaseInstant = LeaseInstant(77);

const CLOCKS: Clocks = Clocks { mono: NOW, lease: ANY };

/// The whole state of a resource without an entry.
fn encoded(resource: &Resource) -> Vec<u8> {
    let mut payload = Vec::new();
    record::encode(resource, CLOCKS, Level::FIRST, &mut payload);
    payload
}

/// The complete state of a resource, as text.
fn shown(resource: &Resource) -> String {
    format!("{resource:?}")
}
