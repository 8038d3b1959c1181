//! Wrong calls of the read-write lock, the semaphore and the latch: each gets its error and changes nothing.

use crate::{
    args,
    bad_input::{
        BIND, BLOCK, COUNT, EX, IF_TOKEN, KEY, NOTIFY, OWNER, PX, QUEUE, REQID, TOKEN, WRONG_TYPE,
        each_is_refused,
    },
    looks::{latch, rw, sem},
    support::{Reply, SOON, Server},
};

const MODE: &str = "ERR mode must be READ or WRITE";
const PERMIT: &str = "ERR permit-id must be a UUID: 36 characters, hexadecimal digits and hyphens";
const MISTYPED: &str = concat!(
    r#"ERR "0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b7g" is no permit id (a UUID). "#,
    "With an owner, RELEASE needs REQID id, or ALL"
);
const PERMITS: &str = "ERR permits must be an integer between 1 and 2147483647";
const BY: &str = "ERR BY must be an integer between -2147483647 and 2147483647";
const WIDTH: &str = "ERR COUNT must be an integer between 1 and 2147483647";
const LIMIT: &str = "ERR LIMIT must be an integer between 1 and 2147483647";
const N: &str = "ERR n must be an integer between 1 and 2147483647";
const STEPS: &str = "ERR count must be an integer between 1 and 2147483647";

/// `a` writes `k`, `s` is a semaphore of 3 of which `a` has 1 and 1 is taken, `l` a latch of 5.
#[rustfmt::skip]
const RW: &[(&str, &str)] = &[
    ("DRW.ACQUIRE k o", "ERR wrong number of arguments for 'DRW.ACQUIRE' command"),
    ("DRW.RELEASE k o", "ERR wrong number of arguments for 'DRW.RELEASE' command"),
    ("DRW.RENEW k o", "ERR wrong number of arguments for 'DRW.RENEW' command"),
    ("DRW.BREAK", "ERR wrong number of arguments for 'DRW.BREAK' command"),
    ("DRW.BREAK k o x", "ERR wrong number of arguments for 'DRW.BREAK' command"),
    ("DRW.CHECK k", "ERR wrong number of arguments for 'DRW.CHECK' command"),
    ("DRW.INFO", "ERR wrong number of arguments for 'DRW.INFO' command"),
    ("DRW.INFO k o", "ERR wrong number of arguments for 'DRW.INFO' command"),
    ("DRW.WAITERS", "ERR wrong number of arguments for 'DRW.WAITERS' command"),
    ("DRW.POSITION k", "ERR wrong number of arguments for 'DRW.POSITION' command"),
    ("DRW.FENCE k a 5", "ERR unknown command 'DRW.FENCE', with args beginning with: 'k' 'a' '5' "),
    ("DRW.ACQUIRE  o READ", KEY),
    ("DRW.RELEASE  o READ", KEY),
    ("DRW.BREAK  o", KEY),
    ("DRW.INFO ", KEY),
    ("DRW.ACQUIRE k  READ", OWNER),
    ("DRW.ACQUIRE k {o*257} READ", OWNER),
    ("DRW.BREAK k ", OWNER),
    ("DRW.BREAK k {o*257}", OWNER),
    // The mode is the third argument and nothing else.
    ("DRW.ACQUIRE k o PX 5 READ", MODE),
    ("DRW.ACQUIRE k o ", MODE),
    ("DRW.ACQUIRE k o READS", MODE),
    ("DRW.ACQUIRE k o READ\0", MODE),
    ("DRW.RELEASE k o ALL", MODE),
    ("DRW.RENEW k o RW", MODE),
    ("DRW.ACQUIRE k o READ WRITE", "ERR unknown option 'WRITE' for DRW.ACQUIRE"),
    ("DRW.ACQUIRE k o READ NOREENTRY", "ERR unknown option 'NOREENTRY' for DRW.ACQUIRE"),
    ("DRW.ACQUIRE k o READ COUNT 2", "ERR unknown option 'COUNT' for DRW.ACQUIRE"),
    ("DRW.ACQUIRE k o WRITE TOKEN 2", "ERR unknown option 'TOKEN' for DRW.ACQUIRE"),
    ("DRW.RELEASE k o READ PX 5", "ERR unknown option 'PX' for DRW.RELEASE"),
    ("DRW.RENEW k o READ REQID a", "ERR unknown option 'REQID' for DRW.RENEW"),
    ("DRW.ACQUIRE k o READ PX 0", PX),
    ("DRW.ACQUIRE k o READ EX 31536001", EX),
    ("DRW.ACQUIRE k o READ PX 1 EX 1", "ERR PX and EX exclude each other"),
    ("DRW.ACQUIRE k o WRITE BLOCK x", BLOCK),
    ("DRW.ACQUIRE k o WRITE QUEUE 0", QUEUE),
    ("DRW.ACQUIRE k o WRITE BIND -1", BIND),
    ("DRW.ACQUIRE k o WRITE BIND", "ERR BIND needs a value"),
    ("DRW.ACQUIRE k o WRITE BLOCK 0 block 5", "ERR option BLOCK given twice"),
    ("DRW.ACQUIRE k o READ NOTIFY ", NOTIFY),
    ("DRW.ACQUIRE k o READ REQID {r*65}", REQID),
    ("DRW.ACQUIRE k o READ LABEL {l*257}", "ERR LABEL must be at most 256 bytes"),
    ("DRW.RELEASE k a WRITE TOKEN 0", IF_TOKEN),
    ("DRW.RELEASE k a WRITE ALL ALL", "ERR option ALL given twice"),
    ("DRW.RELEASE k a READ DELAY 5", "ERR DELAY needs WRITE: other readers may be there"),
    ("DRW.RENEW k a WRITE PX 0", PX),
    ("DRW.CHECK k 0", TOKEN),
    ("DRW.CHECK k x", TOKEN),
    ("DRW.WAITERS k COUNT 0", COUNT),
    ("DRW.WAITERS k 5", "ERR unknown option '5' for DRW.WAITERS"),
];

#[rustfmt::skip]
const SEM: &[(&str, &str)] = &[
    ("DSEM.INIT s", "ERR wrong number of arguments for 'DSEM.INIT' command"),
    ("DSEM.INIT s 1 2", "ERR wrong number of arguments for 'DSEM.INIT' command"),
    ("DSEM.RESIZE s", "ERR wrong number of arguments for 'DSEM.RESIZE' command"),
    ("DSEM.ACQUIRE s", "ERR wrong number of arguments for 'DSEM.ACQUIRE' command"),
    ("DSEM.RELEASE s", "ERR wrong number of arguments for 'DSEM.RELEASE' command"),
    ("DSEM.RENEW s", "ERR wrong number of arguments for 'DSEM.RENEW' command"),
    ("DSEM.BREAK s", "ERR wrong number of arguments for 'DSEM.BREAK' command"),
    ("DSEM.TAKE", "ERR wrong number of arguments for 'DSEM.TAKE' command"),
    ("DSEM.GIVE", "ERR wrong number of arguments for 'DSEM.GIVE' command"),
    ("DSEM.DRAIN", "ERR wrong number of arguments for 'DSEM.DRAIN' command"),
    ("DSEM.INFO s x", "ERR wrong number of arguments for 'DSEM.INFO' command"),
    ("DSEM.PERMITS s x", "ERR wrong number of arguments for 'DSEM.PERMITS' command"),
    ("DSEM.CHECK s 5", "ERR unknown command 'DSEM.CHECK', with args beginning with: 's' '5' "),
    ("DSEM.INIT  1", KEY),
    ("DSEM.ACQUIRE  o", KEY),
    ("DSEM.TAKE ", KEY),
    ("DSEM.GIVE ", KEY),
    ("DSEM.PERMITS ", KEY),
    ("DSEM.ACQUIRE s ", OWNER),
    ("DSEM.ACQUIRE s {o*257} BLOCK 0", OWNER),
    ("DSEM.POSITION s ", OWNER),
    ("DSEM.INIT n 0", PERMITS),
    ("DSEM.INIT n -1", PERMITS),
    ("DSEM.INIT n 2147483648", PERMITS),
    ("DSEM.INIT n 4294967297", PERMITS),
    ("DSEM.INIT n x", PERMITS),
    ("DSEM.RESIZE s 0", PERMITS),
    ("DSEM.RESIZE s 2147483648", PERMITS),
    ("DSEM.RESIZE s TO 5", PERMITS),
    ("DSEM.RESIZE s BY", "ERR BY needs a value"),
    ("DSEM.RESIZE s by x", BY),
    ("DSEM.RESIZE s BY +1", BY),
    ("DSEM.RESIZE s BY 2147483648", BY),
    ("DSEM.RESIZE s BY -9223372036854775808", BY),
    ("DSEM.RESIZE s 5 6", "ERR unknown option '6' for DSEM.RESIZE"),
    ("DSEM.RESIZE s 5 REQID", "ERR REQID needs a value"),
    ("DSEM.RESIZE s 5 REQID {r*65}", REQID),
    ("DSEM.ACQUIRE s o COUNT 0", WIDTH),
    ("DSEM.ACQUIRE s o COUNT 2147483648", WIDTH),
    ("DSEM.ACQUIRE s o COUNT", "ERR COUNT needs a value"),
    ("DSEM.ACQUIRE s o COUNT 1 count 1", "ERR option COUNT given twice"),
    ("DSEM.ACQUIRE n o LIMIT 0", LIMIT),
    ("DSEM.ACQUIRE n o LIMIT x", LIMIT),
    ("DSEM.ACQUIRE n o LIMIT 1 NOREENTRY", "ERR unknown option 'NOREENTRY' for DSEM.ACQUIRE"),
    ("DSEM.ACQUIRE s o PX 0", PX),
    ("DSEM.ACQUIRE s o PX 1 EX 1", "ERR PX and EX exclude each other"),
    ("DSEM.ACQUIRE s o BLOCK -1", BLOCK),
    ("DSEM.ACQUIRE s o QUEUE 86400001", QUEUE),
    ("DSEM.RELEASE s o", r#"ERR "o" is no permit id (a UUID). With an owner, RELEASE needs REQID id, or ALL"#),
    ("DSEM.RELEASE s ", "ERR holder must be 1 to 256 bytes"),
    ("DSEM.RELEASE s a REQID r ALL", "ERR REQID names one request, so it does not go with ALL"),
    ("DSEM.RELEASE s 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b7g", MISTYPED),
    ("DSEM.RENEW s o PX 5", PERMIT),
    ("DSEM.BREAK s 0192f0c15a3e7c449d3b2f1a6c8e4b70", PERMIT),
    ("DSEM.RENEW s 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70 PX 0", PX),
    ("DSEM.RENEW s 0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70 TOKEN 5", "ERR unknown option 'TOKEN' for DSEM.RENEW"),
    ("DSEM.TAKE s 0", N),
    ("DSEM.TAKE s -1", N),
    ("DSEM.TAKE s 2147483648", N),
    ("DSEM.TAKE s 1x", N),
    ("DSEM.TAKE s x", "ERR unknown option 'x' for DSEM.TAKE"),
    ("DSEM.TAKE s 1 2", "ERR unknown option '2' for DSEM.TAKE"),
    ("DSEM.TAKE s QUEUE 5", "ERR unknown option 'QUEUE' for DSEM.TAKE"),
    ("DSEM.TAKE s BIND 5", "ERR unknown option 'BIND' for DSEM.TAKE"),
    ("DSEM.TAKE s 1 BLOCK -1", BLOCK),
    ("DSEM.GIVE s 0", N),
    ("DSEM.GIVE s 1 BLOCK 5", "ERR unknown option 'BLOCK' for DSEM.GIVE"),
    ("DSEM.DRAIN s 1", "ERR unknown option '1' for DSEM.DRAIN"),
    ("DSEM.DRAIN s REQID ", REQID),
    ("DSEM.WAITERS s COUNT x", COUNT),
    // Well-formed, and still refused.
    ("DSEM.RESIZE n 5", r#"ERR no such semaphore: "n""#),
    ("DSEM.RESIZE n BY 5", r#"ERR no such semaphore: "n""#),
    ("DSEM.GIVE n", r#"ERR no such semaphore: "n""#),
    ("DSEM.DRAIN n", r#"ERR no such semaphore: "n""#),
];

#[rustfmt::skip]
const LATCH: &[(&str, &str)] = &[
    ("DLATCH.INIT l", "ERR wrong number of arguments for 'DLATCH.INIT' command"),
    ("DLATCH.COUNTDOWN", "ERR wrong number of arguments for 'DLATCH.COUNTDOWN' command"),
    ("DLATCH.AWAIT", "ERR wrong number of arguments for 'DLATCH.AWAIT' command"),
    ("DLATCH.INFO", "ERR wrong number of arguments for 'DLATCH.INFO' command"),
    ("DLATCH.RELEASE l o", "ERR unknown command 'DLATCH.RELEASE', with args beginning with: 'l' 'o' "),
    ("DLATCH.INIT  1", KEY),
    ("DLATCH.COUNTDOWN ", KEY),
    ("DLATCH.AWAIT ", KEY),
    ("DLATCH.INFO ", KEY),
    ("DLATCH.INIT n 0", STEPS),
    ("DLATCH.INIT n -1", STEPS),
    ("DLATCH.INIT n 2147483648", STEPS),
    ("DLATCH.INIT n PX 5", STEPS),
    ("DLATCH.INIT n 5 PX 0", PX),
    ("DLATCH.INIT n 5 PX 1 EX 1", "ERR PX and EX exclude each other"),
    ("DLATCH.INIT n 5 REQID a", "ERR unknown option 'REQID' for DLATCH.INIT"),
    ("DLATCH.COUNTDOWN l 0", N),
    ("DLATCH.COUNTDOWN l -1", N),
    ("DLATCH.COUNTDOWN l 2147483648", N),
    ("DLATCH.COUNTDOWN l BLOCK 5", "ERR unknown option 'BLOCK' for DLATCH.COUNTDOWN"),
    ("DLATCH.COUNTDOWN l 1 REQID", "ERR REQID needs a value"),
    ("DLATCH.COUNTDOWN l 1 REQID ", REQID),
    ("DLATCH.COUNTDOWN l REQID {r*65}", REQID),
    ("DLATCH.AWAIT l 5", "ERR unknown option '5' for DLATCH.AWAIT"),
    ("DLATCH.AWAIT l BLOCK x", BLOCK),
    ("DLATCH.AWAIT l QUEUE 5", "ERR unknown option 'QUEUE' for DLATCH.AWAIT"),
    ("DLATCH.WAITERS l COUNT 0", COUNT),
    // The server's own commands.
    ("GET k", WRONG_TYPE),
    ("LPUSH s x", WRONG_TYPE),
    ("INCR l", WRONG_TYPE),
    ("COPY k n", "ERR not supported for this module key"),
    ("COPY s n REPLACE", "ERR not supported for this module key"),
    ("COPY l n", "ERR not supported for this module key"),
];

#[test]
fn every_malformed_call_gets_its_error_and_changes_nothing() {
    let server = Server::start();
    for call in [
        "DRW.ACQUIRE k a WRITE EX 1000",
        "DSEM.INIT s 3",
        "DSEM.ACQUIRE s a EX 1000",
        "DSEM.TAKE s",
        "DLATCH.INIT l 5 EX 1000",
    ] {
        server.ask(call).ok();
    }
    let words = || [rw(&server, "k"), sem(&server, "s"), latch(&server, "l")];
    let state =
        || (server.digest(), server.info("dlock")["last_token"].clone(), words(), server.keys());
    let before = state();
    for table in [RW, SEM, LATCH] {
        each_is_refused(&server, table);
    }
    assert_eq!(state(), before);
    server.cmd(&["DEL", "k", "s", "l"]).ok();
    server.left_over_check();
}

#[test]
fn names_are_any_bytes() {
    let server = Server::start();
    let all: Vec<u8> = (0..=255).collect();
    for name in [&b"%s%n%x"[..], b"\0", b"\xff\xfe", b"\r\n$-1\r\n", b" ", &all] {
        let id = &name[..name.len().min(64)];
        let mut client = server.client3();
        let token = client
            .cmd(&args![
                "DRW.ACQUIRE",
                name,
                name,
                "READ",
                "LABEL",
                name,
                "NOTIFY",
                name,
                "REQID",
                id
            ])
            .int();
        let holds = client.cmd(&args!["DRW.INFO", name]).field("readers").items();
        assert_eq!(
            (holds[0].field("owner").bytes(), holds[0].field("label").bytes()),
            (name.into(), name.into())
        );
        assert_eq!(client.cmd(&args!["DRW.POSITION", name, name]).int(), 0);
        let mut waiter =
            server.block(&args!["DRW.ACQUIRE", name, b"\xfe\0\n", "WRITE", "BLOCK", 0]);
        let second = [name, b"s"].concat();
        let permit = client
            .cmd(&args!["DSEM.ACQUIRE", &second, name, "LIMIT", 1, "LABEL", name, "REQID", id])
            .text();
        let shown = client.cmd(&args!["DSEM.PERMITS", &second]).items();
        assert_eq!(
            (shown[0].field("owner").bytes(), shown[0].field("label").bytes()),
            (name.into(), name.into())
        );
        let third = [name, b"l"].concat();
        client.cmd(&args!["DLATCH.INIT", &third, 2]).int();
        assert_eq!(client.cmd(&args!["DLATCH.COUNTDOWN", &third, "REQID", id]).int(), 1);
        // Errors quote keys and owners as redis-cli does: one line, printable.
        for error in [
            client.cmd(&args!["DRW.RELEASE", name, name, "WRITE"]).error(),
            client.cmd(&args!["DRW.CHECK", name, 1]).error(),
            client.cmd(&args!["DSEM.ACQUIRE", &second, name, "COUNT", 2]).error(),
            client.cmd(&args!["DSEM.GIVE", &second]).error(),
            client.cmd(&args!["DSEM.RELEASE", name.repeat(2), &permit]).error(),
        ] {
            assert!(error.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{error:?}");
        }
        client.cmd(&["DEBUG", "RELOAD"]).ok();
        assert_eq!(client.cmd(&args!["DRW.CHECK", name, token]).int(), 1);
        assert_eq!(client.cmd(&args!["DSEM.RENEW", &second, &permit]).int(), 1);
        assert_eq!(client.cmd(&args!["DLATCH.COUNTDOWN", &third, "REQID", id]).int(), 1);
        client.cmd(&args!["DRW.RELEASE", name, name, "READ"]).int();
        waiter.expect_reply(SOON).int();
        client.cmd(&args!["DEL", name, &second, &third]).ok();
    }
    server.left_over_check();
}
