//! Several locks in one call: all of them, or any one.

mod any;
mod cluster;
mod durability;
mod errors;
mod grant;
mod refused;
mod storm;
mod stream;
mod undelivered;
mod wait;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
};

use redis::Value;

use crate::{
    args,
    support::{Dice, LIMIT, Reply, Server, words},
};

/// Makes a call over a separate connection and reads `count` lines. The harness would parse all elements of a large
/// reply again with each received piece.
fn lines(server: &Server, call: &[Vec<u8>], count: usize) -> Vec<String> {
    let mut bytes = format!("*{}\r\n", call.len()).into_bytes();
    for word in call {
        bytes.extend(format!("${}\r\n", word.len()).into_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    let mut stream = UnixStream::connect(server.dir().join("s")).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket option");
    stream.write_all(&bytes).expect("the server takes a command");
    let lines = BufReader::new(stream).lines().take(count);
    lines.map(|line| line.expect("a line of the reply")).collect()
}

/// The tokens in a reply to MACQUIRE, which must be a grant.
#[track_caller]
fn tokens(reply: &Value) -> Vec<i64> {
    reply.items().iter().map(Reply::int).collect()
}

/// The key and the token in a reply to ANYACQUIRE, which must be a grant.
#[track_caller]
fn one_of(reply: &Value) -> (String, i64) {
    let items = reply.items();
    assert_eq!(items.len(), 2, "{}", reply.show());
    (items[0].text(), items[1].int())
}

/// Holders (with their counts, if above one) and waiters of these locks: `k1:a*2<b<c k2:-<b k3:-`.
#[track_caller]
fn picture(server: &Server, keys: &str) -> String {
    let mut shown = Vec::new();
    for key in words(keys) {
        let info = server.cmd(&["DLOCK.INFO", key]);
        let holder = if info.is_null() { String::new() } else { info.field("owner").text() };
        let holds = if holder.is_empty() { 0 } else { info.field("holds").int() };
        let mut one = match holds {
            0 => format!("{key}:-"),
            1 => format!("{key}:{holder}"),
            _ => format!("{key}:{holder}*{holds}"),
        };
        for row in server.cmd(&["DLOCK.WAITERS", key]).items() {
            one += "<";
            one += &row.field("owner").text();
        }
        shown.push(one);
    }
    shown.join(" ")
}

/// Ends all holds, and fails the test if anything else is left.
#[track_caller]
fn clear(server: &Server) {
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// An owner whose name contains its requested locks.
fn owner_of(name: &str, locks: &[u64]) -> String {
    let locks: Vec<String> = locks.iter().map(u64::to_string).collect();
    format!("{name}:{}", locks.join(","))
}

/// The requested locks of such an owner; none if it accepts any lock.
fn locks_of(owner: &str) -> Vec<u64> {
    let (_, locks) = owner.split_once(':').unwrap_or_default();
    locks.split(',').filter_map(|lock| lock.parse().ok()).collect()
}

/// Some of `0..of`, at least `least` and at most `most`, in random order.
fn some_of(dice: &mut Dice, of: u64, least: u64, most: u64) -> Vec<u64> {
    let mut all: Vec<u64> = (0..of).collect();
    let count = least + dice.below(most - least + 1);
    let pick = |_| all.swap_remove(usize::try_from(dice.below(all.len() as u64)).unwrap());
    (0..count).map(pick).collect()
}

/// `name numkeys key … owner`, with the locks in the owner's name.
fn call_for(name: &str, owner: &str) -> Vec<Vec<u8>> {
    let locks = locks_of(owner);
    let mut call = args![name, locks.len()];
    call.extend(locks.iter().map(|lock| format!("k{lock}").into_bytes()));
    call.extend(args![owner]);
    call
}

/// Reads all locks in one step: the owner of each of `k0`, `k1`, …, empty if it is free.
const OWNERS: &str = "
    local owners = {}
    for lock = 1, ARGV[1] do
        local info = redis.call('DLOCK.INFO', 'k' .. (lock - 1))
        owners[lock] = info and info[4] or ''
    end
    return owners";

/// The owners of `count` locks at one moment. Fails the test if an owner has only some of its requested locks.
#[track_caller]
fn owners_at_once(server: &Server, locks: u64) -> Vec<String> {
    let reply = server.cmd(&args!["EVAL", OWNERS, 0, locks]);
    let owners: Vec<String> = reply.items().iter().map(Reply::text).collect();
    for owner in owners.iter().filter(|owner| !owner.is_empty()) {
        for lock in locks_of(owner) {
            let other = &owners[usize::try_from(lock).unwrap()];
            assert_eq!(other, owner, "k{lock}: a part of what it asked for: {owners:?}");
        }
    }
    owners
}
