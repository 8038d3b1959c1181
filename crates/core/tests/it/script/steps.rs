//! Two cores in step: this one and that of an earlier commit are given the same histories, and must show the same
//! answers, grants, tokens, events and state. `differences.rs` lists what differs on purpose.
//!
//! `DLOCK_RUNS` sets the number of histories (`make steps HISTORIES=1000000`), `DLOCK_FIRST` the first seed, and
//! `DLOCK_SEED` runs one history alone. A history that fails is shown with as few rows as possible.

mod differences;
mod driver;
mod rows;

use crate::simulator::number_in;
use differences::DIFFERENCES;
use driver::Driver;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

const COMMIT: &str = "68654212";

const HISTORIES: u64 = 20_000;
/// Number of histories that show rare differences, too.
const MANY_HISTORIES: u64 = 1_000_000;

/// The program around the earlier core.
struct Old {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Old {
    fn start(program: &str) -> Old {
        let mut command = Command::new(program);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Old { process, input, output: BufReader::new(output) }
    }

    /// What that core shows for the rows of a history.
    fn run<'a>(&mut self, rows: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
        let text: String = rows.clone().flat_map(|row| [row, "\n"]).collect();
        self.input.write_all(format!("{text}\n").as_bytes()).unwrap();
        let lines = (&mut self.output).lines().take(rows.count());
        lines.map(|line| line.expect("an answer of the earlier core")).collect()
    }
}

impl Drop for Old {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A row and what each of the cores shows: that of [`COMMIT`], and this one.
struct Step {
    row: String,
    old: String,
    new: String,
}

fn steps(old: &mut Old, history: Vec<(String, String)>) -> Vec<Step> {
    let shown = old.run(history.iter().map(|(row, _)| row.as_str()));
    let both = history.into_iter().zip(shown);
    both.map(|((row, new), old)| Step { row, old, new }).collect()
}

/// The first step that no difference explains. Counts the differences by their place in the list.
fn unexplained(steps: &[Step], seen: &mut BTreeMap<usize, u64>) -> Option<usize> {
    for (at, Step { row, old, new }) in steps.iter().enumerate() {
        if new.starts_with("panic") {
            return Some(at);
        }
        if old == new {
            continue;
        }
        let explains = |n: &usize| (DIFFERENCES[*n].explains)(row, old, new);
        let Some(n) = (0..DIFFERENCES.len()).find(explains) else { return Some(at) };
        *seen.entry(n).or_default() += 1;
        if DIFFERENCES[n].ends {
            break;
        }
    }
    None
}

/// Leaves out rows, but no settings, as long as the two cores differ without a panic.
fn shortened(old: &mut Old, mut all: Vec<Step>) -> Vec<Step> {
    std::panic::set_hook(Box::new(|_| ()));
    for at in (0..all.len()).rev() {
        if all.get(at).is_none_or(|step| step.row.contains(" set ")) {
            continue;
        }
        let mut driver = Driver::new();
        let kept = all.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, step)| &step.row);
        let history = kept.map(|row| (row.clone(), driver.row(row))).collect();
        let mut fewer = steps(old, history);
        let panics = |step: &Step| step.old.starts_with("panic") || step.new.starts_with("panic");
        if let Some(end) = unexplained(&fewer, &mut BTreeMap::new())
            && !fewer[..=end].iter().any(panics)
        {
            fewer.truncate(end + 1);
            all = fewer;
        }
    }
    let _ = std::panic::take_hook();
    all
}

fn show(steps: &[Step]) -> String {
    let line = |Step { row, old, new }: &Step| {
        let is_same = old == new;
        let old = if is_same { String::new() } else { format!("\n    {COMMIT}: {old}\n    now") };
        format!("{row}{old}  => {new}\n")
    };
    steps.iter().map(line).collect()
}

fn program() -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/core-of");
    let output = Command::new(script).arg(COMMIT).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "no core of {COMMIT}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A run stops after this number of histories in which the cores differ.
const MOST_SHOWN: usize = 10;

#[test]
#[ignore = "make steps: it builds an earlier core"]
fn this_core_and_an_earlier_one_are_in_step() {
    let (program, alone) = (program(), number_in("DLOCK_SEED"));
    let first = alone.or(number_in("DLOCK_FIRST")).unwrap_or(1);
    let end = first + alone.map(|_| 1).or(number_in("DLOCK_RUNS")).unwrap_or(HISTORIES);
    let (next, differing) = (AtomicU64::new(first), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let run = || {
        let (mut old, mut counts) = (Old::start(&program), BTreeMap::new());
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return counts;
            }
            let mut steps = steps(&mut old, rows::history(seed));
            if let Some(at) = unexplained(&steps, &mut counts) {
                steps.truncate(at + 1);
                let short = show(&shortened(&mut old, steps));
                let mut differing = differing.lock().unwrap();
                differing.push(format!("DLOCK_SEED={seed} replays this:\n{short}"));
                if differing.len() >= MOST_SHOWN {
                    next.store(end, Ordering::Relaxed);
                }
            }
        }
    };
    let mut seen = BTreeMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        for thread in threads {
            for (n, count) in thread.join().unwrap() {
                *seen.entry(n).or_insert(0) += count;
            }
        }
    });
    let differing = differing.into_inner().unwrap();
    assert!(differing.is_empty(), "the cores differ\n{}", differing.join("\n"));
    for (n, difference) in DIFFERENCES.iter().enumerate() {
        let count = seen.get(&n).copied().unwrap_or(0);
        println!("{count:9}  {}", difference.why);
        let enough = if difference.is_rare { MANY_HISTORIES } else { HISTORIES };
        assert!(count > 0 || end - first < enough, "it is seen no more: {}", difference.why);
    }
}
