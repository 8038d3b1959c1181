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
