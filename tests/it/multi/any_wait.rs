//! A blocked ANYACQUIRE gets the first lock that becomes free, and leaves the queues of the others.

use std::time::Instant;

use super::{ask, clear, one_of, picture, tokens, wait};
use crate::{
    scene::assert_lasted,
    support::{Blocked, Reply, SOON, Server},
};

const KEYS: &str = "s1 s2 s3";

/// All three are held by `h`.
fn all_busy(server: &Server) {
    assert_eq!(tokens(&ask(server, "DLOCK.MACQUIRE 3 s1 s2 s3 h PX 60000")).len(), 3);
}

#[test]
fn it_wakes_on_the_first_one_freed_and_leaves_the_others() {
    let server = Server::start();
    for (key, way) in [
        ("s1", "DLOCK.RELEASE s1 h"),
        ("s2", "DLOCK.BREAK s2"),
        ("s3", "DLOCK.RENEW s3 h PX 20"),
        ("s1", "DEL s1"),
        ("s2", "PEXPIRE s2 20"),
        ("s3", "DLOCK.MRELEASE 1 s3 h"),
    ] {
        all_busy(&server);
        let mut a = wait(&server, "DLOCK.ANYACQUIRE 3 s1 s2 s3 a BLOCK 0 PX 50000 LABEL why");
        let mut b = wait(&server, "DLOCK.ACQUIRE s2 b BLOCK 0");
        assert_eq!(picture(&server, KEYS), "s1:h<a s2:h<a<b s3:h<a");
        assert_eq!(server.cmd(&["DLOCK.POSITION", "s3", "a"]).int(), 1);
        a.assert_no_reply();
        let before = server.info_number("dlock", "last_token");
        ask(&server, way).ok();
        let (got, token) = one_of(&a.expect_reply(SOON));
        assert_eq!(got, key, "{way}");
        assert!(token > before, "{token} after {before}");
        let info = server.cmd(&["DLOCK.INFO", key]);
        assert_eq!(info.field("label").text(), "why");
        assert!((40_000..=50_000).contains(&info.field("ttl-ms").int()), "{}", info.show());
        let then = match key {
            "s1" => "s1:a s2:h<b s3:h",
            "s2" => "s1:h s2:a<b s3:h",
            _ => "s1:h s2:h<b s3:a",
        };
        assert_eq!(picture(&server, KEYS), then, "{way}");
        b.assert_no_reply();
        // Locks that become free afterwards do not concern it.
        ask(&server, "DLOCK.MRELEASE 3 s1 s2 s3 h").int();
        ask(&server, "DLOCK.MRELEASE 3 s1 s2 s3 a").int();
        b.expect_reply(SOON).int();
        assert_eq!(picture(&server, KEYS), "s1:- s2:b s3:-");
        clear(&server);
    }
}

#[test]
fn many_that_wait_are_served_in_the_order_in_which_they_came() {
    let server = Server::start();
    all_busy(&server);
    let mut waiting: Vec<Blocked> = (0..6)
        .map(|n| {
            let keys = ["3 s1 s2 s3", "2 s3 s1", "2 s2 s3"][n % 3];
            wait(&server, &format!("DLOCK.ANYACQUIRE {keys} o{n} BLOCK 0"))
        })
        .collect();
    assert_eq!(picture(&server, KEYS), "s1:h<o0<o1<o3<o4 s2:h<o0<o2<o3<o5 s3:h<o0<o1<o2<o3<o4<o5");
    // Each released lock goes to the first waiter that has it in its list, and only to that one.
    let mut holders = [("s1", "h".to_owned()), ("s2", "h".to_owned()), ("s3", "h".to_owned())];
    for (freed, to) in [("s3", 0), ("s2", 2), ("s1", 1), ("s3", 3), ("s2", 5), ("s1", 4)] {
        let holder = holders.iter_mut().find(|(key, _)| *key == freed).expect("one of three");
        let blocked = server.blocked_clients();
        server.cmd(&["DLOCK.RELEASE", freed, &holder.1]).int();
        assert_eq!(one_of(&waiting[to].expect_reply(SOON)).0, freed);
        assert_eq!(server.blocked_clients(), blocked - 1, "one was woken");
        holder.1 = format!("o{to}");
    }
    assert_eq!(picture(&server, KEYS), "s1:o4 s2:o5 s3:o3");
    clear(&server);
}

/// Several locks freed in one step go to several calls, one each.
#[test]
fn locks_freed_together_are_spread_over_the_waiters() {
    let server = Server::start();
    all_busy(&server);
    let mut waiting: Vec<Blocked> = (0..4)
        .map(|n| wait(&server, &format!("DLOCK.ANYACQUIRE 3 s1 s2 s3 o{n} BLOCK 0")))
        .collect();
    assert_eq!(ask(&server, "DLOCK.MRELEASE 3 s1 s2 s3 h").int(), 3);
    let mut got: Vec<String> =
        waiting[..3].iter_mut().map(|waiter| one_of(&waiter.expect_reply(SOON)).0).collect();
    got.sort();
    assert_eq!(got, ["s1", "s2", "s3"]);
    waiting[3].assert_no_reply();
    clear_with(&server, waiting.pop().expect("four"));
}

fn clear_with(server: &Server, mut last: Blocked) {
    server.cmd(&["FLUSHALL"]).ok();
    one_of(&last.expect_reply(SOON));
    clear(server);
}

#[test]
fn calls_for_any_and_for_all_share_the_queues() {
    let server = Server::start();
    all_busy(&server);
    let mut any = wait(&server, "DLOCK.ANYACQUIRE 2 s1 s2 any BLOCK 0");
    let mut all = wait(&server, "DLOCK.MACQUIRE 2 s2 s1 all BLOCK 0");
    let mut late = wait(&server, "DLOCK.ANYACQUIRE 3 s1 s2 s3 late BLOCK 0");
    assert_eq!(picture(&server, KEYS), "s1:h<any<all<late s2:h<any<all<late s3:h<late");
    ask(&server, "DLOCK.RELEASE s2 h").int();
    assert_eq!(one_of(&any.expect_reply(SOON)).0, "s2");
    assert_eq!(picture(&server, KEYS), "s1:h<all<late s2:any<all<late s3:h<late");
    // `all` is now first at `s1`, and reserves it.
    ask(&server, "DLOCK.RELEASE s1 h").int();
    late.assert_no_reply();
    assert_eq!(picture(&server, KEYS), "s1:-<all<late s2:any<all<late s3:h<late");
    ask(&server, "DLOCK.RELEASE s3 h").int();
    assert_eq!(one_of(&late.expect_reply(SOON)).0, "s3");
    all.assert_no_reply();
    ask(&server, "DLOCK.RELEASE s2 any").int();
    tokens(&all.expect_reply(SOON));
    assert_eq!(picture(&server, KEYS), "s1:all s2:all s3:late");
    clear(&server);
}

#[test]
fn every_way_out_leaves_all_queues() {
    let server = Server::start();
    for way in ["timeout", "unblock", "error", "cancel", "hang up", "SET"] {
        all_busy(&server);
        let sent = Instant::now();
        let block = if way == "timeout" { 300 } else { 0 };
        let mut a = wait(&server, &format!("DLOCK.ANYACQUIRE 3 s1 s2 s3 a BLOCK {block}"));
        let mut b = wait(&server, "DLOCK.ANYACQUIRE 3 s3 s2 s1 b BLOCK 0");
        let mut then = "s1:h<b s2:h<b s3:h<b";
        match way {
            "timeout" => {
                assert!(a.expect_reply(SOON).is_null());
                assert_lasted(sent, 300);
            }
            "unblock" => {
                assert_eq!(ask(&server, &format!("DLOCK.UNBLOCK {}", a.id())).int(), 1);
                assert!(a.expect_reply(SOON).is_null());
            }
            "error" => {
                assert_eq!(ask(&server, &format!("DLOCK.UNBLOCK {} ERROR", a.id())).int(), 1);
                assert!(a.expect_reply(SOON).error().starts_with("UNBLOCKED "));
            }
            "cancel" => {
                assert_eq!(ask(&server, "DLOCK.CANCEL s2 a").int(), 1);
                assert!(a.expect_reply(SOON).is_null());
                assert_eq!(ask(&server, "DLOCK.CANCEL s1 a").int(), 0);
            }
            "hang up" => {
                a.hang_up();
                server.wait_blocked(1);
            }
            _ => {
                server.cmd(&["SET", "s2", "text"]).ok();
                for waiter in [&mut a, &mut b] {
                    assert!(waiter.expect_reply(SOON).error().starts_with("WRONGTYPE "));
                }
                assert_eq!(picture(&server, "s1 s3"), "s1:h s3:h");
                clear(&server);
                continue;
            }
        }
        assert_eq!(picture(&server, KEYS), then, "{way}");
        ask(&server, "DLOCK.RELEASE s1 h").int();
        assert_eq!(one_of(&b.expect_reply(SOON)).0, "s1", "{way}");
        then = "s1:b s2:h s3:h";
        assert_eq!(picture(&server, KEYS), then, "{way}");
        clear(&server);
    }
}

/// Two hundred locks, of which the last in the list becomes free.
#[test]
fn it_finds_the_one_among_many() {
    let server = Server::start();
    let keys: Vec<String> = (0..200).map(|n| format!("s{n}")).collect();
    let keys = keys.join(" ");
    ask(&server, &format!("DLOCK.MACQUIRE 200 {keys} h")).ok();
    let mut a = wait(&server, &format!("DLOCK.ANYACQUIRE 200 {keys} a BLOCK 0"));
    ask(&server, "DLOCK.RELEASE s199 h").int();
    assert_eq!(one_of(&a.expect_reply(SOON)).0, "s199");
    assert_eq!(server.info_number("dlock", "waiters_blocked"), 0);
    clear(&server);
}
