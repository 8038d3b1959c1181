//! Semaphores under load: no owner starves.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use redis::Value;

use crate::{
    args,
    looks::queue,
    support::{Reply, Server, wait_until},
};

/// A call for all permits among many calls for one: it is served after those that arrived before it, and no others.
#[test]
fn a_wide_request_does_not_starve() {
    const ROUNDS: usize = 25;
    let server = Server::with(&["notify-keyspace-events", "Ed"]).start();
    server.cmd(&["DSEM.INIT", "s", "4"]).int();
    let mut events = server.psubscribe(&["__keyevent@0__:dlock.acquire", "mark", "wide"]);
    let (mut client, stop) = (server.client(), AtomicBool::new(false));
    let mut positions = Vec::new();
    thread::scope(|scope| {
        for name in 0..12 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut client = server.client();
                while !stop.load(Relaxed) {
                    let owner = format!("o{name}");
                    let id = client.cmd(&["DSEM.ACQUIRE", "s", &owner, "BLOCK", "0"]).text();
                    thread::sleep(Duration::from_millis(2));
                    client.cmd(&["DSEM.RELEASE", "s", &id]).int();
                }
            });
        }
        let went = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..ROUNDS {
                wait_until("a crowd", || !queue(&server, "DSEM", "s").is_empty());
                let ask = args![
                    "DSEM.ACQUIRE",
                    "s",
                    "wide",
                    "COUNT",
                    4,
                    "QUEUE",
                    60_000,
                    "NOTIFY",
                    "wide"
                ];
                let replies = client.pipeline(&[
                    args!["MULTI"],
                    ask,
                    args!["DSEM.POSITION", "s", "wide"],
                    args!["PUBLISH", "mark", "here"],
                    args!["EXEC"],
                ]);
                let replies = replies[4].items();
                assert!(replies[0].is_null(), "it had to wait: {}", replies[0].show());
                positions.push(usize::try_from(replies[1].int()).unwrap());
                let mut id = Value::Nil;
                wait_until("all permits at once", || {
                    id = client.cmd(&["DSEM.ACQUIRE", "s", "wide", "COUNT", "4"]);
                    !id.is_null()
                });
                client.cmd(&["DSEM.RELEASE", "s", &id.text()]).int();
            }
        }));
        stop.store(true, Relaxed);
        went.unwrap_or_else(|panic| resume_unwind(panic));
    });
    // Between the mark and the message: the grants to earlier waiters, and its own.
    for position in positions {
        while events.next().0 != "mark" {}
        let mut grants = 0;
        loop {
            match events.next().0.as_str() {
                "wide" => break,
                "mark" => panic!("a mark before the grant"),
                _ => grants += 1,
            }
        }
        assert!(grants <= position, "{grants} grants, though it was number {position}");
    }
    server.cmd(&["DEL", "s"]).ok();
    server.left_over_check();
}
