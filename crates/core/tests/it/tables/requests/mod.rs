//! Requests that are over.

mod copies;
mod memory;
mod release;
