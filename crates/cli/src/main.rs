//! The `dlock` command.
#![forbid(unsafe_code)]

fn main() {}
