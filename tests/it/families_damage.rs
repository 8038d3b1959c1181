//! RESTORE of damaged read-write locks, semaphores and latches, each with a valid checksum: an error or a sound
//! value, never a crash or a large allocation.

use redis::Value;

use crate::{
    args,
    hostile::{Dump, mutations},
    looks::{latch, rw, sem},
    support::{Reply, Server},
};

/// Reads a key.
type Look = fn(&Server, &str) -> String;

/// Every kind of state of a key.
fn specimens(server: &Server) -> Vec<(Dump, Look)> {
    let mut client = server.client();
    client.cmd(&["CONFIG", "SET", "rdbcompression", "no"]).ok();
    let mut place = server.client();
    let mut all: Vec<(Dump, Look)> = Vec::new();
    let looks: [(&[&str], Look); 6] = [
        (
            &[
                "DRW.ACQUIRE k a READ EX 100 REQID r1 LABEL a-label",
                "DRW.ACQUIRE k a READ EX 100 REQID r2 NOTIFY a-channel",
                "DRW.ACQUIRE k b READ EX 100 BIND 60000",
            ],
            rw,
        ),
        (
            &[
                "DRW.ACQUIRE k a READ EX 100",
                "DRW.ACQUIRE k a WRITE EX 100 REQID r1 LABEL a-label NOTIFY a-channel BIND 60000",
            ],
            rw,
        ),
        (
            &[
                "CONFIG SET dlock.lock-delay-ms 60000",
                "DRW.ACQUIRE k a WRITE",
                "DRW.BREAK k",
                "CONFIG SET dlock.lock-delay-ms 0",
            ],
            rw,
        ),
        (
            &[
                "DSEM.INIT k 10",
                "DSEM.TAKE k 2 REQID t",
                "DSEM.ACQUIRE k a EX 100 COUNT 2 REQID r LABEL a-label NOTIFY a-channel BIND 60000",
                "DSEM.ACQUIRE k b EX 100",
            ],
            sem,
        ),
        (&["DSEM.ACQUIRE k a EX 100 LIMIT 2", "DSEM.RESIZE k 1 REQID z"], sem),
        (
            &[
                "DLATCH.INIT k 9 EX 100",
                "DLATCH.COUNTDOWN k REQID one",
                "DLATCH.COUNTDOWN k 2 REQID two",
            ],
            latch,
        ),
    ];
    for (calls, look) in looks {
        for call in calls {
            client.cmd(&call.split(' ').collect::<Vec<_>>()).ok();
        }
        all.push((Dump::take(&mut client, "k"), look));
        client.cmd(&["DEL", "k"]).ok();
    }
    // Unclaimed grants.
    let turns: [(&[&str], &str, &str, Look); 2] = [
        (
            &["DRW.ACQUIRE k a WRITE"],
            "DRW.ACQUIRE k b READ QUEUE 60000",
            "DRW.RELEASE k a WRITE",
            rw,
        ),
        (
            &["DSEM.INIT k 2", "DSEM.TAKE k"],
            "DSEM.ACQUIRE k b QUEUE 60000 COUNT 2",
            "DSEM.GIVE k",
            sem,
        ),
    ];
    for (make, wait, free, look) in turns {
        for call in make {
            client.cmd(&call.split(' ').collect::<Vec<_>>()).ok();
        }
        assert!(place.cmd(&wait.split(' ').collect::<Vec<_>>()).is_null());
        client.cmd(&free.split(' ').collect::<Vec<_>>()).ok();
        all.push((Dump::take(&mut client, "k"), look));
        client.cmd(&["DEL", "k"]).ok();
    }
    all
}

/// Commands on every accepted value: it must survive them.
const USES: [&str; 12] = [
    "DRW.RENEW k a READ PX 60000",
    "DRW.ACQUIRE k z READ",
    "DRW.ACQUIRE k b WRITE",
    "DRW.RELEASE k a WRITE ALL",
    "DSEM.ACQUIRE k z COUNT 2",
    "DSEM.GIVE k",
    "DSEM.DRAIN k",
    "DSEM.RESIZE k 7",
    "DLATCH.COUNTDOWN k REQID one",
    "DLATCH.COUNTDOWN k 3",
    "DEBUG DIGEST-VALUE k",
    "DEL k",
];

/// Restores each payload and reads the result. Returns the number of accepted payloads.
fn restore_all(server: &Server, payloads: &[Vec<u8>], look: Look) -> usize {
    let mut client = server.client();
    let mut taken = 0;
    for payload in payloads {
        let shown = payload.escape_ascii();
        match client.cmd(&args!["RESTORE", "k", 0, payload, "REPLACE"]) {
            Value::Okay => {
                taken += 1;
                // Its texts are consistent.
                let words = look(server, "k");
                assert!(!words.contains(" with "), "{words}: {shown}");
                let calls: Vec<Vec<&str>> =
                    USES.iter().map(|call| call.split(' ').collect()).collect();
                client.pipeline(&calls);
            }
            refused => assert_eq!(refused.error(), "ERR Bad data format", "{shown}"),
        }
        assert_eq!(client.cmd(&["EXISTS", "k"]).int(), 0, "{shown}");
    }
    taken
}

#[test]
fn thousands_of_damaged_payloads_do_no_harm() {
    let server = Server::start();
    let mut sum = (0, 0);
    let peak = || server.info_number("memory", "used_memory_peak");
    let mut before = 0;
    for (dump, look) in specimens(&server) {
        assert_eq!(
            restore_all(&server, &[dump.with_body(&dump.body)], look),
            1,
            "it was not damaged"
        );
        let damaged: Vec<Vec<u8>> =
            mutations(&dump.body).iter().map(|body| dump.with_body(body)).collect();
        if before == 0 {
            before = peak();
        }
        let taken = restore_all(&server, &damaged, look);
        sum = (sum.0 + taken, sum.1 + damaged.len());
    }
    assert!(sum.1 > 8_000 && (1..sum.1).contains(&sum.0), "{sum:?}");
    assert!(peak() - before < 4 << 20, "{} bytes more", peak() - before);
    assert_eq!(server.info_number("dlock", "panics_caught"), 0);
    server.left_over_check();
}
