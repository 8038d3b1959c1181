//! Several locks taken in one call exist after a crash all together or not at all.

use std::{fs, path::PathBuf};

use super::{picture, tokens};
use crate::{
    durability::AOF,
    support::{Dice, Reply, SOON, Server},
};

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
