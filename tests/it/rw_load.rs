//! Read-write locks under load: no owner starves. Storms over them are in `exclusion.rs`.

use std::{
    panic::resume_unwind,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use crate::{
    args,
    looks::rw,
    support::{Reply, Server, wait_until},
};

/// Work time under the lock: long enough that one of many always holds it.
const WORK: Duration = Duration::from_millis(3);

/// `crowd` connections take the lock in `mode` repeatedly, without a pause, until `during` has ended. Returns every
/// granted token.
fn steady(server: &Server, mode: &str, crowd: usize, during: impl FnOnce()) -> Vec<i64> {
    let stop = AtomicBool::new(false);
    let one = |name: usize| {
        let (mut client, mut tokens) = (server.client(), Vec::new());
        let owner = format!("{mode}{name}");
        while !stop.load(Relaxed) {
            tokens.push(client.cmd(&["DRW.ACQUIRE", "k", &owner, mode, "BLOCK", "0"]).int());
            thread::sleep(WORK);
            client.cmd(&["DRW.RELEASE", "k", &owner, mode]).int();
        }
        tokens
    };
    thread::scope(|scope| {
        let one = &one;
        let workers: Vec<_> = (0..crowd).map(|name| scope.spawn(move || one(name))).collect();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(during));
        stop.store(true, Relaxed);
        let tokens = workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect();
        ended.unwrap_or_else(|panic| resume_unwind(panic));
        tokens
    })
}

/// One owner waits while all others take the lock in the other mode. Returns the number of others in front of it on
/// arrival, and the tokens between which it waited.
fn overtaken(crowd_mode: &str, mode: &str, rounds: usize) -> Vec<i64> {
    let server = Server::start();
    let (mut client, mut waits, mut waited) = (server.client(), Vec::new(), 0);
    let tokens = steady(&server, crowd_mode, 12, || {
        wait_until("the crowd to be at it", || {
            server.info_number("dlock", "releases") >= 12 && rw(&server, "k") != "nothing"
        });
        for _ in 0..rounds {
            // Arrival, its position and the tokens granted until then, all in one step.
            let replies = client.pipeline(&[
                args!["MULTI"],
                args!["DRW.ACQUIRE", "k", "one", mode, "QUEUE", 60_000],
                args!["DRW.POSITION", "k", "one"],
                args!["INFO", "dlock"],
                args!["EXEC"],
            ]);
            let replies = replies[4].items();
            let (position, info) = (replies[1].int(), replies[2].text());
            let last = info.lines().find_map(|line| line.strip_prefix("dlock_last_token:"));
            let from: i64 = last.unwrap().trim().parse().unwrap();
            let mut token = replies[0].clone();
            waited += usize::from(token.is_null());
            wait_until(&format!("a {mode} hold among {crowd_mode} holds"), || {
                if token.is_null() {
                    token = client.cmd(&["DRW.ACQUIRE", "k", "one", mode]);
                }
                !token.is_null()
            });
            waits.push((from, token.int(), position));
            client.cmd(&["DRW.RELEASE", "k", "one", mode]).int();
        }
    });
    server.left_over_check();
    assert!(waited > rounds / 2, "it had to wait {waited} times only");
    let in_between = |&(from, to, position): &(i64, i64, i64)| {
        let count = tokens.iter().filter(|&&token| from < token && token < to).count();
        i64::try_from(count).unwrap() - (position - 1).max(0)
    };
    waits.iter().map(in_between).collect()
}

#[test]
fn no_writer_starves_among_readers() {
    let overtaken = overtaken("READ", "WRITE", 40);
    assert!(overtaken.iter().all(|&by| by <= 0), "overtaken by: {overtaken:?}");
}

#[test]
fn no_reader_starves_among_writers() {
    let overtaken = overtaken("WRITE", "READ", 20);
    assert!(overtaken.iter().all(|&by| by <= 0), "overtaken by: {overtaken:?}");
}
