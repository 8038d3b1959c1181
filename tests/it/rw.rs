//! DRW as a client sees it: readers, writers, tokens, counts.

use dlock_wire::reply::{self, HolderInfo, RwInfo};
use redis::Value;

use crate::{
    args,
    story::Story,
    support::{Reply, SOON, Server},
};

#[test]
fn many_readers_or_one_writer() {
    Story::tell(
        &Server::start(),
        &[
            ("DRW.ACQUIRE k a READ", "token a"),
            ("DRW.ACQUIRE k b read", "token b"),
            ("DRW.ACQUIRE k c Read", "token c"),
            ("TYPE k", "'dlock-rwl"),
            ("rw k", "read a*1 b*1 c*1"),
            ("DRW.ACQUIRE k d WRITE", "nil"),
            // The token of any holder is valid.
            ("DRW.CHECK k $a", "1"),
            ("DRW.CHECK k $b", "1"),
            ("DRW.CHECK k $c", "1"),
            ("DRW.RELEASE k b READ", "0"),
            ("DRW.CHECK k $b", "STALE "),
            ("DRW.CHECK k $c", "1"),
            ("DRW.RELEASE k a READ", "0"),
            ("DRW.ACQUIRE k d WRITE", "nil"),
            ("DRW.RELEASE k c READ", "0"),
            ("rw k", "nothing"),
            ("EXISTS k", "0"),
            ("DRW.CHECK k $c", "STALE "),
            ("DRW.ACQUIRE k d WRITE", "token d"),
            ("rw k", "write d*1"),
            ("DRW.ACQUIRE k a READ", "nil"),
            ("DRW.ACQUIRE k a WRITE", "nil"),
            ("DRW.CHECK k $d", "1"),
            ("DRW.ACQUIRE other a WRITE", "token o"),
            ("DRW.RELEASE k d WRITE", "0"),
            ("DRW.RELEASE other a WRITE", "0"),
        ],
    );
}

#[test]
fn each_mode_counts_and_keeps_its_token() {
    Story::tell(
        &Server::start(),
        &[
            ("DRW.ACQUIRE k a READ", "token r"),
            ("w: DRW.ACQUIRE k a READ", "$r"),
            ("rw k", "read a*2"),
            // The only reader writes at once.
            ("DRW.ACQUIRE k a WRITE", "token w"),
            ("DRW.ACQUIRE k a WRITE BLOCK 0", "$w"),
            ("DRW.ACQUIRE k a READ BLOCK 0", "$r"),
            ("rw k", "write a*2; read a*3"),
            ("DRW.CHECK k $r", "1"),
            ("DRW.CHECK k $w", "1"),
            ("DRW.POSITION k a", "0"),
            ("DRW.ACQUIRE k b READ", "nil"),
            ("DRW.RELEASE k a READ", "2"),
            ("DRW.RELEASE k a WRITE", "1"),
            ("DRW.ACQUIRE k b READ", "nil"),
            ("DRW.RELEASE k a READ ALL", "0"),
            ("rw k", "write a*1"),
            ("DRW.CHECK k $r", "STALE "),
            // Another hold, another token.
            ("DRW.ACQUIRE k a READ", "token again"),
            ("DRW.RELEASE k a WRITE", "0"),
            ("DRW.CHECK k $w", "STALE "),
            ("DRW.ACQUIRE k b READ", "token b"),
            ("DRW.ACQUIRE k a WRITE", "nil"),
            ("DRW.RELEASE k b READ ALL", "0"),
            ("DRW.RELEASE k a READ", "0"),
        ],
    );
}

#[test]
fn a_writer_becomes_a_reader_without_a_gap() {
    Story::tell(
        &Server::start(),
        &[
            ("DRW.ACQUIRE k a WRITE", "token w"),
            ("w: DRW.ACQUIRE k b WRITE BLOCK 0", "waits"),
            ("r: DRW.ACQUIRE k c READ BLOCK 0", "waits"),
            // A re-entry passes the waiters.
            ("DRW.ACQUIRE k a READ", "token r"),
            ("DRW.RELEASE k a WRITE", "0"),
            ("w", "waits"),
            ("r", "waits"),
            ("rw k", "read a*1; waits b c"),
            ("DRW.CHECK k $w", "STALE "),
            ("DRW.CHECK k $r", "1"),
            ("DRW.RELEASE k a READ", "0"),
            ("w", "token b"),
            ("r", "waits"),
            ("DRW.RELEASE k b WRITE", "0"),
            ("r", "token c"),
            ("DRW.RELEASE k c READ", "0"),
            // Waiting readers are granted as soon as the writer only reads.
            ("DRW.ACQUIRE k a WRITE", "token w"),
            ("r: DRW.ACQUIRE k c READ BLOCK 0", "waits"),
            ("w: DRW.ACQUIRE k b WRITE BLOCK 0", "waits"),
            ("DRW.ACQUIRE k a READ", "token r"),
            ("r", "waits"),
            ("DRW.RELEASE k a WRITE", "0"),
            ("r", "token c"),
            ("w", "waits"),
            ("rw k", "read a*1 c*1; waits b"),
            ("DRW.RELEASE k c READ", "0"),
            ("w", "waits"),
            ("DRW.RELEASE k a READ", "0"),
            ("w", "token b"),
            ("DRW.RELEASE k b WRITE", "0"),
        ],
    );
}

#[test]
fn only_the_holder_of_that_mode_with_the_right_token_changes_the_hold() {
    let server = Server::start();
    let mut story = Story::on(&server);
    story.go(&[
        ("DRW.ACQUIRE k a READ PX 600000", "token r"),
        ("DRW.ACQUIRE k b READ PX 600000", "token other"),
        ("DRW.ACQUIRE w c WRITE PX 600000", "token w"),
    ]);
    let digest = server.digest();
    story.go(&[
        ("DRW.RELEASE k a WRITE", "NOTHELD "),
        ("DRW.RELEASE k a WRITE ALL REQID x", "NOTHELD "),
        ("DRW.RENEW k a WRITE PX 1", "NOTHELD "),
        ("DRW.RELEASE k d READ", "NOTHELD "),
        ("DRW.RELEASE k a READ TOKEN $other", "NOTHELD "),
        ("DRW.RENEW k a READ TOKEN $other PX 1", "NOTHELD "),
        ("DRW.RENEW k d READ", "NOTHELD "),
        ("DRW.RELEASE w c READ", "NOTHELD "),
        ("DRW.RELEASE w a WRITE", "NOTHELD "),
        ("DRW.RELEASE free a READ", "NOTHELD "),
        ("DRW.RENEW free a WRITE", "NOTHELD "),
        ("DRW.CHECK k $w", "STALE "),
        ("DRW.CHECK free $r", "STALE "),
        ("DRW.CANCEL k a", "0"),
        ("DRW.BREAK k d", "0"),
        ("DRW.BREAK free", "0"),
        ("DRW.POSITION k d", "nil"),
        ("DRW.POSITION free a", "nil"),
    ]);
    assert_eq!(server.digest(), digest);
    story.go(&[
        ("DRW.RENEW k a READ TOKEN $r", "$r"),
        ("DRW.RELEASE k a READ TOKEN $r", "0"),
        ("DRW.RELEASE k b READ", "0"),
        ("DRW.RELEASE w c WRITE TOKEN $w", "0"),
    ]);
    story.end();
}

#[test]
fn each_mode_remembers_its_own_requests() {
    Story::tell(
        &Server::start(),
        &[
            ("DRW.ACQUIRE k a READ REQID 1", "token r"),
            ("w: DRW.ACQUIRE k a READ REQID 1 BLOCK 0 PX 5", "$r"),
            ("rw k", "read a*1"),
            // The same id for the other mode is another request.
            ("DRW.ACQUIRE k a WRITE REQID 1", "token w"),
            ("w: DRW.ACQUIRE k a WRITE REQID 1", "$w"),
            ("rw k", "write a*1; read a*1"),
            ("DRW.ACQUIRE k a READ REQID 2", "$r"),
            ("DRW.RELEASE k a READ REQID 3", "1"),
            ("w: DRW.RELEASE k a READ REQID 3", "1"),
            ("w: DRW.RELEASE k a READ ALL REQID 3", "1"),
            ("rw k", "write a*1; read a*1"),
            ("DRW.RELEASE k a WRITE REQID 3", "0"),
            ("DRW.RELEASE k a WRITE REQID 3", "0"),
            ("DRW.ACQUIRE k a WRITE REQID 1", "SPENT "),
            ("DRW.RELEASE k a READ REQID 4", "0"),
            ("DRW.ACQUIRE k a READ REQID 1", "SPENT "),
            ("DRW.ACQUIRE k a READ REQID 5", "token later"),
            ("rw k", "read a*1"),
            ("DRW.RELEASE k a READ", "0"),
        ],
    );
}

#[test]
fn a_mode_remembers_its_last_eight_requests() {
    let server = Server::start();
    let mut client = server.client();
    let mut acquire = |id: u32| {
        client.cmd(&args!["DRW.ACQUIRE", "k", "a", "READ", "REQID", format!("r{id}")]).int();
        client.cmd(&["DRW.INFO", "k"]).field("readers").items()[0].field("holds").int()
    };
    for id in 1..=9 {
        assert_eq!(acquire(id), i64::from(id));
    }
    for id in 2..=9 {
        assert_eq!(acquire(id), 9, "r{id} is known");
    }
    assert_eq!(acquire(1), 10, "r1 is forgotten");
    server.cmd(&["DRW.BREAK", "k"]).ok();
    server.left_over_check();
}

#[test]
fn holds_are_broken_one_owner_s_or_all() {
    Story::tell(
        &Server::start(),
        &[
            ("DRW.BREAK k", "0"),
            ("DRW.ACQUIRE k a READ", "token a"),
            ("DRW.ACQUIRE k a READ", "$a"),
            ("DRW.ACQUIRE k b READ", "token b"),
            ("DRW.ACQUIRE k c READ", "token c"),
            ("w: DRW.ACQUIRE k d WRITE BLOCK 0", "waits"),
            ("DRW.BREAK k a", "1"),
            ("DRW.BREAK k a", "0"),
            ("rw k", "read b*1 c*1; waits d"),
            ("DRW.RELEASE k a READ", "NOTHELD "),
            ("DRW.CHECK k $a", "STALE "),
            ("w", "waits"),
            ("DRW.BREAK k", "2"),
            ("w", "token d"),
            ("rw k", "write d*1"),
            ("DRW.ACQUIRE k d READ", "token r"),
            ("r: DRW.ACQUIRE k e READ BLOCK 0", "waits"),
            // Both modes of one owner are two holds.
            ("DRW.BREAK k d", "2"),
            ("r", "token e"),
            ("DRW.ACQUIRE k e WRITE", "token w"),
            ("DRW.BREAK k", "2"),
            ("rw k", "nothing"),
        ],
    );
}

#[test]
fn info_shows_every_hold_with_every_field() {
    let server = Server::start();
    let mut holder = server.client3();
    let id = i64::try_from(holder.id()).unwrap();
    let read = ["DRW.ACQUIRE", "k", "a", "READ", "PX", "40000", "BIND", "5", "LABEL", "x y"];
    let reading = holder.cmd(&read).int();
    holder.cmd(&["DRW.ACQUIRE", "k", "a", "READ", "PX", "1", "LABEL", "x y"]).int();
    let writing = holder.cmd(&["DRW.ACQUIRE", "k", "a", "WRITE", "EX", "90"]).int();
    let mut waiter = server.block(&["DRW.ACQUIRE", "k", "b", "READ", "BLOCK", "0"]);
    let (flat, map) = (server.cmd(&["DRW.INFO", "k"]), holder.cmd(&["DRW.INFO", "k"]));
    assert!(matches!(flat, Value::Array(_)), "{}", flat.show());
    assert!(matches!(map, Value::Map(_)), "{}", map.show());
    assert!(matches!(map.field("writer"), Value::Map(_)), "{}", map.show());
    for info in [flat, map] {
        let names = |map: &Value| map.pairs().into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names(&info), reply::names(RwInfo::FIELDS));
        assert_eq!(
            (info.field("kind").text(), info.field("mode").text()),
            ("drw".into(), "write".into())
        );
        assert_eq!(info.field("waiters").int(), 1);
        let (writer, readers) = (info.field("writer"), info.field("readers").items());
        assert_eq!(readers.len(), 1);
        for (hold, token, holds, lease, label, bound) in
            [(&writer, writing, 1, 90_000, "", 0), (&readers[0], reading, 2, 40_000, "x y", id)]
        {
            assert_eq!(names(hold), reply::names(HolderInfo::FIELDS));
            assert_eq!(
                (hold.field("owner").text(), hold.field("label").text()),
                ("a".into(), label.into())
            );
            for (field, value) in
                [("token", token), ("holds", holds), ("lease-ms", lease), ("bound-client", bound)]
            {
                assert_eq!(hold.field(field).int(), value, "{field}");
            }
            let (left, held) = (hold.field("ttl-ms").int(), hold.field("held-ms").int());
            assert!((lease - 10_000..=lease).contains(&left) && held < 10_000, "{left} {held}");
        }
    }
    holder.cmd(&["DRW.RELEASE", "k", "a", "WRITE"]).int();
    waiter.expect_reply(SOON).int();
    let info = holder.cmd(&["DRW.INFO", "k"]);
    assert!(info.field("writer").is_null(), "{}", info.show());
    let mut owners: Vec<_> =
        info.field("readers").items().iter().map(|hold| hold.field("owner").text()).collect();
    owners.sort();
    assert_eq!(
        (info.field("mode").text().as_str(), owners),
        ("read", vec!["a".to_owned(), "b".to_owned()])
    );
    assert_eq!(server.info_number("dlock", "held_locks"), 2);
    server.cmd(&["DRW.BREAK", "k"]).ok();
    assert!(holder.cmd(&["DRW.INFO", "k"]).is_null());
    server.left_over_check();
}

#[test]
fn tokens_are_those_of_all_families_together() {
    let server = Server::start();
    let mut last = 0;
    for call in [
        &["DLOCK.ACQUIRE", "l", "a"][..],
        &["DRW.ACQUIRE", "k", "a", "READ"],
        &["DRW.ACQUIRE", "k", "b", "READ"],
        &["DLOCK.ACQUIRE", "m", "a"],
        &["DRW.ACQUIRE", "n", "a", "WRITE"],
    ] {
        let token = server.cmd(call).int();
        assert!(token > last, "{call:?}: {token} after {last}");
        last = token;
    }
    assert_eq!(server.info_number("dlock", "last_token"), last);
    assert_eq!(server.info_number("dlock", "held_locks"), 5);
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}
