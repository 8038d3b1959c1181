//! Long runs, for `make soak`: constant memory, and repeated crashes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here and says why")]

use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::net::UnixStream,
    thread,
    time::{Duration, Instant},
};

use crate::{
    args, durability, replication,
    support::{Blocked, Family, Reply, Server},
};

/// Memory of a server, in bytes.
#[derive(Clone, Copy, Debug)]
struct Memory {
    /// Requested from its allocator, including rounding.
    used: i64,
    /// The allocator's memory from the system.
    resident: i64,
}

impl Memory {
    /// Measured after all deferred frees.
    fn settled(server: &Server) -> Memory {
        server.left_over_check();
        let used = || server.info_number("memory", "used_memory");
        let (start, mut last) = (Instant::now(), i64::MAX);
        // The server is slow to free its clients for blocked calls, and buffers of other clients.
        while start.elapsed() < Duration::from_mins(1) {
            thread::sleep(Duration::from_secs(2));
            let now = used();
            if now >= last {
                break;
            }
            last = now;
        }
        let _ = server.cmd(&["MEMORY", "PURGE"]);
        thread::sleep(Duration::from_secs(1));
        let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kib: i64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        Memory { used: used(), resident: kib * 1024 }
    }
}

/// Fails the test unless memory is constant. A table that reaches its maximum late may still grow once: that is
/// allowed; one byte for each pair or two for each waiter is not.
fn assert_flat(what: &str, rounds: &[Memory]) {
    let (first, last) = (rounds[0], rounds[rounds.len() - 1]);
    let kib = |bytes: i64| bytes / 1024;
    for (n, memory) in rounds.iter().enumerate() {
        println!(
            "{what}: after {n} of {} parts: used_memory {} KiB, RSS {} KiB",
            rounds.len() - 1,
            kib(memory.used),
            kib(memory.resident)
        );
    }
    let (more_used, more_resident) = (last.used - first.used, last.resident - first.resident);
    println!("{what}: used_memory {:+} KiB, RSS {:+} KiB", kib(more_used), kib(more_resident));
    assert!(more_used <= 256 << 10, "{what}: used_memory grew by {more_used} bytes");
    assert!(more_resident <= 2 << 20, "{what}: RSS grew by {more_resident} bytes");
}

fn server() -> Server {
    // The release build; but the server cleans up more often, and records no latencies.
    let quiet = ["slowlog-log-slower-than", "-1", "latency-tracking", "no"];
    Server::with(&["hz", "100"]).and(&quiet).release().start()
}

/// Pairs of ACQUIRE and RELEASE in one write; every other pair with all options.
fn pairs_in_bytes(batch: u32, pairs: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for n in 0..pairs {
        let key = format!("key{}", (batch * pairs + n) % 100_000);
        let acquire = if n % 2 == 0 {
            args!["DLOCK.ACQUIRE", key, "owner", "PX", 30_000]
        } else {
            let (id, label) = (format!("acquire{n}"), format!("label{n}"));
            args![
                "DLOCK.ACQUIRE",
                key,
                "owner",
                "PX",
                30_000,
                "REQID",
                id,
                "LABEL",
                label,
                "NOTIFY",
                "news",
                "BIND",
                1_000
            ]
        };
        let mut release = args!["DLOCK.RELEASE", key, "owner"];
        if n % 2 == 1 {
            release.extend(args!["REQID", format!("acquire{n}")]);
        }
        for command in [acquire, release] {
            write!(bytes, "*{}\r\n", command.len()).unwrap();
            for word in command {
                write!(bytes, "${}\r\n", word.len()).unwrap();
                bytes.extend(word);
                bytes.extend(b"\r\n");
            }
        }
    }
    bytes
}

#[test]
#[ignore = "soak"]
fn soak_five_million_pairs_leave_no_memory() {
    const PAIRS: u32 = 5_000_000;
    const BATCH: u32 = 1_000;
    const PARTS: u32 = 5;
    let server = server();
    // The harness would parse each of ten million replies; it is enough to count them.
    let mut stream = UnixStream::connect(server.dir().join("s")).unwrap();
    let mut chunk = vec![0; 1 << 16];
    let mut run = |batches: u32| {
        for batch in 0..batches {
            stream.write_all(&pairs_in_bytes(batch, BATCH)).unwrap();
            let mut missing = 2 * BATCH as usize;
            while missing > 0 {
                let len = stream.read(&mut chunk).unwrap();
                assert!(!chunk[..len].contains(&b'-') && len > 0, "an error reply, or none");
                missing -= chunk[..len].split(|&byte| byte == b'\n').count() - 1;
            }
        }
    };
    run(1_000);
    let mut rounds = vec![Memory::settled(&server)];
    let start = Instant::now();
    let mut took = Duration::ZERO;
    for _ in 0..PARTS {
        let start = Instant::now();
        run(PAIRS / BATCH / PARTS);
        took += start.elapsed();
        rounds.push(Memory::settled(&server));
    }
    println!("{PAIRS} pairs in {took:.1?} ({:.1?} with measuring)", start.elapsed());
    assert!(server.info_number("dlock", "releases") >= i64::from(PAIRS));
    assert_flat("pairs", &rounds);
}

#[test]
#[ignore = "soak"]
fn soak_two_hundred_thousand_killed_waiters_leave_no_memory() {
    const WAITERS: u32 = 200_000;
    const BATCH: u32 = 1_000;
    const PARTS: u32 = 5;
    let server = server();
    let run = |batches: u32| {
        server.cmd(&["DLOCK.ACQUIRE", "k", "holder", "PX", "86400000"]).ok();
        for batch in 0..batches {
            let mut waiters: Vec<Blocked> = (0..BATCH)
                .map(|n| {
                    let owner = format!("owner {n} of batch {batch}");
                    server.post(&match n % 4 {
                        0 => args!["DLOCK.ACQUIRE", "k", owner, "BLOCK", 0],
                        1 => {
                            args!["DLOCK.ACQUIRE", "k", owner, "BLOCK", 86_400_000, "LABEL", "text"]
                        }
                        2 => {
                            args!["DLOCK.ACQUIRE", "k", owner, "BLOCK", 0, "REQID", "r", "BIND", 0]
                        }
                        // Its place outlives it for a moment.
                        _ => args!["DLOCK.ACQUIRE", "k", owner, "BLOCK", 0, "QUEUE", 50],
                    })
                })
                .collect();
            server.wait_blocked(waiters.len());
            if batch % 2 == 0 {
                server.cmd(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).ok();
                waiters.iter_mut().for_each(Blocked::expect_closed_without_reply);
            }
            drop(waiters);
            server.wait_blocked(0);
        }
        server.cmd(&["DLOCK.RELEASE", "k", "holder"]).ok();
    };
    run(40);
    let mut rounds = vec![Memory::settled(&server)];
    let start = Instant::now();
    let mut took = Duration::ZERO;
    for _ in 0..PARTS {
        let start = Instant::now();
        run(WAITERS / BATCH / PARTS);
        took += start.elapsed();
        rounds.push(Memory::settled(&server));
    }
    println!("{WAITERS} waiters in {took:.1?} ({:.1?} with measuring)", start.elapsed());
    assert_flat("killed waiters", &rounds);
}

#[test]
#[ignore = "soak"]
fn soak_kill_9_again_and_again() {
    for seed in 100..150 {
        for family in Family::ALL {
            durability::survive_kill_9(family, if seed % 2 == 0 { "yes" } else { "no" }, seed);
        }
    }
}

#[test]
#[ignore = "soak"]
fn soak_replicas_are_equal_again_and_again() {
    for seed in 100..120 {
        for family in Family::ALL {
            replication::stay_equal(family, seed);
        }
    }
}
