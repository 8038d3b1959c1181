//! What the module says about versions: its own, and that of the server.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use crate::support::{Binary, Reply, Server, wait_until};

#[path = "../../src/tried.rs"]
mod tried;

use tried::Server::{Redis, Valkey};

#[test]
fn only_minor_versions_that_the_tests_run_on_are_tried() {
    for (server, major, minor, is_tried) in [
        (Redis, 7, 0, true),
        (Redis, 7, 2, true),
        (Redis, 7, 4, true),
        (Redis, 8, 0, true),
        (Redis, 8, 2, true),
        (Redis, 8, 6, true),
        (Valkey, 8, 0, true),
        (Valkey, 9, 1, true),
        // Between two tried ones, later ones, release candidates of 8.0, and a development build.
        (Redis, 7, 3, false),
        (Redis, 8, 1, false),
        (Redis, 8, 4, false),
        (Redis, 9, 0, false),
        (Redis, 7, 9, false),
        (Redis, 255, 255, false),
        (Valkey, 8, 1, false),
        (Valkey, 9, 0, false),
        (Valkey, 9, 2, false),
        // A version of the other product, and one that could not be read.
        (Redis, 9, 1, false),
        (Valkey, 7, 0, false),
        (Redis, 0, 0, false),
    ] {
        assert_eq!(tried::is_tried(server, major, minor), is_tried, "{server:?} {major}.{minor}");
    }
}

#[test]
fn the_tried_servers_are_those_of_make_matrix() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/servers");
    let output = Command::new(script).output().expect("the script");
    let listed = String::from_utf8(output.stdout).expect("names");
    let name = |(server, major, minor)| format!("{server:?}-{major}.{minor}").to_lowercase();
    let ours: Vec<String> = tried::TRIED.into_iter().map(name).collect();
    assert_eq!(listed.split_whitespace().collect::<Vec<_>>(), ours);
}

/// What the module says about its server: in INFO, and whether the log names the server as untried.
fn said(server: &Server) -> (String, bool) {
    (server.info("dlock")["server_tried"].clone(), server.log().contains(" is untried on "))
}

#[test]
fn a_tried_server_is_shown_as_tried() {
    assert_eq!(said(&Server::of("redis-8.2").start()), ("yes".to_owned(), false));
}

#[test]
fn an_untried_server_is_named_in_the_log_and_in_info_and_grants() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("redis-server");
    // Redis 8.2 that calls itself 8.4: the version is one text in the program.
    let real = Binary::named("redis-8.2");
    let (major, minor, patch) = real.kind().version;
    let text = format!("\0{major}.{minor}.{patch}\0");
    let mut bytes = fs::read(real.path()).expect("the program");
    let at = bytes.windows(text.len()).position(|bytes| bytes == text.as_bytes());
    bytes[at.expect("its version") + "\08.".len()] = b'4';
    fs::write(&program, bytes).expect("a copy");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a file of ours");
    // A process that another test is starting may have the file open for writing until it executes its program.
    wait_until("a program that can be run", || {
        Command::new(&program).arg("--version").output().is_ok()
    });

    let server = Server::with(&[]).binary(&Binary::at(program.to_str().expect("text"))).start();
    assert_eq!((server.kind().version.0, server.kind().version.1), (8, 4));
    assert_eq!(said(&server), ("no".to_owned(), true));
    let named = format!("dlock {} is untried on Redis 8.4.", env!("CARGO_PKG_VERSION"));
    assert!(server.log().contains(&named), "{}", server.log_tail());
    server.cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    server.cmd(&["DLOCK.RELEASE", "k", "a"]).int();
    server.left_over_check();
}

#[test]
fn module_list_shows_the_version_as_a_number() {
    let server = Server::start();
    let modules = server.cmd(&["MODULE", "LIST"]).items();
    let ours = modules.iter().find(|module| module.field("name").text() == "dlock");
    let parts = env!("CARGO_PKG_VERSION").split('.').map(|part| part.parse().expect("a number"));
    let number = parts.fold(0, |number: i64, part: i64| 100 * number + part);
    assert_eq!(ours.expect("it is listed").field("ver").int(), number);
}
