//! The `dlock` command against real servers, and in a real terminal.

#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod access;
mod command;
mod dev;
mod doctor;
mod free;
mod gone;
mod http;
mod json;
mod log;
mod lost;
mod metrics;
mod once;
mod pages;
mod ping;
mod prometheus;
mod redis_exporter;
mod run;
mod servers;
mod show;
mod signals;
mod targets;
mod terminal;
mod tmux;
mod top;
mod waits;
mod watch;
