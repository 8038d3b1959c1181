//! The command line.

mod scrape;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub use self::scrape::{Exporter, Metrics, Scraping};

/// Run programs under locks in Redis or Valkey; inspect these locks; free them.
#[derive(Debug, Parser)]
#[command(name = "dlock", version, max_term_width = 100, after_help = AFTER_HELP)]
#[command(arg_required_else_help = true, subcommand_required = true)]
pub struct Cli {
    /// Where the locks are: redis://, unix://, redis-sentinel://host:port,…/name or
    /// redis-cluster://host:port,…; with TLS rediss://, rediss-sentinel://, rediss-cluster://
    #[arg(long, global = true, env = "DLOCK_URL", hide_env_values = true)]
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
    #[arg(long, global = true, env = "DLOCK_TLS_CACERT", hide_env_values = true)]
    #[arg(value_name = "FILE")]
    pub cacert: Option<PathBuf>,

    /// For TLS: the certificate for servers that require one (PEM)
    #[arg(long, global = true, env = "DLOCK_TLS_CERT", hide_env_values = true)]
    #[arg(value_name = "FILE")]
    pub cert: Option<PathBuf>,

    /// For TLS: the private key of --cert (PEM)
    #[arg(long = "key", global = true, env = "DLOCK_TLS_KEY", hide_env_values = true)]
    #[arg(value_name = "FILE")]
    pub cert_key: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
Durations are seconds, with a fraction if you like (0.5), or have a unit: 250ms, 10s, 5m, 2h.
Exit codes: 0 done; 1 nothing found, nothing done; 64 wrong usage; 69 server error.
`dlock run` gives back the exit code of its command; see `dlock run --help`.";

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
    /// Print the metrics of the servers, once
    Metrics(Metrics),
    /// Serve the metrics to Prometheus over HTTP
    Exporter(Exporter),
}

/// `dlock run`
#[derive(Debug, Args)]
#[command(override_usage = "dlock run [OPTIONS] <KEY> [--] <COMMAND>...", after_help = RUN_HELP)]
#[allow(clippy::struct_excessive_bools, reason = "options as they are typed")]
pub struct Run {
    /// The lock
    #[arg(value_name = "KEY")]
    pub key: OsString,

    /// Do not wait: if the lock is taken, exit at once with the code of -E
    #[arg(short = 'n', long = "nonblock", visible_alias = "nb", conflicts_with = "wait")]
    pub nonblock: bool,

    /// Maximum wait, then exit with the code of -E; without -n and -w, wait forever
    #[arg(short = 'w', long = "wait", visible_alias = "timeout", value_name = "DURATION")]
    #[arg(value_parser = duration)]
    pub wait: Option<Duration>,

    /// Share the lock with other readers: read side of a read-write lock
    #[arg(short = 's', long, group = "how")]
    pub shared: bool,

    /// Exclude readers, too: write side of a read-write lock
    #[arg(short = 'x', long, group = "how")]
    pub exclusive: bool,

    /// Take the lock with a durable queue (DFAIR) instead of the plain one
    #[arg(long, group = "how")]
    pub fair: bool,

    /// Take this number of permits of a semaphore (default 1, if --limit is given)
    #[arg(long, value_name = "N", conflicts_with = "how", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,

    /// Take a permit of a semaphore; create it with this number if it does not exist
    #[arg(long, value_name = "N", conflicts_with = "how", value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: Option<u32>,

    /// Exit code if the lock is not available (in time); not 75
    #[arg(short = 'E', long = "conflict-exit-code", value_name = "CODE", default_value_t = 1)]
    #[arg(value_parser = conflict_code)]
    pub conflict: u8,

    /// Maximum hold time; without, the lock is renewed for as long as the command runs
    #[arg(long, value_name = "DURATION", value_parser = lease)]
    pub lease: Option<Duration>,

    /// When the lock is lost: how long the command has between SIGTERM and SIGKILL
    #[arg(long, value_name = "DURATION", default_value = "5", value_parser = duration)]
    pub grace: Duration,

    /// Text that others see with the lock [default: the name of the command]
    #[arg(long, value_name = "TEXT")]
    pub label: Option<OsString>,

    /// The command and its arguments
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, num_args = 1..)]
    #[arg(allow_hyphen_values = false)]
    pub command: Vec<OsString>,
}

const RUN_HELP: &str = "\
The command finds DLOCK_KEY, DLOCK_OWNER and DLOCK_TOKEN (of a semaphore: DLOCK_PERMIT) in its environment. \
Signals are forwarded to it. The lock is released when it has ended.

Exit codes: that of the command; 128+N if signal N ended it;
  1 (or -E)  the lock was not available
  75         the lock was lost, and the command was ended because of that
  126, 127   the command cannot be executed; it does not exist
  64, 69     wrong usage; server error

Examples:
  dlock run backup -- tar cf /backup/home.tar /home
  dlock run -n nightly -- ./report.sh || echo 'runs already'
  dlock run -w 10 -s config -- ./reader
  dlock run licences --limit 3 -- ./simulation";

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

    /// Answer the call with the error UNBLOCKED instead of Null (\"not granted in time\")
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

/// Seconds, or a number with a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.find(|sign: char| sign.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let plain =
        !number.is_empty() && number.chars().all(|sign| sign.is_ascii_digit() || sign == '.');
    let number: f64 = match number.parse() {
        Ok(number) if plain => number,
        _ => return Err("a duration is written as 1.5, 250ms, 10s, 5m or 2h".to_owned()),
    };
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{unit:?} is not a unit: ms, s, m or h")),
    };
    let time = Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())?;
    if time > LONGEST { Err("more than 365 days".to_owned()) } else { Ok(time) }
}

/// The longest lease and the longest wait that a server accepts.
const LONGEST: Duration = Duration::from_hours(365 * 24);

fn lease(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_millis(1) => Err("shorter than 1ms".to_owned()),
        lease => Ok(lease),
    }
}

fn interval(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_millis(100) => Err("shorter than 100ms".to_owned()),
        interval => Ok(interval),
    }
}

fn conflict_code(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(crate::exit::LOST) => Err(format!("{} says that the lock was lost", crate::exit::LOST)),
        Ok(code) => Ok(code),
        Err(_) => Err("an exit code is a number from 0 to 255".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn run(words: &str) -> Result<Run, clap::Error> {
        let words = words.split(' ').filter(|word| !word.is_empty());
        let cli = Cli::try_parse_from(["dlock", "run"].into_iter().chain(words))?;
        let Command::Run(run) = cli.command else { panic!("not a run") };
        Ok(*run)
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations() {
        for (text, millis) in [
            ("0", 0),
            ("1", 1000),
            ("1.5", 1500),
            (".25", 250),
            ("250ms", 250),
            ("10s", 10_000),
            ("1.5m", 90_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "ms", "-1", "1e3", "inf", "NaN", "1d", "1 s", "1.2.3", "9000h", "+1"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(lease("0").is_err());
        assert!(interval("10ms").is_err());
    }

    #[test]
    fn options_stand_before_the_command_and_its_own_are_left_alone() {
        let typed = run("-n -E 3 k -- ls -n -w 5").unwrap();
        assert!(typed.nonblock);
        assert_eq!((typed.conflict, typed.wait), (3, None));
        assert_eq!(typed.command, ["ls", "-n", "-w", "5"]);
        let typed = run("k -w 0.5 ls -n -- x").unwrap();
        assert_eq!((typed.nonblock, typed.wait), (false, Some(Duration::from_millis(500))));
        assert_eq!(typed.command, ["ls", "-n", "--", "x"]);
    }

    #[test]
    fn exclusive_options_are_refused() {
        for words in [
            "k",
            "k --",
            "k -n -w 1 -- c",
            "k -s -x -- c",
            "k -s --fair -- c",
            "k -x --limit 3 -- c",
            "k --fair --count 3 -- c",
            "k --limit 0 -- c",
            "k -E 256 -- c",
            "k -E 75 -- c",
            "k -w -1 -- c",
        ] {
            assert!(run(words).is_err(), "{words}");
        }
        for words in ["k --limit 3 -- c", "k --count 2 --limit 3 -- c", "k -s -w 3 -- c"] {
            assert!(run(words).is_ok(), "{words}");
        }
    }
}
