//! The arguments of the commands that show what goes on.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::time::lease;

/// `dlock ping`
#[derive(Debug, Args)]
#[command(override_usage = "dlock ping [OPTIONS]", after_help = PING_HELP)]
pub struct Ping {
    /// Fail if a server is a replica, which grants nothing
    #[arg(long)]
    pub primary: bool,

    /// Maximum time for everything
    #[arg(short = 't', long, value_name = "DURATION", default_value = "3", value_parser = lease)]
    pub timeout: Duration,

    /// For programs: a JSON object
    #[arg(long)]
    pub json: bool,
}

const PING_HELP: &str = "\
Exit codes, for probes:
  0   every server answers and can grant locks
  2   a server has no dlock module
  3   a server is in quarantine: it grants nothing yet
  4   a server is a replica (only with --primary)
  64  wrong usage
  69  a server does not answer in time, or refuses the user";

/// `dlock doctor`
#[derive(Debug, Args)]
#[command(override_usage = "dlock doctor [OPTIONS]", after_help = DOCTOR_HELP)]
pub struct Doctor {
    /// Number of replicas that must confirm each grant and each renewal (default: replicas=N of the URL, else 1; a
    /// server without replicas is checked as one server)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub replicas: Option<u64>,

    /// The longest lease of the clients
    #[arg(long, value_name = "DURATION", default_value = "30", value_parser = lease)]
    pub lease: Duration,

    /// For programs: a JSON object
    #[arg(long)]
    pub json: bool,
}

const DOCTOR_HELP: &str = "\
Changes nothing. CONFIG SET lasts until the server restarts: keep the settings with CONFIG REWRITE, \
or in the configuration file. The user needs the right to run CONFIG GET.

Exit codes:
  0   every check holds; warnings do not count
  1   a check failed, or could not be made
  64  wrong usage
  69  no server answers, or one refuses the user";

/// `dlock watch`
#[derive(Debug, Args)]
#[command(override_usage = "dlock watch [OPTIONS] <KEY>", after_help = WATCH_HELP)]
pub struct Watch {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// End after this number of lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// For programs: a JSON object per line
    #[arg(long)]
    pub json: bool,
}

const WATCH_HELP: &str = "\
Prints the state, and then a line for each change: held, ended, free; of a latch count, gone. \
Ends of holds of plain and fair locks are seen at once; all else is looked at once a second, \
so shorter holds may be missed.";

/// `dlock why`
#[derive(Debug, Args)]
#[command(override_usage = "dlock why [OPTIONS] <OWNER> [PATTERN]")]
#[command(after_help = "\
Ends at holders that wait for nothing, or names the cycle. Exit code 1: the owner waits for nothing.")]
pub struct Why {
    /// The owner, as `dlock waiters` shows it
    #[arg(value_name = "OWNER")]
    pub owner: OsString,

    /// Pattern of the keys to read: * any text, ? any character, [a-z] one of these
    #[arg(value_name = "PATTERN", default_value = "*")]
    pub pattern: OsString,

    /// For programs: a JSON object
    #[arg(long)]
    pub json: bool,
}

/// `dlock graph`
#[derive(Debug, Args)]
#[command(override_usage = "dlock graph [OPTIONS] [PATTERN]")]
#[command(after_help = "Example:\n  dlock graph | dot -Tpng -o waits.png")]
pub struct Graph {
    /// Pattern of the keys to read: * any text, ? any character, [a-z] one of these
    #[arg(value_name = "PATTERN", default_value = "*")]
    pub pattern: OsString,

    /// For programs: a JSON object
    #[arg(long)]
    pub json: bool,
}

/// `dlock log`
#[derive(Debug, Args)]
#[command(override_usage = "dlock log [OPTIONS]", after_help = LOG_HELP)]
pub struct Log {
    /// Show at most this number of entries of each server, the newest
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=i64::MAX.unsigned_abs()))]
    pub count: Option<u64>,

    /// Print new entries as they come, until interrupted
    #[arg(short = 'f', long, conflicts_with = "count")]
    pub follow: bool,

    /// Remove all entries
    #[arg(long, conflicts_with_all = ["count", "follow"])]
    pub reset: bool,

    /// For programs: an array of JSON objects, with --follow an object per line
    #[arg(long)]
    pub json: bool,
}

const LOG_HELP: &str = "\
Shows holds that ended without a release, deadlocks, slow waits and long holds: the newest last. \
Each server keeps the last entries in memory (dlock.log-max-len). The user needs the right to run DLOCK.LOG.";

/// `dlock completions`
#[derive(Debug, Args)]
#[command(
    override_usage = "dlock completions <SHELL>",
    after_help = "\
Examples:
  dlock completions bash > ~/.local/share/bash-completion/completions/dlock
  dlock completions zsh  > ~/.zfunc/_dlock      (a folder in fpath)
  dlock completions fish > ~/.config/fish/completions/dlock.fish"
)]
pub struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

/// A shell with completions.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// `dlock man`
#[derive(Debug, Args)]
#[command(
    override_usage = "dlock man <FOLDER>",
    after_help = "\
Example:
  dlock man /usr/local/share/man/man1"
)]
pub struct Man {
    /// Where to write dlock.1, dlock-run.1 and the others
    #[arg(value_name = "FOLDER")]
    pub folder: PathBuf,
}
