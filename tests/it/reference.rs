//! The examples of the reference page: redis-cli prints exactly what they show.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on stops here and says why"
)]

use std::{
    io::Write as _,
    process::{Command as Process, Stdio},
};

use dlock_wire::table::COMMANDS;

use crate::support::{Blocked, Reply, Server};

/// Fields of replies whose values differ between runs.
const VARYING: [&str; 8] = [
    "\"ttl-ms\"",
    "\"held-ms\"",
    "\"client-id\"",
    "\"waiting-ms\"",
    "\"remaining-ms\"",
    "\"id\"",
    "\"time-ms\"",
    "\"first-ms\"",
];

/// The token in the examples; other tokens are recognized by their difference to it.
const EXAMPLE_TOKEN: i64 = 1_767_225_600_123_456;

/// The permit id in the examples.
const EXAMPLE_PERMIT: &str = "0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70";

/// The values of this run for the token and the permit id of the examples, once known.
#[derive(Default)]
struct Real {
    token: Option<i64>,
    permit: Option<String>,
}

impl Real {
    /// Finds them in the output.
    fn learn(&mut self, printed: &[String]) {
        let words = || {
            printed
                .iter()
                .flat_map(|line| line.split([' ', '"', '\r', '\n']))
                .filter(|w| !w.is_empty())
        };
        if self.token.is_none() {
            self.token = words().filter(|word| word.len() == 16).find_map(|word| word.parse().ok());
        }
        if self.permit.is_none() {
            let is_id = |word: &&str| word.len() == 36 && word.split('-').count() == 5;
            self.permit = words().find(is_id).map(str::to_owned);
        }
    }

    /// `text` with the values of this run instead of those of the examples.
    fn put(&self, text: &str) -> String {
        let mut out = text.to_owned();
        if let Some(permit) = &self.permit {
            out = out.replace(EXAMPLE_PERMIT, permit);
        }
        let numbers = text.split(|letter: char| !letter.is_ascii_digit());
        for shown in numbers.filter(|word| word.len() == 16) {
            let token = self.token.unwrap_or(EXAMPLE_TOKEN);
            let real = token + shown.parse::<i64>().unwrap() - EXAMPLE_TOKEN;
            out = out.replace(shown, &real.to_string());
        }
        out
    }
}

/// Whether the example's line matches the output of redis-cli, except for times and error texts.
fn is_like(shown: &str, real: &str) -> bool {
    if let Some(code) = shown.strip_suffix('…') {
        return real.starts_with(code) && real.len() > code.len();
    }
    let seconds = |line: &str| line.strip_prefix('(')?.strip_suffix("s)")?.parse::<f64>().ok();
    if let (Some(shown), Some(real)) = (seconds(shown), seconds(real)) {
        return (shown..shown + 5.0).contains(&real);
    }
    let field = |line: &str| {
        let (name, value) = line.split_once(" => (integer) ")?;
        VARYING
            .iter()
            .any(|field| name.ends_with(field))
            .then(|| (name.to_owned(), value.parse::<i64>().is_ok()))
    };
    shown == real.trim_end() || field(shown).is_some_and(|shown| Some(shown) == field(real))
}

/// The output of redis-cli for this line.
fn redis_cli(server: &Server, line: &str) -> Vec<String> {
    let mut cli = Process::new("redis-cli")
        .args(["-3", "--no-raw", "-s"])
        .arg(server.dir().join("s"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run redis-cli: {error} (try `make deps`)"));
    let mut stdin = cli.stdin.take().expect("a pipe");
    stdin.write_all(format!("{line}\n").as_bytes()).expect("redis-cli reads");
    drop(stdin);
    let output = cli.wait_with_output().expect("redis-cli ends");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// Preconditions for the example of a command: calls, and one that waits.
fn setting(name: &str) -> (&'static [&'static str], Option<&'static str>) {
    let (family, verb) = name.split_once('.').expect("a command of dlock");
    let is_about_waiters = ["INFO", "WAITERS", "POSITION", "UNBLOCK"].contains(&verb);
    let waiter = |call: &'static str| is_about_waiters.then_some(call);
    match (family, verb) {
        (_, "MACQUIRE") | ("DLOCK" | "DFAIR" | "DRW", "ACQUIRE") | ("DSEM" | "DLATCH", "INIT") => {
            (&[], None)
        }
        (_, "MRELEASE" | "MRENEW") => {
            (&["DLOCK.MACQUIRE 2 account:1 account:2 worker-1 PX 30000"], None)
        }
        (_, "ANYACQUIRE") => (&["DLOCK.ACQUIRE stripe:1 other PX 30000"], None),
        ("DLOCK", _) => (
            &["DLOCK.ACQUIRE orders:7 worker-1 PX 30000"],
            waiter("DLOCK.ACQUIRE orders:7 worker-2 BLOCK 5000"),
        ),
        ("DFAIR", _) => (
            &["DFAIR.ACQUIRE printer worker-1 PX 30000"],
            waiter("DFAIR.ACQUIRE printer worker-2 BLOCK 5000"),
        ),
        ("DRW", "BREAK") => (&["DRW.ACQUIRE catalog worker-2 READ PX 30000"], None),
        ("DRW", _) => (
            &["DRW.ACQUIRE catalog worker-1 READ PX 30000"],
            waiter("DRW.ACQUIRE catalog worker-3 WRITE BLOCK 5000"),
        ),
        ("DSEM", "INFO") => (
            &["DSEM.INIT licences 10", "DSEM.ACQUIRE licences worker-1", "DSEM.TAKE licences 3"],
            None,
        ),
        ("DSEM", "RELEASE" | "RENEW" | "BREAK" | "PERMITS") => {
            (&["DSEM.INIT licences 10", "DSEM.ACQUIRE licences worker-1 PX 30000"], None)
        }
        ("DSEM", "GIVE" | "WAITERS" | "POSITION") if is_about_waiters => (
            &["DSEM.INIT licences 10", "DSEM.TAKE licences 10"],
            Some("DSEM.ACQUIRE licences worker-2 BLOCK 5000"),
        ),
        ("DSEM", "GIVE") => (&["DSEM.INIT licences 10", "DSEM.TAKE licences 3"], None),
        ("DSEM", _) => (&["DSEM.INIT licences 10"], None),
        ("DLATCH", "AWAIT") => (&["DLATCH.INIT ready 1"], None),
        ("DLATCH", "COUNTDOWN") => (&["DLATCH.INIT ready 3"], None),
        ("DLATCH", _) => (
            &["DLATCH.INIT ready 3", "DLATCH.COUNTDOWN ready"],
            waiter("DLATCH.AWAIT ready BLOCK 5000"),
        ),
        _ => panic!("no setting for {name}"),
    }
}

/// A server whose tokens are days ahead of the wall clock, so that they grow by one, as in the examples, and not with
/// the time.
fn with_tokens_ahead() -> Server {
    let server = Server::start();
    server.cmd(&["CONFIG", "SET", "dlock.max-token-lead-ms", "31536000000"]).ok();
    let token = server.cmd(&["DLOCK.ACQUIRE", "ahead", "me"]).int();
    let ahead = (token + 20 * 24 * 3600 * 1_000_000).to_string();
    assert_eq!(server.cmd(&["DLOCK.FENCE", "ahead", "me", &ahead]).int().to_string(), ahead);
    assert_eq!(server.cmd(&["DLOCK.RELEASE", "ahead", "me"]).int(), 0);
    server
}

/// Runs one example and compares each line.
fn check(server: &Server, name: &str, example: &str) {
    let mut real = Real::default();
    let (calls, waiter) = setting(name);
    for call in calls {
        let printed = redis_cli(server, call);
        // Holds of other owners are not part of the example.
        if !call.contains(" other ") {
            real.learn(&printed);
        }
    }
    let words = waiter.map(|call| call.split(' ').collect::<Vec<_>>());
    let waiter: Option<Blocked> = words.map(|words| server.block(&words));
    let mut lines = example.lines().peekable();
    while let Some(line) = lines.next() {
        let call = line.strip_prefix("> ").expect("a prompt");
        let of_family = name.split_once('.').is_some_and(|(family, _)| call.starts_with(family));
        assert!(of_family, "{call} in the example of {name}");
        let mut shown = Vec::new();
        while let Some(line) = lines.next_if(|line| !line.starts_with("> ")) {
            shown.push(line.to_owned());
        }
        let mut call = real.put(call);
        if let Some(waiter) = &waiter {
            call = call.replace("UNBLOCK 12", &format!("UNBLOCK {}", waiter.id()));
        }
        let printed = std::thread::scope(|scope| {
            let printed = scope.spawn(|| redis_cli(server, &call));
            if call.starts_with("DLATCH.AWAIT ready BLOCK") {
                server.wait_blocked(1);
                server.cmd(&["DLATCH.COUNTDOWN", "ready"]).ok();
            }
            printed.join().expect("redis-cli")
        });
        real.learn(&printed);
        let shown: Vec<String> = shown.iter().map(|line| real.put(line)).collect();
        let same = shown.len() == printed.len()
            && shown.iter().zip(&printed).all(|(shown, printed)| is_like(shown, printed));
        assert!(same, "> {call}\nis shown with {shown:#?}\nbut prints {printed:#?}");
    }
    drop(waiter);
    server.wait_blocked(0);
    server.cmd(&["FLUSHALL"]).ok();
    server.left_over_check();
}

#[test]
fn the_examples_are_real() {
    let server = with_tokens_ahead();
    for command in COMMANDS.iter().filter(|command| !command.example.is_empty()) {
        if command.name == "DLOCK.ANYACQUIRE" {
            // The start of its search changes with each call, so its example comes first.
            continue;
        }
        check(&server, command.name, command.example);
    }
    let any = COMMANDS.iter().find(|command| command.name == "DLOCK.ANYACQUIRE").unwrap();
    check(&with_tokens_ahead(), any.name, any.example);
}
