//! The server under test and its features.

use std::{
    collections::BTreeMap,
    path::Path,
    process::Command,
    sync::{Mutex, OnceLock, PoisonError},
};

/// A server program of a known version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    path: String,
    kind: Kind,
}

impl Binary {
    /// The program that `scripts/servers` fetched under this name, e.g. `redis-8.2`. The script runs once per name.
    /// Fails the test, with the command that fetches the program, if it is missing.
    #[track_caller]
    pub fn named(name: &str) -> Binary {
        static FOUND: Mutex<BTreeMap<String, Binary>> = Mutex::new(BTreeMap::new());
        let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(binary) = found.get(name) {
            return binary.clone();
        }
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers");
        let output = Command::new(&script)
            .args(["--here", name])
            .output()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", script.display()));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "no server {name}: {said}");
        let binary = Binary::at(String::from_utf8_lossy(&output.stdout).trim());
        found.insert(name.to_owned(), binary.clone());
        binary
    }

    /// Path of the program, or its name if it is on the PATH.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its family and version.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The program with this path, or of this name on the PATH.
    #[track_caller]
    pub fn at(path: &str) -> Binary {
        let shown = Command::new(path)
            .arg("--version")
            .output()
            .unwrap_or_else(|error| panic!("cannot run {path}: {error} (try `make deps`)"));
        let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
        let kind = Kind::parse(&shown).unwrap_or_else(|| panic!("what server is this? {shown}"));
        Binary { path: path.to_owned(), kind }
    }

    fn usual() -> &'static Binary {
        static USUAL: OnceLock<Binary> = OnceLock::new();
        USUAL.get_or_init(|| Binary::at(&binary()))
    }
}

/// The default program: `$DLOCK_SERVER`, else `redis-server` on the PATH.
impl Default for Binary {
    fn default() -> Binary {
        Binary::usual().clone()
    }
}

/// The server binary's family and version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Valkey or Redis.
    pub valkey: bool,
    /// Major, minor, patch: of Valkey itself, not of the Redis version that it reports for compatibility.
    pub version: (u16, u16, u16),
}

impl Kind {
    /// The kind of the default program, detected once.
    pub fn of_binary() -> &'static Kind {
        Binary::usual().kind()
    }

    /// Parses the output of `--version`, e.g. `Redis server v=7.0.15 sha=…`.
    fn parse(shown: &str) -> Option<Kind> {
        let version = shown.split_whitespace().find_map(|word| word.strip_prefix("v="))?;
        let mut numbers = version.split(['.', '-']).map_while(|part| part.parse().ok());
        Some(Kind {
            valkey: shown.starts_with("Valkey"),
            version: (numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0)),
        })
    }

    /// Redis from this version on, or Valkey from that one on.
    pub fn at_least(&self, redis: (u16, u16), valkey: (u16, u16)) -> bool {
        let floor = if self.valkey { valkey } else { redis };
        (self.version.0, self.version.1) >= floor
    }

    /// CLIENT UNBLOCK of a module's blocked client neither loses a reply nor aborts the server.
    pub fn client_unblock_is_safe(&self) -> bool {
        self.at_least((7, 4), (8, 0))
    }

    /// Modules can put their commands into ACL categories.
    pub fn has_module_acl_categories(&self) -> bool {
        self.at_least((7, 2), (7, 2))
    }

    /// A preloaded library changes the wall clock of a module. Not in Valkey 8.1, which binds modules to the C
    /// library directly (`RTLD_DEEPBIND`).
    pub fn preload_reaches_modules(&self) -> bool {
        !self.valkey || !self.at_least((0, 0), (8, 1))
    }

    /// WAITAOF exists.
    pub fn has_waitaof(&self) -> bool {
        self.at_least((7, 2), (7, 2))
    }
}

/// The default program: `$DLOCK_SERVER`, else `redis-server` on the PATH.
pub(super) fn binary() -> String {
    std::env::var("DLOCK_SERVER")
        .ok()
        .filter(|path| !path.is_empty())
        .unwrap_or_else(|| "redis-server".to_owned())
}

#[test]
fn versions_are_read() {
    let redis = Kind::parse("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64");
    assert_eq!(redis, Some(Kind { valkey: false, version: (7, 0, 15) }));
    assert!(!redis.is_some_and(|kind| kind.client_unblock_is_safe()));
    let valkey = Kind::parse("Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64");
    assert_eq!(valkey, Some(Kind { valkey: true, version: (9, 1, 2) }));
    assert!(valkey.is_some_and(|kind| kind.client_unblock_is_safe()));
}
