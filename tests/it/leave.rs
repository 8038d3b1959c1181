//! The way from a server with dlock to the same data without it, as docs/operations.md describes it.

use std::{
    fs,
    path::Path,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::durability::wait_rewritten;
use crate::support::{Kind, Reply, Server, wait_until};

/// A server with a plain key, on which dlock was used and its keys are deleted. Its tokens are ahead of the wall clock.
fn used() -> Server {
    let server = Server::with(&["aof-use-rdb-preamble", "no"]).start();
    server.ask("SET plain value").ok();
    let token = server.ask("DLOCK.ACQUIRE k a REQID r").int();
    server.ask(&format!("DLOCK.FENCE k a {}", token + 3_000_000)).int();
    server.ask("DFAIR.ACQUIRE fair a").int();
    server.ask("DSEM.INIT sem 2").ok();
    for key in ["k", "fair", "sem"] {
        server.cmd(&["DEL", key]).ok();
    }
    server
}

/// Until the files contain nothing of dlock.
fn wait_for_nothing_to_save(server: &Server) {
    server.ask("CONFIG SET dlock.request-memory-ms 0").ok();
    wait_until("no finished request to be known", || {
        server.info_number("dlock", "requests_remembered") == 0
    });
    wait_until("the tokens to be behind the wall clock", || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
        u128::try_from(server.info_number("dlock", "last_token")).expect("a token")
            < now.as_micros()
    });
}

fn copy_folder(from: &Path, to: &Path) {
    fs::remove_dir_all(to).expect("its own files");
    fs::create_dir(to).expect("a folder");
    for entry in fs::read_dir(from).expect("the files") {
        let entry = entry.expect("a file");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a copy");
    }
}

#[test]
fn a_server_without_the_module_starts_from_the_append_only_file() {
    let server = used();
    wait_for_nothing_to_save(&server);
    server.ask("CONFIG SET appendonly yes").ok();
    wait_rewritten(&server);
    let mut plain = Server::with(&["appendonly", "yes"]).without_module().start();
    plain.kill9();
    let log = "appendonlydir";
    copy_folder(&server.dir().join(log), &plain.dir().join(log));
    plain.start_again();
    assert_eq!(plain.ask("GET plain").text(), "value");
}

#[test]
fn a_server_without_the_module_starts_from_an_rdb_file() {
    if !Kind::of_binary().at_least((7, 2), (7, 2)) {
        // Its RDB files always name the module.
        return;
    }
    let server = used();
    wait_for_nothing_to_save(&server);
    server.ask("SAVE").ok();
    let mut plain = Server::with(&[]).without_module().start();
    plain.kill9();
    fs::copy(server.dir().join("dump.rdb"), plain.dir().join("dump.rdb")).expect("a copy");
    plain.start_again();
    assert_eq!(plain.ask("GET plain").text(), "value");
}

/// The configuration file without the module and its settings: step 6.
fn forget_the_module(server: &Server) {
    let file = server.config_file();
    let text = fs::read_to_string(&file).expect("the configuration");
    let is_ours = |line: &&str| line.starts_with("loadmodule ") || line.starts_with("dlock.");
    let kept: Vec<&str> = text.lines().filter(|line| !is_ours(line)).collect();
    fs::write(&file, kept.join("\n")).expect("the configuration");
}

#[test]
fn rules_that_name_commands_of_the_module_stop_a_start_without_it() {
    for name in ["redis-7.0", "redis-8.2", "valkey-9.1"] {
        let mut server =
            Server::of(name).and(&["appendonly", "yes", "aof-use-rdb-preamble", "no"]).start();
        server
            .ask("ACL SETUSER worker on >s ~lock:* -@all +ping +dlock.acquire +dlock.release")
            .ok();
        server.ask("ACL SETUSER other on >s ~* +@all -dlock.break").ok();
        server.ask("SET plain value").ok();
        server.ask("CONFIG REWRITE").ok();
        let with_rules = fs::read_to_string(server.config_file()).expect("the configuration");

        server.ask("ACL DELUSER worker").int();
        server.ask("ACL SETUSER other nocommands +@all -flushall").ok();
        let rules = server.ask("ACL LIST").items();
        let named = rules.iter().find(|user| user.text().to_lowercase().contains("dlock."));
        assert_eq!(named, None, "{name}");
        server.ask("CONFIG REWRITE").ok();
        server.shutdown(&[]);
        forget_the_module(&server);
        server.start_again();
        assert_eq!(server.ask("GET plain").text(), "value");

        server.shutdown(&[]);
        fs::write(server.config_file(), with_rules).expect("the configuration");
        forget_the_module(&server);
        let log = server.try_start_again().expect_err("rules that nobody knows");
        assert!(log.contains("Unknown command or category name in ACL"), "{name}: {log}");
    }
}
