//! The script for `redis_exporter`, and its configuration of Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use dlock_testing::{Reply as _, SOON, Server, redis, wait_until};

use crate::prometheus::{
    Prometheus, busy_server, contrib, expressions_of_alerts, metrics, promtool, read,
};

#[test]
fn redis_exporter_gets_the_numbers_by_a_script() {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "door", "alice", "PX", "600000"]).ok();
    let mut waiter = server.block(&["DLOCK.ACQUIRE", "door", "bob", "PX", "600000", "BLOCK", "0"]);
    server.cmd(&["DLOCK.RELEASE", "door", "alice"]).ok();
    waiter.expect_reply(SOON).ok();
    let script = include_str!("../../../../contrib/redis_exporter/dlock.lua");
    // As redis_exporter calls it, with and without -lua-script-read-only.
    for eval in ["EVAL", "EVAL_RO"] {
        let pairs: BTreeMap<String, String> =
            redis::cmd(eval).arg(script).arg(0).arg(0).query(&mut server.conn()).expect(eval);
        assert_eq!(pairs["dlock_held_locks"], "1");
        assert_eq!(pairs["dlock_grants_after_waiting"], "1");
        assert!(pairs.values().all(|value| value.parse::<f64>().is_ok()), "{pairs:?}");
        let mut expected = BTreeSet::new();
        for (name, value) in server.info("dlock") {
            if value.parse::<u64>().is_ok() {
                expected.insert(format!("dlock_{name}"));
            } else if value.starts_with("count=") {
                let figures = value.split(',').filter_map(|part| part.split_once('='));
                let names = figures.map(|(figure, _)| figure.replace('.', "_"));
                expected.extend(names.map(|figure| format!("dlock_{name}_{figure}")));
            }
        }
        let names: BTreeSet<String> = pairs.into_keys().collect();
        let missing: Vec<_> = expected.difference(&names).collect();
        assert!(missing.is_empty(), "{missing:?} not in {names:?}");
    }
    server.cmd(&["DLOCK.BREAK", "door"]).ok();
    server.left_over_check();
}

/// Answers scrapes as `redis_exporter` does with `-script`.
fn act_as_redis_exporter(listener: &TcpListener, connection: &mut redis::Connection) {
    let script = read("redis_exporter/dlock.lua");
    for stream in listener.incoming() {
        let mut stream = BufReader::new(stream.expect("a connection"));
        let mut line = String::new();
        while stream.read_line(&mut line).is_ok_and(|len| len > 2) {
            line.clear();
        }
        // When the server is gone, the test is over.
        let pairs = redis::cmd("EVAL").arg(&script).arg(0).arg(0).query(connection);
        let Ok(pairs) = pairs else { return };
        let pairs: BTreeMap<String, f64> = pairs;
        let mut body = "redis_up 1\nredis_key_size{key=\"other\"} 7\n".to_owned();
        for (key, value) in pairs {
            writeln!(body, "redis_script_values{{filename=\"f\",key={key:?}}} {value}")
                .expect("memory");
        }
        let head = "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n\r\n";
        // A scrape that is not read any more concerns nobody.
        let _ = stream.get_mut().write_all([head, &body].concat().as_bytes());
    }
}

/// The script has all that the alerts use, and with its configuration they work.
#[test]
fn the_alerts_work_with_redis_exporter() {
    let config = contrib("redis_exporter/prometheus.yml");
    promtool(&["check", "config", config.to_str().expect("text")], "");

    let server = busy_server();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it").to_string();
    let mut connection = server.conn();
    std::thread::spawn(move || act_as_redis_exporter(&listener, &mut connection));
    let mut config = read("redis_exporter/prometheus.yml");
    let alerts = contrib("prometheus/alerts.yml").display().to_string();
    for (from, to) in [("127.0.0.1:9121", &address), ("../prometheus/alerts.yml", &alerts)] {
        assert_eq!(config.matches(from).count(), 1, "{from}");
        config = config.replace(from, to);
    }
    let prometheus = Prometheus::with(&config, server.dir());
    let wanted = expressions_of_alerts();
    assert!(metrics(&wanted).len() > 10, "{wanted}");
    for name in metrics(&wanted) {
        let query = format!("{name}{{server=\"{address}\",key=\"\",filename=\"\"}}");
        wait_until(&query, || prometheus.series(&query) > 0);
    }
    for reason in wanted.split("reason=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        let query = format!("dlock_holds_lost_total{{reason=\"{reason}\"}}");
        assert_eq!(prometheus.series(&query), 1, "{query}");
    }
    // One waiter was granted: of its family and no other there is a percentile, and all of its buckets are read.
    let slow = "histogram_quantile(0.99, dlock_wait_seconds_bucket{family=\"lock\"}) < 60";
    assert_eq!(prometheus.series(slow), 1);
    assert_eq!(prometheus.series("redis_key_size{key=\"other\"}"), 1);

    server.cmd(&["DLOCK.ACQUIRE", "short", "zoe", "PX", "1"]).ok();
    wait_until("the alert", || prometheus.is_firing("DlockLeaseExpired"));
    assert!(!prometheus.is_firing("DlockPanics"));
    server.cmd(&["DEL", "door"]).ok();
}
