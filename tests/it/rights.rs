//! Rights that a user loses while its call waits.

use std::time::Duration;

use crate::{
    args,
    scene::block,
    slots::servers,
    support::{Binary, Reply, SOON, Server, wait_until},
};

/// Redis 7.2 and later, and Valkey, answer BLPOP in the same way; Redis 7.0 serves it. Switched off alone (`off`), a
/// user keeps what its open connections may do, BLPOP and dlock's calls.
#[test]
fn a_wait_of_a_user_that_lost_the_right_is_not_granted() {
    let waits: [(&str, &str); 8] = [
        ("DLOCK.ACQUIRE k h", "DLOCK.ACQUIRE k w BLOCK 0"),
        ("DLOCK.ACQUIRE k h", "DLOCK.ACQUIRE k w BLOCK 0 QUEUE 60000"),
        ("DFAIR.ACQUIRE k h", "DFAIR.ACQUIRE k w BLOCK 0"),
        ("DRW.ACQUIRE k h WRITE", "DRW.ACQUIRE k w READ BLOCK 0"),
        ("DSEM.ACQUIRE k h LIMIT 1", "DSEM.ACQUIRE k w BLOCK 0"),
        ("DSEM.ACQUIRE k h LIMIT 1", "DSEM.TAKE k 1 BLOCK 0"),
        ("DLOCK.ACQUIRE k h", "DLOCK.MACQUIRE 2 free k w BLOCK 0"),
        ("DLOCK.ACQUIRE k h", "DLOCK.ANYACQUIRE 1 k w BLOCK 0"),
    ];
    for name in servers() {
        let binary = name.map_or_else(Binary::default, Binary::named);
        let server = Server::with(&[]).binary(&binary).start();
        let kind = server.kind();
        for (first, call) in waits {
            let command = call.split(' ').next().expect("a command").to_lowercase();
            for lost in ["resetkeys".to_owned(), format!("-{command}")] {
                let rules = ["on", "nopass", "~*", "+@all"];
                server.cmd(&[&["ACL", "SETUSER", "u", "reset"][..], &rules].concat()).ok();
                let mut client = server.client();
                client.cmd(&["AUTH", "u", "x"]).ok();
                let mut holder = server.client();
                let first: Vec<_> = first.split(' ').chain(["BIND", "0"]).collect();
                assert!(!holder.cmd(&first).is_null());
                block(&server, &mut client, &call.split(' ').map(Into::into).collect::<Vec<_>>());
                // A call that waited for less than 1 ms was checked by the server just now.
                std::thread::sleep(Duration::from_millis(2));
                server.cmd(&["ACL", "SETUSER", "u", &lost]).ok();
                drop(holder);
                let refusal = client.reply(SOON).error();
                assert!(refusal.starts_with("NOPERM "), "{kind:?}, {call}, {lost}: {refusal}");
                wait_until("the grant to be taken back", || server.keys() == 0);
                let entry = server.cmd(&["ACL", "LOG", "1"]).items()[0].field("username").text();
                assert_eq!(entry, "u", "{kind:?}, {call}");
            }
        }
        server.left_over_check();
    }
}

/// A rule of Valkey 9.1 and later for databases is one for the database of the call: BLPOP is served, too.
#[test]
fn a_wait_in_a_database_that_its_user_may_use_is_granted() {
    for name in servers() {
        let binary = name.map_or_else(Binary::default, Binary::named);
        let server = Server::with(&[]).binary(&binary).start();
        if !server.kind().at_least((u16::MAX, 0), (9, 1)) {
            continue;
        }
        server.cmd(&["ACL", "SETUSER", "u", "on", "nopass", "~*", "+@all", "db=3"]).ok();
        let (mut holder, mut client) = (server.client(), server.client());
        holder.cmd(&["SELECT", "3"]).ok();
        client.cmd(&["AUTH", "u", "x"]).ok();
        client.cmd(&["SELECT", "3"]).ok();
        let wait = args!["DLOCK.ACQUIRE", "k", "w", "BLOCK", 0];
        for lost in [None, Some("db=0")] {
            assert!(!holder.cmd(&["DLOCK.ACQUIRE", "k", "h"]).is_null());
            block(&server, &mut client, &wait);
            std::thread::sleep(Duration::from_millis(2));
            lost.map(|rule| server.cmd(&["ACL", "SETUSER", "u", rule]).ok());
            holder.cmd(&["DLOCK.RELEASE", "k", "h"]).ok();
            let reply = client.reply(SOON);
            if lost.is_some() {
                assert!(reply.error().starts_with("NOPERM "), "{reply:?}");
            } else {
                assert!(reply.int() > 0);
                client.cmd(&["DLOCK.RELEASE", "k", "w"]).ok();
            }
        }
        server.left_over_check();
    }
}
