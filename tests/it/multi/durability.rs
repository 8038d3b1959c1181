//! Several locks taken in one call exist after a crash all together or not at all.

use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
};

use redis::Value;

use super::{call_for, locks_of, owner_of, owners_at_once, picture, some_of, tokens};
use crate::{
    durability::AOF,
    support::{Dice, Reply, SOON, Server, wait_until},
};

const LOCKS: u64 = 16;

/// Final knowledge of a connection.
#[derive(Debug, Default)]
struct Account {
    /// An owner that was granted its locks and has not requested their release.
    held: Option<String>,
    /// Owners with an acknowledged release of all locks.
    released: Vec<String>,
}

fn command(words: Vec<Vec<u8>>) -> redis::Cmd {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(word);
    }
    command
}

/// Takes and releases sets of locks until the server is gone.
fn work(mut connection: redis::Connection, name: usize, answers: &AtomicUsize) -> Account {
    let mut dice = Dice::new(name as u64 + 77);
    let mut account = Account::default();
    for round in 0.. {
        let owner = owner_of(&format!("{name}.{round}"), &some_of(&mut dice, LOCKS, 2, 8));
        let count = locks_of(&owner).len();
        let mut take = command(call_for("DLOCK.MACQUIRE", &owner));
        take.arg("PX").arg(600_000).arg("BLOCK").arg(0);
        let Ok(reply) = take.query::<Value>(&mut connection) else { break };
        assert_eq!(tokens(&reply).len(), count);
        account.held = Some(owner.clone());
        answers.fetch_add(1, Relaxed);
        // Sometimes it dies with its locks.
        if answers.load(Relaxed) > 1_500 && dice.below(20) == 0 {
            break;
        }
        account.held = None;
        let release = command(call_for("DLOCK.MRELEASE", &owner));
        let Ok(reply) = release.query::<Value>(&mut connection) else { break };
        assert_eq!(usize::try_from(reply.int()), Ok(count));
        account.released.push(owner);
        answers.fetch_add(1, Relaxed);
    }
    account
}

#[test]
fn kill_9_keeps_all_of_a_call_or_nothing() {
    survive_kill_9("yes");
    survive_kill_9("no");
}

fn survive_kill_9(preamble: &str) {
    let mut server = Server::with(&AOF).and(&["aof-use-rdb-preamble", preamble]).start();
    let answers = Arc::new(AtomicUsize::new(0));
    let threads: Vec<JoinHandle<Account>> = (0..16)
        .map(|name| {
            let (connection, answers) = (server.conn(), answers.clone());
            thread::spawn(move || work(connection, name, &answers))
        })
        .collect();
    wait_until("the workload to go on", || answers.load(Relaxed) > 800);
    // The second half goes to another file, while the first is rewritten.
    server.cmd(&["BGREWRITEAOF"]).ok();
    wait_until("one of them to die", || threads.iter().any(JoinHandle::is_finished));
    server.kill9();
    let accounts: Vec<Account> =
        threads.into_iter().map(|thread| thread.join().expect("no failure")).collect();
    server.start_again();
    let found = owners_at_once(&server, LOCKS);
    for account in &accounts {
        if let Some(held) = &account.held {
            let lock = locks_of(held)[0];
            assert_eq!(found[usize::try_from(lock).expect("a small number")], *held, "{found:?}");
        }
        for released in &account.released {
            assert!(!found.contains(released), "{released} had given all back: {found:?}");
        }
    }
    assert!(found.iter().any(|owner| !owner.is_empty()), "nothing was held: {accounts:?}");
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// The file that the server appends to.
fn log_file(server: &Server) -> PathBuf {
    let files = fs::read_dir(server.dir().join("appendonlydir")).expect("a folder of the server");
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("a file").path()).collect();
    files.retain(|file| file.to_string_lossy().ends_with(".incr.aof"));
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

/// The end of the file is missing, as after a power cut: an incomplete write did not happen at all.
#[test]
fn a_log_that_breaks_off_in_the_middle_of_a_call_has_nothing_of_it() {
    const KEYS: &str = "busy f1 f2 k1 k2 k3";
    let mut server = Server::with(&AOF).and(&["auto-aof-rewrite-percentage", "0"]).start();
    server.ask("DLOCK.ACQUIRE busy h PX 600000").int();
    let log = log_file(&server);
    let len = |log: &PathBuf| fs::metadata(log).expect("the log").len();
    let mut lens = vec![len(&log)];
    // At once.
    tokens(&server.ask("DLOCK.MACQUIRE 3 k1 k2 k3 a PX 600000"));
    lens.push(len(&log));
    // By a hand-off after a release.
    let mut m = server.wait("DLOCK.MACQUIRE 3 f1 busy f2 m PX 600000 BLOCK 0");
    assert_eq!(server.ask("DLOCK.RELEASE busy h").int(), 0);
    tokens(&m.expect_reply(SOON));
    lens.push(len(&log));
    assert_eq!(server.ask("DLOCK.MRELEASE 2 k1 k3 a").int(), 2);
    lens.push(len(&log));
    drop(m);
    server.kill9();
    let whole = fs::read(&log).expect("the log");
    let states = [
        "busy:h f1:- f2:- k1:- k2:- k3:-",
        "busy:h f1:- f2:- k1:a k2:a k3:a",
        "busy:m f1:m f2:m k1:a k2:a k3:a",
        "busy:m f1:m f2:m k1:- k2:a k3:-",
    ];
    let mut dice = Dice::new(9);
    for (step, state) in states.into_iter().enumerate() {
        // The expected locks, and the last byte before the next step.
        let from = lens[step];
        let to = lens.get(step + 1).copied().unwrap_or(from + 1);
        assert!(to > from, "nothing was written");
        let cuts = [from, to - 1, from + (to - from) / 2, from + dice.below(to - from)];
        for cut in cuts {
            let cut = usize::try_from(cut).expect("a small file").min(whole.len());
            fs::write(&log, &whole[..cut]).expect("the log of a server that is gone");
            server.start_again();
            assert_eq!(picture(&server, KEYS), state, "cut at {cut} of {lens:?}");
            server.kill9();
        }
    }
    fs::write(&log, &whole).expect("the log of a server that is gone");
    server.start_again();
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

/// Every way of saving and loading preserves several locks as it does one; here, that they still belong to one owner.
#[test]
fn a_request_can_be_repeated_after_a_crash() {
    let mut server = Server::with(&AOF).start();
    let call = "DLOCK.MACQUIRE 3 k1 k2 k3 a PX 600000 REQID r";
    let granted = tokens(&server.ask(call));
    let any = server.ask("DLOCK.ANYACQUIRE 3 s1 s2 s3 a PX 600000 REQID any");
    server.kill9();
    server.start_again();
    assert_eq!(tokens(&server.ask(call)), granted);
    assert_eq!(server.ask("DLOCK.ANYACQUIRE 3 s3 s2 s1 a PX 600000 REQID any"), any);
    assert_eq!(picture(&server, "k1 k2 k3"), "k1:a k2:a k3:a");
    assert_eq!(server.ask("DLOCK.MRELEASE 3 k1 k2 k3 a").int(), 3);
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}
