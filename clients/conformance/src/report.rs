//! Runs many scenes, several at a time, and says how each ended.

use std::{
    any::Any,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use dlock_testing::Binary;

use crate::{
    driver::Stop,
    scene::{Scene, parse},
    stage::{self, Halt},
};

/// The files of the kit's scenes.
const FILES: [(&str, &str); 11] = [
    ("bounds.txt", include_str!("../scenes/bounds.txt")),
    ("connections.txt", include_str!("../scenes/connections.txt")),
    ("ends.txt", include_str!("../scenes/ends.txt")),
    ("families.txt", include_str!("../scenes/families.txt")),
    ("grant.txt", include_str!("../scenes/grant.txt")),
    ("loss.txt", include_str!("../scenes/loss.txt")),
    ("process.txt", include_str!("../scenes/process.txt")),
    ("renewal.txt", include_str!("../scenes/renewal.txt")),
    ("requests.txt", include_str!("../scenes/requests.txt")),
    ("servers.txt", include_str!("../scenes/servers.txt")),
    ("waiting.txt", include_str!("../scenes/waiting.txt")),
];

/// All scenes of the kit.
pub fn scenes() -> Result<Vec<Scene>, String> {
    let files: Result<Vec<_>, _> = FILES.iter().map(|(name, text)| parse(name, text)).collect();
    Ok(files?.concat())
}

/// The scenes of the files `*.txt` of a folder.
pub fn scenes_of(folder: &Path) -> Result<Vec<Scene>, String> {
    let fail = |error: std::io::Error| format!("{}: {error}", folder.display());
    let entries: Result<Vec<_>, _> = fs::read_dir(folder).map_err(fail)?.collect();
    let mut files: Vec<_> = entries.map_err(fail)?.iter().map(fs::DirEntry::path).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    let mut scenes = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        scenes.extend(parse(&name, &fs::read_to_string(&file).map_err(fail)?)?);
    }
    Ok(scenes)
}

/// A scene to run.
#[derive(Debug)]
pub struct Job {
    /// The scene.
    pub scene: Scene,
    /// Program and arguments of the driver.
    pub driver: Vec<String>,
}

/// How a scene ended.
#[derive(Debug)]
pub struct Outcome {
    /// The scene.
    pub scene: Scene,
    /// How it ended.
    pub result: Result<(), Halt>,
    /// How long it took.
    pub took: Duration,
}

impl Outcome {
    /// What happened, for people.
    pub fn text(&self) -> String {
        let Scene { name, place, .. } = &self.scene;
        let seconds = self.took.as_secs_f64();
        match &self.result {
            Ok(()) => format!("ok       {name} ({seconds:.1} s)"),
            Err(Halt { why: Stop::Unsupported(what), .. }) => {
                format!("skipped  {name}: the driver has no {what}")
            }
            Err(Halt { at, why: Stop::Failed(why) | Stop::Kit(why), log }) => {
                let file = place.split(':').next().unwrap_or_default();
                let step = match at {
                    Some((line, text)) => format!("{file}:{line}: {text}"),
                    None => format!("{place}: before the first step, or after the last one"),
                };
                let section = match self.scene.section.as_str() {
                    "" => String::new(),
                    section => format!("    docs/protocol.md, {section}\n"),
                };
                format!(
                    "FAILED   {name} ({seconds:.1} s)\n{section}    {step}\n    {why}\n    {log}"
                )
            }
        }
    }

    /// Whether the client failed.
    pub fn is_failed(&self) -> bool {
        matches!(self.result, Err(Halt { why: Stop::Failed(_), .. }))
    }

    /// Whether the scene was skipped.
    pub fn is_skipped(&self) -> bool {
        matches!(self.result, Err(Halt { why: Stop::Unsupported(_), .. }))
    }

    /// Whether the client passed.
    pub fn is_ok(&self) -> bool {
        self.result.is_ok()
    }
}

/// Runs them, `at_once` at a time; calls `done` with the driver for each as it ends.
pub fn run_all(
    jobs: Vec<Job>,
    binary: &Binary,
    at_once: usize,
    done: impl Fn(&[String], &Outcome) + Sync,
) {
    let queue = Mutex::new(jobs);
    thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(job) = next(&queue) {
                    let driver = job.driver.clone();
                    done(&driver, &run_one(job, binary));
                }
            });
        }
    });
}

fn next(queue: &Mutex<Vec<Job>>) -> Option<Job> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

/// Runs one. The harness stops a test by a panic.
pub fn run_one(job: Job, binary: &Binary) -> Outcome {
    let start = Instant::now();
    let run = || catch_unwind(AssertUnwindSafe(|| stage::run(&job.scene, binary, &job.driver)));
    let mut ran = run();
    // Another process took a port that was free.
    if ran.as_ref().is_err_and(|panic| text_of(panic.as_ref()).contains("AddrInUse")) {
        ran = run();
    }
    let result = ran.unwrap_or_else(|panic| {
        let why = Stop::Kit(text_of(panic.as_ref()).to_owned());
        Err(Halt { at: None, why, log: String::new() })
    });
    Outcome { scene: job.scene, result, took: start.elapsed() }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or_default()
}
