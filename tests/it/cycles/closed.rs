//! Cycles of 2 to 20 owners in any mix: the call that closes one gets DEADLOCK, and no other owner is disturbed.

use redis::Value;
use std::fmt::Write as _;

use super::{Hold, Wait, Waiting, one, wait};
use crate::support::{Dice, Reply, Server};

/// Owner `n` has lock `n` and waits for lock `n + 1`; the last one is about to request the first lock.
struct Ring {
    /// How each owner has its lock.
    holds: Vec<Hold>,
    /// How each owner requests the next lock.
    waits: Vec<Wait>,
    waiting: Vec<Waiting>,
}

fn key(n: usize) -> String {
    format!("k{n}")
}

fn owner(n: usize) -> String {
    format!("o{n}")
}

impl Ring {
    /// Builds the ring, without the last wait.
    #[track_caller]
    fn set(server: &Server, dice: &mut Dice, holds: Vec<Hold>) -> Ring {
        let count = holds.len();
        for (n, hold) in holds.iter().enumerate() {
            hold.take(server, &key(n), &owner(n));
        }
        let waits: Vec<Wait> =
            (0..count).map(|n| one(dice, holds[(n + 1) % count].waits())).collect();
        let waiting =
            (0..count - 1).map(|n| wait(server, dice, waits[n], &key(n + 1), &owner(n))).collect();
        Ring { holds, waits, waiting }
    }

    /// The last wait: every form of the call is refused, and changes nothing.
    #[track_caller]
    fn close(&mut self, server: &Server) {
        let last = self.holds.len() - 1;
        let call = self.waits[last].call(&key(0), &owner(last));
        let mut options = vec!["BLOCK 0", "BLOCK 60000 LABEL x"];
        if self.waits[last].may_queue() {
            options.extend(["QUEUE 60000", "BLOCK 5 QUEUE 60000"]);
        }
        let before = everything(server, self.holds.len());
        let refused = server.info_number("dlock", "deadlocks_refused");
        let mut links = vec![format!(r#""o{last}" waits for "k0""#)];
        links.extend((0..last).map(|n| format!(r#""o{n}" waits for "k{}""#, n + 1)));
        let cycle = format!("DEADLOCK this call would wait forever: {}", links.join(", "));
        for options in &options {
            assert_eq!(server.ask(&format!("{call} {options}")).error(), cycle, "{self:?}");
        }
        // A call that does not wait only gets Null.
        assert!(server.ask(&call).is_null(), "{call}");
        assert_eq!(
            server.info_number("dlock", "deadlocks_refused"),
            refused + i64::try_from(options.len()).expect("a few")
        );
        for waiting in &mut self.waiting {
            waiting.assert_goes_on();
        }
        assert_eq!(everything(server, self.holds.len()), before, "{self:?}");
    }

    /// The last owner releases its lock. Then each owner in turn gets its wait granted, and releases all it has.
    #[track_caller]
    fn unwind(mut self, server: &Server) {
        for n in (0..self.holds.len()).rev() {
            give_back(server, self.holds[n], &key(n), &owner(n));
            let Some(before) = n.checked_sub(1) else { break };
            let waiting = &mut self.waiting[before];
            if let Waiting::Blocked(call) = waiting {
                call.expect_reply(crate::support::SOON).ok();
            }
            let (held, by) = (key(n), owner(before));
            let given = match self.waits[before] {
                Wait::Lock => server.ask(&format!("DLOCK.RELEASE {held} {by}")),
                Wait::Fair => server.ask(&format!("DFAIR.RELEASE {held} {by}")),
                Wait::Read => server.ask(&format!("DRW.RELEASE {held} {by} READ")),
                Wait::Write => server.ask(&format!("DRW.RELEASE {held} {by} WRITE")),
                Wait::Several => {
                    let call = format!(
                        "DLOCK.MRELEASE 3 {held}:before:{by} {held} {held}:after:{by} {by}"
                    );
                    let given = server.ask(&call);
                    assert_eq!(given.int(), 3);
                    Value::Int(0)
                }
            };
            assert_eq!(given.int(), 0, "{held} {by}");
        }
        server.left_over_check();
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "had by {:?}, asked for by {:?}", self.holds, self.waits)
    }
}

/// Undoes [`Hold::take`], including its queue entries and the holders in front of them.
#[track_caller]
fn give_back(server: &Server, hold: Hold, key: &str, owner: &str) {
    if hold.is_place() {
        let family = match hold {
            Hold::LockPlace => "DLOCK",
            Hold::FairPlace => "DFAIR",
            _ => "DRW",
        };
        assert_eq!(server.ask(&format!("{family}.CANCEL {key} {owner}")).int(), 1);
        let mode = if family == "DRW" { " READ" } else { "" };
        let call = format!("{family}.RELEASE {key} holder-of-{key}{mode}");
        assert_eq!(server.ask(&call).int(), 0, "{call}");
        return;
    }
    let call = match hold {
        Hold::Fair => format!("DFAIR.RELEASE {key} {owner}"),
        Hold::Read => format!("DRW.RELEASE {key} {owner} READ"),
        Hold::Write => format!("DRW.RELEASE {key} {owner} WRITE"),
        Hold::Several => {
            assert_eq!(server.ask(&format!("DLOCK.RELEASE {key}:and {owner}")).int(), 0);
            format!("DLOCK.RELEASE {key} {owner}")
        }
        _ => format!("DLOCK.RELEASE {key} {owner}"),
    };
    assert_eq!(server.ask(&call).int(), 0, "{call}");
}

/// Holders and queues of all locks of a ring, by owners and counts.
fn everything(server: &Server, count: usize) -> String {
    let mut text = String::new();
    for key in (0..count).map(key) {
        let family = match server.ask(&format!("TYPE {key}")).text().as_str() {
            "dlock-mtx" => "DLOCK",
            "dlock-fif" => "DFAIR",
            _ => "DRW",
        };
        let info = server.ask(&format!("{family}.INFO {key}"));
        if family == "DRW" {
            let of = |hold: &Value| {
                format!("{} {}", hold.field("owner").text(), hold.field("holds").int())
            };
            let readers: Vec<String> = info.field("readers").items().iter().map(of).collect();
            let _ = write!(text, "{key} {} {readers:?}", info.field("mode").text());
        } else {
            let _ =
                write!(text, "{key} {} {}", info.field("owner").text(), info.field("holds").int());
        }
        for row in server.ask(&format!("{family}.WAITERS {key}")).items() {
            let _ =
                write!(text, " < {} {}", row.field("owner").text(), row.field("client-id").int());
        }
        text += "\n";
    }
    text
}

/// Every pair of forms of holding, as a ring of two.
#[test]
fn every_pair_of_kinds_closes_a_cycle() {
    let server = Server::start();
    let mut dice = Dice::new(3);
    for one in Hold::ALL {
        for other in Hold::ALL {
            // Queue entries alone form a ring, too: each owner waits and holds nothing.
            let mut ring = Ring::set(&server, &mut dice, vec![one, other]);
            println!("{ring:?}");
            ring.close(&server);
            ring.unwind(&server);
        }
    }
}

/// Every form of holding with every form of waiting for it, closed by the waiter.
#[test]
fn every_way_to_wait_closes_a_cycle() {
    let server = Server::start();
    let mut dice = Dice::new(4);
    for hold in Hold::ALL {
        for &last in hold.waits() {
            let mut ring = Ring::set(&server, &mut dice, vec![hold, Hold::Lock, Hold::Fair]);
            ring.waits[2] = last;
            ring.close(&server);
            ring.unwind(&server);
        }
    }
}

fn rings(seeds: std::ops::Range<u64>) {
    let server = Server::start();
    for seed in seeds {
        let mut dice = Dice::new(seed + 1);
        for count in 2..=20 {
            let holds: Vec<Hold> = (0..count).map(|_| one(&mut dice, &Hold::ALL)).collect();
            let mut ring = Ring::set(&server, &mut dice, holds);
            println!("seed {seed}, {count} owners: {ring:?}");
            ring.close(&server);
            ring.unwind(&server);
        }
    }
}

#[test]
fn every_ring_of_two_to_twenty_is_closed_by_the_last_call() {
    rings(0..3);
}

#[test]
#[ignore = "soak"]
fn soak_rings_of_all_kinds() {
    rings(100..250);
}

/// A MACQUIRE waits for all of its keys: the cycle may go through any of them, and through any key of the other
/// owners.
#[test]
fn a_cycle_through_any_key_of_several_is_found() {
    let server = Server::start();
    for (a, b) in [("1 x", "1 y"), ("3 x f1 f2", "3 f3 y f4"), ("3 f1 f2 x", "2 f3 y")] {
        server.ask("DLOCK.MACQUIRE 2 y and-y a").items();
        server.ask("DLOCK.ACQUIRE x b").int();
        let mut first =
            server.block(&format!("DLOCK.MACQUIRE {a} a BLOCK 0").split(' ').collect::<Vec<_>>());
        let error = server.ask(&format!("DLOCK.MACQUIRE {b} b BLOCK 0")).error();
        let cycle = r#""b" waits for "y", "a" waits for "x""#;
        assert_eq!(error, format!("DEADLOCK this call would wait forever: {cycle}"));
        first.assert_no_reply();
        for key in ["f3", "f4", "y"] {
            assert!(server.cmd(&["DLOCK.POSITION", key, "b"]).is_null(), "{key}");
        }
        server.ask("DLOCK.RELEASE x b").int();
        first.expect_reply(crate::support::SOON).items();
        server.cmd(&["FLUSHALL"]).ok();
        server.left_over_check();
    }
}

/// A blocked MACQUIRE that holds nothing keeps a free lock closed: the holder of its other key must not wait for that
/// lock.
#[test]
fn the_places_of_one_call_are_in_the_way_too() {
    let server = Server::start();
    server.ask("DLOCK.ACQUIRE busy a").int();
    let mut m = server.wait("DLOCK.MACQUIRE 3 f1 busy f2 m BLOCK 0");
    for call in [
        "DLOCK.ACQUIRE f1 a BLOCK 0",
        "DLOCK.ACQUIRE f2 a QUEUE 60000",
        "DLOCK.MACQUIRE 2 other f2 a BLOCK 0",
    ] {
        let error = server.ask(call).error();
        assert!(error.starts_with("DEADLOCK "), "{call}: {error}");
        assert!(error.contains(r#""m" waits for "busy""#), "{call}: {error}");
    }
    m.assert_no_reply();
    // An owner that holds nothing may wait.
    let mut x = server.wait("DLOCK.MACQUIRE 2 other f2 x BLOCK 0");
    server.ask("DLOCK.RELEASE busy a").int();
    m.expect_reply(crate::support::SOON).items();
    x.assert_no_reply();
    server.ask("DLOCK.MRELEASE 3 f1 f2 busy m").int();
    x.expect_reply(crate::support::SOON).items();
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// The search of a call has a thousand steps. In this crowd that of all waits finds a cycle anywhere in the queue.
#[test]
fn a_cycle_in_a_crowd_is_found() {
    const CROWD: usize = 500;
    let server = Server::start();
    let mut client = server.client();
    let call = |call: String| call.split(' ').map(str::to_owned).collect::<Vec<_>>();
    server.ask("DLOCK.ACQUIRE k h").int();
    let crowd: Vec<_> = (0..CROWD)
        .flat_map(|n| {
            [
                call(format!("DLOCK.ACQUIRE other{n} h{n}")),
                call(format!("DLOCK.ACQUIRE other{n} o{n} QUEUE 600000")),
                call(format!("DLOCK.ACQUIRE k o{n} QUEUE 600000")),
            ]
        })
        .collect();
    client.pipeline(&crowd);
    for n in [0, CROWD / 2, CROWD - 1] {
        let mine = format!("mine{n}");
        server.ask(&format!("DLOCK.ACQUIRE {mine} c")).int();
        assert!(client.cmd(&call(format!("DLOCK.ACQUIRE {mine} o{n} QUEUE 600000"))).is_null());
        let error =
            server.wait("DLOCK.ACQUIRE k c BLOCK 0").expect_reply(crate::support::SOON).error();
        let cycle = r#""c" waits for "k", through 1 key that this answer may not name"#;
        assert_eq!(error, format!("DEADLOCK this call would wait forever: {cycle}"));
        server.ask(&format!("DLOCK.CANCEL {mine} o{n}")).int();
    }
    // Without one it may wait.
    assert!(server.ask("DLOCK.ACQUIRE k c QUEUE 600000").is_null());
    let cancels: Vec<_> = (0..CROWD)
        .flat_map(|n| {
            ["k", &format!("other{n}")].map(|key| call(format!("DLOCK.CANCEL {key} o{n}")))
        })
        .chain([call("DLOCK.CANCEL k c".to_owned())])
        .collect();
    client.pipeline(&cancels);
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}
