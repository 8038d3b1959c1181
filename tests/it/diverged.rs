//! A server that could not read a record of its primary, or of its file, grants nothing: not after a promotion, nor
//! after a restart. And the record level, which prevents that in an upgrade.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
    thread,
};

use crate::{
    args,
    support::{Profile, Reply as _, Server, module_path, wait_until},
};

/// The key whose records a [`Spoiler`] spoils.
const LOST: &str = "lost-on-the-way";

/// The next level: this module does not know it.
const LATER: u8 = 2;

/// Between a primary and its replica: sets the level of each record about [`LOST`]. The thread ends with the process of
/// the replica.
struct Spoiler {
    port: u16,
}

impl Spoiler {
    fn before(primary: &Server, level: u8) -> Spoiler {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let to = primary.port();
        thread::spawn(move || {
            while let Ok((replica, _)) = listener.accept() {
                let Ok(primary) = TcpStream::connect(("127.0.0.1", to)) else { continue };
                let there = (
                    replica.try_clone().expect("a socket"),
                    primary.try_clone().expect("a socket"),
                );
                thread::spawn(move || copy(there.0, there.1, |_| ()));
                let mut spoil = Spoil { seen: 0, level };
                thread::spawn(move || copy(primary, replica, |bytes| spoil.each(bytes)));
            }
        });
        Spoiler { port }
    }

    /// Makes this server a replica of the primary behind it.
    fn lead(&self, replica: &Server) {
        replica.cmd(&args!["REPLICAOF", "127.0.0.1", self.port]).ok();
        replica.wait_linked();
        // After a full synchronization the replica rewrites its AOF.
        wait_rewritten(replica);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut change: impl FnMut(&mut [u8])) {
    let mut bytes = [0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        change(&mut bytes[..n]);
        if to.write_all(&bytes[..n]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

/// The first byte of the payload comes after the key, and the length of the payload: `lost-on-the-way\r\n$20\r\n`.
struct Spoil {
    seen: usize,
    level: u8,
}

impl Spoil {
    fn each(&mut self, bytes: &mut [u8]) {
        let name = LOST.as_bytes();
        for byte in bytes {
            self.seen = match self.seen {
                at if at < name.len() => {
                    if *byte == name[at] {
                        at + 1
                    } else {
                        usize::from(*byte == name[0])
                    }
                }
                // Two line ends.
                at if at < name.len() + 2 => at + usize::from(*byte == b'\n'),
                _ => {
                    if *byte == 1 {
                        *byte = self.level;
                    }
                    0
                }
            };
        }
    }
}

fn refused(server: &Server) -> i64 {
    server.info_number("dlock", "records_refused")
}

fn wait_refused(server: &Server, n: i64) {
    wait_until("the records to be refused", || refused(server) == n);
}

#[track_caller]
fn grants_nothing(server: &Server) {
    for call in [
        format!("DLOCK.ACQUIRE {LOST} other"),
        "DLOCK.ACQUIRE free other BLOCK 1000".to_owned(),
        "DFAIR.ACQUIRE fair other QUEUE 1000".to_owned(),
        "DRW.ACQUIRE rw other READ".to_owned(),
        "DSEM.ACQUIRE sem other LIMIT 1".to_owned(),
        "DLOCK.MACQUIRE 2 m1 m2 other".to_owned(),
    ] {
        let error = server.ask(&call).error();
        assert!(error.starts_with("DIVERGED this server refused records"), "{call}: {error}");
        assert!(error.contains("DLOCK.TRUST"), "{error}");
    }
}

fn promote(replica: &Server) {
    replica.ask("REPLICAOF NO ONE").ok();
    wait_until("the promotion", || replica.info("replication")["role"] == "master");
}

/// A replica that has `held` of `a`, and missed that `b` has [`LOST`].
fn with_a_loss(level: u8, settings: &[&str]) -> (Server, Server) {
    let (primary, replica) = (Server::start(), Server::with(settings).start());
    Spoiler::before(&primary, level).lead(&replica);
    primary.ask("DLOCK.ACQUIRE held a PX 600000").int();
    primary.ask(&format!("DLOCK.ACQUIRE {LOST} b PX 600000")).int();
    wait_refused(&replica, 1);
    (primary, replica)
}

#[test]
fn a_promoted_replica_that_missed_a_record_grants_nothing() {
    let (_primary, replica) = with_a_loss(LATER, &[]);
    assert!(replica.ask(&format!("DLOCK.INFO {LOST}")).is_null(), "the record is missing");
    assert_eq!(replica.info_number("dlock", "records_damaged"), 0);
    assert_eq!(replica.info_number("dlock", "record_level_needed"), 2);
    assert!(
        replica.log().contains("it needs record level 2, and this module reads up to 1"),
        "{}",
        replica.log_tail()
    );
    let before = replica.ask("DLOCK.TRUST").error();
    assert!(before.starts_with("READONLY"), "{before}");
    promote(&replica);
    grants_nothing(&replica);
    // What it knows it keeps.
    let token = replica.ask("DLOCK.RENEW held a PX 600000").int();
    replica.cmd(&args!["DLOCK.CHECK", "held", token]).int();
    assert_eq!(replica.ask("DLOCK.RELEASE held a").int(), 0);
    let error = replica.ask("DLOCK.ACQUIRE held a").error();
    assert!(error.starts_with("DIVERGED"), "{error}");
    assert_eq!(replica.ask("DLOCK.TRUST").int(), 1);
    assert_eq!((refused(&replica), replica.ask("DLOCK.TRUST").int()), (0, 0));
    replica.ask("DLOCK.ACQUIRE held a").int();
    replica.ask("DLOCK.RELEASE held a").int();
    replica.left_over_check();
}

#[test]
fn damage_is_told_apart_from_a_later_level() {
    let (_primary, replica) = with_a_loss(0, &[]);
    assert_eq!(replica.info_number("dlock", "records_damaged"), 1);
    assert_eq!(replica.info_number("dlock", "record_level_needed"), 0);
    assert!(replica.log().contains("grants nothing: it is damaged"), "{}", replica.log_tail());
    promote(&replica);
    grants_nothing(&replica);
    let error = replica.ask("DLOCK.ACQUIRE k x").error();
    assert!(error.contains("(of a later level: 0; damaged: 1)"), "{error}");
}

const PREAMBLE: [&str; 4] = ["appendonly", "yes", "appendfsync", "always"];
const PLAIN_AOF: [&str; 6] =
    ["appendonly", "yes", "appendfsync", "always", "aof-use-rdb-preamble", "no"];

fn rewrite(server: &Server) {
    wait_rewritten(server);
    server.ask("BGREWRITEAOF").ok();
    wait_rewritten(server);
}

fn wait_rewritten(server: &Server) {
    let info = |field: &str| server.info("persistence")[field].clone();
    wait_until("the rewrite", || {
        info("aof_rewrite_in_progress") == "0" && info("aof_rewrite_scheduled") == "0"
    });
    assert_eq!(info("aof_last_bgrewrite_status"), "ok");
}

/// Permits and latches have no token, so the file has none.
#[test]
fn a_file_without_a_token_is_read() {
    let mut server = Server::with(&PLAIN_AOF).start();
    server.ask("DSEM.INIT s 3").ok();
    server.ask("DLATCH.INIT l 1").ok();
    rewrite(&server);
    server.kill9();
    server.start_again();
    assert_eq!(refused(&server), 0);
    server.ask("DLOCK.ACQUIRE free other").int();
}

fn outlasts(settings: &[&str], save: impl Fn(&Server)) {
    let (_primary, mut replica) = with_a_loss(LATER, settings);
    promote(&replica);
    // As a replica's own file says it, and as that of a primary.
    save(&replica);
    replica.kill9();
    replica.start_again();
    assert_eq!((refused(&replica), replica.info_number("dlock", "record_level_needed")), (1, 2));
    grants_nothing(&replica);
    replica.ask("DLOCK.RENEW held a PX 600000").int();
    // Twice: what it read is what it writes.
    save(&replica);
    replica.kill9();
    replica.start_again();
    assert_eq!(refused(&replica), 1);
    grants_nothing(&replica);
    assert_eq!(replica.ask("DLOCK.TRUST").int(), 1);
    save(&replica);
    replica.kill9();
    replica.start_again();
    assert_eq!(refused(&replica), 0);
    replica.ask("DLOCK.ACQUIRE free other").int();
    assert_eq!(replica.info_number("dlock", "record_level"), 1, "a mark does not raise it");
}

#[test]
fn a_restart_from_a_snapshot_does_not_end_it() {
    outlasts(&[], |server| {
        server.ask("SAVE").ok();
    });
}

#[test]
fn a_restart_from_an_aof_does_not_end_it() {
    outlasts(&PREAMBLE, |_| ());
    outlasts(&PLAIN_AOF, |_| ());
}

#[test]
fn a_restart_from_a_rewritten_aof_does_not_end_it() {
    outlasts(&PREAMBLE, rewrite);
    outlasts(&PLAIN_AOF, rewrite);
}

/// Also if it has no lock at all.
#[test]
fn a_rewrite_without_a_key_keeps_the_mark() {
    let (primary, mut replica) = (Server::start(), Server::with(&PLAIN_AOF).start());
    Spoiler::before(&primary, LATER).lead(&replica);
    primary.ask(&format!("DLOCK.ACQUIRE {LOST} b")).int();
    wait_refused(&replica, 1);
    rewrite(&replica);
    promote(&replica);
    rewrite(&replica);
    replica.kill9();
    replica.start_again();
    assert_eq!(refused(&replica), 1);
    grants_nothing(&replica);
}

#[test]
fn a_full_synchronization_says_how_the_primary_stands() {
    for settings in [&["repl-diskless-load", "disabled"], &["repl-diskless-load", "swapdb"]] {
        let (_primary, diverged) = with_a_loss(LATER, settings);
        // From a server that missed nothing.
        let whole = Server::start();
        whole.ask("DLOCK.ACQUIRE theirs c").int();
        diverged.cmd(&args!["REPLICAOF", "127.0.0.1", whole.port()]).ok();
        diverged.wait_linked();
        whole.wait_replica_synced(&diverged);
        assert_eq!(refused(&diverged), 0, "{settings:?}");
        promote(&diverged);
        diverged.ask("DLOCK.ACQUIRE free other").int();
        // From a server that is diverged itself; its operator vouches for both.
        let (_primary, head) = with_a_loss(LATER, &[]);
        promote(&head);
        let tail = Server::with(settings).replica_of(&head).start();
        assert_eq!(refused(&tail), 1, "{settings:?}");
        head.ask("DLOCK.TRUST").int();
        head.wait_replica_synced(&tail);
        assert_eq!(refused(&tail), 0, "{settings:?}");
    }
}

#[test]
fn a_primary_cannot_vouch_for_what_its_replica_missed() {
    let (primary, replica) = with_a_loss(LATER, &[]);
    assert_eq!((refused(&primary), primary.ask("DLOCK.TRUST").int()), (0, 0));
    primary.wait_replica_synced(&replica);
    assert_eq!(refused(&replica), 1);
}

#[test]
fn flushall_ends_it() {
    for settings in [&PREAMBLE[..], &PLAIN_AOF, &[]] {
        let (primary, mut replica) = with_a_loss(LATER, settings);
        primary.ask("FLUSHDB").ok();
        primary.wait_replica_synced(&replica);
        assert_eq!(refused(&replica), 1, "other databases may miss something");
        primary.ask("FLUSHALL").ok();
        primary.wait_replica_synced(&replica);
        wait_refused(&replica, 0);
        promote(&replica);
        replica.ask("DLOCK.ACQUIRE free other").int();
        if !settings.is_empty() {
            replica.kill9();
            replica.start_again();
            assert_eq!(refused(&replica), 0);
            replica.ask("DLOCK.ACQUIRE free2 other").int();
        }
    }
}

/// What the flush has to tell replicas must not be told while the server may not write.
#[test]
fn flushall_before_a_change_of_role_in_a_pause() {
    for then in ["REPLICAOF", "REPLICAOF NO ONE"] {
        let (primary, replica) = with_a_loss(LATER, &PLAIN_AOF);
        promote(&replica);
        let mut client = replica.client();
        client.cmd(&["MULTI"]).ok();
        client.cmd(&["CLIENT", "PAUSE", "300", "WRITE"]).bytes();
        client.cmd(&["FLUSHALL"]).bytes();
        let port = primary.port().to_string();
        match then {
            "REPLICAOF" => client.cmd(&["REPLICAOF", "127.0.0.1", &port]).bytes(),
            _ => client.cmd(&["REPLICAOF", "NO", "ONE"]).bytes(),
        };
        client.cmd(&["EXEC"]).ok();
        if then == "REPLICAOF" {
            replica.wait_linked();
            promote(&replica);
        }
        wait_refused(&replica, 0);
        replica.ask("DLOCK.ACQUIRE free other").int();
    }
}

#[test]
fn a_raised_level_reaches_replicas_and_files_and_stays() {
    let module = module_path(Profile::NextLevel);
    for settings in [&PREAMBLE[..], &PLAIN_AOF] {
        let plain = Server::with(settings).and(&["rdbcompression", "no"]);
        let mut primary = plain.module(module).start();
        let replica = Server::with(&[]).module(module).replica_of(&primary).start();
        let level = |server: &Server| server.info_number("dlock", "record_level");
        let dumped = |key: &str| primary.cmd(&["DUMP", key]).bytes()[11 + 1];
        primary.ask("DLOCK.ACQUIRE first a PX 600000").int();
        assert_eq!((level(&primary), dumped("first")), (1, 1));
        primary.ask("CONFIG SET dlock.record-level 2").ok();
        wait_until("the level", || level(&primary) == 2);
        primary.wait_replica_synced(&replica);
        assert_eq!((level(&replica), refused(&replica)), (2, 0));
        primary.ask("DLOCK.ACQUIRE second a PX 600000").int();
        assert_eq!((dumped("first"), dumped("second")), (2, 2));
        primary.ask("CONFIG SET dlock.record-level 1").ok();
        primary.ask("DLOCK.ACQUIRE third a PX 600000").int();
        assert_eq!((level(&primary), dumped("third")), (2, 2), "records need it from now on");
        primary.wait_replica_synced(&replica);
        assert_eq!(primary.digest(), replica.digest());
        for save in [false, true] {
            if save {
                rewrite(&primary);
            }
            primary.kill9();
            primary.start_again();
            assert_eq!((level(&primary), refused(&primary)), (2, 0));
            primary.ask("DLOCK.RENEW second a PX 600000").int();
        }
        promote(&replica);
        assert_eq!(level(&replica), 2);
    }
    let mistaken = Server::with(&["dlock.record-level", "2"]).try_start();
    assert!(mistaken.is_err(), "a level that this module does not know");
}

#[test]
fn a_file_of_records_with_a_later_one_loads_the_others_and_grants_nothing() {
    for settings in [&PREAMBLE[..], &PLAIN_AOF] {
        let mut server = Server::with(settings).start();
        for key in ["one", LOST, "two"] {
            server.ask(&format!("DLOCK.ACQUIRE {key} a PX 600000")).int();
        }
        server.kill9();
        let file = server.dir().join("appendonlydir/appendonly.aof.1.incr.aof");
        let mut bytes = fs::read(&file).expect("the AOF");
        Spoil { seen: 0, level: LATER }.each(&mut bytes);
        fs::write(&file, bytes).expect("a file of ours");
        server.start_again();
        assert_eq!(refused(&server), 1);
        grants_nothing(&server);
        for key in ["one", "two"] {
            server.ask(&format!("DLOCK.RENEW {key} a")).int();
        }
        assert!(server.ask(&format!("DLOCK.INFO {LOST}")).is_null());
    }
}

/// The server refuses such a file. Nothing in it was unreadable.
#[test]
fn a_file_that_was_cut_off_is_not_called_damaged() {
    let server = Server::start();
    for n in 0..5 {
        server.ask(&format!("DLOCK.ACQUIRE k{n} a REQID r")).int();
        server.ask(&format!("DLOCK.ACQUIRE l{n} a REQID r")).int();
        server.ask(&format!("DLOCK.RELEASE l{n} a REQID r")).int();
    }
    server.ask("SAVE").ok();
    let whole = fs::read(server.dir().join("dump.rdb")).unwrap();
    let folder = server.dir().join("cut");
    fs::create_dir(&folder).unwrap();
    let folder = folder.to_str().unwrap();
    let mut told = Vec::new();
    for length in (whole.len() / 3..whole.len() - 20).step_by(whole.len() / 12) {
        fs::write(format!("{folder}/dump.rdb"), &whole[..length]).unwrap();
        let log = Server::with(&["dir", folder]).try_start().unwrap_err();
        assert!(!log.contains("damaged"), "cut at {length} of {}:\n{log}", whole.len());
        told.extend(log.lines().find(|line| line.contains("the data end")).map(str::to_owned));
    }
    assert!(told.iter().any(|line| line.contains("what is not in keys")), "{told:?}");
    server.ask("FLUSHALL").ok();
    server.left_over_check();
}
