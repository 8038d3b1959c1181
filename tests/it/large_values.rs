//! Values with very many parts: the server's commands on their keys work as on small ones.

use crate::{
    args,
    records::stored,
    support::{Client, Family, Reply, Server, wait_until},
};

/// More than the tick tells in one piece of work, and more than BREAK ends one by one.
const MANY: i64 = 300;

fn start() -> Server {
    // DUMP is parsed here.
    Family::Lock.with(&["rdbcompression", "no"]).start()
}

/// A semaphore with [`MANY`] permits of one connection, each bound to it and with a request id.
fn with_permits(server: &Server, name: &str, round: usize) -> (Client, Vec<String>) {
    let mut client = server.client();
    assert_eq!(client.cmd(&["DSEM.INIT", name, "1000"]).int(), 1);
    let ids = (0..MANY).map(|n| {
        let (owner, id) = (format!("o{n}"), format!("{round} {n}"));
        let call = args![
            "DSEM.ACQUIRE",
            name,
            owner,
            "PX",
            600_000,
            "NOTIFY",
            "mine",
            "BIND",
            0,
            "REQID",
            id
        ];
        client.cmd(&call).text()
    });
    let ids = ids.collect();
    (client, ids)
}

fn is_spent(client: &mut Client, name: &str, (round, n): (usize, i64)) -> bool {
    let (owner, id) = (format!("o{n}"), format!("{round} {n}"));
    let answer = client.cmd(&args!["DSEM.ACQUIRE", name, owner, "LIMIT", 5, "REQID", id]);
    answer.error().starts_with("SPENT ")
}

#[test]
fn all_permits_of_a_removed_semaphore_end_whatever_removes_it() {
    let server = start();
    let removals: [&[&str]; 7] = [
        &["DEL", "s"],
        &["UNLINK", "s"],
        &["EXPIREAT", "s", "1"],
        &["EVAL", "return redis.call('DEL', KEYS[1])", "1", "s"],
        &["SET", "s", "x"],
        &["RENAME", "other", "s"],
        &["MULTI"],
    ];
    for (round, removal) in removals.into_iter().enumerate() {
        println!("{removal:?}");
        server.cmd(&["SET", "other", "x"]).ok();
        let (mut client, _) = with_permits(&server, "s", round);
        let mut listener = server.psubscribe(&["mine"]);
        if removal == ["MULTI"] {
            let mut other = server.client();
            other.cmd(&["MULTI"]).ok();
            other.cmd(&["UNLINK", "s", "other"]).ok();
            other.cmd(&["SET", "s", "x"]).ok();
            other.cmd(&["DEL", "s"]).ok();
            other.cmd(&["EXEC"]).ok();
        } else {
            server.cmd(removal).ok();
        }
        server.cmd(&["DEL", "s"]).ok();
        // Before all of them are told.
        for n in [MANY - 1, 0, MANY / 2] {
            assert!(is_spent(&mut client, "s", (round, n)), "request {n}");
        }
        let mut told: Vec<String> = (0..MANY).map(|_| listener.next_text()).collect();
        told.sort();
        told.dedup();
        assert_eq!(i64::try_from(told.len()), Ok(MANY));
        assert!(told.iter().all(|text| text.starts_with("deleted 0 ")), "{told:?}");
        assert!((0..MANY).all(|n| is_spent(&mut client, "s", (round, n))));
        drop(client);
        server.cmd(&["DEL", "s", "other"]).ok();
        server.left_over_check();
    }
}

/// The commands of one EXEC run without a tick between them.
#[test]
fn the_waiters_of_keys_removed_by_one_call_are_not_all_served_by_the_next_command() {
    const KEYS: i64 = 1_000;
    let server = start();
    let (mut holder, mut waiter) = (server.client(), server.client());
    let keys: Vec<String> = (0..KEYS).map(|n| format!("k{n}")).collect();
    for key in &keys {
        holder.cmd(&["DLOCK.ACQUIRE", key, "a"]).int();
        assert!(waiter.cmd(&["DLOCK.ACQUIRE", key, "b", "QUEUE", "60000"]).is_null());
    }
    let remove: Vec<&str> = std::iter::once("UNLINK").chain(keys.iter().map(|k| &k[..])).collect();
    holder.cmd(&["MULTI"]).ok();
    holder.cmd(&remove).ok();
    // This command processes the removals first.
    holder.cmd(&["DLOCK.ACQUIRE", "other", "a"]).ok();
    holder.cmd(&["INFO", "dlock"]).ok();
    let info = holder.cmd(&["EXEC"]).items()[2].text();
    let granted = info.lines().find_map(|line| line.strip_prefix("dlock_grants_after_waiting:"));
    let granted: i64 = granted.expect("INFO has this field").trim().parse().expect("a number");
    assert!((1..200).contains(&granted), "one command served {granted} waiters");
    wait_until("all waiters to be served", || {
        server.info_number("dlock", "grants_after_waiting") == KEYS
    });
    holder.cmd(&remove).ok();
    holder.cmd(&["DEL", "other"]).ok();
    server.left_over_check();
}

#[test]
fn a_semaphore_that_moves_takes_all_of_its_permits_along() {
    let server = start();
    let (client, ids) = with_permits(&server, "s", 0);
    server.cmd(&["RENAME", "s", "t"]).ok();
    assert_eq!(server.cmd(&["MOVE", "t", "1"]).int(), 1);
    let mut other = server.client();
    other.cmd(&["SELECT", "1"]).ok();
    assert_eq!(other.cmd(&args!["DSEM.RELEASE", "t", ids[7]]).int(), 1_000 - MANY + 1);
    // The others are still bound to their connection.
    drop(client);
    wait_until("all permits to end", || other.cmd(&["DSEM.INFO", "t"]).field("leased").int() == 0);
    other.cmd(&["DEL", "t"]).ok();
    server.left_over_check();
}

#[test]
fn a_replica_follows_when_large_values_are_removed_and_moved() {
    let server = start();
    let replica = Family::Lock.with(&["rdbcompression", "no"]).replica_of(&server).start();
    let (client, _) = with_permits(&server, "s", 0);
    let mut waiter = server.client();
    waiter.cmd(&["DFAIR.ACQUIRE", "f", "holder", "PX", "600000"]).int();
    for n in 0..MANY {
        let call = args!["DFAIR.ACQUIRE", "f", format!("w{n}"), "QUEUE", 600_000];
        assert!(waiter.cmd(&call).is_null());
    }
    server.cmd(&["DEL", "s"]).ok();
    server.cmd(&["RENAME", "f", "g"]).ok();
    assert_eq!(waiter.cmd(&["DFAIR.POSITION", "f", "w0"]).int(), 0);
    let last = format!("w{}", MANY - 1);
    assert_eq!(waiter.cmd(&args!["DFAIR.POSITION", "f", last]).int(), MANY - 1);
    wait_until("all places to be told to the new value, and the replica to follow", || {
        server.wait_replica_synced(&replica);
        server.digest() == replica.digest()
            && places(&server, "f") == MANY - 1
            && places(&server, "g") == 0
    });
    assert_eq!(replica.cmd(&["EXISTS", "s"]).int(), 0);
    assert_eq!(places(&replica, "f"), MANY - 1);
    drop((client, waiter));
}

/// Number of waiters in a value.
fn places(server: &Server, key: &str) -> i64 {
    let lock = stored(&mut server.client(), key.as_bytes()).expect("a lock");
    i64::try_from(lock.waiters()).expect("a small number")
}

#[test]
fn a_latch_with_very_many_requests_opens() {
    let server = start();
    let mut client = server.client();
    assert_eq!(client.cmd(&args!["DLATCH.INIT", "l", MANY]).int(), 1);
    for n in 1..=MANY {
        let left = client.cmd(&args!["DLATCH.COUNTDOWN", "l", "1", "REQID", n.to_string()]).int();
        assert_eq!(left, MANY - n);
    }
    assert_eq!(client.cmd(&["EXISTS", "l"]).int(), 0);
    server.left_over_check();
}

/// Owners in a queue that is restored.
const QUEUED: usize = 3_000;

#[test]
fn a_restored_queue_is_whole_for_the_next_commands() {
    let server = start();
    let mut client = server.client();
    let ask = |key: &str, owner: &str| {
        args!["DFAIR.ACQUIRE", key, owner, "PX", 600_000, "QUEUE", 600_000]
    };
    let owners: Vec<String> = (0..QUEUED).map(|n| format!("o{n}")).collect();
    let calls: Vec<_> = owners.iter().map(|owner| ask("f", owner)).collect();
    client.cmd(&args!["DFAIR.ACQUIRE", "f", "holder", "PX", 600_000]).int();
    client.pipeline(&calls);
    let dump = server.cmd(&["DUMP", "f"]).bytes();
    assert_eq!(server.cmd(&["DEL", "f"]).int(), 1);
    let last = &owners[QUEUED - 1];
    let replies = client.pipeline(&[
        args!["RESTORE", "f", 0, &dump],
        ask("f", last),
        args!["DFAIR.POSITION", "f", last],
        ask("f", "new"),
        args!["DFAIR.POSITION", "f", "new"],
        args!["DFAIR.POSITION", "f", owners[QUEUED / 2]],
        args!["DUMP", "f"],
        args!["RENAME", "f", "g"],
        args!["DFAIR.POSITION", "f", last],
    ]);
    let position = |at: usize| usize::try_from(replies[at].int()).unwrap();
    assert_eq!([2, 4, 5].map(position), [QUEUED, QUEUED + 1, QUEUED / 2 + 1]);
    // The first owner holds the old name, and the others still wait for that.
    assert_eq!(position(8), QUEUED - 1);
    let mut expected = [&owners[..], &["new".to_owned()]].concat();
    server.cmd(&args!["RESTORE", "again", 0, &replies[6].bytes()]).ok();
    assert_eq!(queued(&server, "again"), expected);
    expected.remove(0);
    assert_eq!(queued(&server, "f"), expected);
    assert_eq!(queued(&server, "g"), [""; 0]);
    for key in ["f", "g", "again"] {
        assert_eq!(server.cmd(&["DEL", key]).int(), 1);
    }
    server.left_over_check();
}

fn queued(server: &Server, key: &str) -> Vec<String> {
    let rows = server.cmd(&["DFAIR.WAITERS", key]).items();
    rows.iter().map(|row| row.field("owner").text()).collect()
}
