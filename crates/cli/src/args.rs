//! The command line.

mod dev;
mod run;
mod scrape;
mod see;
mod time;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub use self::dev::Dev;
pub use self::run::Run;
pub use self::scrape::{Exporter, Metrics, Scraping};
pub use self::see::{Completions, Doctor, Graph, Log, Man, Ping, Shell, Watch, Why};
use self::time::interval;

/// Run programs under locks in Redis or Valkey; inspect these locks; free them.
#[derive(Debug, Parser)]
#[command(name = "dlock", version, max_term_width = 100, after_help = AFTER_HELP)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Cli {
    /// Where the locks are: redis://, unix://, redis-sentinel://host:port,…/name or
    /// redis-cluster://host:port,…; with TLS rediss://, rediss-sentinel://, rediss-cluster://
    #[arg(long, global = true, help_heading = CONNECTION, env = "DLOCK_URL", hide_env_values = true)]
    #[arg(default_value = "redis://127.0.0.1:6379", value_name = "URL")]
    pub url: String,

    /// Certificates for TLS.
    #[command(flatten)]
    pub tls: Tls,

    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Certificates for `rediss://`, `rediss-sentinel://`, `rediss-cluster://`. The options have the names of those of
/// redis-cli. The variables do not: `dlock run` sets `DLOCK_KEY`, the name of the lock, for its command.
#[derive(Debug, Args)]
pub struct Tls {
    /// For TLS: the authority to trust instead of those of the system (PEM)
    #[arg(long, global = true, help_heading = CONNECTION, env = "DLOCK_TLS_CACERT", hide_env_values = true)]
    #[arg(value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    /// For TLS: the certificate for servers that require one (PEM)
    #[arg(long, global = true, help_heading = CONNECTION, env = "DLOCK_TLS_CERT", hide_env_values = true)]
    #[arg(value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// For TLS: the private key of --cert (PEM)
    #[arg(long = "key", global = true, help_heading = CONNECTION, env = "DLOCK_TLS_KEY", hide_env_values = true)]
    #[arg(value_name = "FILE")]
    pub cert_key: Option<PathBuf>,
}

/// The options that all subcommands share.
const CONNECTION: &str = "Connection options";

const AFTER_HELP: &str = "\
Durations are seconds, with a fraction if you like (0.5), or have a unit: 250ms, 10s, 5m, 2h.

Exit codes: 0 done; 1 nothing found, nothing done; 64 wrong usage; 69 server error.
`dlock run` gives back the exit code of its command, and `dlock ping` has codes of its own: see their --help.";

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command while holding a lock
    Run(Box<Run>),
    /// List locks, semaphores and latches
    Ls(Ls),
    /// Show everything about one key
    Info(OfKey),
    /// Show the waiters of a key in order of service
    Waiters(Waiters),
    /// End a hold by force: the next in line gets the lock
    Break(Break),
    /// End the blocked call of a connection
    Unblock(Unblock),
    /// Watch the busiest locks, live
    Top(Top),
    /// Print who gets and loses a lock, as it happens
    Watch(Watch),
    /// Show lost holds, deadlocks and slow waits of the recent past
    Log(Log),
    /// Explain what an owner waits for, and what the holders wait for
    Why(Why),
    /// Print which owner waits for which, as a graph in DOT
    Graph(Graph),
    /// Check that the servers answer and can grant locks
    Ping(Ping),
    /// Check that locks survive a failover, or the restart of one server: replicas, settings, Sentinels
    Doctor(Doctor),
    /// Print the metrics of the servers, once
    Metrics(Metrics),
    /// Serve the metrics to Prometheus over HTTP
    Exporter(Exporter),
    /// Start a throw-away server with the module, for tests and first steps
    Dev(Dev),
    /// Print completions for a shell
    Completions(Completions),
    /// Write the manual pages into a folder
    Man(Man),
}

impl Command {
    /// Whether the output is for programs.
    pub const fn wants_json(&self) -> bool {
        match self {
            Self::Ls(args) => args.json,
            Self::Info(args) => args.json,
            Self::Waiters(args) => args.json,
            Self::Break(args) => args.json,
            Self::Unblock(args) => args.json,
            Self::Ping(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Watch(args) => args.json,
            Self::Why(args) => args.json,
            Self::Graph(args) => args.json,
            Self::Log(args) => args.json,
            Self::Dev(args) => args.json,
            Self::Run(_)
            | Self::Top(_)
            | Self::Metrics(_)
            | Self::Exporter(_)
            | Self::Completions(_)
            | Self::Man(_) => false,
        }
    }
}

/// `dlock ls`
#[derive(Debug, Args)]
#[command(override_usage = "dlock ls [OPTIONS] [PATTERN]")]
pub struct Ls {
    /// Pattern of keys: * any text, ? any character, [a-z] one of these
    #[arg(value_name = "PATTERN", default_value = "*")]
    pub pattern: OsString,

    /// For programs: an array of JSON objects
    #[arg(long)]
    pub json: bool,
}

/// `dlock info`
#[derive(Debug, Args)]
#[command(override_usage = "dlock info [OPTIONS] <KEY>")]
pub struct OfKey {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// For programs: a JSON object
    #[arg(long)]
    pub json: bool,
}

/// `dlock waiters`
#[derive(Debug, Args)]
#[command(override_usage = "dlock waiters [OPTIONS] <KEY>")]
pub struct Waiters {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// Show at most this number of waiters
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=i64::MAX.unsigned_abs()))]
    pub count: Option<u64>,

    /// For programs: an array of JSON objects
    #[arg(long)]
    pub json: bool,
}

/// `dlock break`
#[derive(Debug, Args)]
#[command(override_usage = "dlock break [OPTIONS] <KEY> [OWNER|PERMIT]")]
#[command(after_help = "\
The holder continues until it learns of the loss: break a hold only if its holder is known to be dead, \
or if the protected resource checks fencing tokens.

Exit code 1: there was nothing to break.")]
pub struct Break {
    /// The key
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// Of a read-write lock: the owner of the holds (default: all). Of a semaphore: the permit id, as `dlock info`
    /// shows it
    #[arg(value_name = "OWNER|PERMIT")]
    pub whose: Option<OsString>,

    /// For programs: a JSON object
    #[arg(long)]
    pub json: bool,
}

/// `dlock unblock`
#[derive(Debug, Args)]
#[command(override_usage = "dlock unblock [OPTIONS] <CLIENT-ID>")]
#[command(after_help = "\
Client ids are shown by `dlock waiters` and by CLIENT LIST. They are valid on one server: in a cluster name the \
node itself with --url redis://host:port.

Exit code 1: that connection has no blocked call.")]
pub struct Unblock {
    /// The client id of the connection
    #[arg(value_name = "CLIENT-ID", value_parser = clap::value_parser!(u64).range(1..=i64::MAX.unsigned_abs()))]
    pub client_id: u64,

    /// Answer the call with the error STOPPED instead of Null (\"not granted in time\")
    #[arg(long)]
    pub error: bool,

    /// For programs: a JSON object
    #[arg(long)]
    pub json: bool,
}

/// `dlock top`
#[derive(Debug, Args)]
#[command(override_usage = "dlock top [OPTIONS] [PATTERN]")]
#[command(after_help = "\
Keys: up/down or j/k select, Enter shows holders and waiters, Esc goes back, s changes the sort order, \
q quits.

When the output is not a terminal, one snapshot is printed as plain text.")]
pub struct Top {
    /// Pattern of keys: * any text, ? any character, [a-z] one of these
    #[arg(value_name = "PATTERN", default_value = "*")]
    pub pattern: OsString,

    /// Time between two samples of the server
    #[arg(short = 'i', long, value_name = "DURATION", default_value = "2", value_parser = interval)]
    pub interval: Duration,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
