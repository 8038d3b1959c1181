//! The arguments of `dlock run`.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::time::{duration, lease};

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

    /// Say who holds the lock if it is not available (in time)
    #[arg(short = 'v', long)]
    pub verbose: bool,

    /// Exit code if the lock is not available (in time); not 75
    #[arg(short = 'E', long = "conflict-exit-code", value_name = "CODE", default_value_t = 1)]
    #[arg(value_parser = conflict_code)]
    pub conflict: u8,

    /// A lease that is not renewed; without, the lock is renewed for as long as the command runs
    #[arg(long, value_name = "DURATION", value_parser = lease)]
    pub lease: Option<Duration>,

    /// Longest time to keep the lock: then the command is ended as if the lock was lost
    #[arg(long, value_name = "DURATION", value_parser = lease, conflicts_with = "lease")]
    pub max_hold: Option<Duration>,

    /// Free the lock this long after the connection ended, so when this process or its machine died: default 2 s, at
    /// least 20 ms. In that time it may connect again; a server that answers nothing for that long ends the command
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "2", value_parser = duration)]
    pub bind: Option<Duration>,

    /// Do the work once for all that ask for it at the same time: if another process runs it, wait for its end and
    /// exit with 0 (with -n: exit at once with the code of -E)
    #[arg(long, conflicts_with_all = ["shared", "exclusive", "count", "limit"])]
    pub once: bool,

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
  75         the lock was lost, and the command was ended for that
  126, 127   the command cannot be executed; it does not exist
  64, 69     wrong usage; server error

Examples:
  dlock run backup -- tar cf /backup/home.tar /home
  dlock run -n -v nightly -- ./report.sh || echo 'runs already'
  dlock run -w 10 -s config -- ./reader
  dlock run --bind --once nightly -- ./report.sh
  dlock run licences --limit 3 -- ./simulation";

fn conflict_code(text: &str) -> Result<u8, String> {
    match text.parse() {
        Ok(crate::exit::LOST) => Err(format!("{} says that the lock was lost", crate::exit::LOST)),
        Ok(code) => Ok(code),
        Err(_) => Err("an exit code is a number from 0 to 255".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn run(words: &str) -> Result<Run, clap::Error> {
        let words = words.split(' ').filter(|word| !word.is_empty());
        let cli = Cli::try_parse_from(["dlock", "run"].into_iter().chain(words))?;
        let Command::Run(run) = cli.command else { panic!("not a run") };
        Ok(*run)
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
    fn bind_takes_a_time_only_after_an_equals_sign() {
        for (words, bind) in [
            ("k -- c", None),
            ("--bind k -- c", Some(2000)),
            ("k --bind c", Some(2000)),
            ("--bind=1.5 k -- c", Some(1500)),
        ] {
            let typed = run(words).unwrap();
            assert_eq!(
                (typed.bind, typed.command),
                (bind.map(Duration::from_millis), vec!["c".into()]),
                "{words}"
            );
        }
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
            "k --max-hold 9 --lease 9 -- c",
            "k --max-hold 0 -- c",
            "k --bind=x -- c",
            "k --once -s -- c",
            "k --once --limit 3 -- c",
        ] {
            assert!(run(words).is_err(), "{words}");
        }
        for words in [
            "k --limit 3 -- c",
            "k --count 2 --limit 3 -- c",
            "k -s -w 3 -- c",
            "k --once --fair -n -- c",
        ] {
            assert!(run(words).is_ok(), "{words}");
        }
    }
}
