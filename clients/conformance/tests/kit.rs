//! The kit itself: its language, and its scenes with the Rust client.

use std::collections::BTreeSet;
use std::sync::Mutex;

use dlock_conformance::{Job, Outcome, Scene, World, parse, run_all, run_one, scenes, scenes_of};
use dlock_testing::Binary;

#[test]
fn every_scene_is_understood_and_has_a_name_of_its_own() {
    let scenes = scenes().unwrap();
    assert!(scenes.len() >= 60, "{} scenes", scenes.len());
    let names: BTreeSet<&str> = scenes.iter().map(|scene| scene.name.as_str()).collect();
    assert_eq!(names.len(), scenes.len());
}

/// The traps of traps.txt.
fn traps() -> BTreeSet<&'static str> {
    let lines = include_str!("../traps.txt").lines().filter_map(|line| line.strip_prefix("trap "));
    lines.filter_map(|line| Some(line.split_once(": ")?.0)).collect()
}

#[test]
fn every_trap_fails_a_scene() {
    let scenes = scenes().unwrap();
    let named: BTreeSet<&str> =
        scenes.iter().flat_map(|scene| &scene.traps).map(String::as_str).collect();
    assert_eq!(named, traps());
}

/// A trap whose text is not in naive.py any more would end the driver, which looks like a mistake that is noticed.
#[test]
fn every_trap_changes_the_naive_client() {
    let traps = concat!(env!("CARGO_MANIFEST_DIR"), "/traps.py");
    let checked = std::process::Command::new("python3").args([traps, "--check"]).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

#[test]
fn every_scene_names_a_section_of_the_page() {
    let page = include_str!("../../../docs/protocol.md");
    for scene in scenes().unwrap() {
        let is_there =
            page.lines().any(|line| line.trim_start_matches('#').trim() == scene.section);
        assert!(is_there && !scene.section.is_empty(), "{}: {}", scene.name, scene.section);
    }
}

#[test]
fn a_scene_has_a_world_settings_and_traps() {
    let text = "scene a name\n  # why\n  world cluster\n  setting dlock.claim-ms 500\n  trap no-reqid\n  \
                section Leases\n  > open A\n";
    let scenes = parse("file", text).unwrap();
    let [scene] = scenes.as_slice() else { panic!("{scenes:?}") };
    assert_eq!((scene.name.as_str(), scene.place.as_str()), ("a name", "file:1"));
    assert_eq!(scene.world, World::Cluster);
    assert_eq!(scene.settings, ["dlock.claim-ms", "500"]);
    assert_eq!(scene.traps, ["no-reqid"]);
    assert_eq!(scene.section, "Leases");
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
        ("until connections ever => >=2", None),
        ("until connections", Some("not understood")),
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

/// What the Rust client has not: holds are neither inherited by a fork nor handed over.
const HAS_NOT: [&str; 2] = ["the driver has no fork", "the driver has no adopt"];

#[test]
fn every_scene_passes_with_the_rust_client() {
    let driver = vec![env!("CARGO_BIN_EXE_dlock-conformance-rust").to_owned()];
    let jobs: Vec<Job> =
        scenes().unwrap().into_iter().map(|scene| Job { scene, driver: driver.clone() }).collect();
    let failed = Mutex::new(Vec::new());
    // They mostly wait.
    run_all(jobs, &Binary::default(), 8, |_, outcome| {
        let has_not = HAS_NOT.iter().any(|what| outcome.text().contains(what));
        let is_fine = outcome.is_ok() || (outcome.is_skipped() && has_not);
        if !is_fine {
            failed.lock().unwrap().push(outcome.text());
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The reference client, or with `--trap` one that is wrong.
fn naive(trap: Option<&str>) -> Vec<String> {
    let folder = env!("CARGO_MANIFEST_DIR");
    match trap {
        None => vec!["python3".to_owned(), format!("{folder}/naive.py")],
        Some(trap) => {
            ["python3", &format!("{folder}/traps.py"), "--trap", trap].map(str::to_owned).into()
        }
    }
}

fn run(scene: &Scene, driver: Vec<String>) -> Outcome {
    run_one(Job { scene: scene.clone(), driver }, &Binary::default())
}

/// The kit notices a client that is wrong, and not one that is right: each trap with the first scene that names it.
#[test]
fn every_trap_is_caught_and_no_scene_fails_without_one() {
    let mut left = traps();
    let mut jobs = Vec::new();
    for scene in scenes().unwrap() {
        let count = jobs.len();
        for trap in scene.traps.iter().filter(|trap| left.remove(trap.as_str())) {
            jobs.push(Job { scene: scene.clone(), driver: naive(Some(trap)) });
        }
        if jobs.len() > count {
            jobs.push(Job { scene, driver: naive(None) });
        }
    }
    let wrong = Mutex::new(Vec::new());
    run_all(jobs, &Binary::default(), 8, |driver, outcome| {
        let is_trap = driver.iter().any(|word| word == "--trap");
        let is_fine = outcome.is_ok() || outcome.is_skipped();
        if if is_trap { !outcome.is_failed() } else { !is_fine } {
            wrong.lock().unwrap().push(format!("{driver:?}: {}", outcome.text()));
        }
    });
    let wrong = wrong.into_inner().unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_scene_of_a_folder_that_fails_shows_the_wire_and_the_section() {
    let folder = tempfile::tempdir().unwrap();
    let text = "section Retries\nscene mine\n> open A\n< A opened\n\
                > acquire h A lock k\n< h granted *\n< A closed within 1\n";
    std::fs::write(folder.path().join("mine.txt"), text).unwrap();
    std::fs::write(folder.path().join("notes.md"), "no scenes").unwrap();
    let scenes = scenes_of(folder.path()).unwrap();
    let [scene] = scenes.as_slice() else { panic!("{scenes:?}") };
    let outcome = run(scene, naive(None));
    let shown = outcome.text();
    assert!(outcome.is_failed(), "{shown}");
    for part in ["docs/protocol.md, Retries", "mine.txt:7", "→ [1] DLOCK.ACQUIRE k ", "← [1] :"]
    {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn a_pass_without_the_clock_of_the_kit_proves_nothing() {
    let name = "the wall clock of the client goes ahead";
    let scene = scenes().unwrap().into_iter().find(|scene| scene.name == name).unwrap();
    assert!(run(&scene, naive(None)).is_ok());
    // As in a static binary: without the library.
    let mut driver = ["env", "-u", "LD_PRELOAD"].map(str::to_owned).to_vec();
    driver.extend(naive(None));
    let outcome = run(&scene, driver);
    assert!(outcome.is_skipped() && outcome.text().contains("proves nothing"), "{outcome:?}");
}

#[test]
fn a_driver_gets_the_url_of_its_world() {
    for (world, scheme) in
        [("single", "redis"), ("sentinel", "redis-sentinel"), ("cluster", "redis-cluster")]
    {
        let text =
            format!("scene a\nworld {world}\n> open A\n< A opened *{scheme}://127.0.0.1:*\n");
        let scene = parse("file", &text).unwrap().remove(0);
        let driver = ["sh", "-c", "read line; echo A opened $line"].map(str::to_owned);
        let outcome = run(&scene, driver.into());
        assert!(outcome.is_ok(), "{}", outcome.text());
    }
}
