//! Shifts the clocks of a running process. See `crates/testing/preload/wallclock.c`.

use std::{
    env,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

/// The variable that passes the file with the offset to the library.
const FILE_VARIABLE: &str = "DLOCK_WALLCLOCK_FILE";

/// The offsets of one process' clocks, shared with the process through a mapped file.
#[derive(Debug)]
pub struct WallClock(File);

impl WallClock {
    /// Runs `command` on a wall clock that can be shifted.
    pub fn install(dir: &Path, command: &mut Command) -> WallClock {
        let path = dir.join("wallclock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .expect("a file in a folder of ours");
        let clock = WallClock(file);
        if fs::metadata(&path).map_or(0, |file| file.len()) == 0 {
            clock.0.write_all_at(&[0; 24], 0).expect("writing the offset");
        }
        command.env("LD_PRELOAD", library()).env(FILE_VARIABLE, path);
        clock
    }

    /// Sets the offset from the true wall clock, in nanoseconds. The server applies it at its next clock read.
    pub fn shift_nanos(&self, offset: i64) {
        self.0.write_all_at(&offset.to_ne_bytes(), 0).expect("writing the offset");
    }

    /// Sets the offset of `CLOCK_BOOTTIME`, as after a suspend of the machine. Reaches programs that read this clock
    /// through the C library.
    pub fn shift_boottime_nanos(&self, offset: i64) {
        self.0.write_all_at(&offset.to_ne_bytes(), 8).expect("writing the offset");
        self.0.write_all_at(&[0; 8], 16).expect("writing the mark");
    }

    /// Whether the process has read a clock through the library since [`WallClock::shift_boottime_nanos`].
    pub fn was_read(&self) -> bool {
        let mut mark = [0; 8];
        self.0.read_exact_at(&mut mark, 16).is_ok() && mark != [0; 8]
    }
}

/// Compiles the library, once per process.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/preload/wallclock.c");
        // Next to the test binary: below the target folder, wherever that is.
        let test = env::current_exe().expect("a path of the test binary");
        let folder = test.parent().expect("a folder of the test binary");
        // Several test processes may do this concurrently: each builds a separate file and renames it into place.
        let built = folder.join(format!("libwallclock-{}.so", std::process::id()));
        let library = folder.join("libwallclock.so");
        // The packed conformance kit brings it.
        if !Path::new(source).exists() && library.exists() {
            return library;
        }
        let status = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()))
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(&built)
            .arg(source)
            .status()
            .unwrap_or_else(|error| panic!("cannot run cc: {error} (try `make deps`)"));
        assert!(status.success(), "crates/testing/preload/wallclock.c does not compile");
        fs::rename(&built, &library).expect("a file in a folder of ours");
        library
    })
}
