//! The setup of a server: module, settings, family; and its configuration file.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
};

use super::Server;
use crate::{
    family::Family,
    kind::Binary,
    module::{self, Profile},
    port::free_port,
    process,
};

/// The configuration of a server to start.
#[derive(Debug)]
#[must_use = "call start()"]
pub struct Setup {
    binary: Binary,
    settings: Vec<(String, String)>,
    module: Option<Module>,
    module_args: Vec<String>,
    wallclock: bool,
    cluster: Cluster,
    family: Family,
}

#[derive(Clone, Debug)]
enum Module {
    Built(Profile),
    File(PathBuf),
}

impl Module {
    fn path(&self) -> &Path {
        match self {
            Module::Built(profile) => module::path(*profile),
            Module::File(path) => path,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cluster {
    No,
    AllSlots,
    NoSlots,
}

impl Setup {
    /// Adds settings: name, value, name, value, … Later ones win.
    pub fn and(mut self, settings: &[&str]) -> Setup {
        assert!(settings.len().is_multiple_of(2), "settings come in pairs: {settings:?}");
        let pairs = settings.chunks_exact(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned()));
        self.settings.extend(pairs);
        self
    }

    /// Runs this program instead of the default one.
    pub fn binary(mut self, binary: &Binary) -> Setup {
        self.binary = binary.clone();
        self
    }

    /// A replica of `primary`; [`Setup::start`] returns when it is in sync.
    pub fn replica_of(self, primary: &Server) -> Setup {
        let primary = format!("127.0.0.1 {}", primary.port());
        self.and(&["replicaof", &primary])
    }

    /// A cluster of this one node, with all slots.
    pub fn cluster(mut self) -> Setup {
        self.cluster = Cluster::AllSlots;
        self
    }

    /// A cluster node without slots, to be joined with others: see [`Server::meet`].
    pub fn cluster_without_slots(mut self) -> Setup {
        self.cluster = Cluster::NoSlots;
        self
    }

    /// Its connections send DLOCK commands as commands of this family.
    pub fn speaking(mut self, family: Family) -> Setup {
        self.family = family;
        self
    }

    /// With a wall clock that [`Server::shift_wall_clock`] can shift.
    pub fn preload_wallclock(mut self) -> Setup {
        self.wallclock = true;
        self
    }

    /// Arguments after the module's path.
    pub fn module_args(mut self, args: &[&str]) -> Setup {
        self.module_args.extend(args.iter().map(|&arg| arg.to_owned()));
        self
    }

    /// With the release build of the module, without the checks of its invariants.
    pub fn release(mut self) -> Setup {
        self.module = Some(Module::Built(Profile::Release));
        self
    }

    /// With this module, for example that of an earlier version. [`Server::replace_module`] replaces it.
    pub fn module(mut self, file: &Path) -> Setup {
        self.module = Some(Module::File(file.to_owned()));
        self
    }

    /// A plain server.
    pub fn without_module(mut self) -> Setup {
        self.module = None;
        self
    }

    /// Starts the server; returns when it serves (a replica: when it is in sync). On failure, fails the test and
    /// shows the log.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(log) => panic!("the server does not start:\n{log}"),
        }
    }

    /// As [`Setup::start`], but returns the log on failure, for tests of bad settings.
    pub fn try_start(self) -> Result<Server, String> {
        process::raise_file_limit();
        loop {
            let mut server = Server::prepare(&self);
            match server.launch() {
                Ok(()) => {}
                // Another process took the port after it was chosen.
                Err(log) if log.contains("Address already in use") => continue,
                Err(log) => return Err(log),
            }
            if self.cluster == Cluster::AllSlots {
                server.add_slots(0, 16383);
                server.wait_cluster_ok();
            }
            if self.settings.iter().any(|(name, _)| name == "replicaof") {
                server.wait_linked();
            }
            return Ok(server);
        }
    }
}

impl Server {
    /// A setup with the module and these settings: name, value, name, value, …
    pub fn with(settings: &[&str]) -> Setup {
        let setup = Setup {
            binary: Binary::default(),
            settings: Vec::new(),
            module: Some(Module::Built(Profile::Dev)),
            module_args: Vec::new(),
            wallclock: false,
            cluster: Cluster::No,
            family: Family::default(),
        };
        setup.and(settings)
    }

    /// A setup with the module, on a server version that `scripts/servers` knows, e.g. `redis-8.2`. Fails the test,
    /// with the command that fetches the server, if it is missing.
    #[track_caller]
    pub fn of(name: &str) -> Setup {
        Server::with(&[]).binary(&Binary::named(name))
    }

    fn prepare(setup: &Setup) -> Server {
        let dir = tempfile::Builder::new().prefix("dlock-").tempdir().expect("a temporary folder");
        let socket = dir.path().join("s");
        let (port, reservation) = free_port();
        let mut ports = vec![reservation];
        let mut config = vec![
            ("bind".to_owned(), "127.0.0.1".to_owned()),
            ("port".to_owned(), port.to_string()),
            ("unixsocket".to_owned(), socket.display().to_string()),
            ("dir".to_owned(), dir.path().display().to_string()),
            ("logfile".to_owned(), dir.path().join("log").display().to_string()),
        ];
        for (name, value) in [
            ("daemonize", "no"),
            ("save", "\"\""),
            ("appendonly", "no"),
            // With `everysec` it answers before it writes while it waits for the disk, and a kill loses that.
            ("appendfsync", "always"),
            ("maxclients", "15000"),
            ("enable-debug-command", "yes"),
            ("enable-module-command", "yes"),
            // Replicas sync at once instead of after five seconds.
            ("repl-diskless-sync-delay", "0"),
        ] {
            config.push((name.to_owned(), value.to_owned()));
        }
        if setup.cluster != Cluster::No {
            config.push(("cluster-enabled".to_owned(), "yes".to_owned()));
            let (port, reservation) = free_port();
            ports.push(reservation);
            config.push(("cluster-port".to_owned(), port.to_string()));
            config.push(("cluster-node-timeout".to_owned(), "2000".to_owned()));
        }
        if let Some(module) = &setup.module {
            let path = module.path().display().to_string();
            let words: Vec<String> =
                std::iter::once(path).chain(setup.module_args.iter().cloned()).collect();
            config.push(("loadmodule".to_owned(), words.join(" ")));
        }
        config.extend(setup.settings.iter().map(|(name, value)| {
            (name.clone(), if value.is_empty() { "\"\"".to_owned() } else { value.clone() })
        }));
        let lines: Vec<String> =
            config.iter().map(|(name, value)| format!("{name} {value}")).collect();
        fs::write(dir.path().join("redis.conf"), lines.join("\n"))
            .expect("a file in a folder of ours");
        Server {
            binary: setup.binary.clone(),
            socket: socket.into(),
            dir,
            port,
            _ports: ports,
            child: Mutex::new(None),
            admin: Mutex::new(None),
            wallclock: None,
            preload: setup.wallclock,
            has_module: setup.module.is_some(),
            family: setup.family,
            tolerated: Mutex::new(Vec::new()),
        }
    }
}

impl Family {
    /// A server whose connections send DLOCK commands as commands of the family. Commands in scripts are not
    /// translated.
    #[track_caller]
    pub fn start(self) -> Server {
        self.with(&[]).start()
    }

    /// As [`Family::start`], with these settings: name, value, name, value, …
    pub fn with(self, settings: &[&str]) -> Setup {
        Server::with(settings).speaking(self)
    }
}
