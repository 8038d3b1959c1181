//! Finds the server and the module.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{self, Path, PathBuf};

use nix::unistd::geteuid;

use crate::exit::{Failure, SERVER, USAGE};
use crate::text;

/// The names of servers, in order of preference.
const SERVERS: [&str; 2] = ["redis-server", "valkey-server"];

/// Where packages put the module.
const INSTALLED: [&str; 5] = [
    "/usr/lib/redis/modules/dlock.so",
    "/usr/lib64/redis/modules/dlock.so",
    "/usr/lib/valkey/modules/dlock.so",
    "/usr/lib64/valkey/modules/dlock.so",
    "/usr/local/lib/redis/modules/dlock.so",
];

/// Where cargo puts it, in order of preference.
const BUILT: [&str; 2] = ["target/release/libdlock.so", "target/debug/libdlock.so"];

/// The server: the one of `--server`, as a path or a name in PATH, or the first known name in PATH.
pub fn server(wanted: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = env::var_os("PATH").unwrap_or_default();
    match wanted {
        Some(wanted) => program(wanted, &path).ok_or_else(|| {
            let shown = text::quoted(wanted.as_os_str().as_bytes());
            Failure::new(USAGE, format!("--server {shown} is no program"))
        }),
        None => SERVERS.iter().find_map(|name| program(Path::new(name), &path)).ok_or_else(|| {
            let names = SERVERS.join(" and no ");
            Failure::new(SERVER, format!("there is no {names} in PATH (--server names one)"))
        }),
    }
}

/// As shells look for programs: a name without a slash is in one of `folders`.
fn program(wanted: &Path, folders: &OsStr) -> Option<PathBuf> {
    let is_program = |file: &Path| {
        fs::metadata(file)
            .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let is_name = !wanted.as_os_str().as_bytes().contains(&b'/');
    let mut candidates: Box<dyn Iterator<Item = PathBuf>> = if is_name {
        Box::new(env::split_paths(folders).map(|folder| folder.join(wanted)))
    } else {
        Box::new(std::iter::once(wanted.to_owned()))
    };
    // The server runs in another folder. Links stay: a program may look at the name that it was started by.
    candidates.find(|file| is_program(file)).and_then(|file| path::absolute(file).ok())
}

/// The module: the one of `--module`, or the first that exists next to this program, where packages install it, or in a
/// target folder of the current folder or of one above it.
pub fn module(wanted: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(wanted) = wanted {
        // The server has another current folder.
        return fs::canonicalize(wanted).map_err(|error| {
            let shown = text::quoted(wanted.as_os_str().as_bytes());
            Failure::new(USAGE, format!("--module {shown}: {error}"))
        });
    }
    let program = env::current_exe().unwrap_or_default();
    let current = env::current_dir().unwrap_or_default();
    let found = candidates(&program, &current).find(|file| is_trusted(file));
    found.ok_or_else(|| {
        Failure::new(
            SERVER,
            "the dlock module is not installed, and none was built in a folder above (--module names the file)",
        )
    })
}

fn candidates(program: &Path, current: &Path) -> impl Iterator<Item = PathBuf> {
    let beside = program.parent().unwrap_or(Path::new("/"));
    let beside = ["dlock.so", "libdlock.so"].map(|name| beside.join(name));
    let above: Vec<PathBuf> =
        current.ancestors().flat_map(|folder| BUILT.iter().map(|file| folder.join(file))).collect();
    beside.into_iter().chain(INSTALLED.iter().map(PathBuf::from)).chain(above)
}

/// The server runs the code of the module. A file that was not asked for by name has to belong to this user or to root:
/// anyone may put a file below /tmp.
fn is_trusted(file: &Path) -> bool {
    fs::metadata(file)
        .is_ok_and(|file| file.is_file() && (file.uid() == 0 || file.uid() == geteuid().as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beside_the_program_comes_first_and_then_what_is_installed() {
        let files = candidates(Path::new("/opt/dlock/dlock"), Path::new("/home/me/repo/src"));
        let files: Vec<String> = files.map(|file| file.display().to_string()).collect();
        assert_eq!(files[..2], ["/opt/dlock/dlock.so", "/opt/dlock/libdlock.so"]);
        assert_eq!(files[2..7], INSTALLED);
        let release: Vec<&str> =
            files[7..].iter().step_by(BUILT.len()).map(String::as_str).collect();
        assert_eq!(
            release,
            [
                "/home/me/repo/src/target/release/libdlock.so",
                "/home/me/repo/target/release/libdlock.so",
                "/home/me/target/release/libdlock.so",
                "/home/target/release/libdlock.so",
                "/target/release/libdlock.so",
            ]
        );
    }

    #[test]
    fn programs_are_found_as_shells_find_them() {
        let path = OsStr::new("/nowhere:/bin");
        assert_eq!(program(Path::new("sh"), path), Some("/bin/sh".into()));
        assert_eq!(program(Path::new("/bin/sh"), OsStr::new("")), Some("/bin/sh".into()));
        assert_eq!(program(Path::new("no-such-program"), path), None);
        // A folder, and a file that is no program.
        assert_eq!(program(Path::new("/bin"), path), None);
        assert_eq!(program(Path::new("/etc/passwd"), path), None);
    }
}
