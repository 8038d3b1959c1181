//! The module under test.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

/// Build profile of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The core optimised, with checks of its invariants after every step; used by tests.
    Dev,
    /// The same with a second record level: what comes after the module under test.
    NextLevel,
    /// Used by benches and by tests that measure.
    Release,
}

/// Path of the module: `$DLOCK_MODULE` (with a second level `$DLOCK_NEXT_LEVEL_MODULE`), else built by cargo, at most
/// once per process and profile. Without the checkout, as in the packed conformance kit, it is `libdlock.so` beside the
/// program.
pub fn path(profile: Profile) -> &'static Path {
    static DEV: OnceLock<PathBuf> = OnceLock::new();
    static NEXT_LEVEL: OnceLock<PathBuf> = OnceLock::new();
    static RELEASE: OnceLock<PathBuf> = OnceLock::new();
    let (cell, variable, name, args): (_, _, _, &[&str]) = match profile {
        Profile::Dev => (&DEV, "DLOCK_MODULE", "dev", &[]),
        Profile::NextLevel => {
            let args = &["--features", "next-level"];
            (&NEXT_LEVEL, "DLOCK_NEXT_LEVEL_MODULE", "next-level", args)
        }
        Profile::Release => (&RELEASE, "DLOCK_MODULE", "release", &[]),
    };
    cell.get_or_init(|| match env::var_os(variable).filter(|path| !path.is_empty()) {
        Some(path) => {
            PathBuf::from(path).canonicalize().unwrap_or_else(|error| panic!("{variable}: {error}"))
        }
        None if !Path::new(env!("CARGO_MANIFEST_DIR")).exists() => {
            let program = env::current_exe().expect("a path of the program");
            program.with_file_name("libdlock.so")
        }
        None => build("dlock", name, args),
    })
}

/// Path of the module of an earlier commit, which `scripts/module-of` builds once. If it cannot, the test fails and the
/// script says why.
#[track_caller]
pub fn of_commit(commit: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/module-of");
    let output = Command::new(&script)
        .arg(commit)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}", script.display()));
    assert!(output.status.success(), "no module of {commit}");
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// Path of the library of `package`, another module of this workspace: built by cargo for benches.
pub fn other(package: &str) -> PathBuf {
    build(package, "release", &[])
}

/// A call of cargo, which holds no lock while it runs tests. It knows the target folder and whether a build is needed.
///
/// It does not get the variables that cargo sets for a test: build scripts that read them, such as that of ring, would
/// run again, and all that depends on them would be built again.
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") {
            cargo.env_remove(name);
        }
    }
    cargo.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
    cargo
}

fn build(package: &str, profile: &str, args: &[&str]) -> PathBuf {
    let output = cargo()
        .args(["build", "--package", package, "--lib", "--profile", profile])
        .args(args)
        .arg("--message-format=json-render-diagnostics")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap_or_else(|error| panic!("cannot run cargo: {error}"));
    assert!(output.status.success(), "{package} does not build (profile {profile})");
    let messages = String::from_utf8_lossy(&output.stdout);
    let library = format!("/lib{}.so", package.replace('-', "_"));
    let module = messages.split('"').find(|word| word.ends_with(&library));
    PathBuf::from(module.unwrap_or_else(|| panic!("cargo names no {library} ({profile})")))
}
