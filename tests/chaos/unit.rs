//! Tests of the logic of the chaos program; the program itself is `main.rs`.

#![allow(dead_code, reason = "only a part of the program is here")]

mod call;
mod key;
mod oracle;

#[path = "unit/oracle.rs"]
mod oracle_tests;
