//! How much is left of what the checks do not allow.

/// Phrases that make a sentence hard to read, in lower case. Plain words for them are in CONTRIBUTING.md.
pub const PHRASES: &[&str] = &[
    "anew",
    "befalls",
    "for ever",
    "gone by",
    "has its turn",
    "in terms of",
    "is seen to",
    "its kin",
    "of one's own",
    "of which it is",
    "so many",
    "somebody",
    "stands in",
    "whoever",
];

/// Phrases by folder.
pub const PHRASES_LEFT: &[(&str, usize)] = &[];

/// Files with more than 450 lines, and the lines that each may have.
pub const LONG_FILES: &[(&str, usize)] = &[
    ("clients/conformance/naive.py", 670),
    ("clients/conformance/src/stage.rs", 456),
    ("clients/node/tests/programs.test.mjs", 558),
    ("clients/node/tests/traps.test.mjs", 528),
    ("clients/python/src/redis_dlock/_sync.py", 526),
    ("crates/core/tests/it/simulator/steps.rs", 456),
    ("crates/core/tests/it/support/mod.rs", 494),
    ("crates/core/tests/it/tables/places.rs", 497),
    ("tests/it/slots/scenes.rs", 470),
];

/// Lines with more than 120 characters, by folder.
pub const LONG_LINES: &[(&str, usize)] = &[];

/// Calls of `thread::sleep` outside of benches, by file. Each has a reason: a process that is stopped for longer than a
/// lease, work of random length under a lock, a fault during load that goes on, or the pause of a function that polls
/// for a state.
pub const SLEEPS: &[(&str, usize)] = &[
    ("crates/cli/tests/cli/command.rs", 2),
    ("crates/client/src/tests.rs", 1),
    ("crates/quorum/tests/stopped.rs", 1),
    ("crates/testing/src/sentinel.rs", 3),
    ("crates/testing/src/server.rs", 1),
    ("crates/testing/src/server/life.rs", 1),
    ("crates/testing/src/wait.rs", 1),
    ("tests/chaos/checks/drain.rs", 1),
    ("tests/chaos/checks/replicas.rs", 1),
    ("tests/chaos/crowd.rs", 3),
    ("tests/client/faults/finished.rs", 2),
    ("tests/client/leaders.rs", 1),
    ("tests/client/quorum.rs", 3),
    ("tests/client/tools.rs", 2),
    ("tests/client/watchdog.rs", 2),
    ("tests/it/handles.rs", 1),
    ("tests/it/harness.rs", 1),
    ("tests/it/keyspace.rs", 1),
    ("tests/it/rights.rs", 2),
    ("tests/it/rw_load.rs", 1),
    ("tests/it/semaphore_load.rs", 1),
    ("tests/it/slots/mod.rs", 1),
    ("tests/it/soak.rs", 2),
    ("tests/it/storm.rs", 2),
    ("tests/it/stream.rs", 1),
    ("tests/it/time.rs", 2),
    ("tests/reshard/fault.rs", 5),
    ("tests/reshard/load.rs", 4),
    ("tests/reshard/main.rs", 2),
    ("tests/upgrade/caller.rs", 1),
    ("tests/upgrade/load.rs", 2),
];

/// Parameters that are tuples, by folder.
pub const TUPLES: &[(&str, usize)] = &[];
