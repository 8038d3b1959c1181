//! Readers that upgrade to write: in front of all waiters, and only one of them.

use crate::{
    story::Story,
    support::{Reply, Server},
};

#[test]
fn the_only_reader_upgrades_at_once_past_all_waiters() {
    Story::tell(
        &Server::start(),
        &[
            ("DRW.ACQUIRE k a READ", "token r"),
            ("w: DRW.ACQUIRE k b WRITE BLOCK 0", "waits"),
            ("x: DRW.ACQUIRE k c READ BLOCK 0", "waits"),
            ("DRW.ACQUIRE k a WRITE", "token w"),
            ("rw k", "write a*1; read a*1; waits b c"),
            ("DRW.RELEASE k a READ", "0"),
            ("w", "waits"),
            ("DRW.RELEASE k a WRITE", "0"),
            ("w", "token b"),
            ("drop x", ""),
            ("DRW.RELEASE k b WRITE", "0"),
        ],
    );
}

#[test]
fn an_upgrade_waits_in_front_of_everyone() {
    Story::tell(
        &Server::start(),
        &[
            ("DRW.ACQUIRE k a READ", "token a"),
            ("DRW.ACQUIRE k b READ", "token b"),
            ("w: DRW.ACQUIRE k c WRITE BLOCK 0", "waits"),
            ("r: DRW.ACQUIRE k d READ BLOCK 0", "waits"),
            ("DRW.ACQUIRE k a WRITE", "nil"),
            ("rw k", "read a*1 b*1; waits c d"),
            ("u: DRW.ACQUIRE k a WRITE BLOCK 0", "waits"),
            ("rw k", "read a*1 b*1; waits a c d"),
            // A place wins over a hold.
            ("DRW.POSITION k a", "1"),
            ("DRW.POSITION k b", "0"),
            ("DRW.ACQUIRE k b READ", "$b"),
            ("DRW.RELEASE k b READ ALL", "0"),
            ("u", "token w"),
            ("rw k", "write a*1; read a*1; waits c d"),
            ("DRW.RELEASE k a WRITE", "0"),
            ("w", "waits"),
            ("DRW.RELEASE k a READ", "0"),
            ("w", "token c"),
            ("DRW.RELEASE k c WRITE", "0"),
            ("r", "token d"),
            ("DRW.RELEASE k d READ", "0"),
        ],
    );
}

#[test]
fn an_upgrade_keeps_its_place_when_its_read_hold_ends() {
    let server = Server::start();
    for end in ["DRW.RENEW k a READ PX 1", "DRW.RELEASE k a READ", "DRW.BREAK k a"] {
        println!("{end}");
        let mut story = Story::on(&server);
        story.go(&[
            ("DRW.ACQUIRE k a READ", "token a"),
            ("DRW.ACQUIRE k b READ", "token b"),
            ("w: DRW.ACQUIRE k c WRITE BLOCK 0", "waits"),
            ("u: DRW.ACQUIRE k a WRITE BLOCK 0", "waits"),
        ]);
        server.cmd(&end.split(' ').collect::<Vec<_>>()).int();
        story.go(&[
            ("rw k", "read b*1; waits a c"),
            ("u", "waits"),
            ("DRW.RELEASE k b READ", "0"),
            ("u", "token w"),
            ("w", "waits"),
            ("rw k", "write a*1; waits c"),
            ("DRW.RELEASE k a WRITE", "0"),
            ("w", "token c"),
            ("DRW.RELEASE k c WRITE", "0"),
        ]);
        story.end();
    }
}

#[test]
fn the_last_reader_upgrades_past_an_upgrade_without_a_read_hold() {
    Story::tell(
        &Server::start(),
        &[
            ("DRW.ACQUIRE k a READ", "token a"),
            ("DRW.ACQUIRE k b READ", "token b"),
            ("u: DRW.ACQUIRE k a WRITE BLOCK 0", "waits"),
            ("DRW.RELEASE k a READ", "0"),
            ("DRW.ACQUIRE k b WRITE BLOCK 0", "token w"),
            ("rw k", "write b*1; read b*1; waits a"),
            ("DRW.RELEASE k b WRITE", "0"),
            ("u", "waits"),
            ("DRW.RELEASE k b READ", "0"),
            ("u", "token later"),
            ("DRW.RELEASE k a WRITE", "0"),
        ],
    );
}

#[test]
fn an_upgrade_waits_in_front_of_one_without_a_read_hold() {
    for detection in ["yes", "no"] {
        Story::tell(
            &Server::with(&["dlock.deadlock-detection", detection]).start(),
            &[
                ("DRW.ACQUIRE k a READ", "token a"),
                ("DRW.ACQUIRE k b READ", "token b"),
                ("DRW.ACQUIRE k c READ", "token c"),
                ("u: DRW.ACQUIRE k a WRITE BLOCK 0", "waits"),
                ("DRW.RELEASE k a READ", "0"),
                // Behind it, it would wait forever: the other one waits for the read hold of this one.
                ("v: DRW.ACQUIRE k b WRITE BLOCK 0", "waits"),
                ("rw k", "read b*1 c*1; waits b a"),
                ("DRW.RELEASE k c READ", "0"),
                ("v", "token w"),
                ("u", "waits"),
                ("DRW.BREAK k", "2"),
                ("u", "token later"),
                ("DRW.RELEASE k a WRITE", "0"),
            ],
        );
    }
}

#[test]
fn a_second_upgrade_would_wait_for_ever_and_is_told_so() {
    for detection in ["yes", "no"] {
        let server = Server::with(&["dlock.deadlock-detection", detection]).start();
        let mut story = Story::on(&server);
        story.go(&[
            ("DRW.ACQUIRE k a READ", "token a"),
            ("DRW.ACQUIRE k b READ", "token b"),
            ("w: DRW.ACQUIRE k c WRITE BLOCK 0", "waits"),
            ("u: DRW.ACQUIRE k a WRITE BLOCK 0", "waits"),
            ("DRW.ACQUIRE k b WRITE BLOCK 0", "DEADLOCK "),
            ("DRW.ACQUIRE k b WRITE BLOCK 10", "DEADLOCK "),
            ("DRW.ACQUIRE k b WRITE QUEUE 60000", "DEADLOCK "),
            ("DRW.ACQUIRE k b WRITE BLOCK 10 QUEUE 60000", "DEADLOCK "),
            // A call that does not wait only gets Null.
            ("DRW.ACQUIRE k b WRITE", "nil"),
            // No owner was disturbed.
            ("rw k", "read a*1 b*1; waits a c"),
            ("u", "waits"),
            ("w", "waits"),
            ("DRW.ACQUIRE k b READ", "$b"),
            ("DRW.RELEASE k b READ ALL", "0"),
            ("u", "token w"),
            ("DRW.BREAK k a", "2"),
            ("w", "token c"),
            ("DRW.RELEASE k c WRITE", "0"),
        ]);
        assert!(server.info_number("dlock", "deadlocks_refused") >= 4, "detection {detection}");
        // When the first one gives up, the next may try.
        story.go(&[
            ("DRW.ACQUIRE k a READ", "token a"),
            ("DRW.ACQUIRE k b READ", "token b"),
            ("u: DRW.ACQUIRE k a WRITE BLOCK 0", "waits"),
            ("DRW.CANCEL k a", "1"),
            ("u", "nil"),
            ("v: DRW.ACQUIRE k b WRITE BLOCK 0", "waits"),
            ("u: DRW.ACQUIRE k a WRITE BLOCK 0", "DEADLOCK "),
            ("DRW.RELEASE k a READ", "0"),
            ("v", "token w"),
            ("DRW.BREAK k", "2"),
        ]);
        story.end();
    }
}

#[test]
fn an_upgrade_may_wait_in_a_place() {
    let server = Server::start();
    let mut messages = server.subscribe(&["dlock:notify:a"]);
    let mut story = Story::on(&server);
    story.go(&[
        ("DRW.ACQUIRE k a READ", "token a"),
        ("DRW.ACQUIRE k b READ", "token b"),
        ("r: DRW.ACQUIRE k c WRITE BLOCK 0", "waits"),
        ("DRW.ACQUIRE k a WRITE QUEUE 60000", "nil"),
        ("rw k", "read a*1 b*1; waits a c"),
        ("DRW.ACQUIRE k a READ", "$a"),
        ("DRW.RELEASE k b READ", "0"),
        ("rw k", "write a*1; read a*2; waits c"),
    ]);
    assert!(messages.next_text().starts_with("granted 0 "));
    story.go(&[
        ("DRW.ACQUIRE k a WRITE", "token w"),
        ("rw k", "write a*1; read a*2; waits c"),
        ("DRW.BREAK k a", "2"),
        ("r", "token c"),
        ("DRW.RELEASE k c WRITE", "0"),
    ]);
    story.end();
}
