//! A lock of slot `{a}` and its waiters, while calls of slot `{b}` run.

use std::time::{Duration, Instant};

use redis::Value;

use super::{
    ask, assert_reload_changes_nothing, in_one_turn, in_one_write, keys, on_all,
    rows::{CALLS, Outcome, ROWS, Row},
    words,
};
use crate::support::{Blocked, Client, Heard, Reply, SOON, Server, wait_until};

/// The lease or wait that will end, in milliseconds: long enough for the setup, unless the machine is busy.
const SHORT: u64 = 150;

/// Number of kinds of calls in slow scenes.
const TIMED: usize = 2;

/// A row in progress: a holder and two waiters.
struct Scene<'a> {
    server: &'a Server,
    row: &'a Row,
    /// Calls of the other slot.
    calls: &'a [&'static str],
    other: Client,
    holder: Client,
    held: String,
    first: Blocked,
    second: Blocked,
}

/// The name of a reply in a later call.
fn named(reply: &Value) -> String {
    match reply {
        Value::BulkString(_) => reply.text(),
        _ => String::new(),
    }
}

#[track_caller]
fn assert_granted(reply: &Value) {
    let is_error = matches!(reply, Value::ServerError(_));
    assert!(!is_error && !reply.is_null(), "not granted: {}", reply.show());
}

impl<'a> Scene<'a> {
    /// A holder, whose call has these options, and two blocked waiters.
    #[track_caller]
    fn set(
        server: &'a Server,
        row: &'a Row,
        calls: &'a [&'static str],
        options: &str,
    ) -> Scene<'a> {
        Scene::set_with(server, row, calls, [options, "BLOCK 0"], || false)
    }

    /// As [`Scene::set`], with a lease or a wait that ends. Takes the options of the holder's call and of the first
    /// waiter's call for a number of milliseconds; returns that number. If the setup takes longer, it starts again
    /// with more time.
    #[track_caller]
    fn set_for(
        server: &'a Server,
        row: &'a Row,
        calls: &'a [&'static str],
        options: impl Fn(u64) -> [String; 2],
    ) -> (Scene<'a>, u64) {
        let mut ms = SHORT;
        loop {
            let [hold, wait] = options(ms);
            let begun = Instant::now();
            let is_late = || begun.elapsed() >= Duration::from_millis(ms);
            let scene = Scene::set_with(server, row, calls, [&hold, &wait], is_late);
            if !is_late() {
                return (scene, ms);
            }
            drop(scene);
            server.cmd(&["FLUSHALL"]).ok();
            server.left_over_check();
            ms *= 4;
        }
    }

    /// As [`Scene::set`], with these options of the holder's call and of the first waiter's; stops if it is too late.
    #[track_caller]
    fn set_with(
        server: &'a Server,
        row: &'a Row,
        calls: &'a [&'static str],
        [options, wait]: [&str; 2],
        is_late: impl Fn() -> bool,
    ) -> Scene<'a> {
        row.prepare.iter().for_each(|call| drop(ask(server, call)));
        let mut holder = server.client();
        let held = holder.cmd(&words(format!("{} {options}", row.hold).trim_end())).ok();
        let block = |call: &str| {
            let waiter = server.post(&words(call));
            wait_until("the call to be blocked", || is_late() || server.is_blocked(waiter.id()));
            waiter
        };
        let first = block(&format!("{} {wait}", row.first));
        let second = block(&format!("{} BLOCK 0", row.second));
        let (other, held) = (server.client(), named(&held));
        Scene { server, row, calls, other, holder, held, first, second }
    }

    /// Sends these calls, and then those of the other slot, in one write.
    #[track_caller]
    fn with_others(&mut self, calls: &[String]) -> Vec<Value> {
        let others = self.calls.iter().map(|&call| call.to_owned());
        let mut calls = calls.to_vec();
        calls.extend(others);
        in_one_write(&mut self.other, &calls)
    }

    /// Sends the calls of the other slot without reading.
    fn send_others(&mut self) {
        self.calls.iter().for_each(|call| self.other.send(&words(call)));
    }

    /// Reads the replies to [`Scene::send_others`].
    #[track_caller]
    fn hear_others(&mut self) {
        self.calls.iter().for_each(|_| drop(self.other.reply(SOON).ok()));
    }

    fn kill(client: u64) -> String {
        format!("CLIENT KILL ID {client}")
    }

    /// The first waiter has left: checks the row's reply to the second. Then all release.
    #[track_caller]
    fn first_has_left(mut self) {
        if self.row.leaves == Outcome::Waits {
            // Twice: work that one turn of the loop leaves to the next is done then.
            self.second.assert_no_reply();
            self.second.assert_no_reply();
            self.assert_held();
            self.release(self.row.release, "");
            self.second_is_granted();
        } else {
            self.second_is_granted();
            self.assert_held();
            self.release(self.row.release, "");
        }
        self.end();
    }

    #[track_caller]
    fn second_is_granted(&mut self) {
        let reply = self.second.expect_reply(SOON);
        assert_granted(&reply);
        keys(self.server);
        self.release(self.row.release_second, &named(&reply));
    }

    /// The hold is gone: the first waiter gets the lock, then the second.
    #[track_caller]
    fn both_are_granted(mut self) {
        let reply = self.first.expect_reply(SOON);
        assert_granted(&reply);
        keys(self.server);
        self.release(self.row.release_first, &named(&reply));
        self.second_is_granted();
        self.end();
    }

    /// The holder still has its hold, and its key exists once.
    #[track_caller]
    fn assert_held(&self) {
        let all = keys(self.server);
        let key = self.row.hold.split(' ').find(|word| word.starts_with("{a}")).expect("a key");
        assert!(all.iter().any(|name| name == key), "{key} is gone: {all:?}");
    }

    #[track_caller]
    fn release(&self, call: &str, reply: &str) {
        if call.is_empty() {
            return;
        }
        let call = call.replace("$1", &self.held).replace("$2", reply).replace("$3", reply);
        ask(self.server, &call).int();
    }

    /// Only keys that the calls have created are left.
    #[track_caller]
    fn end(self) {
        let server = self.server;
        if !self.row.prepare.is_empty() {
            assert_eq!(ask(server, "DEL {a}k").int(), 1);
        }
        ask(server, "DEL {b}k");
        drop(self);
        server.left_over_check();
    }
}

/// Runs a scene for each matching row, with each kind of call of the other slot, on all servers.
fn play(fits: impl Fn(&Row) -> bool, scene: impl Fn(&Server, &Row, &[&'static str]) + Sync) {
    play_with(&CALLS, fits, scene);
}

/// As [`play`], with these calls of the other slot.
fn play_with(
    all_calls: &[&[&'static str]],
    fits: impl Fn(&Row) -> bool,
    scene: impl Fn(&Server, &Row, &[&'static str]) + Sync,
) {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| fits(row)).collect();
    on_all(
        &rows,
        |row| row.name.to_owned(),
        |server, row| {
            for &calls in all_calls {
                println!("{}: {calls:?}", row.name);
                scene(server, row, calls);
            }
            row.prepare.iter().for_each(|call| drop(ask(server, call)));
            ask(server, row.hold);
            ask(server, "DLOCK.ACQUIRE {b}k o9");
            assert_reload_changes_nothing(server);
            ask(server, "DEL {a}k {a}l");
            ask(server, "DEL {b}k");
            server.left_over_check();
        },
    );
}

fn every(_: &Row) -> bool {
    true
}

/// The scene that revealed the bug. The server is busy for a moment, so that both calls arrive in one turn of its
/// loop.
#[test]
fn a_leaving_waiter_never_frees_a_held_lock() {
    const ROUNDS: usize = 300;
    on_all(
        &["DLOCK", "DFAIR"],
        |family| (*family).to_owned(),
        |server, family| {
            let (mut granted, mut busy) = (0, server.client());
            for _ in 0..ROUNDS {
                let acquire = |key: &str, owner: &str| format!("{family}.ACQUIRE {key} {owner}");
                let token = ask(server, &acquire("{a}k", "o1")).int();
                let c2 = server.block(&words(&format!("{} BLOCK 0", acquire("{a}k", "o2"))));
                let mut c3 = server.block(&words(&format!("{} BLOCK 0", acquire("{a}k", "o3"))));
                let mut other = server.client();
                busy.send(&["DEBUG", "SLEEP", "0.001"]);
                let gone = c2.id().to_string();
                c2.hang_up();
                other.cmd(&words(&acquire("{b}k", "o9"))).int();
                busy.reply(SOON).ok();
                // A process that another test is starting inherits the connection until it executes its program.
                wait_until("the connection to be gone", || {
                    server.cmd(&["CLIENT", "LIST", "ID", &gone]).text().is_empty()
                });
                server.cmd(&["PING"]).ok();
                server.cmd(&["PING"]).ok();
                if let Heard::Reply(_) = c3.client().hear(Duration::ZERO) {
                    granted += 1;
                    server.cmd(&["FLUSHALL"]).ok();
                    continue;
                }
                assert_eq!(ask(server, &format!("{family}.CHECK {{a}}k {token}")).int(), 1);
                assert_eq!(keys(server), ["{a}k", "{b}k"]);
                ask(server, &format!("{family}.RELEASE {{a}}k o1")).int();
                c3.expect_reply(SOON).int();
                ask(server, &format!("{family}.RELEASE {{a}}k o3")).int();
                ask(server, &format!("{family}.RELEASE {{b}}k o9")).int();
            }
            assert!(granted == 0, "{granted} of {ROUNDS} locks went to a second owner");
            for key in ["{a}k", "{b}k"] {
                ask(server, &format!("{family}.ACQUIRE {key} o1"));
            }
            assert_reload_changes_nothing(server);
            for key in ["{a}k", "{b}k"] {
                ask(server, &format!("{family}.RELEASE {key} o1"));
            }
            server.left_over_check();
        },
    );
}

#[test]
fn a_waiter_closes_its_connection() {
    play(every, |server, row, calls| {
        let mut scene = Scene::set(server, row, calls, "");
        let first = std::mem::replace(&mut scene.first, server.post(&["PING"]));
        in_one_turn(server, 0, || {
            first.hang_up();
            scene.send_others();
        });
        scene.hear_others();
        scene.first_has_left();
    });
}

#[test]
fn a_waiter_is_killed() {
    play(every, |server, row, calls| {
        let mut scene = Scene::set(server, row, calls, "");
        let kill = Scene::kill(scene.first.id());
        assert_eq!(scene.with_others(&[kill])[0].int(), 1);
        scene.first_has_left();
    });
}

#[test]
fn a_waiter_is_unblocked() {
    play(every, |server, row, calls| {
        for by_server in [false, true] {
            if by_server && !server.kind().client_unblock_is_safe() {
                continue;
            }
            let mut scene = Scene::set(server, row, calls, "");
            let verb = if by_server { "CLIENT UNBLOCK" } else { "DLOCK.UNBLOCK" };
            let unblock = format!("{verb} {}", scene.first.id());
            assert_eq!(scene.with_others(&[unblock])[0].int(), 1);
            assert!(scene.first.expect_reply(SOON).is_null());
            scene.first_has_left();
        }
    });
}

#[test]
fn a_wait_times_out() {
    play_with(&CALLS[..TIMED], every, |server, row, calls| {
        let (mut scene, ms) = Scene::set_for(server, row, calls, |ms| {
            ["", &format!("BLOCK {ms}")].map(str::to_owned)
        });
        in_one_turn(server, ms + 1, || scene.send_others());
        scene.hear_others();
        assert!(scene.first.expect_reply(SOON).is_null());
        scene.first_has_left();
    });
}

#[test]
fn a_grant_cannot_be_delivered() {
    play(every, |server, row, calls| {
        let mut scene = Scene::set(server, row, calls, "");
        let release = row.release.replace("$1", &scene.held);
        let kill = Scene::kill(scene.first.id());
        let replies = scene.with_others(&[release, kill]);
        replies[0].int();
        assert_eq!(replies[1].int(), 1);
        scene.second_is_granted();
        scene.end();
    });
}

#[test]
fn a_connection_with_a_bound_hold_closes() {
    play(
        |row| row.has_lease,
        |server, row, calls| {
            let mut scene = Scene::set(server, row, calls, "BIND 0");
            let holder = std::mem::replace(&mut scene.holder, server.client());
            in_one_turn(server, 0, || {
                drop(holder);
                scene.send_others();
            });
            scene.hear_others();
            scene.both_are_granted();
        },
    );
}

#[test]
fn a_connection_with_a_bound_hold_is_killed() {
    play(
        |row| row.has_lease,
        |server, row, calls| {
            let mut scene = Scene::set(server, row, calls, "BIND 0");
            let kill = Scene::kill(scene.holder.id());
            assert_eq!(scene.with_others(&[kill])[0].int(), 1);
            scene.both_are_granted();
        },
    );
}

#[test]
fn a_lease_ends() {
    play_with(
        &CALLS[..TIMED],
        |row| row.has_lease,
        |server, row, calls| {
            let (mut scene, ms) = Scene::set_for(server, row, calls, |ms| {
                [&format!("PX {ms}"), "BLOCK 0"].map(str::to_owned)
            });
            in_one_turn(server, ms + 1, || scene.send_others());
            scene.hear_others();
            scene.both_are_granted();
        },
    );
}

#[test]
fn the_key_is_removed() {
    play(
        |row| row.removed.is_some(),
        |server, row, calls| {
            for removal in ["DEL {a}k", "UNLINK {a}k", "FLUSHALL", "RENAME {a}k {a}m"] {
                let mut scene = Scene::set(server, row, calls, "");
                scene.with_others(&[removal.to_owned()]).remove(0).ok();
                for waiter in [&mut scene.first, &mut scene.second] {
                    let reply = waiter.expect_reply(SOON).error();
                    let codes = row.removed.unwrap_or_default();
                    let is_right = codes.iter().any(|code| reply.starts_with(code));
                    assert!(is_right, "{removal}: {reply}");
                }
                // No key of that name was granted; the renamed key is unchanged.
                let moved = removal.starts_with("RENAME");
                let left: Vec<String> =
                    keys(server).into_iter().filter(|name| name.starts_with("{a}")).collect();
                assert_eq!(left, if moved { vec!["{a}m"] } else { vec![] }, "{removal}");
                if moved {
                    scene.release(&row.release.replace("{a}k", "{a}m"), "");
                }
                ask(server, "DEL {a}m");
                ask(server, "DEL {b}k");
                drop(scene);
                server.left_over_check();
            }
        },
    );
}

/// Rows with one key that goes when its hold ends.
fn ends_with_its_hold(row: &Row) -> bool {
    row.has_lease && row.removed.is_some() && row.prepare.is_empty()
}

/// The module follows the move: the hold ends under its new name when its connection closes.
#[test]
fn a_bound_hold_is_renamed() {
    play(ends_with_its_hold, |server, row, calls| {
        let mut scene = Scene::set(server, row, calls, "BIND 0");
        scene.with_others(&["RENAME {a}k {a}m".to_owned()]).remove(0).ok();
        assert!(keys(server).contains(&"{a}m".to_owned()));
        scene.holder = server.client();
        wait_until("the renamed hold to end", || server.cmd(&["EXISTS", "{a}m"]).int() == 0);
        ask(server, "DEL {b}k");
        drop(scene);
        server.left_over_check();
    });
}

/// The module knows the loaded keys: their leases end without a command for them.
#[test]
fn a_lease_that_was_loaded_ends() {
    play_with(&CALLS[..TIMED], ends_with_its_hold, |server, row, calls| {
        ask(server, &format!("{} PX {SHORT}", row.hold));
        let mut all = vec!["DEBUG RELOAD".to_owned()];
        all.extend(calls.iter().map(|&call| call.to_owned()));
        in_one_write(&mut server.client(), &all).remove(0).ok();
        wait_until("the loaded lease to end", || server.cmd(&["EXISTS", "{a}k"]).int() == 0);
        ask(server, "DEL {b}k");
        server.left_over_check();
    });
}
