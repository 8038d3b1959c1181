//! `dlock dev`: a server with the module for as long as a test or a try takes.

mod find;
mod guard;
mod program;

use std::fs::{self, DirBuilder};
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::parent_id;
use std::path::{self, Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, future, process, thread};

use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::sleep;

pub use self::guard::play;
use self::guard::{CONFIG, Guard, LOG};
use crate::args::Dev;
use crate::exit::{Failure, SERVER, SYSTEM};
use crate::run::Ending;
use crate::run::signals::{FATAL, Signals};
use crate::{json, text};

/// Longest time for the start of the server.
const START: Duration = Duration::from_secs(20);
/// How often the log is read during the start.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How often the parent process is looked at: the system signals only the end of the thread that started this process,
/// and tools start processes in threads that end early.
const PARENT_EVERY: Duration = Duration::from_millis(100);
/// How many lines of the log tell why the server has ended.
const LINES: usize = 5;

/// Starts a server; ends it on a signal, with the parent process, or with the command.
pub async fn dev(args: &Dev) -> Result<Ending, Failure> {
    let parent = parent_id();
    let system = |error: io::Error| Failure::new(SYSTEM, error.to_string());
    // Before there is anything to remove.
    let mut signals = Signals::of(&FATAL).map_err(system)?;
    let mut server = tokio::select! {
        biased;
        _ = signals.fatal() => return Ok(Ending::Code(0)),
        started = Server::start(args) => started?,
    };
    let ending = if args.command.is_empty() {
        announce(&server, args)?;
        tokio::select! {
            biased;
            _ = signals.fatal() => Ok(Ending::Code(0)),
            () = end_of(parent) => Ok(Ending::Code(0)),
            () = end_of_stdin(), if args.with_stdin => Ok(Ending::Code(0)),
            () = server.ended() => Err(server.failure("has ended")),
        }
    } else {
        program::run(&args.command, &mut server, &mut signals, end_of(parent)).await
    };
    server.guard.end();
    ending
}

/// A server that runs. Dropping it ends it.
struct Server {
    url: String,
    program: PathBuf,
    module: PathBuf,
    folder: PathBuf,
    guard: Guard,
    end: Option<oneshot::Receiver<()>>,
}

impl Server {
    async fn start(args: &Dev) -> Result<Self, Failure> {
        let program = find::server(args.server.as_deref())?;
        let module = find::module(args.module.as_deref())?;
        let deadline = Instant::now() + START;
        loop {
            let mut server = Self::begin(&program, &module, args.port)?;
            if server.is_ready(deadline).await {
                return Ok(server);
            }
            let log = server.log();
            // Another process was faster.
            if args.port.is_none() && log.contains("Address already in use") {
                continue;
            }
            return Err(server.failure("does not start"));
        }
    }

    fn begin(program: &Path, module: &Path, port: Option<u16>) -> Result<Self, Failure> {
        let system =
            |error: io::Error| Failure::new(SYSTEM, format!("cannot prepare the server: {error}"));
        let port = port.map_or_else(free_port, Ok).map_err(system)?;
        let name = format!("dlock-dev-{}-{}", process::id(), uuid::Uuid::new_v4().simple());
        let folder = path::absolute(env::temp_dir().join(name)).map_err(system)?;
        DirBuilder::new().mode(0o700).create(&folder).map_err(system)?;
        let begun = fs::write(folder.join(CONFIG), config(module, &folder, port))
            .and_then(|()| Guard::start(program, &folder));
        let mut guard = begun.map_err(|error| {
            let _ = fs::remove_dir_all(&folder);
            system(error)
        })?;
        let end = guard.ended().map(on_a_thread);
        let url = format!("redis://127.0.0.1:{port}");
        Ok(Self { url, program: program.to_owned(), module: module.to_owned(), folder, guard, end })
    }

    /// Whether it is ready in time. Not by connecting: another process may have the port.
    async fn is_ready(&mut self, deadline: Instant) -> bool {
        loop {
            tokio::select! {
                biased;
                () = self.ended() => return false,
                () = sleep(LOOK_EVERY) => {}
            }
            if self.log().contains("Ready to accept connections") {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
        }
    }

    /// Waits for its end.
    async fn ended(&mut self) {
        if let Some(end) = &mut self.end {
            let _ = end.await;
            self.end = None;
        }
    }

    fn log(&self) -> String {
        let log = fs::read(self.folder.join(LOG)).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The reason is in the last lines of the log.
    fn failure(&self, what: &str) -> Failure {
        let log = self.log();
        let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
        let mut last = String::new();
        for line in &lines[lines.len().saturating_sub(LINES)..] {
            last += "\n  ";
            last += &text::printable(line.as_bytes());
        }
        Failure::new(SERVER, format!("the server {} {what}:{last}", self.program.display()))
    }
}

/// A port that is free now.
fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

fn config(module: &Path, folder: &Path, port: u16) -> Vec<u8> {
    let module = text::quoted(module.as_os_str().as_bytes());
    let folder = text::quoted(folder.as_os_str().as_bytes());
    format!(
        "bind 127.0.0.1\nport {port}\ndir {folder}\nsave \"\"\nappendonly no\ndaemonize no\nlogfile \"\"\n\
         loadmodule {module}\n"
    )
    .into_bytes()
}

fn announce(server: &Server, args: &Dev) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    if args.json {
        let shown = |path: &Path| path.display().to_string();
        let about = json!({
            "url": server.url,
            "server": shown(&server.program),
            "module": shown(&server.module),
            "folder": shown(&server.folder),
            "pid": process::id(),
        });
        json::write_line(&mut out, &about)?;
    } else {
        writeln!(out, "{}", server.url)?;
    }
    Ok(out.flush()?)
}

/// Done when `source` has a byte or is at its end.
fn on_a_thread(mut source: impl io::Read + Send + 'static) -> oneshot::Receiver<()> {
    let (to, done) = oneshot::channel();
    thread::spawn(move || {
        let _ = source.read(&mut [0]);
        let _ = to.send(());
    });
    done
}

/// Waits for the end of the parent process.
async fn end_of(parent: u32) {
    while parent_id() == parent {
        sleep(PARENT_EVERY).await;
    }
}

async fn end_of_stdin() {
    let (to, done) = oneshot::channel();
    thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _ = to.send(());
    });
    if done.await.is_err() {
        future::pending::<()>().await;
    }
}
