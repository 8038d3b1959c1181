//! `dlock doctor`

use dlock_testing::{Nodes, Reply as _, Sentinels, Server, Setup, Tls, wait_until};
use serde_json::Value;

use crate::command::{Output, output, stdout};
use crate::json::one_value;

/// The settings of a server that fits.
const GOOD: [&str; 8] = [
    "min-replicas-to-write",
    "1",
    "min-replicas-max-lag",
    "10",
    "dlock.restart-quarantine-ms",
    "30000",
    "appendonly",
    "yes",
];

fn good() -> Setup {
    Server::with(&GOOD)
}

/// A primary that fits, and two replicas.
fn group() -> [Server; 3] {
    let primary = good().start();
    let replica = || good().replica_of(&primary).start();
    let (one, two) = (replica(), replica());
    [primary, one, two]
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.port())
}

/// The lines that are not `ok`.
fn problems(output: &Output) -> Vec<&str> {
    output.stdout.lines().filter(|line| !line.starts_with("ok ")).collect()
}

/// Checks that exactly one line is not `ok`, and that it has this status, server and text.
#[track_caller]
fn one_problem(output: &Output, status: &str, server: &Server, text: &str) {
    let code = i32::from(status != "warn");
    let expected = format!("{status:<11}  {:<15}  {text}", address(server));
    assert_eq!((output.code, problems(output)), (code, vec![expected.as_str()]), "{output:?}");
    let summary = match status {
        "warn" => "",
        "FAIL" => "dlock: 1 check failed, 0 not checked\n",
        _ => "dlock: 0 checks failed, 1 not checked\n",
    };
    assert_eq!(output.stderr, summary);
}

#[test]
fn a_group_fits_until_one_thing_is_missing() {
    let servers = group();
    let [primary, one, two] = &servers;
    let lines = stdout(primary, &["doctor"]);
    assert!(lines.lines().all(|line| line.starts_with("ok ")), "{lines}");
    assert!(servers.iter().all(|server| lines.contains(&address(server))), "{lines}");
    for (server, setting, value, good, status, note) in [
        (one, "min-replicas-to-write", "0", "1", "FAIL", ""),
        (two, "min-replicas-max-lag", "0", "10", "FAIL", ""),
        (two, "min-replicas-max-lag", "11", "10", "warn", ""),
        (primary, "dlock.restart-quarantine-ms", "29999", "30000", "FAIL", ""),
        (one, "replica-priority", "50", "100", "warn", ""),
    ] {
        server.cmd(&["CONFIG", "SET", setting, value]).ok();
        let text = format!("{setting} is {value}{note}: CONFIG SET {setting} {good}");
        one_problem(&output(primary, &["doctor"]), status, server, &text);
        server.cmd(&["CONFIG", "SET", setting, good]).ok();
    }
    two.cmd(&["CONFIG", "SET", "appendonly", "no"]).ok();
    let text =
        "keeps nothing: restarted as primary, it empties its replicas: CONFIG SET appendonly yes";
    one_problem(&output(primary, &["doctor"]), "warn", two, text);
    two.cmd(&["CONFIG", "SET", "save", "60 1"]).ok();
    assert_eq!(output(primary, &["doctor"]).code, 0);
    assert_eq!(stdout(primary, &["doctor"]).lines().count(), lines.lines().count());

    let longer = output(primary, &["doctor", "--lease", "31s"]);
    assert_eq!((longer.code, problems(&longer).len()), (1, 3), "{longer:?}");
    let more = output(primary, &["doctor", "--replicas", "2"]);
    assert_eq!((more.code, problems(&more).len()), (1, 4), "{more:?}");
    assert!(more.stdout.contains("if one is down, there are no grants: add a replica"), "{more:?}");
    let url = format!("{}?replicas=2", primary.url());
    let of_url = output(primary, &["--url", &url, "doctor"]);
    assert_eq!((of_url.code, of_url.stdout), (1, more.stdout));
    assert_eq!(output(primary, &["--url", &url, "doctor", "--replicas", "1"]).code, 0);
}

#[test]
fn too_few_or_wrong_replicas() {
    let [primary, one, two] = group();
    let of_one = good().replica_of(&one).start();
    let text =
        "has 1 replica of its own, not counted: make them replicas of the primary with REPLICAOF";
    one_problem(&output(&primary, &["doctor"]), "FAIL", &one, text);
    drop((of_one, two));
    wait_until("the end of two replicas", || {
        primary.info_number("replication", "connected_slaves") == 1
            && one.info_number("replication", "connected_slaves") == 0
    });
    let text = "a grant needs 2 of 2 servers: if one is down, there are no grants: add a replica";
    one_problem(&output(&primary, &["doctor"]), "warn", &primary, text);
    let replica = output(&one, &["doctor"]);
    assert!(
        replica.stdout.contains("is not the primary: check the URL of its primary"),
        "{replica:?}"
    );

    let alone = Server::with(&[]).without_module().start();
    let output = output(&alone, &["doctor", "--replicas", "1"]);
    for text in [
        "FAIL         127.0.0.1:{}  a grant needs 2 of 1 server, too few: run 2 replicas",
        "FAIL         127.0.0.1:{}  the dlock module is not loaded: start the server with loadmodule",
        "not checked  127.0.0.1:{}  CONFIG GET does not show dlock.restart-quarantine-ms: let the user run CONFIG GET",
    ] {
        let line = text.replace("{}", &alone.port().to_string());
        assert!(problems(&output).contains(&line.as_str()), "{line}\n{output:?}");
    }
    assert_eq!(output.code, 1);
}

#[test]
fn one_server_is_checked_for_its_restart() {
    let server = Server::with(&["appendonly", "yes", "appendfsync", "always", "save", ""]).start();
    let sound = stdout(&server, &["doctor"]);
    assert!(sound.lines().all(|line| line.starts_with("ok ")), "{sound}");
    for text in [
        "is the primary",
        "has 0 replicas",
        "a crash loses no grant",
        "maxmemory-policy is noeviction",
        "clients need no password, and protected-mode refuses other machines",
    ] {
        assert!(sound.contains(&format!("  {}  {text}\n", address(&server))), "{text}\n{sound}");
    }
    assert!(!sound.contains("a grant needs") && !sound.contains("min-replicas"), "{sound}");
    for (settings, good, status, text) in [
        (
            "appendfsync everysec",
            "appendfsync always",
            "warn",
            "a crash loses grants of the last 2 s; dlock.restart-quarantine-ms is 0: CONFIG SET appendonly yes \
             appendfsync always, or CONFIG SET dlock.restart-quarantine-ms 30000",
        ),
        (
            "appendonly no dlock.restart-quarantine-ms 29999",
            "appendonly yes dlock.restart-quarantine-ms 0",
            "FAIL",
            "a crash loses all locks; dlock.restart-quarantine-ms is 29999: CONFIG SET appendonly yes appendfsync \
             always, or CONFIG SET dlock.restart-quarantine-ms 30000",
        ),
        (
            "maxmemory 100mb maxmemory-policy allkeys-lru",
            "maxmemory 0 maxmemory-policy noeviction",
            "FAIL",
            "maxmemory-policy is allkeys-lru, which evicts locks that are held: CONFIG SET maxmemory-policy \
             noeviction",
        ),
    ] {
        let set = |settings: &str| {
            let words = ["CONFIG", "SET"].into_iter().chain(settings.split(' '));
            server.cmd(&words.collect::<Vec<_>>()).ok();
        };
        set(settings);
        one_problem(&output(&server, &["doctor"]), status, &server, text);
        set(good);
    }
    let json = one_value(&output(&server, &["doctor", "--json"]), 0);
    assert!(json["checks"].as_array().is_some_and(|checks| checks.len() > 6), "{json}");

    // What the user may not ask is left out, or not checked.
    let user = ["ACL", "SETUSER", "doc", "on", ">secret", "~*", "&*", "+@all", "-acl"];
    server.cmd(&user).ok();
    let url = format!("redis://doc:secret@{}", address(&server));
    let text = stdout(&server, &["--url", &url, "doctor"]);
    assert!(!text.contains("password"), "{text}");

    // A server that waits for replicas is the primary of a group.
    server.cmd(&["CONFIG", "SET", "min-replicas-to-write", "1"]).ok();
    assert_eq!(output(&server, &["doctor"]).code, 1);
    for words in [&["--replicas", "1"][..], &["--url", &format!("{}?replicas=1", server.url())]] {
        server.cmd(&["CONFIG", "SET", "min-replicas-to-write", "0"]).ok();
        let found = output(&server, &[&["doctor"], words].concat());
        assert!(found.stdout.contains("too few: run 2 replicas"), "{found:?}");
    }
}

#[test]
fn what_cannot_be_asked_is_not_right() {
    let servers = group();
    let [primary, _, frozen] = &servers;
    for server in &servers {
        server
            .cmd(&["ACL", "SETUSER", "doc", "on", ">secret", "~*", "&*", "+@all", "-config"])
            .ok();
    }
    let url = format!("redis://doc:secret@{}", address(primary));
    let refused = output(primary, &["--url", &url, "doctor"]);
    let hidden = problems(&refused);
    assert_eq!((refused.code, hidden.len()), (1, 3 * 5), "{refused:?}");
    assert!(hidden.iter().all(|line| line.starts_with("not checked ")), "{refused:?}");
    assert!(!refused.stdout.contains("min-replicas-to-write is"), "{refused:?}");

    frozen.freeze();
    let text = "no answer: timed out: run dlock doctor on a machine that reaches it";
    one_problem(&output(primary, &["doctor"]), "not checked", frozen, text);
    frozen.thaw();
}

#[test]
fn programs_get_the_checks() {
    let [primary, _one, _two] = group();
    let good = one_value(&output(&primary, &["doctor", "--json"]), 0);
    let checks = good["checks"].as_array().expect("a list");
    assert!(checks.len() > 20 && checks.iter().all(|check| check["status"] == "ok"), "{good}");
    let bad = one_value(&output(&primary, &["doctor", "--json", "--lease", "1m"]), 1);
    let failed = |check: &&Value| check["status"] == "FAIL";
    let failed: Vec<&Value> =
        bad["checks"].as_array().expect("a list").iter().filter(failed).collect();
    assert_eq!(failed.len(), 3, "{bad}");
    for check in failed {
        assert_eq!(check["check"], "dlock.restart-quarantine-ms");
        assert_eq!(check["fix"], "CONFIG SET dlock.restart-quarantine-ms 60000");
    }
    one_value(&output(&primary, &["doctor", "--json", "--replicas", "0"]), 64);
    one_value(&output(&primary, &["--url", "redis://127.0.0.1:1", "doctor", "--json"]), 69);
    one_value(&output(&primary, &["--url", "nonsense", "doctor", "--json"]), 64);
}

#[test]
fn sentinels_agree_and_know_lost_replicas() {
    let primary = good().start();
    // The primary shows that name; the Sentinels resolve it.
    let one = good().and(&["replica-announce-ip", "127.1"]).replica_of(&primary).start();
    let mut two = good().replica_of(&primary).start();
    let sentinels = Sentinels::with().requirepass("pass-word").start(3, &primary, 2);
    let url = format!("{}?sentinel_password=pass-word&replicas=1", sentinels.url());
    let doctor = || output(&primary, &["--url", &url, "doctor"]);
    let good = doctor();
    assert_eq!((good.code, problems(&good)), (0, vec![]), "{good:?}");
    assert!(good.stdout.contains("  a grant needs 2 of 3 servers, a majority\n"), "{good:?}");
    assert_eq!(good.stdout.matches("  down-after-milliseconds is 500\n").count(), 3, "{good:?}");
    for (quorum, text) in
        [("1", "the quorum is 1 of 3: SENTINEL SET locks quorum 2"), ("4", "CKQUORUM says ")]
    {
        sentinels.cmd(&["SENTINEL", "SET", "locks", "quorum", quorum]);
        let found = doctor();
        let all = problems(&found);
        assert_eq!((found.code, all.len()), (1, 3), "{found:?}");
        assert!(
            all.iter().all(|line| line.starts_with("FAIL ") && line.contains(text)),
            "{found:?}"
        );
    }
    sentinels.cmd(&["SENTINEL", "SET", "locks", "quorum", "2"]);
    two.kill9();
    wait_until("the end of a replica", || {
        primary.info_number("replication", "connected_slaves") == 1
    });
    let lost = doctor();
    let line = format!("not checked  {}  no answer: ", address(&two));
    assert!(lost.code == 1 && problems(&lost)[0].starts_with(&line), "{lost:?}");
    assert_eq!(problems(&lost).len(), 1, "{lost:?}");
    drop((one, sentinels));
    wait_until("the end of both replicas", || {
        primary.info_number("replication", "connected_slaves") == 0
    });

    let few = Sentinels::start(2, &primary, 0);
    let found = output(&primary, &["--url", &few.url(), "doctor"]);
    assert_eq!(
        found.stdout.matches("  2 Sentinels for this primary: run at least 3 Sentinels\n").count(),
        2,
        "{found:?}"
    );
}

#[test]
fn every_primary_of_a_cluster_has_a_group() {
    let mut nodes = Nodes::with(2, &GOOD);
    for _ in 0..2 {
        nodes.add_replica_as(0, good());
    }
    nodes.wait_whole();
    let url = nodes.url();
    let found = output(&nodes.all()[0], &["--url", &url, "doctor"]);
    let text = "a grant needs 2 of 1 server, too few: run 2 replicas";
    one_problem(&found, "FAIL", &nodes.all()[1], text);
    for node in nodes.all() {
        let line = format!("{}  min-replicas-to-write is 1\n", address(node));
        assert!(found.stdout.contains(&line), "{found:?}");
    }
    // Not even a cluster of one server is checked as one server.
    let one = Nodes::start(1);
    let found = output(&one.all()[0], &["--url", &one.url(), "doctor"]);
    assert!(found.stdout.contains(text), "{found:?}");
}

#[test]
fn servers_behind_tls_are_asked_with_the_certificates() {
    let Some(tls) = Tls::new() else {
        println!("this server has no TLS");
        return;
    };
    let server = tls.server().and(&GOOD).and(&["tls-auth-clients", "yes"]).start();
    let (authority, [cert, key]) = (tls.authority_file(), tls.client_files());
    let [authority, cert, key] = [&authority, &cert, &key].map(|file| file.to_str().expect("text"));
    let trust = ["--url", &tls.url(), "--cacert", authority, "--cert", cert, "--key", key];
    let found = output(&server, &[&trust[..], &["doctor"]].concat());
    let all = problems(&found);
    assert_eq!((found.code, all.len()), (1, 1), "{found:?}");
    assert!(
        all[0].ends_with("  a grant needs 2 of 1 server, too few: run 2 replicas"),
        "{found:?}"
    );
    assert!(found.stdout.contains("  min-replicas-to-write is 1\n"), "{found:?}");
}
