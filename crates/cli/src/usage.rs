//! Wrong usage, and requests for help.

use std::env;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::args::Cli;
use crate::exit::{Failure, USAGE};

/// Reports what the parser of the command line says.
pub fn report(mut error: clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Requested help is not an error; a failure to write it cannot be reported.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(USAGE);
    }
    if let Some(tip) = tip(&error, env::args_os().skip(1)) {
        error.remove(ContextKind::Suggested);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    Failure::new(USAGE, text.trim_end()).report(asks_for_json(env::args_os().skip(1)))
}

/// What to write instead of a command line for flock(1).
fn tip(error: &clap::Error, arguments: impl Iterator<Item = OsString>) -> Option<&'static str> {
    let cli = Cli::command();
    let is_known =
        |word: &OsString| word.to_str().is_some_and(|word| cli.find_subcommand(word).is_some());
    let subcommand = arguments.take_while(|word| word != "--").find(is_known);
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) => argument.as_str(),
        _ => "",
    };
    match (subcommand.as_deref().and_then(OsStr::to_str), error.kind()) {
        (None, ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument) => Some(RUN),
        (Some("run"), ErrorKind::UnknownArgument) => match argument {
            "-c" | "--command" => Some(SHELL),
            "-o" | "--close" | "-F" | "--no-fork" => Some("leave it out: it has no meaning here"),
            "-u" | "--unlock" => Some("leave it out: the lock is released when the command ends"),
            _ => None,
        },
        _ => None,
    }
}

const RUN: &str = "to run a command under a lock: dlock run [-n] [-w TIME] KEY -- COMMAND";
const SHELL: &str = "for a line of the shell: dlock run KEY -- sh -c 'COMMAND'";

/// Whether the arguments, which cannot be parsed, have `--json` as an option.
fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments
        .take_while(|argument| argument != "--" && argument != "run")
        .any(|argument| argument == "--json")
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_command_line_of_flock_gets_a_tip() {
        for (line, expected) in [
            ("key true", Some(RUN)),
            ("-n key true", Some(RUN)),
            ("-w 5 key true", Some(RUN)),
            ("-x key -c true", Some(RUN)),
            ("/run/lock/job -c true", Some(RUN)),
            ("run key -c true", Some(SHELL)),
            ("run -n key -c true", Some(SHELL)),
            ("run -c true key", Some(SHELL)),
            ("run -F key true", Some("leave it out: it has no meaning here")),
            ("run -u key", Some("leave it out: the lock is released when the command ends")),
            ("run --nonsense key true", None),
            ("run key", None),
            ("ls -c x", None),
            ("lis", Some(RUN)),
            ("ls --nonsense", None),
        ] {
            let words = || line.split(' ').map(OsString::from);
            let typed = std::iter::once(OsString::from("dlock")).chain(words());
            let error = Cli::try_parse_from(typed).unwrap_err();
            assert_eq!(tip(&error, words()), expected, "{line}");
        }
    }

    #[test]
    fn json_is_an_option_and_not_an_argument_of_the_command() {
        let asks = |line: &str| asks_for_json(line.split(' ').map(OsString::from));
        assert!(asks("info --json"));
        assert!(asks("--url x ls --json --nonsense"));
        assert!(!asks("info"));
        assert!(!asks("run k program --json"));
        assert!(!asks("info -- --json"));
    }
}
