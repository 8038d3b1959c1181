//! Clusters on servers that keep the keys of each slot apart. Redis 7.4 and later and Valkey 8 and later look every
//! key up in the slot of the running command. A command that finishes work for a key of another slot then misses the
//! key: the lock looks free, a second owner gets it, and its key is written a second time. One node that has all slots
//! is enough to see it.

mod cycles;
mod put_off;
mod rows;
mod scenes;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Mutex,
    thread,
    time::Duration,
};

use crate::support::{Binary, Client, Reply, Server, each};

/// The servers of tests of what servers do in different ways; `None` is the default one, alone if `$DLOCK_SERVER`
/// chooses it. Redis 7.0 has no difference here, and must do the same.
pub fn servers() -> &'static [Option<&'static str>] {
    match std::env::var_os("DLOCK_SERVER") {
        Some(path) if !path.is_empty() => &[None],
        _ => &[None, Some("redis-8.2"), Some("valkey-9.1")],
    }
}

/// A cluster of one node. A DFAIR place without QUEUE does not outlive its connection here, so that one table fits all
/// families.
fn node(name: Option<&str>) -> Server {
    let binary = name.map_or_else(Binary::default, Binary::named);
    Server::with(&["dlock.fair-grace-ms", "0"]).binary(&binary).cluster().start()
}

/// The arguments of a call.
fn words(call: &str) -> Vec<String> {
    call.split(' ').map(str::to_owned).collect()
}

/// Makes one call on the harness' own connection; it must not be refused.
#[track_caller]
fn ask(server: &Server, call: &str) -> redis::Value {
    server.cmd(&words(call)).ok()
}

/// Sends all of these calls in one write, so that the server executes them in one turn of its loop; returns their
/// replies.
#[track_caller]
fn in_one_write(client: &mut Client, calls: &[String]) -> Vec<redis::Value> {
    client.pipeline(&calls.iter().map(|call| words(call)).collect::<Vec<_>>())
}

/// Runs `acts` in one turn of the server's loop, in order, at least `ms` milliseconds after the last turn.
#[track_caller]
fn in_one_turn(server: &Server, ms: u64, acts: impl FnOnce()) {
    server.freeze();
    thread::sleep(Duration::from_millis(ms));
    acts();
    server.thaw();
}

/// The names of all keys. Fails the test if a key exists twice, or is listed and not found.
#[track_caller]
fn keys(server: &Server) -> Vec<String> {
    let mut names: Vec<String> = ask(server, "KEYS *").items().iter().map(Reply::text).collect();
    names.sort_unstable();
    let mut once = names.clone();
    once.dedup();
    assert_eq!(names, once, "a key is there twice");
    for name in &names {
        assert_eq!(server.cmd(&["EXISTS", name]).int(), 1, "{name} is listed and not found");
    }
    names
}

/// DEBUG RELOAD changes nothing: it aborts a server on which a key exists twice.
#[track_caller]
fn assert_reload_changes_nothing(server: &Server) {
    let before = (keys(server), server.digest());
    ask(server, "DEBUG RELOAD");
    assert_eq!((keys(server), server.digest()), before, "after DEBUG RELOAD");
}

/// Runs every part on every server, even after a failure, and fails with the list of failed parts.
fn on_all<P: Sync>(
    parts: &[P],
    name: impl Fn(&P) -> String + Sync,
    play: impl Fn(&Server, &P) + Sync,
) {
    let failed = Mutex::new(Vec::new());
    each(servers(), |&version| {
        let mut server = Some(node(version));
        for part in parts {
            let running = server.take().unwrap_or_else(|| node(version));
            let Err(panic) = catch_unwind(AssertUnwindSafe(|| {
                play(&running, part);
                server = Some(running);
            })) else {
                continue;
            };
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref().copied()).unwrap_or_default();
            let text = text.lines().next().unwrap_or_default();
            let failure = format!("{}, {}: {text}", version.unwrap_or("default"), name(part));
            failed.lock().expect("the failures").push(failure);
        }
    });
    let failed = failed.into_inner().expect("the failures");
    assert!(failed.is_empty(), "failed:\n{}", failed.join("\n"));
}
