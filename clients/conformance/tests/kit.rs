//! The kit itself: its language, and its scenes with the Rust client.

use std::collections::BTreeSet;
use std::sync::Mutex;

use dlock_conformance::{Job, World, parse, run_all, scenes};
use dlock_testing::Binary;

#[test]
fn every_scene_is_understood_and_has_a_name_of_its_own() {
    let scenes = scenes().unwrap();
    assert!(scenes.len() >= 60, "{} scenes", scenes.len());
    let names: BTreeSet<&str> = scenes.iter().map(|scene| scene.name.as_str()).collect();
    assert_eq!(names.len(), scenes.len());
}

#[test]
fn every_trap_fails_a_scene() {
    let naive = include_str!("../naive.py");
    let (_, list) = naive.split_once("TRAPS = \"\"\"").unwrap();
    let traps: BTreeSet<&str> = list.split("\"\"\"").next().unwrap().split_whitespace().collect();
    let scenes = scenes().unwrap();
    let named: BTreeSet<&str> =
        scenes.iter().flat_map(|scene| &scene.traps).map(String::as_str).collect();
    assert_eq!(named, traps);
}

#[test]
fn a_scene_has_a_world_settings_and_traps() {
    let text = "scene a name\n  # why\n  world cluster\n  setting dlock.claim-ms 500\n  trap no-reqid\n  > open A\n";
    let scenes = parse("file", text).unwrap();
    let [scene] = scenes.as_slice() else { panic!("{scenes:?}") };
    assert_eq!((scene.name.as_str(), scene.place.as_str()), ("a name", "file:1"));
    assert_eq!(scene.world, World::Cluster);
    assert_eq!(scene.settings, ["dlock.claim-ms", "500"]);
    assert_eq!(scene.traps, ["no-reqid"]);
}

#[test]
fn what_is_not_understood_is_named_with_its_line() {
    for (step, error) in [
        ("redis", None),
        ("until redis DLOCK.INFO k", Some("not understood")),
        ("< h", Some("not understood")),
        ("< h lost within soon", Some("not understood")),
        ("proxy explode", Some("not understood")),
        ("requests DLOCK.ACQUIRE* => some", Some("not understood")),
        ("forge broken k as", Some("not understood")),
        ("end", Some("nothing to end")),
        ("each byte of letters", Some("no direction")),
        ("each byte of requests", Some("`end` is missing")),
    ] {
        let parsed = parse("file", &format!("scene a name\n{step}\n"));
        match error {
            None => assert!(parsed.is_ok(), "{step}"),
            Some(error) => assert!(parsed.unwrap_err().contains(error), "{step}"),
        }
    }
    assert!(parse("file", "wait 5\n").unwrap_err().contains("file:1: no scene before"));
}

/// Scenes that the Rust client does not pass yet, or has no feature for: a line each, with the reason after a colon.
const EXCEPTIONS: &str = include_str!("../drivers/rust.exceptions");

#[test]
fn every_exception_is_a_scene_and_has_a_reason() {
    let scenes = scenes().unwrap();
    for line in EXCEPTIONS.lines() {
        let (name, reason) = line.split_once(": ").unwrap_or((line, ""));
        assert!(scenes.iter().any(|scene| scene.name == name) && !reason.is_empty(), "{line}");
    }
}

#[test]
fn every_scene_passes_with_the_rust_client() {
    let driver = vec![env!("CARGO_BIN_EXE_dlock-conformance-rust").to_owned()];
    let jobs: Vec<Job> =
        scenes().unwrap().into_iter().map(|scene| Job { scene, driver: driver.clone() }).collect();
    let failed = Mutex::new(Vec::new());
    // They mostly wait.
    run_all(jobs, &Binary::default(), 8, |_, outcome| {
        let named = EXCEPTIONS.lines().filter_map(|line| line.split_once(": "));
        let is_exception = named.map(|(name, _)| name).any(|name| name == outcome.scene.name);
        if !outcome.is_ok() && !is_exception {
            failed.lock().unwrap().push(outcome.text());
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The kit notices a client that is wrong.
#[test]
fn a_trap_of_the_naive_client_is_noticed() {
    let naive = concat!(env!("CARGO_MANIFEST_DIR"), "/naive.py");
    let name = "the reply to an acquire is lost";
    for (trap, is_ok) in [(None, true), (Some("no-reqid"), false)] {
        let mut driver = vec!["python3".to_owned(), naive.to_owned()];
        driver
            .extend(trap.into_iter().flat_map(|trap: &str| ["--trap".to_owned(), trap.to_owned()]));
        let scene = scenes().unwrap().into_iter().find(|scene| scene.name == name).unwrap();
        run_all(vec![Job { scene, driver }], &Binary::default(), 1, |_, outcome| {
            assert_eq!(outcome.is_ok(), is_ok, "{trap:?}: {}", outcome.text());
        });
    }
}
