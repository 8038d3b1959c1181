//! The report of a violation.

use std::{
    fmt::Write as _,
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use dlock_testing::Reply as _;

use super::{crowd::Crowd, key::Key, oracle::Violation, pipe::Event, world::World};

/// Maximum number of lines of the key's history on screen; the file has all.
const SHOWN: usize = 60;

/// Position in a run.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// The seed of the run.
    pub seed: u64,
    /// The group of bursts.
    pub group: u64,
    /// The burst in it.
    pub burst: u64,
    /// When the run began.
    pub start: Instant,
}

/// The server's own description of its version.
pub fn version() -> String {
    let binary = std::env::var("DLOCK_SERVER").ok().filter(|path| !path.is_empty());
    let binary = binary.unwrap_or_else(|| "redis-server".to_owned());
    let output = Command::new(&binary).arg("--version").output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// Reports a violation, and writes the memory of all connections to a file.
pub fn tell(found: &Violation, place: Place, world: &World, crowd: &Crowd) {
    let mut text = format!(
        "\nFINDING in world {}, {}, seed {}, group {}, burst {}, after {:.1} s:\n    {}\n",
        world.kind.name(),
        version(),
        place.seed,
        place.group,
        place.burst,
        place.start.elapsed().as_secs_f64(),
        found.text,
    );
    if let Some(key) = found.key {
        let _ = writeln!(text, "    key: {key}");
    }
    let _ = writeln!(
        text,
        "    again: make chaos WORLD={} SEED={} FROM={}",
        world.kind.name(),
        place.seed,
        place.group
    );
    let all = history(crowd, place.start, None);
    if let Some(key) = found.key {
        let about = history(crowd, place.start, Some(key));
        let skipped = about.len().saturating_sub(SHOWN);
        let _ = writeln!(
            text,
            "    the last calls about the key ({skipped} earlier ones are in the file):"
        );
        for line in &about[skipped..] {
            let _ = writeln!(text, "      {line}");
        }
    }
    eprint!("{text}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "chaos-{}-{}.log",
        world.kind.name(),
        place.seed
    ));
    let mut file = text;
    file.push_str("\n\nall that the connections remember:\n");
    for line in all {
        let _ = writeln!(file, "{line}");
    }
    for (no, server) in world.servers.iter().enumerate() {
        let _ = writeln!(file, "\nserver {no}, as it is now:");
        let asked = catch_unwind(AssertUnwindSafe(|| {
            let clients = server.cmd(&["CLIENT", "LIST"]).show();
            (server.info("dlock"), clients.replace("\\n", "\n"))
        }));
        if let Ok((info, clients)) = asked {
            let _ = writeln!(file, "{info:#?}\n{clients}");
        }
        if let Some(key) = found.key {
            let waiters = catch_unwind(AssertUnwindSafe(|| {
                server.cmd(&[&key.family.command("WAITERS"), &key.name()]).show()
            }));
            let _ = writeln!(file, "{key}: {}", waiters.unwrap_or_default());
        }
        let _ = writeln!(file, "{}", server.log_tail());
    }
    let _ = writeln!(file, "\nconnections and their ids on the server:");
    for actor in &crowd.actors {
        let _ = writeln!(file, "#{} is {}", actor.seat.no, actor.pipe.client_id);
    }
    let kept = path.with_extension("");
    let written = fs::write(&path, file).and_then(|()| keep_files(world, &kept));
    match written {
        Ok(()) => eprintln!("    everything: {} and {}", path.display(), kept.display()),
        Err(error) => eprintln!("    {}: {error}", path.display()),
    }
}

/// Copies the servers' files: RDB, AOF, logs, configurations.
fn keep_files(world: &World, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    for (n, server) in world.servers.iter().enumerate() {
        copy(server.dir(), &to.join(n.to_string()))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &target)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Remembered calls and replies, oldest first; of one key, or all.
fn history(crowd: &Crowd, start: Instant, key: Option<Key>) -> Vec<String> {
    let mut events: Vec<(Instant, String)> = Vec::new();
    let current =
        crowd.actors.iter().map(|actor| (actor.seat.no, actor.seat.db, &actor.pipe.history));
    let past = crowd.past.iter().map(|memory| (memory.no, memory.db, &memory.events));
    for (no, db, remembered) in current.chain(past) {
        let about =
            |event: &&Event| key.is_none_or(|key| key.db == db && event.call.names(&key.name()));
        for event in remembered.iter().filter(about) {
            let at = event.at.saturating_duration_since(start).as_secs_f64();
            let who = format!("{at:10.4} #{no:<2} db {db}");
            let what = match &event.reply {
                None => format!("{who} -> {}", event.call.show()),
                Some(reply) => {
                    let shown: String = reply.show().chars().take(160).collect();
                    format!("{who} <- {shown}   ({})", event.call.show())
                }
            };
            events.push((event.at, what));
        }
    }
    events.sort_by_key(|event| event.0);
    events.into_iter().map(|event| event.1).collect()
}
