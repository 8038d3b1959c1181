//! The encoding of durable state: what goes in comes out, a step makes of a replica what the
//! primary is, and whatever else comes is refused.

mod beside;
mod damage;
mod limits;
mod random;
mod requests;
mod steps;
mod whole;

use dlock_core::record;
use dlock_core::resource::Resource;
use dlock_core::time::{Instant, LeaseInstant};

const NOW: Instant = Instant(9_000_000_000);

/// What is not entered is written with what is left of it, whatever the lease clock shows.
const ANY: LeaseInstant = LeaseInstant(77);

/// The whole state of a resource that is not entered.
fn encoded(resource: &Resource) -> Vec<u8> {
    let mut payload = Vec::new();
    record::encode(resource, NOW, ANY, &mut payload);
    payload
}

/// All that a resource is, in words.
fn shown(resource: &Resource) -> String {
    format!("{resource:?}")
}
