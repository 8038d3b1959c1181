//! Fencing tokens.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops here and says why")]

use crate::{
    args,
    support::{Family, Kind, Reply, SOON},
    test_both_families,
};

test_both_families! {
    tokens_grow_over_all_keys_and_databases
    a_token_is_checked_and_raised
    tokens_grow_when_the_wall_clock_goes_back_and_over_flushes
    a_server_without_tokens_grants_nothing
}

fn tokens_grow_over_all_keys_and_databases(family: Family) {
    let server = family.start();
    let mut client = server.client();
    let wall = client.cmd(&["TIME"]).items();
    let mut last = wall[0].text().parse::<i64>().unwrap() * 1_000_000;
    for round in 0..20 {
        for db in ["0", "3"] {
            client.cmd(&["SELECT", db]).ok();
            for key in ["a", "b"] {
                let token = client.cmd(&["DLOCK.ACQUIRE", key, "o", "PX", "60000"]).int();
                assert!(token > last, "{token} after {last} in round {round}");
                last = token;
            }
        }
        client.cmd(&["FLUSHALL"]).ok();
    }
    assert_eq!(server.info_number("dlock", "last_token"), last);
    server.left_over_check();
}

fn a_token_is_checked_and_raised(family: Family) {
    let server = family.start();
    let mut client = server.client();
    let stale = |token: i64| format!(r#"STALE token {token} is not that of the hold on "k""#);
    assert_eq!(client.cmd(&["DLOCK.CHECK", "k", "1"]).error(), stale(1));
    let token = client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    assert_eq!(client.cmd(&args!["DLOCK.CHECK", "k", token]).int(), 1);
    assert_eq!(client.cmd(&args!["DLOCK.CHECK", "k", token - 1]).error(), stale(token - 1));
    // A smaller one changes nothing.
    assert_eq!(client.cmd(&["DLOCK.FENCE", "k", "a", "1"]).int(), token);
    let raised = token + 30_000_000;
    assert_eq!(client.cmd(&args!["DLOCK.FENCE", "k", "a", raised]).int(), raised);
    assert_eq!(client.cmd(&args!["DLOCK.CHECK", "k", raised]).int(), 1);
    assert_eq!(client.cmd(&args!["DLOCK.CHECK", "k", token]).error(), stale(token));
    assert_eq!(client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int(), raised);
    assert!(client.cmd(&["DLOCK.ACQUIRE", "other", "o"]).int() > raised);
    // A minute ahead of the clock, unless that is set.
    let far = token + 3_600_000_000;
    let error = client.cmd(&args!["DLOCK.FENCE", "k", "a", far]).error();
    assert!(error.starts_with(&format!("ERR token {far} is too far ahead: at most ")), "{error}");
    assert_eq!(client.cmd(&args!["DLOCK.CHECK", "k", raised]).int(), 1);
    client.cmd(&["CONFIG", "SET", "dlock.max-token-lead-ms", "3600000"]).ok();
    assert_eq!(client.cmd(&args!["DLOCK.FENCE", "k", "a", far]).int(), far);
    let raised = far;
    client.cmd(&["DLOCK.BREAK", "k"]).ok();
    assert_eq!(client.cmd(&args!["DLOCK.CHECK", "k", raised]).error(), stale(raised));
    client.cmd(&["DLOCK.RELEASE", "other", "o"]).ok();
    server.left_over_check();
}

fn tokens_grow_when_the_wall_clock_goes_back_and_over_flushes(family: Family) {
    let server = family.with(&[]).preload_wallclock().start();
    let mut last = 0;
    for shift in [0, 3_600, -3_600, -315_360_000, 0] {
        server.shift_wall_clock(shift);
        for flush in ["FLUSHALL", "FLUSHDB"] {
            let token = server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
            assert!(token > last, "{token} after {last} with the clock at {shift}");
            last = token;
            server.cmd(&[flush]).ok();
        }
    }
    server.left_over_check();
}

fn a_server_without_tokens_grants_nothing(family: Family) {
    const LAST: i64 = (1 << 53) - 1;
    if !Kind::of_binary().preload_reaches_modules() {
        return;
    }
    let server = family.with(&[]).preload_wallclock().start();
    server.cmd(&["DLOCK.ACQUIRE", "k", "a", "EX", "30000000"]).ok();
    let mut blocked = server.block(&["DLOCK.ACQUIRE", "k", "b", "BLOCK", "0"]);
    let mut client = server.client();
    client.cmd(&["DLOCK.ACQUIRE", "k", "c", "QUEUE", "60000"]).ok();
    // 285 years after 1970 the microseconds need a 54th bit.
    let now = server.cmd(&["TIME"]).items()[0].text().parse::<i64>().unwrap();
    server.shift_wall_clock(LAST / 1_000_000 + 10 - now);
    let used_up = "ERR the fencing tokens of this server are used up";
    assert_eq!(client.cmd(&["DLOCK.ACQUIRE", "last", "a"]).int(), LAST);
    for call in [
        &["DLOCK.ACQUIRE", "new", "a"][..],
        &["DLOCK.ACQUIRE", "new", "a", "BLOCK", "0"],
        &["DLOCK.ACQUIRE", "new", "a", "QUEUE", "1"],
    ] {
        assert_eq!(client.cmd(call).error(), used_up, "{call:?}");
    }
    // Existing holds stay. A blocked call gets an error; a QUEUE waiter is removed.
    client.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    client.cmd(&["DLOCK.RENEW", "k", "a"]).int();
    assert_eq!(client.cmd(&["DLOCK.RELEASE", "k", "a", "ALL"]).int(), 0);
    assert_eq!(blocked.expect_reply(SOON).error(), used_up);
    assert!(client.cmd(&["DLOCK.INFO", "k"]).is_null());
    // Not even when the clock is corrected: a token is never issued twice.
    server.shift_wall_clock(0);
    assert_eq!(client.cmd(&["DLOCK.ACQUIRE", "new", "a"]).error(), used_up);
    assert_eq!(client.cmd(&args!["DLOCK.FENCE", "last", "a", LAST]).int(), LAST);
    assert_eq!(client.cmd(&["DLOCK.RELEASE", "last", "a"]).int(), 0);
    assert_eq!(server.info_number("dlock", "last_token"), LAST);
    server.left_over_check();
}
