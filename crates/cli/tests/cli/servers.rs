//! Kinds of servers: TLS, Sentinels, clusters.

use std::path::Path;

use dlock_testing::{Nodes, Reply as _, Sentinels, Server, Tls};

use crate::command::{Output, Running, dlock, output, stdout};

fn both<'a>(options: &[&'a str], words: &[&'a str]) -> Vec<&'a str> {
    [options, words].concat()
}

/// Checks each command with an existing lock, `door`, and with a free one.
#[track_caller]
fn all_work(server: &Server, options: &[&str]) {
    server.cmd(&["DLOCK.ACQUIRE", "door", "alice", "PX", "600000"]).ok();
    let list = stdout(server, &both(options, &["ls"]));
    assert!(list.lines().any(|line| line.starts_with("door  dlock  alice ")), "{list}");
    let page = stdout(server, &both(options, &["info", "door"]));
    assert!(page.contains("held by    alice"), "{page}");
    let snapshot = stdout(server, &both(options, &["top"]));
    assert!(snapshot.lines().any(|line| line.starts_with("door  dlock  alice ")), "{snapshot}");
    assert!(snapshot.contains("\n1 hold, 0 permits, 1 key; "), "{snapshot}");
    let metrics = stdout(server, &both(options, &["metrics"]));
    let is_up = |line: &str| line.starts_with("dlock_up{") && line.ends_with(" 1");
    assert!(metrics.lines().any(is_up), "{metrics}");
    let run = |key| output(server, &both(options, &["run", "-n", key, "--", "echo", "ran"]));
    assert_eq!((run("door").code, run("door").stdout.as_str()), (1, ""));
    assert_eq!((run("free").code, run("free").stdout.as_str()), (0, "ran\n"));
    let broken = stdout(server, &both(options, &["break", "door"]));
    assert_eq!(broken, "broken: 1 hold of door\n");
}

#[track_caller]
fn fails(output: &Output, code: i32, text: &str) {
    assert_eq!((output.code, output.stdout.as_str()), (code, ""), "{output:?}");
    assert!(output.stderr.contains(text), "no {text:?} in {}", output.stderr);
    assert!(!output.stderr.contains("pass-"), "{}", output.stderr);
}

fn text(path: &Path) -> &str {
    path.to_str().expect("text")
}

#[test]
fn certificates_are_options_or_variables() {
    let Some(tls) = Tls::new() else {
        println!("this server has no TLS");
        return;
    };
    let server = tls.server().and(&["tls-auth-clients", "yes"]).start();
    let url = tls.url();
    let authority = tls.authority_file();
    let [cert, key] = tls.client_files();
    let (authority, cert, key) = (text(&authority), text(&cert), text(&key));
    all_work(&server, &["--url", &url, "--cacert", authority, "--cert", cert, "--key", key]);

    // The inner command finds the same server, although DLOCK_KEY is another key.
    let mut within =
        dlock(&server, &["run", "door", "--", "sh", "-c", "\"$0\" info \"$DLOCK_KEY\""]);
    within.arg(env!("CARGO_BIN_EXE_dlock")).env("DLOCK_URL", &url);
    for (name, file) in [("CACERT", authority), ("CERT", cert), ("KEY", key)] {
        within.env(format!("DLOCK_TLS_{name}"), file);
    }
    let within = Running::start(within).output();
    assert_eq!((within.code, within.stderr.as_str()), (0, ""));
    assert!(within.stdout.starts_with("key        door\n"), "{}", within.stdout);

    for words in [&["ls"][..], &["run", "k", "--", "true"]] {
        let with = |options: &[&str]| output(&server, &[options, words].concat());
        fails(&with(&["--url", &url]), 69, "(--cacert names the authority to trust,");
        let unknown = with(&["--url", &url, "--cacert", authority]);
        fails(&unknown, 69, "--cert and --key the certificate to show)");
        let half = with(&["--url", &url, "--cacert", authority, "--cert", cert]);
        fails(&half, 64, "--cert and --key belong together");
        fails(&with(&["--url", &url, "--cacert", "/no"]), 64, "cannot read \"/no\" (--cacert): ");
        let other = with(&["--url", &url, "--cacert", key]);
        fails(&other, 64, "the authority's certificate is not in PEM format");
        assert!(!other.stderr.contains("a URL begins with"), "{}", other.stderr);
        fails(&with(&["--cacert", authority]), 64, "certificates are for TLS: rediss://, ");
    }
    server.left_over_check();
}

#[test]
fn sentinels_name_the_primary() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    let sentinels = Sentinels::with().requirepass("pass-word").start(3, &primary, 1);
    let url = format!("{}?sentinel_password=pass-word", sentinels.url());
    all_work(&primary, &["--url", &url]);
    for words in [&["ls"][..], &["run", "k", "--", "true"]] {
        let stranger = output(&primary, &[&["--url", &sentinels.url()], words].concat());
        fails(&stranger, 69, "(those of the Sentinels come behind: ");
        let wrong = format!("{}?sentinel_password=pass-wrong", sentinels.url());
        fails(
            &output(&primary, &[&["--url", &wrong], words].concat()),
            69,
            "authentication failed",
        );
    }
    // A command that runs during a change of the primary keeps its lock.
    let words = ["run", "door", "--", "sh", "-c", "echo ready; read line"];
    let mut command = dlock(&primary, &words);
    command.env("DLOCK_URL", &url).stdin(std::process::Stdio::piped());
    let mut running = Running::start(command);
    assert_eq!(running.line(), "ready");
    primary.wait_replica_synced(&replica);
    sentinels.failover();
    sentinels.wait_replica(&primary);
    replica.forget_connection();
    assert_eq!(replica.cmd(&["DLOCK.INFO", "door"]).field("label").text(), "sh");
    running.type_line("end");
    let ended = running.output();
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""));
    replica.left_over_check();
}

#[test]
fn sentinels_and_clusters_behind_tls() {
    let Some(tls) = Tls::new() else {
        println!("this server has no TLS");
        return;
    };
    let authority = tls.authority_file();
    let trust = ["--cacert", text(&authority)];
    let primary = tls.server().and(&["tls-replication", "yes"]).start();
    let sentinels = Sentinels::with().tls(&tls).start(1, &primary, 0);
    let url = sentinels.url();
    all_work(&primary, &[&["--url", &url][..], &trust].concat());
    let stranger = output(&primary, &["--url", &url, "ls"]);
    fails(&stranger, 69, "(--cacert names the authority to trust,");
    primary.left_over_check();

    let of_node = tls.another();
    let node = of_node.server().and(&["tls-cluster", "yes"]).cluster().start();
    let url = format!("rediss-cluster://127.0.0.1:{}", of_node.port());
    all_work(&node, &[&["--url", &url][..], &trust].concat());
    let stranger = output(&node, &["--url", &url, "ls"]);
    fails(&stranger, 69, "(--cacert names the authority to trust,");
    node.left_over_check();
}

#[test]
fn each_key_of_a_cluster_is_found() {
    let nodes = Nodes::start(2);
    let url = nodes.url();
    let keys = ["k0", "k1", "k2", "k3"];
    for (n, key) in keys.iter().enumerate() {
        let node = &nodes.all()[nodes.owner_of(nodes.all()[0].slot(key)).expect("an owner")];
        node.cmd(&["DLOCK.ACQUIRE", key, &format!("o{n}"), "PX", "600000"]).ok();
    }
    let here = &nodes.all()[0];
    for (n, key) in keys.iter().enumerate() {
        let page = stdout(here, &["--url", &url, "info", key]);
        assert!(page.contains(&format!("held by    o{n}\n")), "{page}");
    }
    let snapshot = stdout(here, &["--url", &url, "top"]);
    assert!(snapshot.starts_with("2 servers, "), "{snapshot}");
    assert!(snapshot.contains("\n4 holds, 0 permits, 4 keys; "), "{snapshot}");
    let shown = snapshot.lines().filter(|line| line.contains("  dlock  o")).count();
    assert_eq!(shown, 4, "{snapshot}");
    for key in keys {
        stdout(here, &["--url", &url, "break", key]);
    }
    nodes.left_over_check();
}
