//! The key types of all families: their names, and calls of one family on a key of another.

use std::collections::BTreeMap;

use dlock_wire::table::{Access, COMMANDS, Command, Group};

use crate::{
    bad_input::WRONG_TYPE,
    commands::shortest,
    support::{Reply, SOON, Server, wait_until, words},
};

/// Each family's chapter, its key type, and a call that makes such a key.
const FAMILIES: [(Group, &str, &str); 5] = [
    (Group::Lock, "dlock-mtx", "DLOCK.ACQUIRE key a"),
    (Group::Fair, "dlock-fif", "DFAIR.ACQUIRE key a"),
    (Group::Rw, "dlock-rwl", "DRW.ACQUIRE key a WRITE"),
    (Group::Semaphore, "dlock-sem", "DSEM.INIT key 1"),
    (Group::Latch, "dlock-cdl", "DLATCH.INIT key 1"),
];

/// Whether the command works on keys of this family.
fn is_for(command: &Command, family: Group) -> bool {
    command.group == family || (command.group == Group::Multi && family == Group::Lock)
}

/// The command in its shortest form and, if it can wait, in every waiting form.
fn calls(command: &Command) -> Vec<Vec<String>> {
    let plain = shortest(command, "key");
    let mut calls = vec![plain.clone()];
    let takes = |option: &str| command.args.iter().any(|arg| arg.token == Some(option));
    for option in ["BLOCK", "QUEUE"] {
        if takes(option) {
            calls.push([&plain[..], &[option.to_owned(), "60000".to_owned()]].concat());
        }
    }
    calls
}

#[test]
fn each_family_has_a_key_type_of_its_own() {
    let server = Server::start();
    for (_, name, make) in FAMILIES {
        server.cmd(&["SET", "text", "x"]).ok();
        server.ask(make).ok();
        assert_eq!(server.cmd(&["TYPE", "key"]).text(), name);
        for (_, other, _) in FAMILIES {
            let found = server.cmd(&["SCAN", "0", "COUNT", "100", "TYPE", other]).items()[1].show();
            assert_eq!(found, if other == name { "[\"key\"]" } else { "[]" }, "{name}");
        }
        assert_eq!(server.cmd(&["OBJECT", "ENCODING", "key"]).text(), "raw");
        let size = server.cmd(&["MEMORY", "USAGE", "key"]).int();
        assert!((1..600).contains(&size), "{name}: {size} bytes");
        // A lease is not the time to live of the key: that would depend on the wall clock.
        assert_eq!(server.cmd(&["PTTL", "key"]).int(), -1);
        let refusal = server.cmd(&["COPY", "key", "copy"]).error();
        assert!(refusal.contains("not supported for this module key"), "{refusal}");
        assert_eq!(server.cmd(&["DEL", "key", "text"]).int(), 2);
        server.left_over_check();
    }
}

#[test]
fn the_size_of_a_key_is_that_of_its_value() {
    let server = Server::start();
    let mut client = server.client();
    let long = "x".repeat(256);
    for (make, more) in [
        ("DRW.ACQUIRE key a READ", "DRW.ACQUIRE key"),
        ("DSEM.ACQUIRE key a LIMIT 1000", "DSEM.ACQUIRE key"),
    ] {
        client.cmd(&words(make)).ok();
        let one = client.cmd(&["MEMORY", "USAGE", "key"]).int();
        for n in 0..99 {
            let owner = format!("{long}{n}");
            let mut call: Vec<&str> = words(more);
            call.push(&owner[owner.len() - 256..]);
            call.extend(make.starts_with("DRW").then_some("READ"));
            client.cmd(&call).ok();
        }
        let hundred = client.cmd(&["MEMORY", "USAGE", "key"]).int();
        assert!(hundred > one + 99 * 256, "{make}: {one}, {hundred}");
        assert!(hundred < one + 99 * 1_024, "{make}: {one}, {hundred}");
        client.cmd(&["DEL", "key"]).ok();
    }
    server.left_over_check();
}

#[test]
fn a_grant_to_somebody_takes_the_time_to_live_off_the_key() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    let mut id = String::new();
    for (call, stays) in [
        ("DRW.ACQUIRE k a READ", false),
        ("DRW.ACQUIRE k a READ", true),
        ("DRW.RENEW k a READ", true),
        ("DRW.ACQUIRE k b READ", false),
        ("DRW.RELEASE k b READ", true),
        ("DRW.ACQUIRE k a WRITE", false),
        ("DRW.RELEASE k a WRITE", true),
        ("DEL k", false),
        ("DSEM.INIT k 5", false),
        ("DSEM.ACQUIRE k a", false),
        ("DSEM.RENEW k $id", true),
        ("DSEM.RESIZE k 6", true),
        ("DSEM.RELEASE k $id", true),
        ("DSEM.TAKE k", false),
        ("DSEM.GIVE k", true),
        ("DEL k", false),
        ("DLATCH.INIT k 5", false),
        ("DLATCH.COUNTDOWN k", true),
        ("DEL k", false),
    ] {
        primary.cmd(&["EXPIRE", "k", "1000"]).ok();
        let reply = primary.cmd(&words(&call.replace("$id", &id))).ok();
        if let redis::Value::BulkString(_) = &reply {
            id = reply.text();
        }
        primary.wait_replica_synced(&replica);
        for server in [&primary, &replica] {
            assert_eq!(server.cmd(&["TTL", "k"]).int() > 0, stays, "{call}");
        }
        assert_eq!(replica.digest(), primary.digest(), "{call}");
    }
    primary.left_over_check();
}

#[test]
fn timed_ends_are_changes_of_the_key() {
    let server = Server::start();
    for (make, waits) in [
        ("DRW.ACQUIRE k a WRITE PX 1500", Some("DRW.ACQUIRE k b READ BLOCK 0")),
        ("DSEM.ACQUIRE k a LIMIT 1 PX 1500", Some("DSEM.ACQUIRE k b LIMIT 1 BLOCK 0")),
        ("DLATCH.INIT k 1 PX 1500", None),
    ] {
        let mut watcher = server.client();
        server.ask(make).ok();
        watcher.cmd(&["WATCH", "k"]).ok();
        if let Some(waits) = waits {
            server.post(&words(waits)).expect_reply(SOON).ok();
        }
        wait_until("the end", || waits.is_some() || server.cmd(&["EXISTS", "k"]).int() == 0);
        watcher.cmd(&["MULTI"]).ok();
        watcher.cmd(&["PING"]).ok();
        assert!(watcher.cmd(&["EXEC"]).is_null(), "{make}");
        server.cmd(&["DEL", "k"]).ok();
    }
    server.left_over_check();
}

#[test]
fn the_digest_of_a_key_sees_all_that_lasts_and_no_time() {
    let server = Server::start();
    let mut client = server.client();
    let mut digest = |key: &str| client.cmd(&["DEBUG", "DIGEST-VALUE", key]).items()[0].text();
    let mut id = String::new();
    let mut last: BTreeMap<&str, String> = BTreeMap::new();
    for (key, call, changes) in [
        ("k", "DRW.ACQUIRE k a READ", true),
        ("k", "DRW.RENEW k a READ", false),
        ("k", "DRW.ACQUIRE k a READ", true),
        ("k", "DRW.ACQUIRE k a READ REQID r", true),
        ("k", "DRW.ACQUIRE k a READ REQID r", false),
        ("k", "DRW.RELEASE k a READ", true),
        ("k", "DRW.ACQUIRE k a WRITE", true),
        ("k", "DRW.RELEASE k a WRITE", true),
        ("k", "DRW.ACQUIRE k b READ", true),
        // Volatile queues do not affect other families.
        ("k", "DRW.ACQUIRE k c WRITE QUEUE 60000", false),
        ("k", "DRW.RELEASE k c WRITE", false),
        ("k", "DRW.BREAK k a", true),
        ("s", "DSEM.INIT s 5", true),
        ("s", "DSEM.INIT s 5", false),
        ("s", "DSEM.RESIZE s 6", true),
        ("s", "DSEM.TAKE s", true),
        ("s", "DSEM.GIVE s", true),
        ("s", "DSEM.ACQUIRE s a", true),
        ("s", "DSEM.RENEW s $id", false),
        ("s", "DSEM.ACQUIRE s a COUNT 2", true),
        ("s", "DSEM.ACQUIRE s b COUNT 6 QUEUE 60000", false),
        ("s", "DSEM.RELEASE s b ALL", false),
        ("s", "DSEM.RELEASE s $id", true),
        ("l", "DLATCH.INIT l 5", true),
        ("l", "DLATCH.INIT l 5", false),
        ("l", "DLATCH.COUNTDOWN l", true),
        ("l", "DLATCH.COUNTDOWN l REQID r", true),
        ("l", "DLATCH.COUNTDOWN l REQID r", false),
        ("l", "DLATCH.AWAIT l", false),
    ] {
        let reply = server.cmd(&words(&call.replace("$id", &id))).ok();
        if let redis::Value::BulkString(_) = &reply {
            id = reply.text();
        }
        let now = digest(key);
        let before = last.insert(key, now.clone());
        assert_eq!(before.is_none_or(|before| before != now), changes, "{call}");
    }
    server.cmd(&["DEL", "k", "s", "l"]).ok();
    server.left_over_check();
}

#[test]
fn every_call_on_a_key_of_another_type_is_refused() {
    let server = Server::start();
    let others: [(&str, &str); 2] = [("string", "SET key x"), ("list", "RPUSH key x")];
    let keys = FAMILIES
        .iter()
        .map(|&(group, name, make)| (Some(group), name, make))
        .chain(others.map(|(name, make)| (None, name, make)));
    let mut tried: BTreeMap<&str, usize> = BTreeMap::new();
    for (group, name, make) in keys {
        server.ask(make).ok();
        let state = || (server.digest(), server.info_number("dlock", "waiters_queued"));
        let before = state();
        let foreign = COMMANDS.iter().filter(|command| {
            !matches!(command.group, Group::Admin | Group::Internal)
                && !group.is_some_and(|group| is_for(command, group))
        });
        for command in foreign {
            for call in calls(command) {
                // On a separate connection: a waiting call must not block the test.
                let mut client = server.client();
                client.send(&call);
                let error = client.reply(SOON).error();
                assert!(error.starts_with(WRONG_TYPE), "{call:?} on {name}: {error}");
                *tried.entry(name).or_default() += 1;
            }
        }
        assert_eq!(state(), before, "{name}");
        server.cmd(&["DEL", "key"]).ok();
    }
    assert!(tried.len() == 7 && tried.values().all(|&calls| calls > 35), "{tried:?}");
    server.left_over_check();
}

/// A semaphore can have waiters before it exists: other families cannot take its name meanwhile.
#[test]
fn a_key_that_is_waited_for_has_the_type_that_is_waited_for() {
    let server = Server::start();
    let waiter = server.block(&["DSEM.ACQUIRE", "key", "a", "BLOCK", "0"]);
    for command in COMMANDS.iter().filter(|command| {
        !matches!(command.group, Group::Admin | Group::Internal | Group::Semaphore)
            && command.access == Access::Write
    }) {
        let reply = server.cmd(&shortest(command, "key"));
        let family = command.name.split('.').next().expect("a family");
        let text = format!("{WRONG_TYPE}: \"key\" belongs to DSEM, the command to {family}");
        assert_eq!(reply.error(), text, "{}", command.name);
    }
    assert_eq!(server.keys(), 0);
    waiter.hang_up();
    server.left_over_check();
}
