//! The examples of the client work as documented on a real server, and leave nothing behind.
// A test stops where it cannot go on.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use dlock_testing::Server;

mod leader_http;

#[test]
fn counter() {
    let said = run("counter");
    assert!(said.starts_with("10 tasks, 1000 times each: 10000 in "), "{said}");
}

#[test]
fn shop() {
    let said = run("shop");
    for how in ["one lock: ", "120 stripes: "] {
        let line = said.lines().find_map(|line| line.strip_prefix(how));
        let line = line.unwrap_or_else(|| panic!("no line for {how}in {said}"));
        assert!(line.starts_with("5000 of 5000 sold to 200 buyers, "), "{said}");
    }
}

#[test]
fn leader() {
    let said = run("leader");
    let order = [
        "alice leads, with token ",
        "bob stands by",
        "bob leads, with token ",
        "bob took over ",
        "bob resigns",
    ];
    let mut lines = said.lines();
    for words in order {
        assert!(
            lines.any(|line| line.starts_with(words)),
            "no '{words}' where it is due in {said}"
        );
    }
}

#[test]
fn cache() {
    let said = run("cache");
    assert!(said.starts_with("1000 reads and 20 renewals, none was seen half; up to "), "{said}");
}

#[test]
fn pool() {
    let said = run("pool");
    assert!(said.starts_with("60 jobs of 20 workers in "), "{said}");
    assert!(said.trim_end().ends_with("at most 5 begun within 100 ms"), "{said}");
}

#[test]
fn fenced() {
    let said = run("fenced");
    assert!(said.contains("wanted to write 11: Some(\"STALE\")"), "{said}");
    assert!(said.ends_with("the balance is 20\n"), "{said}");
}

#[test]
fn once() {
    assert_eq!(run("once"), "1000 requests served, computed 1 times\n");
}

#[test]
fn stock() {
    assert_eq!(run("stock"), "5 of 5 sold to 20 buyers\n");
}

#[test]
fn workers() {
    assert_eq!(run("workers"), "20 workers, at most 3 at a time\n");
}

#[test]
fn read_mostly() {
    assert_eq!(run("read_mostly"), "two readers at a time see db-2:5433\n");
}

#[test]
fn barrier() {
    assert_eq!(run("barrier"), "5 workers started together\n");
}

#[test]
fn synchronous() {
    assert_eq!(run("synchronous"), "4 threads counted to 100\n");
}

#[test]
fn fenced_write() {
    assert_eq!(run("fenced_write"), "bob writes: true\nalice, who is late, writes: false\n");
}

#[test]
fn transfer() {
    let said = run("transfer");
    assert!(said.ends_with("are 200 together\n"), "{said}");
}

#[test]
fn cron() {
    let said = run("cron");
    assert!(said.ends_with("1 of 3 machines ran the job\n"), "{said}");
}

/// The output of the example. It must succeed, and leave no keys.
#[track_caller]
fn run(example: &str) -> String {
    let server = Server::start();
    let output = Command::new(&built()[example])
        .arg(server.url())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .expect("the example runs");
    let said = String::from_utf8(output.stdout).expect("text");
    println!("{said}");
    assert!(output.status.success(), "{example} fails: {}\n{said}", output.status);
    server.left_over_check();
    said
}

/// The examples by name. Cargo lists their paths after it has built them, so no outdated one is tested. `--workspace`
/// as in `make test`: nothing is built twice.
fn built() -> &'static HashMap<String, PathBuf> {
    static BUILT: OnceLock<HashMap<String, PathBuf>> = OnceLock::new();
    BUILT.get_or_init(|| {
        // Those that the Makefile builds the tests with: nothing is built twice.
        let features = std::env::var("FEATURES").unwrap_or_default();
        let output = dlock_testing::cargo()
            .args(["build", "--workspace", "--examples", "--features", &features])
            .arg("--message-format=json-render-diagnostics")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo runs");
        assert!(output.status.success(), "the examples do not build");
        let messages = String::from_utf8(output.stdout).expect("text");
        let paths = messages.lines().filter_map(|line| {
            let (_, path) = line.split_once("\"executable\":\"")?;
            let path = PathBuf::from(path.split('"').next()?);
            Some((path.file_name()?.to_str()?.to_owned(), path))
        });
        paths.collect()
    })
}
