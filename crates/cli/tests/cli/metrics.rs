//! `dlock metrics` and `dlock exporter`.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use dlock_testing::{Nodes, Reply as _, Sentinels, Server, each, redis, wait_until};
use nix::sys::signal::Signal;

use crate::command::{Running, dlock, output, stdout};
use crate::http::{Exporter, scrape, value};

/// What the unit tests take for INFO.
const RECORDED: &str = include_str!("../../src/metrics/recorded.txt");

pub const OPEN: &str = "application/openmetrics-text;version=1.0.0;q=0.9,text/plain;q=0.5";

pub fn up(server: &Server) -> String {
    format!("dlock_up{{server=\"127.0.0.1:{}\"}}", server.port())
}

#[test]
fn the_recorded_text_has_the_fields_of_a_server() {
    let server = Server::start();
    let names = |text: &str| -> BTreeSet<String> {
        let names = text.lines().filter_map(|line| line.split_once(':'));
        names.map(|(name, _)| name.to_owned()).filter(|name| name.starts_with("dlock_")).collect()
    };
    let text: String = redis::cmd("INFO").arg("dlock").query(&mut server.conn()).expect("INFO");
    assert_eq!(names(&text), names(RECORDED));
}

#[test]
fn the_metrics_of_a_server_are_printed() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "door", "alice", "PX", "600000"]).ok();
    server.cmd(&["DLOCK.ACQUIRE", "short", "alice", "PX", "1"]).ok();
    wait_until("the lease to end", || server.info_number("dlock", "expiries") == 1);
    let text = stdout(&server, &["metrics"]);
    let of = |name: &str, labels: &str| {
        let sample = format!("{name}{{server=\"127.0.0.1:{}\"{labels}}}", server.port());
        value(&text, &sample).unwrap_or_else(|| panic!("no {sample} in {text}"))
    };
    assert_eq!(of("dlock_up", ""), "1");
    assert_eq!(of("dlock_held_locks", ""), "1");
    assert_eq!(of("dlock_grants_total", ",waited=\"no\""), "2");
    assert_eq!(of("dlock_holds_lost_total", ",reason=\"expired\""), "1");
    assert!(of("dlock_alarm_late_last_seconds", "").starts_with("0."));
    assert!(text.contains("\n# UNIT dlock_alarm_late_last_seconds seconds\n"), "{text}");
    assert!(text.contains(",role=\"primary\","), "{text}");
    assert!(text.ends_with("\n# EOF\n"), "{text}");
    let plain = stdout(&server, &["metrics", "--format", "text"]);
    assert!(plain.contains("\n# TYPE dlock_grants_total counter\n"), "{plain}");
    assert!(!plain.contains("# UNIT") && !plain.contains("# EOF"), "{plain}");
    server.cmd(&["DLOCK.BREAK", "door"]).ok();
    server.left_over_check();
}

#[test]
fn the_busiest_keys_are_those_with_most_waiters() {
    let server = Server::start();
    let hostile = "a\"} 1\nevil{x=\"\\";
    let mut waiting = Vec::new();
    for (key, waiters) in [("one", 1), (hostile, 3), ("two", 2), ("none", 0)] {
        server.cmd(&["DFAIR.ACQUIRE", key, "holder", "PX", "600000"]).ok();
        for n in 0..waiters {
            waiting.push(server.block(&["DFAIR.ACQUIRE", key, &format!("w{n}"), "BLOCK", "0"]));
        }
    }
    let shown = |most: &str| {
        let text = stdout(&server, &["metrics", "--busiest", most]);
        assert!(!text.lines().any(|line| line.starts_with("evil")), "{text}");
        let lines = text.lines().filter(|line| line.starts_with("dlock_key_waiters"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let hostile_line = r#"dlock_key_waiters{key="\"a\\\"} 1\\nevil{x=\\\"\\\\\"",family="fair"} 3"#;
    let expected = [
        hostile_line,
        "dlock_key_waiters{key=\"two\",family=\"fair\"} 2",
        "dlock_key_waiters_complete 1",
    ];
    assert_eq!(shown("2"), expected);
    assert_eq!(shown("0"), [""; 0]);
    assert_eq!(shown("100").len(), 4);
    for words in [["--busiest", "101"], ["--busiest", "-1"], ["--timeout", "1ms"]] {
        assert_eq!(output(&server, &["metrics", words[0], words[1]]).code, 64);
    }
    for key in ["one", hostile, "two", "none"] {
        server.cmd(&["DEL", key]).ok();
    }
}

#[test]
fn the_busiest_keys_are_found_among_thousands() {
    let server = Server::start();
    let mut keys = redis::pipe();
    for n in 0..3_000 {
        keys.cmd("SET").arg(format!("plain{n}")).arg("x").ignore();
        let words = ["alice", "PX", "600000"];
        keys.cmd("DLOCK.ACQUIRE").arg(format!("lock{n}")).arg(&words).ignore();
    }
    keys.query::<()>(&mut server.conn()).expect("keys");
    server.cmd(&["DSEM.ACQUIRE", "permits", "alice", "LIMIT", "1"]).ok();
    let wait = |words: &[&str]| server.block(&[words, &["BLOCK", "0"]].concat());
    let waiting = [
        wait(&["DLOCK.ACQUIRE", "lock2999", "bob"]),
        wait(&["DLOCK.ACQUIRE", "lock2999", "carol"]),
        wait(&["DSEM.ACQUIRE", "permits", "bob"]),
    ];
    let text = stdout(&server, &["metrics", "--timeout", "20"]);
    for (sample, is) in [
        (r#"dlock_key_waiters{key="lock2999",family="lock"}"#, "2"),
        (r#"dlock_key_waiters{key="permits",family="sem"}"#, "1"),
        ("dlock_key_waiters_complete", "1"),
    ] {
        assert_eq!(value(&text, sample), Some(is), "{text}");
    }
    drop(waiting);
    server.cmd(&["FLUSHALL"]).ok();
}

#[test]
fn a_server_that_is_gone_is_down_and_comes_back() {
    let mut server = Server::start();
    let url = server.url();
    let exporter = Exporter::start(&server, &url, &["--timeout", "1"]);
    assert_eq!(value(&exporter.scrape(), &up(&server)), Some("1"));
    server.kill9();
    wait_until("the server to be down", || value(&exporter.scrape(), &up(&server)) == Some("0"));
    let health = exporter.request("GET", "/healthz", "*/*");
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));

    let printed = output(&server, &["metrics"]);
    assert_eq!((printed.code, value(&printed.stdout, &up(&server))), (69, Some("0")));
    assert!(printed.stdout.ends_with("\n# EOF\n"), "{printed:?}");
    assert!(printed.stderr.starts_with("dlock: "), "{printed:?}");
    // One that never had a connection begins all the same.
    let late = Exporter::start(&server, &url, &[]);
    assert_eq!(value(&late.scrape(), &up(&server)), Some("0"));

    server.start_again();
    for exporter in [exporter, late] {
        wait_until("it to be up", || value(&exporter.scrape(), &up(&server)) == Some("1"));
        exporter.process.signal(Signal::SIGTERM);
        let ended = exporter.process.output();
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.stderr.contains("answers again\n"), "{ended:?}");
    }
}

#[test]
fn a_server_that_hangs_costs_one_timeout() {
    let server = Server::start();
    let exporter = Exporter::start(&server, &server.url(), &["--timeout", "2"]);
    server.freeze();
    let start = Instant::now();
    // They arrive during the first scrape, and get its result.
    let address = exporter.address.as_str();
    each(&[address; 8], |address| {
        assert_eq!(value(&scrape(address), &up(&server)), Some("0"));
    });
    let took = start.elapsed();
    server.thaw();
    assert!(took < Duration::from_secs(5), "{took:?}");
    wait_until("it to be up", || value(&exporter.scrape(), &up(&server)) == Some("1"));
}

#[test]
fn http_is_spoken_as_it_should_be() {
    let server = Server::start();
    let exporter = Exporter::start(&server, &server.url(), &[]);
    for (method, path, accept, status, head) in [
        (
            "GET",
            "/metrics",
            OPEN,
            200,
            "content-type: application/openmetrics-text; version=1.0.0;",
        ),
        ("GET", "/metrics?x=1", "*/*", 200, "content-type: text/plain; version=0.0.4;"),
        ("GET", "/", "text/html", 200, "content-type: text/html"),
        ("GET", "/other", "*/*", 404, "content-type: text/plain"),
        ("POST", "/metrics", "*/*", 405, "allow: get, head"),
    ] {
        let response = exporter.request(method, path, accept);
        assert_eq!(response.status, status, "{response:?}");
        assert!(response.head.contains(head), "{response:?}");
        assert_eq!(
            path.starts_with("/metrics") && status == 200,
            response.body.contains("dlock_up")
        );
        assert_eq!(accept == OPEN, response.body.ends_with("# EOF\n"));
    }
    assert_eq!(exporter.request("HEAD", "/metrics", "*/*").body, "");
    let taken = output(&server, &["exporter", "--listen", &exporter.address]);
    assert_eq!((taken.code, taken.stdout.as_str()), (71, ""));
    assert!(taken.stderr.starts_with("dlock: cannot listen on 127.0.0.1:"), "{taken:?}");

    // A connection that stays open does not keep the exporter.
    let mut open = TcpStream::connect(&exporter.address).expect("a connection");
    open.write_all(b"GET /metrics HTTP/1.1\r\nHos").expect("sent");
    exporter.process.signal(Signal::SIGINT);
    let ended = exporter.process.output();
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
}

#[test]
fn a_user_that_only_looks_is_enough_and_its_password_is_not_shown() {
    let server = Server::start();
    let rights = "on >pass-word ~* &dlock:notify* +info +scan +subscribe +cluster|slots +command|info \
         +dlock.info +dfair.info +drw.info +dsem.info +dlatch.info";
    server
        .cmd(&[&["ACL", "SETUSER", "monitor"][..], &rights.split(' ').collect::<Vec<_>>()].concat())
        .ok();
    server.cmd(&["DLOCK.ACQUIRE", "door", "alice", "PX", "600000"]).ok();
    let waiter = server.block(&["DLOCK.ACQUIRE", "door", "bob", "BLOCK", "0"]);
    for (password, is_up) in [("pass-word", "1"), ("pass-wrong", "0")] {
        let url = format!("redis://monitor:{password}@127.0.0.1:{}", server.port());
        let exporter = Exporter::start(&server, &url, &[]);
        let text = exporter.scrape();
        assert_eq!(value(&text, &up(&server)), Some(is_up), "{text}");
        let key = value(&text, r#"dlock_key_waiters{key="door",family="lock"}"#);
        assert_eq!(key, (is_up == "1").then_some("1"), "{text}");
        let page = exporter.request("GET", "/", "*/*").body;
        let open = exporter.request("GET", "/metrics", OPEN).body;
        exporter.process.signal(Signal::SIGTERM);
        let ended = exporter.process.output();
        assert_eq!(ended.code, 0);
        assert_eq!(ended.stderr.contains("WRONGPASS"), is_up == "0", "{ended:?}");
        for text in [text, page, open, ended.stderr] {
            assert!(!text.contains("pass-") && !text.contains("monitor"), "{text}");
        }
    }
    server.cmd(&["DEL", "door"]).ok();
    drop(waiter);
}

#[test]
fn wrong_urls_are_wrong_usage() {
    let server = Server::start();
    for url in ["http://user:pass-word@host", "redis-sentinel://pass-word@host"] {
        for command in ["metrics", "exporter"] {
            let mut command = dlock(&server, &[command]);
            command.env("DLOCK_URL", url);
            let output = Running::start(command).output();
            assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{output:?}");
            assert!(!output.stderr.contains("pass-"), "{output:?}");
        }
    }
}

#[test]
fn the_primary_among_sentinels_is_scraped_before_and_after_a_failover() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    let sentinels = Sentinels::start(1, &primary, 1);
    let exporter = Exporter::start(&primary, &sentinels.url(), &[]);
    let up = format!("dlock_up{{server=\"{}\"}}", sentinels.name());
    primary.cmd(&["DLOCK.ACQUIRE", "door", "alice", "PX", "600000"]).ok();
    let text = exporter.scrape();
    assert_eq!(value(&text, &up), Some("1"), "{text}");
    primary.wait_replica_synced(&replica);
    sentinels.failover();
    let releases = format!("dlock_releases_total{{server=\"{}\"}}", sentinels.name());
    replica.forget_connection();
    wait_until("the new primary", || {
        replica.info("replication").get("role").is_some_and(|role| role == "master")
    });
    replica.cmd(&["DLOCK.RELEASE", "door", "alice"]).ok();
    wait_until("its metrics", || value(&exporter.scrape(), &releases) == Some("1"));
    assert_eq!(value(&exporter.scrape(), &up), Some("1"));

    sentinels.wait_replica(&primary);
    let of_replica = stdout(&primary, &["metrics", "--url", &primary.url()]);
    assert!(of_replica.contains(",role=\"replica\","), "{of_replica}");
}

#[test]
fn every_primary_of_a_cluster_is_scraped() {
    let mut nodes = Nodes::start(3);
    let url = nodes.url();
    let exporter = Exporter::start(&nodes.all()[0], &url, &["--timeout", "2"]);
    let ups: Vec<String> = nodes.all().iter().map(up).collect();
    let text = exporter.scrape();
    for up in &ups {
        assert_eq!(value(&text, up), Some("1"), "{text}");
    }
    nodes.node(2).kill9();
    wait_until("one to be down", || {
        let text = exporter.scrape();
        [0, 1, 2].map(|n| value(&text, &ups[n])) == [Some("1"), Some("1"), Some("0")]
    });
    nodes.node(2).start_again();
    wait_until("it to be up", || value(&exporter.scrape(), &ups[2]) == Some("1"));
}
