//! Semaphores that do not exist yet, that are created on first use, made smaller, deleted: the effect on waiters.

use crate::{
    story::Story,
    support::{Reply, SOON, Server, wait_until},
};

#[test]
fn a_semaphore_that_is_not_there_is_waited_for() {
    Story::tell(
        &Server::start(),
        &[
            ("DSEM.ACQUIRE s a", "nil"),
            ("DSEM.TAKE s", "nil"),
            ("DSEM.ACQUIRE s a COUNT 7", "nil"),
            ("EXISTS s", "0"),
            ("sem s", "nothing"),
            ("1: DSEM.ACQUIRE s a COUNT 2 BLOCK 0", "waits"),
            ("2: DSEM.ACQUIRE s b COUNT 9 BLOCK 0", "waits"),
            ("3: DSEM.TAKE s BLOCK 0", "waits"),
            ("4: DSEM.TAKE s 8 BLOCK 0", "waits"),
            ("5: DSEM.ACQUIRE s c COUNT 5 QUEUE 60000", "nil"),
            ("6: DSEM.ACQUIRE s d COUNT 9 QUEUE 60000", "nil"),
            ("7: DSEM.ACQUIRE s e BLOCK 0", "waits"),
            ("sem s", "not made; waits a b - - c d e"),
            ("DSEM.POSITION s e", "7"),
            ("DSEM.RESIZE s 5", "ERR no such semaphore"),
            ("DSEM.GIVE s", "ERR no such semaphore"),
            ("DSEM.DRAIN s", "ERR no such semaphore"),
            ("EXISTS s", "0"),
            ("TYPE s", "'none"),
            // In order of arrival; requests above the capacity get an error.
            ("DSEM.INIT s 5", "1"),
            ("1", "id p1"),
            ("2", "LIMIT "),
            ("3", "1"),
            ("4", "LIMIT "),
            ("7", "waits"),
            ("sem s", "2 of 5 (2 leased, 1 taken); waits c e"),
            ("DSEM.CANCEL s c", "1"),
            ("7", "id p7"),
            ("6: DSEM.ACQUIRE s d COUNT 9 QUEUE 60000", "LIMIT "),
            ("DEL s", "1"),
        ],
    );
}

#[test]
fn a_semaphore_made_on_first_use_serves_earlier_waiters_first() {
    Story::tell(
        &Server::start(),
        &[
            ("1: DSEM.ACQUIRE s a COUNT 2 BLOCK 0", "waits"),
            ("2: DSEM.ACQUIRE s b COUNT 9 BLOCK 0", "waits"),
            // The call that creates it comes after the earlier waiters.
            ("3: DSEM.ACQUIRE s c LIMIT 2 BLOCK 0", "waits"),
            ("1", "id p1"),
            ("2", "LIMIT "),
            ("sem s", "0 of 2 (2 leased, 0 taken); waits c"),
            ("DSEM.RELEASE s $p1", "1"),
            ("3", "id p3"),
            ("DSEM.RELEASE s $p3", "2"),
            ("sem s", "nothing"),
            // It is removed when there are no waiters any more, not before.
            ("DSEM.ACQUIRE s a LIMIT 2", "id p1"),
            ("1: DSEM.ACQUIRE s b COUNT 2 BLOCK 0", "waits"),
            ("drop 1", ""),
            ("sem s", "1 of 2 (1 leased, 0 taken)"),
            ("DSEM.RELEASE s $p1", "2"),
            ("sem s", "nothing"),
        ],
    );
}

#[test]
fn waiters_that_have_become_too_wide_get_an_error() {
    Story::tell(
        &Server::start(),
        &[
            ("DSEM.INIT s 8", "1"),
            ("DSEM.ACQUIRE s a COUNT 8", "id p"),
            ("1: DSEM.ACQUIRE s b COUNT 4 BLOCK 0", "waits"),
            ("2: DSEM.ACQUIRE s c COUNT 5 BLOCK 0", "waits"),
            ("3: DSEM.TAKE s 6 BLOCK 0", "waits"),
            ("4: DSEM.ACQUIRE s d COUNT 6 QUEUE 60000", "nil"),
            ("5: DSEM.ACQUIRE s e BLOCK 0", "waits"),
            ("DSEM.RESIZE s 4", "-4"),
            ("1", "waits"),
            ("2", "LIMIT "),
            ("3", "LIMIT "),
            ("5", "waits"),
            ("sem s", "-4 of 4 (8 leased, 0 taken); waits b e"),
            ("DSEM.RESIZE s BY -1", "-5"),
            ("1", "LIMIT "),
            ("DSEM.RELEASE s $p", "2"),
            ("5", "id q"),
            ("DEL s", "1"),
        ],
    );
}

#[test]
fn waiters_go_on_waiting_after_the_key_was_deleted() {
    let server = Server::start();
    for (removal, told) in [
        ("DEL s", "deleted 0 "),
        ("UNLINK s", "deleted 0 "),
        ("PEXPIRE s 5", "deleted 0 "),
        ("FLUSHALL", "flushed 0"),
    ] {
        println!("{removal}");
        let mut messages = server.subscribe(&["news", "dlock:notify"]);
        let mut story = Story::on(&server);
        story.go(&[
            ("DSEM.INIT s 2", "1"),
            ("DSEM.ACQUIRE s a COUNT 2 NOTIFY news", "id p"),
            ("1: DSEM.ACQUIRE s b BLOCK 0", "waits"),
            ("2: DSEM.TAKE s BLOCK 0", "waits"),
        ]);
        server.cmd(&removal.split(' ').collect::<Vec<_>>()).ok();
        story.go(&[
            ("sem s", "not made; waits b -"),
            ("1", "waits"),
            ("2", "waits"),
            ("DSEM.RELEASE s $p", "NOTHELD "),
        ]);
        let text = messages.next_text();
        assert!(text.starts_with(told), "{text}");
        story.go(&[
            ("DSEM.INIT s 1", "1"),
            ("1", "id q"),
            ("2", "waits"),
            ("DSEM.RELEASE s $q", "0"),
            ("2", "1"),
            ("DSEM.GIVE s", "1"),
            ("DEL s", "1"),
            // The first waiter with LIMIT creates it again; earlier waiters are served first.
            ("DSEM.INIT s 2", "1"),
            ("DSEM.TAKE s 2", "1"),
            ("1: DSEM.ACQUIRE s b BLOCK 0", "waits"),
            ("2: DSEM.ACQUIRE s c LIMIT 1 BLOCK 0", "waits"),
            ("3: DSEM.ACQUIRE s d LIMIT 9 BLOCK 0", "waits"),
        ]);
        server.cmd(&removal.split(' ').collect::<Vec<_>>()).ok();
        story.go(&[("1", "id q"), ("sem s", "0 of 1 (1 leased, 0 taken); waits c d")]);
        story.go(&[
            ("DSEM.RELEASE s $q", "0"),
            ("2", "id q"),
            ("DSEM.RELEASE s $q", "0"),
            ("3", "id q"),
            ("DSEM.RELEASE s $q", "1"),
            ("sem s", "nothing"),
        ]);
        story.end();
    }
    // Another type on the key: no call can wait for that.
    server.cmd(&["DSEM.INIT", "s", "1"]).int();
    server.cmd(&["DSEM.TAKE", "s"]).int();
    let mut waiter = server.block(&["DSEM.ACQUIRE", "s", "a", "BLOCK", "0"]);
    server.cmd(&["SET", "s", "text"]).ok();
    assert!(waiter.expect_reply(SOON).error().starts_with("WRONGTYPE "));
    server.cmd(&["DEL", "s"]).ok();
    // Its permits move with the key, its waiters stay with the old name.
    Story::tell(
        &server,
        &[
            ("DSEM.INIT s 1", "1"),
            ("DSEM.ACQUIRE s a", "id p"),
            ("1: DSEM.ACQUIRE s b BLOCK 0", "waits"),
            ("RENAME s t", "'OK"),
            ("sem s", "not made; waits b"),
            ("sem t", "0 of 1 (1 leased, 0 taken)"),
            ("DSEM.RELEASE t $p", "1"),
            ("1", "waits"),
            ("RENAME t s", "'OK"),
            ("1", "id q"),
            ("DEL s", "1"),
        ],
    );
}

/// A skipped waiter stays as long as its place lasts; then the semaphore that LIMIT created is removed.
#[test]
fn one_that_was_made_on_first_use_is_not_left_behind_by_a_hung_connection() {
    let server = Server::start();
    let mut hung = server.client();
    let id = server.cmd(&["DSEM.ACQUIRE", "s", "a", "LIMIT", "1"]).text();
    for (owner, queue) in [("b", "30"), ("c", "100")] {
        assert!(hung.cmd(&["DSEM.ACQUIRE", "s", owner, "QUEUE", queue]).is_null());
    }
    assert_eq!(server.cmd(&["DSEM.RELEASE", "s", &id]).int(), 0);
    wait_until("the grant to expire", || server.info_number("dlock", "unclaimed") == 1);
    // It can be used meanwhile, with the same capacity.
    let id = server.cmd(&["DSEM.ACQUIRE", "s", "d", "LIMIT", "1"]).text();
    assert!(server.cmd(&["DSEM.ACQUIRE", "s", "e", "LIMIT", "1"]).is_null());
    server.cmd(&["DSEM.RELEASE", "s", &id]).int();
    drop(hung);
    server.left_over_check();
}
