//! Models of what dlock-client and dlock-quorum decide without I/O: one hold, and the lock on a majority of servers.
//! They compile the files that decide, in a package of their own, so a build for tests optimises these files and not
//! the whole client. The model of failovers has rules of its own: those of docs/failover.md.
#![cfg(test)]
// A test may stop where it cannot go on. The models use a part of these files, whose features are the client's.
#![allow(dead_code, unexpected_cfgs, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../client/src/base"]
mod base {
    pub(crate) mod clock;
    pub(crate) mod error;
    pub(crate) mod lost;
}

#[path = "../../client/src/machine"]
mod machine {
    pub(crate) mod acquire;
    #[path = "../../../models/src/hold/mod.rs"]
    mod hold;
    pub(crate) mod hold_state;
    pub(crate) mod patience;
}

#[path = "../../quorum/src/attempt.rs"]
mod attempt;
mod failover;
mod quorum;
mod waits;
