//! The rules that the core's tables tell, on a real server: the same calls, and the same output. Here no time passes
//! that a table could notice. Tables about time, and those with rows that only a made-up world can carry out, are left
//! to the core.

mod show;
mod world;

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use dlock_testing::table::{self, Told};

const TABLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/crates/core/tests/it/tables");

/// Tells all tables in these files; a verb alone belongs to `home`. There must be `enough` of them.
fn tell(files: &[PathBuf], home: &str, enough: usize) {
    let all = files.iter().flat_map(|file| table::written_in(file, home));
    let told: Vec<Told> = all.filter(|told| world::can_tell(&told.script)).collect();
    let mut server = world::start();
    let mut failed = Vec::new();
    for Told { name, families, script } in &told {
        for family in families {
            let run = || table::run(world::World::on(&server), family, script);
            if catch_unwind(AssertUnwindSafe(run)).is_err() {
                failed.push(format!("{name}, as {family}"));
                server = world::start();
            }
        }
    }
    server.left_over_check();
    println!("{} tables", told.len());
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), told.len(), failed.join("\n"));
    assert!(told.len() >= enough, "only {} tables were found", told.len());
}

/// The source files of a folder of tables.
fn folder(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(TABLES).join(name)).expect("the folder of the tables");
    let paths = entries.map(|entry| entry.expect("a file").path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.extension().is_some()).collect();
    files.sort();
    files
}

#[test]
fn of_locks() {
    let files: Vec<PathBuf> = folder("").into_iter().filter(|file| !is_latch(file)).collect();
    tell(&files, "DLOCK", 45);
}

#[test]
fn of_fair_locks() {
    tell(&folder("fair"), "DFAIR", 7);
}

#[test]
fn of_several_locks() {
    tell(&folder("multi"), "DLOCK", 40);
}

#[test]
fn of_read_write_locks() {
    tell(&folder("rw"), "DRW", 30);
}

#[test]
fn of_semaphores() {
    tell(&folder("semaphore"), "DSEM", 50);
}

#[test]
fn of_latches() {
    let files: Vec<PathBuf> = folder("").into_iter().filter(|file| is_latch(file)).collect();
    tell(&files, "DLATCH", 3);
}

fn is_latch(file: &Path) -> bool {
    file.ends_with("latch.rs")
}
