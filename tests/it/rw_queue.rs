//! Waits for a read-write lock: order of arrival, concurrent readers, and everything that ends a wait or a hold.

use crate::{
    args,
    story::{Story, queue, rw},
    support::{Kind, ReplicaTap, Reply, SOON, Server, wait_until},
};

#[test]
fn arrival_order_rules_for_both_sides() {
    Story::tell(
        &Server::start(),
        &[
            ("DRW.ACQUIRE k a READ", "token a"),
            ("w: DRW.ACQUIRE k b WRITE BLOCK 0", "waits"),
            // A writer waits: new readers queue behind it, or are refused.
            ("DRW.ACQUIRE k c READ", "nil"),
            ("r1: DRW.ACQUIRE k c READ BLOCK 0", "waits"),
            ("r2: DRW.ACQUIRE k d READ BLOCK 0", "waits"),
            ("v: DRW.ACQUIRE k e WRITE BLOCK 0", "waits"),
            ("r3: DRW.ACQUIRE k f READ BLOCK 0", "waits"),
            ("rw k", "read a*1; waits b c d e f"),
            ("DRW.POSITION k a", "0"),
            ("DRW.POSITION k b", "1"),
            ("DRW.POSITION k f", "5"),
            ("DRW.POSITION k g", "nil"),
            // A waiting writer never blocks a re-entry of a reader.
            ("DRW.ACQUIRE k a READ", "$a"),
            ("DRW.RELEASE k a READ", "1"),
            ("w", "waits"),
            ("DRW.RELEASE k a READ", "0"),
            ("w", "token b"),
            ("r1", "waits"),
            ("rw k", "write b*1; waits c d e f"),
            ("DRW.RELEASE k b WRITE", "0"),
            // Adjacent readers are granted together; not the one behind the next writer.
            ("r1", "token c"),
            ("r2", "token d"),
            ("v", "waits"),
            ("r3", "waits"),
            ("rw k", "read c*1 d*1; waits e f"),
            ("DRW.RELEASE k d READ", "0"),
            ("v", "waits"),
            ("DRW.RELEASE k c READ", "0"),
            ("v", "token e"),
            ("r3", "waits"),
            ("DRW.BREAK k", "1"),
            ("r3", "token f"),
            ("DRW.RELEASE k f READ", "0"),
        ],
    );
}

#[test]
fn readers_behind_a_writer_that_leaves_come_in() {
    let server = Server::start();
    for leaves in ["drop w", "kill w", "DRW.CANCEL k b", "unblock", "time", "mode"] {
        println!("{leaves}");
        let mut story = Story::on(&server);
        let block = if leaves == "time" { "3000" } else { "0" };
        let wait = format!("w: DRW.ACQUIRE k b WRITE BLOCK {block}");
        story.go(&[
            ("DRW.ACQUIRE k a READ", "token a"),
            (&wait, "waits"),
            ("r1: DRW.ACQUIRE k c READ BLOCK 0", "waits"),
            ("r2: DRW.ACQUIRE k d READ BLOCK 0", "waits"),
            ("v: DRW.ACQUIRE k e WRITE BLOCK 0", "waits"),
        ]);
        match leaves {
            "unblock" => {
                let id = server.cmd(&["DRW.WAITERS", "k"]).items()[0].field("client-id").int();
                story.go(&[(&format!("DLOCK.UNBLOCK {id}"), "1"), ("w", "nil")]);
            }
            "time" => story.go(&[("w", "nil")]),
            // It now requests another mode, at the end of the queue.
            "mode" => story.go(&[("x: DRW.ACQUIRE k b READ BLOCK 0", "waits"), ("w", "REPLACED ")]),
            "DRW.CANCEL k b" => story.go(&[(leaves, "1"), ("w", "nil")]),
            _ => story.go(&[(leaves, "")]),
        }
        story.go(&[
            ("r1", "token c"),
            ("r2", "token d"),
            ("v", "waits"),
            ("DRW.BREAK k", "3"),
            ("v", "token e"),
            ("DRW.RELEASE k e WRITE", "0"),
        ]);
        if leaves == "mode" {
            story.go(&[("x", "token b"), ("DRW.RELEASE k b READ", "0")]);
        }
        story.end();
    }
}

#[test]
fn readers_side_by_side_are_let_in_in_one_step() {
    const READERS: usize = 50;
    let server = Server::start();
    let mut tap = ReplicaTap::attach(&server);
    for end in [&["DRW.RELEASE", "k", "w", "WRITE"][..], &["DRW.BREAK", "k"], &["DEL", "k"]] {
        server.cmd(&["DRW.ACQUIRE", "k", "w", "WRITE"]).int();
        let mut readers: Vec<_> = (0..READERS)
            .map(|n| server.block(&args!["DRW.ACQUIRE", "k", format!("r{n}"), "READ", "BLOCK", 0]))
            .collect();
        let mut next = server.block(&["DRW.ACQUIRE", "k", "next", "WRITE", "BLOCK", "0"]);
        tap.commands(&server);
        // Every observer in the same turn of the server sees all of them. (After DEL, from the next writing call on.)
        let all: [&[&str]; 5] =
            [&["MULTI"], end, &["DRW.CANCEL", "k", "x"], &["DRW.INFO", "k"], &["EXEC"]];
        let replies = server.client().pipeline(&all.map(<[&str]>::to_vec));
        let info = replies[4].items()[2].clone();
        assert_eq!(info.field("readers").items().len(), READERS, "{end:?}");
        assert_eq!(info.field("waiters").int(), 1, "{end:?}");
        let records = tap.commands(&server);
        let ours = records.iter().filter(|record| record[0] == b"DLOCK.APPLY").count();
        // After a DEL the key is created again.
        assert_eq!(ours, 1, "{end:?}: one record for all of them");
        let mut last = 0;
        for reader in &mut readers {
            let token = reader.expect_reply(SOON).int();
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        next.assert_no_reply();
        assert_eq!(server.cmd(&["DRW.BREAK", "k"]).int(), 50);
        next.expect_reply(SOON).int();
        server.cmd(&["DRW.RELEASE", "k", "next", "WRITE"]).int();
    }
    server.left_over_check();
}

#[test]
fn each_hold_hears_how_it_ended() {
    let server = Server::start();
    let mut messages = server.psubscribe(&["dlock:notify*", "mine"]);
    // How the hold of `a` ends: by a call, or (none) by the close of the connection it is bound to.
    for (event, end) in [
        (Some("expired"), "DRW.RENEW k a MODE PX 1"),
        (Some("broken"), "DRW.BREAK k"),
        (Some("broken"), "DRW.BREAK k a"),
        (Some("deleted"), "DEL k"),
        (Some("deleted"), "SET k v"),
        (Some("disconnected"), ""),
        (None, "DRW.RELEASE k a MODE"),
    ] {
        for mode in ["READ", "WRITE"] {
            for notify in [true, false] {
                let mut holder = server.client();
                let mut call = vec!["DRW.ACQUIRE", "k", "a", mode, "BIND", "0"];
                call.extend(if notify { &["NOTIFY", "mine"][..] } else { &[] });
                let token = holder.cmd(&call).int();
                if end.is_empty() {
                    server.cmd(&args!["CLIENT", "KILL", "ID", holder.id()]).ok();
                } else {
                    let end = end.replace("MODE", mode);
                    server.cmd(&end.split(' ').collect::<Vec<_>>()).ok();
                }
                if end.starts_with("SET") {
                    server.cmd(&["DEL", "k"]).ok();
                }
                wait_until("the hold to end", || rw(&server, "k") == "nothing");
                if let Some(event) = event.filter(|_| notify) {
                    let text = format!("{event} 0 {token} 1 a 0  k");
                    assert_eq!(messages.next(), ("mine".to_owned(), text.into_bytes()));
                }
                server.cmd(&["PING"]).ok();
                messages.assert_none();
            }
        }
    }
    server.left_over_check();
}

#[test]
fn an_operator_ends_a_blocked_call() {
    let server = Server::start();
    server.cmd(&["DRW.ACQUIRE", "k", "a", "READ"]).int();
    let mut ways = vec![("DLOCK.UNBLOCK", "", false), ("DLOCK.UNBLOCK", "ERROR", true)];
    if Kind::of_binary().client_unblock_is_safe() {
        ways.extend([("CLIENT UNBLOCK", "TIMEOUT", false), ("CLIENT UNBLOCK", "ERROR", true)]);
    }
    for (before, after, is_error) in ways {
        let mut waiter = server.block(&["DRW.ACQUIRE", "k", "b", "WRITE", "BLOCK", "0"]);
        let call = format!("{before} {} {after}", waiter.id());
        let call: Vec<&str> = call.trim().split(' ').collect();
        assert_eq!(server.cmd(&call).int(), 1, "{call:?}");
        let reply = waiter.expect_reply(SOON);
        if is_error {
            assert!(reply.error().starts_with("UNBLOCKED "), "{}", reply.show());
        } else {
            assert!(reply.is_null(), "{}", reply.show());
        }
        wait_until("the place to go", || queue(&server, "DRW", "k").is_empty());
        assert_eq!(waiter.client().cmd(&["PING"]).show(), "PONG");
    }
    server.cmd(&["DRW.RELEASE", "k", "a", "READ"]).int();
    server.left_over_check();
}

#[test]
fn a_grant_that_cannot_be_sent_is_taken_back() {
    let server = Server::start();
    // Two readers are granted together; the first one's connection is killed before it got the reply.
    for modes in [["READ", "READ"], ["READ", "WRITE"], ["WRITE", "READ"]] {
        server.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE"]).int();
        let [mut b, mut c] = [("b", modes[0]), ("c", modes[1])]
            .map(|(owner, mode)| server.block(&["DRW.ACQUIRE", "k", owner, mode, "BLOCK", "0"]));
        let replies = server.client().pipeline(&[
            args!["DRW.RELEASE", "k", "a", "WRITE"],
            args!["CLIENT", "KILL", "ID", b.id()],
        ]);
        assert_eq!((replies[0].int(), replies[1].int()), (0, 1));
        b.expect_closed_without_reply();
        c.expect_reply(SOON).int();
        wait_until("only c to hold it", || {
            rw(&server, "k") == format!("{} c*1", modes[1].to_lowercase())
        });
        assert_eq!(server.cmd(&["DRW.RELEASE", "k", "c", modes[1]]).int(), 0);
        server.left_over_check();
    }
}

#[test]
fn waiters_of_a_key_that_was_removed_are_let_in_as_after_a_release() {
    let server = Server::start();
    let mut messages = server.subscribe(&["news", "dlock:notify"]);
    for (removal, told) in [
        (&["DEL", "k"][..], "deleted 0 "),
        (&["UNLINK", "k"], "deleted 0 "),
        (&["PEXPIRE", "k", "5"], "deleted 0 "),
        (&["FLUSHALL"], "flushed 0"),
    ] {
        server.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE", "NOTIFY", "news"]).int();
        let [mut b, mut c] = ["b", "c"]
            .map(|owner| server.block(&["DRW.ACQUIRE", "k", owner, "READ", "BLOCK", "0"]));
        let mut d = server.block(&["DRW.ACQUIRE", "k", "d", "WRITE", "BLOCK", "0"]);
        server.cmd(removal).ok();
        let first = b.expect_reply(SOON).int();
        assert!(c.expect_reply(SOON).int() > first);
        let text = messages.next_text();
        assert!(text.starts_with(told), "{text}");
        d.assert_no_reply();
        assert_eq!(rw(&server, "k"), "read b*1 c*1; waits d", "{removal:?}");
        server.cmd(&["DRW.BREAK", "k"]).ok();
        d.expect_reply(SOON).int();
        server.cmd(&["DRW.RELEASE", "k", "d", "WRITE"]).int();
    }
    // Its holds move with the key, its waiters stay with the old name.
    server.cmd(&["DRW.ACQUIRE", "k", "a", "READ"]).int();
    let mut b = server.block(&["DRW.ACQUIRE", "k", "b", "WRITE", "BLOCK", "0"]);
    server.cmd(&["RENAME", "k", "l"]).ok();
    b.expect_reply(SOON).int();
    assert_eq!((rw(&server, "k"), rw(&server, "l")), ("write b*1".into(), "read a*1".into()));
    // Another type: no call can wait for that.
    let mut c = server.block(&["DRW.ACQUIRE", "k", "c", "READ", "BLOCK", "0"]);
    server.cmd(&["SET", "k", "text"]).ok();
    assert!(c.expect_reply(SOON).error().starts_with("WRONGTYPE "));
    server.cmd(&["DEL", "k", "l"]).ok();
    messages.assert_none();
    server.left_over_check();
}
