//! The Rust client of dlock.
#![forbid(unsafe_code)]
#![deny(missing_docs)]
