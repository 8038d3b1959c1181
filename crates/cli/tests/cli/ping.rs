//! `dlock ping`

use dlock_testing::{Nodes, Server};

use crate::command::{Output, dlock, output, stdout};

/// Checks the exit code and the message, and that stdout has nothing but the servers.
#[track_caller]
fn refused(output: &Output, code: i32, text: &str) {
    assert_eq!(output.code, code, "{output:?}");
    assert!(output.stderr.starts_with("dlock: ") && output.stderr.contains(text), "{output:?}");
}

#[test]
fn a_good_server() {
    let server = Server::start();
    let line = stdout(&server, &["ping"]);
    let begin = format!("127.0.0.1:{}: dlock ", server.port());
    assert!(line.starts_with(&begin) && line.ends_with(", primary\n"), "{line}");
    assert_eq!(stdout(&server, &["ping", "--primary"]), line);
}

#[test]
fn a_replica_is_one_only_where_it_matters() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    let line = stdout(&replica, &["ping"]);
    assert!(line.ends_with(", replica\n"), "{line}");
    refused(&output(&replica, &["ping", "--primary"]), 4, " is a replica");
}

#[test]
fn a_quarantine() {
    let server = Server::with(&["dlock.restart-quarantine-ms", "60000"]).start();
    let ping = output(&server, &["ping"]);
    refused(&ping, 3, " is in quarantine: it grants nothing for another 59.");
    let json = output(&server, &["ping", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!((json.code, &found["exit-code"]), (3, &serde_json::json!(3)));
    assert!(found["servers"][0]["quarantine-left-ms"].as_u64() > Some(50_000), "{found}");
}

#[test]
fn servers_that_are_of_no_use() {
    let plain = Server::with(&[]).without_module().start();
    refused(&output(&plain, &["ping"]), 2, "the dlock module is not loaded");
    let nobody = output(&plain, &["--url", "redis://127.0.0.1:1", "ping"]);
    refused(&nobody, 69, "cannot connect to redis://127.0.0.1:1: ");
    let stranger = format!("redis://u:secret@127.0.0.1:{}", plain.port());
    refused(&output(&plain, &["--url", &stranger, "ping"]), 69, "WRONGPASS");
    refused(&output(&plain, &["ping", "--timeout", "0"]), 64, "shorter than 1ms");
}

#[test]
fn a_server_that_hangs_is_not_waited_for() {
    let server = Server::start();
    server.freeze();
    let start = std::time::Instant::now();
    refused(&output(&server, &["ping", "-t", "0.3"]), 69, "no answer within 300ms from redis://");
    assert!(start.elapsed() < dlock_testing::SOON, "{:?}", start.elapsed());
    server.thaw();
}

#[test]
fn every_primary_of_a_cluster_is_asked() {
    let nodes = Nodes::start(2);
    let mut command = dlock(&nodes.all()[0], &["ping"]);
    command.env("DLOCK_URL", nodes.url());
    let ping = crate::command::Running::start(command).output();
    assert_eq!((ping.code, ping.stdout.lines().count()), (0, 2), "{ping:?}");
}
