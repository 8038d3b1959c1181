//! `dlock log`

use std::process::Stdio;

use dlock_testing::{Reply as _, Server, args, wait_until};
use serde_json::{Value, json};

use crate::command::{Running, dlock, output, stdout};

/// Breaks a hold with names that a terminal would act upon.
fn a_hostile_event(server: &Server) {
    let call =
        args!["DLOCK.ACQUIRE", "door\n", &b"al\x1b[2Jice\xff"[..], "PX", "600000", "LABEL", "a b"];
    server.cmd(&call).ok();
    server.cmd(&["DLOCK.BREAK", "door\n"]).ok();
}

#[test]
fn events_are_shown_and_cleared() {
    let server = Server::start();
    let none = output(&server, &["log"]);
    assert_eq!(
        (none.code, none.stdout.as_str(), none.stderr.as_str()),
        (0, "", "dlock: the log is empty\n")
    );
    assert_eq!(stdout(&server, &["log", "--json"]), "[]\n");
    a_hostile_event(&server);
    server.cmd(&["DLOCK.ACQUIRE", "short", "bob", "PX", "20"]).ok();
    wait_until("the expiry", || server.cmd(&["DLOCK.LOG", "LEN"]).int() == 2);

    let text = stdout(&server, &["log"]);
    let rows: Vec<&str> = text.lines().collect();
    assert_eq!(rows.len(), 3, "{text}");
    assert!(rows[0].starts_with("TIME ") && rows[2].contains("  expired  short "), "{text}");
    let parts =
        [r#"  broken   "door\n"  "#, r#"  "al\x1b[2Jice\xff"  "#, r#", label "a b", token "#];
    for part in parts {
        assert!(rows[1].contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\u{1b}'));
    assert_eq!(stdout(&server, &["log", "--count", "1"]).lines().count(), 2);

    let found: Value = serde_json::from_str(&stdout(&server, &["log", "--json"])).expect("JSON");
    let broken = &found[0];
    assert_eq!(
        (&broken["event"], &broken["key"], &broken["label"]),
        (&json!("broken"), &json!("door\n"), &json!("a b"))
    );
    assert_eq!(broken["owner"], json!({"hex": "616c1b5b324a696365ff"}));
    let server_name = format!("127.0.0.1:{}", server.port());
    assert_eq!((&broken["server"], &found[1]["owner"]), (&json!(server_name), &json!("bob")));

    assert_eq!(stdout(&server, &["log", "--reset"]), "");
    assert_eq!(server.cmd(&["DLOCK.LOG", "LEN"]).int(), 0);
}

#[test]
fn new_events_are_followed() {
    let mut server = Server::start();
    a_hostile_event(&server);
    let mut command = dlock(&server, &["log", "-f"]);
    command.stdin(Stdio::null());
    let mut running = Running::start(command);
    let line = running.line();
    assert!(
        line.contains(r#" broken "door\n" (dlock), owner "al\x1b[2Jice\xff", "#)
            && line.contains(r#", label "a b", token "#),
        "{line}"
    );
    server.cmd(&["DLOCK.ACQUIRE", "k", "bob"]).ok();
    server.cmd(&["DLOCK.BREAK", "k"]).ok();
    let line = running.line();
    assert!(line.contains(" broken k (dlock), owner bob, "), "{line}");
    // Ids begin again.
    server.kill9();
    server.start_again();
    server.cmd(&["DLOCK.ACQUIRE", "k", "carol"]).ok();
    server.cmd(&["DLOCK.BREAK", "k"]).ok();
    let line = running.line();
    assert!(line.contains(" broken k (dlock), owner carol, "), "{line}");
}

#[test]
fn a_user_without_the_right_is_told() {
    let server = Server::start();
    server.cmd(&["ACL", "SETUSER", "eve", "on", ">pw", "~*", "&*", "+@all", "-dlock.log"]).ok();
    let url = format!("redis://eve:pw@127.0.0.1:{}", server.port());
    let refused = output(&server, &["--url", &url, "log"]);
    assert!(
        refused.code == 69 && refused.stderr.starts_with("dlock: cannot read the log: NOPERM"),
        "{refused:?}"
    );
}
