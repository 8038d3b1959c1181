//! Wrong usage, and requests for help.

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;

use crate::exit::{Failure, USAGE};

/// Reports what the parser of the command line says.
pub fn report(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Requested help is not an error; a failure to write it cannot be reported.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(USAGE);
    }
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    Failure::new(USAGE, text.trim_end()).report(asks_for_json(env::args_os().skip(1)))
}

/// Whether the arguments, which cannot be parsed, have `--json` as an option.
fn asks_for_json(arguments: impl Iterator<Item = OsString>) -> bool {
    arguments
        .take_while(|argument| argument != "--" && argument != "run")
        .any(|argument| argument == "--json")
}

#[cfg(test)]
mod tests {
    use super::*;

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
