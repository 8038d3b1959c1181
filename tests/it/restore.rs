//! Data from outside is accepted only as far as it can be trusted: tokens of other servers, files of other versions.

use std::{fs, io::Write as _, panic::AssertUnwindSafe, path::PathBuf};

use dlock_core::{
    base::time::{Instant, LeaseInstant},
    record::{self, Clocks, Level},
    value::lock::Lock,
};

use crate::{
    args,
    durability::AOF,
    hostile::Dump,
    records::stored,
    support::{Profile, Reply, Server, Setup, module_path, wait_until},
};

fn uncompressed() -> Setup {
    Server::with(&["rdbcompression", "no"])
}

#[test]
fn a_token_too_far_ahead_is_refused() {
    const SECOND_US: i64 = 1_000_000;
    let source = uncompressed().and(&AOF).start();
    let target = uncompressed().start();
    let now = source.cmd(&["DLOCK.ACQUIRE", "near", "a"]).int();
    let near = now + 50 * SECOND_US;
    source.cmd(&args!["DLOCK.FENCE", "near", "a", near]).ok();
    grant_in_the_aof(&source, "far", now + 3_600 * SECOND_US);
    let restore = |server: &Server, key: &str| {
        let dump = source.cmd(&["DUMP", key]).bytes();
        server.cmd(&args!["RESTORE", format!("{key} of another"), 0, dump])
    };
    // A token up to a minute ahead may come from another server; it is accepted.
    restore(&target, "near").ok();
    assert_eq!(target.cmd(&args!["DLOCK.CHECK", "near of another", near]).int(), 1);
    assert_eq!(target.cmd(&["DLOCK.ACQUIRE", "new", "a"]).int(), near + 1);
    // Beyond that, it would use up tokens, by mistake or on purpose.
    assert_eq!(restore(&target, "far").error(), "ERR Bad data format");
    let migrate = args!["MIGRATE", "127.0.0.1", target.port(), "far", 0, 5_000];
    let refused = source.cmd(&migrate).error();
    assert!(refused.contains("Bad data format"), "{refused}");
    assert_eq!(source.cmd(&["EXISTS", "far"]).int(), 1, "what was refused stays where it was");
    assert_eq!(target.keys(), 2);
    assert_eq!(target.info_number("dlock", "last_token"), near + 1);
    assert!(target.log().contains("its token is too far ahead"), "{}", target.log_tail());
    // A server that has issued such tokens itself accepts them.
    restore(&source, "far").ok();
    target.cmd(&["DLOCK.RELEASE", "near of another", "a"]).ok();
    target.cmd(&["DLOCK.RELEASE", "new", "a"]).ok();
    target.left_over_check();
}

/// RESTORE raises no level: replicas and files of the target may have readers of the present one.
#[test]
fn a_value_above_the_level_of_the_server_is_refused() {
    let module = module_path(Profile::NextLevel);
    let (source, target) =
        (uncompressed().module(module).start(), Server::with(&[]).module(module).start());
    source.cmd(&["CONFIG", "SET", "dlock.record-level", "2"]).ok();
    wait_until("the level", || source.info_number("dlock", "record_level") == 2);
    source.cmd(&["DLOCK.ACQUIRE", "k", "a", "PX", "600000"]).int();
    let dump = source.cmd(&["DUMP", "k"]).bytes();
    let restore = || target.cmd(&args!["RESTORE", "k", 0, &dump]);
    assert_eq!(restore().error(), "ERR Bad data format");
    assert!(
        target.log().contains("its level is above that of this server"),
        "{}",
        target.log_tail()
    );
    assert_eq!((target.keys(), target.info_number("dlock", "record_level")), (0, 1));
    target.cmd(&["CONFIG", "SET", "dlock.record-level", "2"]).ok();
    wait_until("the level", || target.info_number("dlock", "record_level") == 2);
    restore().ok();
    assert_eq!(target.cmd(&["DLOCK.RELEASE", "k", "a"]).int(), 0);
    source.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
    target.left_over_check();
}

/// Lets a server find this issued token in its AOF, which it trusts.
fn grant_in_the_aof(server: &Server, key: &str, token: i64) {
    server.cmd(&["DLOCK.ACQUIRE", key, "a"]).ok();
    let mut lock = stored(&mut server.client(), key.as_bytes()).expect("a lock");
    let hold = lock.lock_mut().and_then(Lock::hold_mut).expect("a hold");
    hold.token = u64::try_from(token).expect("a token");
    let mut payload = Vec::new();
    record::encode(
        &lock,
        Clocks { mono: Instant(0), lease: LeaseInstant(0) },
        Level::FIRST,
        &mut payload,
    );
    let mut bytes = Vec::new();
    for word in args!["DLOCK.APPLY", key, payload] {
        bytes.extend(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend(word);
        bytes.extend(b"\r\n");
    }
    let mut file = fs::File::options().append(true).open(aof(server)).expect("the AOF");
    file.write_all(&[b"*3\r\n", &bytes[..]].concat()).expect("a file of ours");
    server.cmd(&["DEBUG", "LOADAOF"]).ok();
    assert_eq!(server.cmd(&args!["DLOCK.CHECK", key, token]).int(), 1);
}

fn aof(server: &Server) -> PathBuf {
    server.dir().join("appendonlydir/appendonly.aof.1.incr.aof")
}

/// Raises the version of the record with its owner at this offset: before it are its length, the kind of state,
/// flags, the version.
fn make_later(bytes: &mut [u8], owner: usize) {
    let version = &mut bytes[owner - 4];
    assert_eq!(*version, 1);
    *version = 3;
}

#[test]
fn a_file_of_a_later_version_is_refused_at_the_start() {
    let mut server = uncompressed().and(&["rdbchecksum", "no"]).start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "some-owner"]).ok();
    server.cmd(&["SAVE"]).ok();
    server.kill9();
    let file = server.dir().join("dump.rdb");
    let mut bytes = fs::read(&file).expect("the file that was saved");
    let owner = bytes.windows(10).position(|part| part == b"some-owner").expect("the owner");
    make_later(&mut bytes, owner);
    fs::write(&file, bytes).expect("a file of ours");
    let start = AssertUnwindSafe(|| server.start_again());
    assert!(std::panic::catch_unwind(start).is_err(), "the server started without the lock");
    assert!(server.log().contains("it needs record level 3"), "{}", server.log_tail());
}

#[test]
fn a_damaged_record_in_the_aof_costs_that_record() {
    let mut server = uncompressed().and(&AOF).start();
    for owner in ["first-owner", "other-owner"] {
        server.cmd(&["DLOCK.ACQUIRE", owner, owner]).ok();
        server.cmd(&["DLOCK.ACQUIRE", owner, owner]).ok();
    }
    server.kill9();
    let file = aof(&server);
    let mut bytes = fs::read(&file).expect("the AOF");
    let found: Vec<usize> =
        (0..bytes.len() - 11).filter(|&at| bytes[at..].starts_with(b"first-owner")).collect();
    // Key and owner of two records: the second owner is in the second record.
    make_later(&mut bytes, found[3]);
    fs::write(&file, bytes).expect("a file of ours");
    server.start_again();
    let mut client = server.client();
    let mut holds = |key: &str| {
        let lock = stored(&mut client, key.as_bytes()).expect("a lock");
        lock.lock().hold().expect("a hold").count
    };
    assert_eq!((holds("first-owner"), holds("other-owner")), (1, 2));
    assert!(server.log().contains("a record cannot be replayed"), "{}", server.log_tail());
}

/// A fair lock with this number of waiters, as DUMP returns it.
fn queue_of(source: &Server, places: usize) -> Vec<u8> {
    let mut client = source.client();
    client.cmd(&["DFAIR.ACQUIRE", "line", "holder"]).int();
    for n in 0..places {
        let owner = format!("owner{n}");
        assert!(client.cmd(&args!["DFAIR.ACQUIRE", "line", owner, "QUEUE", 600_000]).is_null());
    }
    let dump = client.cmd(&["DUMP", "line"]).bytes();
    client.cmd(&["DEL", "line"]).ok();
    dump
}

#[test]
fn a_queue_that_is_restored_keeps_the_limit_of_all_waiters_and_may_exceed_that_of_its_key() {
    let source = Server::start();
    let dumps: Vec<_> = [6, 3, 2].map(|places| queue_of(&source, places)).into();
    let limits = ["dlock.max-waiters-per-key", "2", "dlock.max-waiters", "5"];
    let target = Server::with(&limits).start();
    let replica = Server::with(&["dlock.max-waiters", "1"]).replica_of(&target).start();
    let restore = |key: &str, dump: &[u8]| target.cmd(&args!["RESTORE", key, 0, dump]);
    let waiting = || target.info_number("dlock", "waiters_queued");
    assert_eq!(restore("long", &dumps[0]).error(), "ERR Bad data format");
    let log = target.log();
    assert!(log.contains("with its waiters there would be more than dlock.max-waiters"), "{log}");
    restore("first", &dumps[1]).ok();
    assert_eq!(restore("second", &dumps[1]).error(), "ERR Bad data format");
    target.cmd(&["DEL", "first"]).ok();
    wait_until("the places to go", || waiting() == 0);
    // The same where the server takes no turn in between.
    let mut client = target.client();
    let replies = client.pipeline(&[
        args!["MULTI"],
        args!["RESTORE", "first", 0, &dumps[1]],
        args!["RESTORE", "second", 0, &dumps[1]],
        args!["RESTORE", "third", 0, &dumps[2]],
        args!["EXEC"],
    ]);
    let replies = replies[4].items();
    assert_eq!(replies[0], redis::Value::Okay);
    assert!(replies[1].show().contains("Bad data format"), "{}", replies[1].show());
    assert_eq!(replies[2], redis::Value::Okay);
    wait_until("the places to be entered", || waiting() == 5);
    // That is the limit for all waiters, including clients.
    client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    let full = client.cmd(&["DLOCK.ACQUIRE", "k", "b", "QUEUE", "1000"]).error();
    assert!(full.starts_with("LIMIT "), "{full}");
    // A replica takes what its primary took.
    target.wait_replica_synced(&replica);
    assert_eq!(target.digest(), replica.digest());
    target.cmd(&["DEL", "first", "third", "k"]).ok();
    wait_until("the places to go", || waiting() == 0);
    restore("first", &dumps[1]).ok();
    wait_until("the places to be entered", || waiting() == 3);
    target.cmd(&["DEL", "first"]).ok();
    target.left_over_check();
}

#[test]
fn one_huge_queue_does_not_take_all_places() {
    let source = Server::with(&["dlock.max-waiters-per-key", "1000000"]).start();
    let mut client = source.client();
    client.cmd(&["DFAIR.ACQUIRE", "line", "holder"]).int();
    let calls: Vec<_> = (0..10_001)
        .map(|n| args!["DFAIR.ACQUIRE", "line", format!("owner{n}"), "QUEUE", 600_000])
        .collect();
    for some in calls.chunks(10_000) {
        client.pipeline(some);
    }
    let dump = client.cmd(&["DUMP", "line"]).bytes();
    let target = Server::with(&["dlock.max-waiters", "10000"]).start();
    let reply = target.cmd(&args!["RESTORE", "line", 0, dump]);
    assert_eq!(reply.error(), "ERR Bad data format");
    target.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    assert!(target.client().cmd(&["DLOCK.ACQUIRE", "k", "b", "QUEUE", "1"]).is_null());
    target.cmd(&["DEL", "k"]).ok();
    target.left_over_check();
}

#[test]
fn refusals_of_restore_do_not_fill_the_log() {
    let server = uncompressed().start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "some-owner"]).ok();
    let dump = Dump::take(&mut server.client(), "k");
    let damaged = dump.with_body(&dump.body[1..]);
    let begun = std::time::Instant::now();
    let calls: Vec<_> = (0..2_000).map(|_| args!["RESTORE", "l", 0, &damaged]).collect();
    for reply in server.client().pipeline(&calls) {
        assert_eq!(reply.error(), "ERR Bad data format");
    }
    let lines = || server.log().matches("cannot be loaded").count() as u64;
    let most = 1 + begun.elapsed().as_secs() + 1;
    assert!((1..=most).contains(&lines()), "{} lines", lines());
    // The next line reports the omitted ones.
    wait_until("the next line", || {
        server.cmd(&args!["RESTORE", "l", 0, &damaged]).error();
        server.log().contains("others since the last line)")
    });
    server.cmd(&["DEL", "k"]).ok();
    server.left_over_check();
}

#[test]
fn a_channel_that_a_user_may_not_use_does_not_come_back() {
    let source = Server::start();
    let mut queued = source.client();
    let notify = |channel: &str, call: &str| {
        let words = call.split(' ').chain(["NOTIFY", channel]);
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    // A holder, readers, a permit and two waiters, each with a channel.
    for call in [
        notify("secret", "DLOCK.ACQUIRE lock a EX 600"),
        notify("secret", "DRW.ACQUIRE rw a READ EX 600"),
        notify("news:1", "DRW.ACQUIRE rw b READ EX 600"),
        notify("secret", "DSEM.ACQUIRE sem a LIMIT 2 EX 600"),
        notify("news:1", "DFAIR.ACQUIRE fair a EX 600"),
        notify("secret", "DFAIR.ACQUIRE fair b QUEUE 600000"),
        notify("news:1", "DFAIR.ACQUIRE fair c QUEUE 600000"),
    ] {
        queued.cmd(&call);
    }
    let keys = ["lock", "rw", "sem", "fair"];
    let dumps = keys.map(|key| source.cmd(&["DUMP", key]).bytes());
    let target = Server::start();
    let replica = Server::with(&[]).replica_of(&target).start();
    let heard = |channels: &[&str]| target.subscribe(channels);
    let restore = || {
        for (key, dump) in keys.iter().zip(&dumps) {
            target.cmd(&args!["RESTORE", key, 0, dump, "REPLACE"]).ok();
        }
        // Every value is indexed, with or without its channel.
        wait_until("the values to be entered", || {
            target.info_number("dlock", "keys_entered") == 4
                && target.info_number("dlock", "waiters_queued") == 2
        });
        target.wait_replica_synced(&replica);
        assert_eq!(target.digest(), replica.digest());
    };
    // Users without RESTORE, and users that may publish there, remove nothing.
    target.cmd(&["ACL", "SETUSER", "worker", "on", "nopass", "~*", "resetchannels", "+ping"]).ok();
    let mut secret = heard(&["secret"]);
    restore();
    target.cmd(&["DLOCK.BREAK", "lock"]).ok();
    assert!(secret.next_text().starts_with("broken 0 "));
    drop(secret);
    target.cmd(&["FLUSHALL"]).ok();
    wait_until("nothing to be left", || target.info_number("dlock", "waiters_queued") == 0);

    let rules = ["on", "nopass", "~*", "resetchannels", "&news:*", "+@all"];
    target.cmd(&[&["ACL", "SETUSER", "restorer"][..], &rules].concat()).ok();
    let mut secret = heard(&["secret"]);
    let mut others = heard(&["news:1", "dlock:notify:a", "dlock:notify:b"]);
    restore();
    for call in ["DLOCK.BREAK lock", "DRW.BREAK rw a", "DEL sem", "DFAIR.RELEASE fair a"] {
        target.cmd(&call.split(' ').collect::<Vec<_>>()).ok();
    }
    let texts: Vec<_> = (0..4).map(|_| others.next_text()).collect();
    let kinds: Vec<_> = texts.iter().map(|text| text.split(' ').next().unwrap_or("")).collect();
    assert_eq!(kinds, ["broken", "broken", "deleted", "offered"], "{texts:?}");
    target.cmd(&["DRW.BREAK", "rw", "b"]).ok();
    assert!(others.next_text().starts_with("broken 0 "));
    // Not even if the value is deleted before the server takes a turn.
    let delete = [args!["MULTI"], args!["RESTORE", "lock", 0, &dumps[0]], args!["DEL", "lock"]];
    target.client().pipeline(&[&delete[..], &[args!["EXEC"]]].concat());
    target.cmd(&["FLUSHALL"]).ok();
    secret.assert_none();
    wait_until("nothing to be left", || target.info_number("dlock", "waiters_queued") == 0);
    drop((secret, others));
    target.left_over_check();
}
