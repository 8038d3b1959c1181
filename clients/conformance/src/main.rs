//! `dlock-conformance [options] -- DRIVER [ARGUMENT …]`

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use dlock_conformance::{Job, Outcome, Partition, partition, run_all, scenes, scenes_of};
use dlock_testing::Binary;

const USAGE: &str = "\
usage: dlock-conformance [options] -- DRIVER [ARGUMENT …]

Runs the scenes of the conformance kit with the driver of a client, or looks for two owners in a partition.

  --server NAME    another server: a path, or a name of scripts/servers, e.g. redis-8.2
  --folder FOLDER  the scenes of the files *.txt in this folder, in place of those of the kit
  --scenes WORDS   only scenes whose name or file contains these words; also several times
  --skip WORDS     not these scenes
  --jobs N         how many scenes run at a time (default 6)
  --list           lists the scenes, with --traps those that catch each mistake
  --traps          each trap of the naive client has to fail its scenes: DRIVER is naive.py
  --verbose        shows scenes that are ok, too
  --partition N    no scenes, but N losses of a reply and other faults: nobody may believe in a lock of another
  --seed N         the seed of --partition; a failure shows it";

#[derive(Default)]
struct Options {
    server: Option<String>,
    folder: Option<PathBuf>,
    meant: Vec<String>,
    left_out: Vec<String>,
    jobs: Option<usize>,
    lists: bool,
    traps: bool,
    verbose: bool,
    turns: Option<usize>,
    seed: Option<u64>,
    driver: Vec<String>,
}

fn options() -> Option<Options> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--server" => options.server = Some(arguments.next()?),
            "--folder" => options.folder = Some(arguments.next()?.into()),
            "--scenes" => options.meant.push(arguments.next()?),
            "--skip" => options.left_out.push(arguments.next()?),
            "--jobs" => options.jobs = Some(arguments.next()?.parse().ok().filter(|n| *n > 0)?),
            "--list" => options.lists = true,
            "--traps" => options.traps = true,
            "--verbose" => options.verbose = true,
            "--partition" => options.turns = Some(arguments.next()?.parse().ok()?),
            "--seed" => options.seed = Some(arguments.next()?.parse().ok()?),
            "--" => options.driver = arguments.by_ref().collect(),
            _ => return None,
        }
    }
    (options.lists || !options.driver.is_empty()).then_some(options)
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let binary = options.server.as_deref().map_or_else(Binary::default, |name| {
        if name.contains('/') { Binary::at(name) } else { Binary::named(name) }
    });
    if let Some(turns) = options.turns {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let (seed, sessions) = (options.seed.unwrap_or(now), options.jobs.unwrap_or(3));
        let plan = Partition { turns, seed, sessions, command: options.driver };
        return if partition(&plan, &binary) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let mut all = match options.folder.as_deref().map_or_else(scenes, scenes_of) {
        Ok(scenes) => scenes,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    all.retain(|scene| {
        let is_named = |list: &[String]| {
            list.iter().any(|words| scene.name.contains(words) || scene.place.starts_with(words))
        };
        (options.meant.is_empty() || is_named(&options.meant)) && !is_named(&options.left_out)
    });
    if options.lists && options.traps {
        for line in include_str!("../traps.txt").lines() {
            let Some((name, mistake)) = line.strip_prefix("trap ").and_then(|l| l.split_once(": "))
            else {
                continue;
            };
            let catch = all.iter().filter(|scene| scene.traps.iter().any(|trap| trap == name));
            let scenes: Vec<&str> = catch.map(|scene| scene.name.as_str()).collect();
            println!("{mistake} -> {}", scenes.join("; "));
        }
        return ExitCode::SUCCESS;
    }
    if options.lists {
        for scene in &all {
            println!("{:16} {}", scene.place, scene.name);
        }
        println!("{} scenes", all.len());
        return ExitCode::SUCCESS;
    }
    // The harness stops by a panic. Its text is part of the report.
    std::panic::set_hook(Box::new(|_| {}));
    let mut jobs = Vec::new();
    for scene in all.into_iter().rev() {
        if !options.traps {
            jobs.push(Job { scene, driver: options.driver.clone() });
            continue;
        }
        for trap in &scene.traps {
            let mut driver = options.driver.clone();
            driver.extend(["--trap".to_owned(), trap.clone()]);
            jobs.push(Job { scene: scene.clone(), driver });
        }
    }
    let (start, count) = (Instant::now(), jobs.len());
    let [bad, skipped] = [AtomicUsize::new(0), AtomicUsize::new(0)];
    run_all(jobs, &binary, options.jobs.unwrap_or(6), |driver, outcome: &Outcome| {
        let is_fine = outcome.is_ok() || outcome.is_skipped();
        let name = &outcome.scene.name;
        let is_bad = if options.traps { !outcome.is_failed() } else { !is_fine };
        if is_bad {
            bad.fetch_add(1, Ordering::Relaxed);
        } else if !outcome.is_ok() && !options.traps {
            skipped.fetch_add(1, Ordering::Relaxed);
        }
        if options.traps {
            let trap = driver.last().map(String::as_str).unwrap_or_default();
            let how = if is_bad { "NOT CAUGHT" } else { "caught" };
            println!("{how:10} {trap}: {name}");
            if options.verbose {
                println!("           {}", outcome.text().lines().nth(2).unwrap_or_default().trim());
            }
        } else if is_bad || options.verbose || !outcome.is_ok() {
            println!("{}", outcome.text());
        }
    });
    let (bad, skipped) = (bad.into_inner(), skipped.into_inner());
    let ok = count - bad - skipped;
    let seconds = start.elapsed().as_secs_f64();
    println!("{ok} ok, {bad} failed, {skipped} skipped, in {seconds:.0} s");
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
