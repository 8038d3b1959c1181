//! The arguments of `dlock dev`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

/// `dlock dev`
#[derive(Debug, Args)]
#[command(override_usage = "dlock dev [OPTIONS] [-- <COMMAND>...]", after_help = DEV_HELP)]
pub struct Dev {
    /// Port on 127.0.0.1 [default: any free port]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// The module [default: next to this program, installed, or built in a folder above]
    #[arg(long, value_name = "FILE")]
    pub module: Option<PathBuf>,

    /// The server [default: redis-server or valkey-server in PATH]
    #[arg(long, value_name = "FILE")]
    pub server: Option<PathBuf>,

    /// End when stdin is closed, too
    #[arg(long, conflicts_with = "command")]
    pub with_stdin: bool,

    /// For programs: a JSON object on one line instead of the URL
    #[arg(long, conflicts_with = "command")]
    pub json: bool,

    #[allow(clippy::doc_markdown, reason = "this is also the text of --help")]
    /// Run this command with the URL as DLOCK_URL, and end with its exit code
    #[arg(value_name = "COMMAND", last = true)]
    pub command: Vec<OsString>,
}

const DEV_HELP: &str = "\
Prints the URL of the server as its first line. The server keeps everything in a temporary folder. Server and folder \
are removed when dlock dev ends, also by SIGKILL. It ends with SIGINT, SIGTERM or SIGHUP, and when the process that \
started it ends.

Exit codes: that of the command; without one 0. 64 wrong usage; 69 no server or module found, or the server does \
not start or has ended.

Examples:
  dlock dev
  dlock dev -- sh -c 'dlock run door -- echo locked'
  dlock dev --server valkey-server --module ./libdlock.so -- pytest";
