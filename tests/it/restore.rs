//! What comes from outside is taken only as far as it can be trusted: tokens of other servers, files of other versions.

use std::{fs, panic::AssertUnwindSafe};

use crate::{
    args,
    records::stored,
    support::{Reply, Server, Setup, wait_until},
};
use dlock_core::record::VERSION;

const DAY: i64 = 86_400;

fn uncompressed() -> Setup {
    Server::with(&["rdbcompression", "no"])
}

#[test]
fn a_token_too_far_ahead_is_refused() {
    let source = uncompressed().preload_wallclock().start();
    let target = uncompressed().start();
    let restore = |key: &str, dump: Vec<u8>| target.cmd(&args!["RESTORE", key, 0, dump]);
    let from_the_future = |days: i64| {
        source.shift_wall_clock(days * DAY);
        source.cmd(&["FLUSHALL"]).ok();
        wait_until("the other wall clock", || {
            source.cmd(&["DEL", "k"]).ok();
            let token = source.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
            let now = target.cmd(&["TIME"]).items()[0].text().parse::<i64>().expect("seconds");
            eprintln!("{token} {now} {days} {}", source.cmd(&["TIME"]).show());
            token / 1_000_000 > now + days * DAY - 60
        });
        source.cmd(&["DUMP", "k"]).bytes()
    };
    // Up to 30 days ahead a token may be another server's; it is learnt.
    let near = from_the_future(29);
    restore("near", near).ok();
    let token = target.cmd(&["DLOCK.INFO", "near"]).field("token").int();
    assert_eq!(target.cmd(&["DLOCK.ACQUIRE", "new", "a"]).int(), token + 1);
    // Beyond, it would use up tokens, by mistake or on purpose.
    let far = from_the_future(31);
    assert_eq!(restore("far", far.clone()).error(), "ERR Bad data format");
    let migrate = args!["MIGRATE", "127.0.0.1", target.port(), "k", 0, 5_000];
    let refused = source.cmd(&migrate).error();
    assert!(refused.contains("Bad data format"), "{refused}");
    assert_eq!(source.keys(), 1, "what was refused stays where it was");
    assert_eq!(target.cmd(&["EXISTS", "far", "k"]).int(), 0);
    assert_eq!(target.info_number("dlock", "last_token"), token + 1);
    // A server that has given such tokens itself takes them.
    source.cmd(&args!["RESTORE", "again", 0, far]).ok();
    assert!(target.log().contains("its token is too far ahead"), "{}", target.log_tail());
    for (key, owner) in [("near", "a"), ("new", "a")] {
        target.cmd(&["DLOCK.RELEASE", key, owner]).ok();
    }
    target.left_over_check();
}

/// Raises the version of the record with its owner at this place: in front are its length, the kind of state, flags, the version.
fn make_later(bytes: &mut [u8], owner: usize) {
    let version = &mut bytes[owner - 4];
    assert_eq!(*version, VERSION);
    *version += 1;
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
    assert!(server.log().contains("UnknownVersion(2)"), "{}", server.log_tail());
}

#[test]
fn a_damaged_record_in_the_aof_costs_that_record() {
    let mut server = uncompressed().and(&["appendonly", "yes"]).start();
    for owner in ["first-owner", "other-owner"] {
        server.cmd(&["DLOCK.ACQUIRE", owner, owner]).ok();
        server.cmd(&["DLOCK.ACQUIRE", owner, owner]).ok();
    }
    server.kill9();
    let file = server.dir().join("appendonlydir/appendonly.aof.1.incr.aof");
    let mut bytes = fs::read(&file).expect("the AOF");
    let found: Vec<usize> =
        (0..bytes.len() - 11).filter(|&at| bytes[at..].starts_with(b"first-owner")).collect();
    // As key and owner of two records: the second owner in the second record.
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
