//! Exit codes, and how the command ends.

use std::fmt;
use std::io;
use std::process::ExitCode;

use dlock_client::redis::RedisError;
use dlock_client::{Error, ErrorKind};
use serde_json::{Map, Value};

/// Nothing found, or nothing done.
pub const NOTHING: u8 = 1;
/// Of `dlock doctor`: a check failed, or could not be made.
pub const UNFIT: u8 = 1;
/// Of `dlock ping`: a server has no module.
pub const NO_MODULE: u8 = 2;
/// Of `dlock ping`: a server is in quarantine.
pub const QUARANTINE: u8 = 3;
/// Of `dlock ping`: a server is a replica.
pub const REPLICA: u8 = 4;
/// Wrong usage: `EX_USAGE`, as in flock(1).
pub const USAGE: u8 = 64;
/// Server error: `EX_UNAVAILABLE`.
pub const SERVER: u8 = 69;
/// Error of this machine: `EX_OSERR`.
pub const SYSTEM: u8 = 71;
/// The lock was lost while the command ran: `EX_TEMPFAIL`.
pub const LOST: u8 = 75;
/// The command exists but cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command does not exist.
pub const NOT_FOUND: u8 = 127;
/// The code that shells show if the reader of the output has gone: 128 + SIGPIPE.
pub const BROKEN_PIPE: u8 = 141;

/// An early end: the message, if any, and the exit code.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// The message for stderr; empty for none.
    pub text: String,
    /// What the command found all the same: fields of the JSON object that reports the error.
    pub found: Map<String, Value>,
}

impl Failure {
    /// Ends with the message `text` and the exit code `code`.
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        Self { code, text: text.into(), found: Map::new() }
    }

    /// With what the command found. `found` is a JSON object.
    pub fn with(mut self, found: Value) -> Self {
        if let Value::Object(found) = found {
            self.found = found;
        }
        self
    }

    /// Reports it: to people on stderr, and to programs that asked for JSON also on stdout.
    pub fn report(self, json: bool) -> ExitCode {
        if !self.text.is_empty() {
            crate::say(&self.text);
            if json {
                // On one line, as the values of a stream. A failure to write cannot be reported.
                let _ = crate::json::write_line(&mut io::stdout().lock(), &self.as_json());
            }
        }
        ExitCode::from(self.code)
    }

    fn as_json(&self) -> Value {
        let mut fields = self.found.clone();
        fields.insert("error".to_owned(), self.text.clone().into());
        fields.insert("exit-code".to_owned(), self.code.into());
        fields.into()
    }

    /// An error of the client during the action `what`.
    pub fn of(what: impl fmt::Display, error: &Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid => USAGE,
            _ => SERVER,
        };
        Self::new(code, format!("{what}: {error}{}", hint(error.kind(), error.text())))
    }

    /// The servers cannot be reached.
    pub fn unreachable(url: &str, error: &Error) -> Self {
        let mut failure = Self::of(format!("cannot connect to {}", without_password(url)), error);
        failure.text += match error.kind() {
            ErrorKind::Invalid if !has_known_scheme(url) => {
                " (a URL begins with redis://, rediss://, unix://, redis-sentinel:// or redis-cluster://)"
            }
            ErrorKind::Refused if url.contains("-sentinel://") => {
                " (those of the Sentinels come behind: /name?sentinel_username=…&sentinel_password=…)"
            }
            ErrorKind::Unavailable if url.starts_with("rediss") && !is_refused(error) => {
                " (--cacert names the authority to trust, --cert and --key the certificate to show)"
            }
            ErrorKind::Unavailable => {
                " (no server listens there: start it, or name another one with --url or DLOCK_URL)"
            }
            _ => "",
        };
        failure
    }
}

/// Whether nothing listens at the address.
fn is_refused(error: &Error) -> bool {
    let cause = std::error::Error::source(error);
    let cause = cause.and_then(|cause| cause.downcast_ref::<RedisError>());
    cause.is_some_and(RedisError::is_connection_refusal)
}

/// What to do about an error of this kind with this text.
fn hint(kind: ErrorKind, text: &str) -> &'static str {
    match kind {
        ErrorKind::WrongType if text.contains("belongs to DFAIR") => {
            " (it is a lock with a durable queue: `dlock run --fair`)"
        }
        ErrorKind::WrongType if text.contains("belongs to DRW") => {
            " (it is a read-write lock: `dlock run -s` or `-x`)"
        }
        ErrorKind::WrongType if text.contains("belongs to DSEM") => {
            " (it is a semaphore: `dlock run --count` or `--limit`)"
        }
        ErrorKind::WrongType if text.contains("belongs to DLOCK,") => {
            " (it is a plain lock: `dlock run` without -s, -x, --fair, --count and --limit)"
        }
        ErrorKind::WrongType => {
            " (something else uses this key, TYPE tells what: choose another key)"
        }
        ErrorKind::Refused if text.starts_with("NOPERM") => {
            " (ACL SETUSER gives the right: see Access in docs/operations.md of dlock)"
        }
        ErrorKind::Refused => " (user and password come with the URL: redis://user:password@host)",
        _ if text.contains("DB index is out of range") => {
            " (the URL ends with the number of a database: `CONFIG GET databases` says how many there are, from /0 on)"
        }
        _ => "",
    }
}

fn has_known_scheme(url: &str) -> bool {
    let schemes = ["redis", "rediss", "unix"];
    let kinds = ["", "-sentinel", "-cluster"];
    url.split_once("://").is_some_and(|(scheme, _)| {
        schemes
            .iter()
            .any(|known| scheme.strip_prefix(known).is_some_and(|kind| kinds.contains(&kind)))
    })
}

/// Removes user and password, which stand before the `@`, for messages.
pub fn without_password(url: &str) -> String {
    match url.split_once("://") {
        Some((scheme, rest)) => {
            // In the URL of a Unix socket, user and password are elsewhere.
            let rest = rest.split('?').next().unwrap_or_default();
            let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            format!("{scheme}://{host}")
        }
        None => url.to_owned(),
    }
}

impl From<std::io::Error> for Failure {
    /// An error of writing to stdout.
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::new(BROKEN_PIPE, ""),
            _ => Self::new(SYSTEM, format!("cannot write the output: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        use ErrorKind::{Invalid, Refused, Server, WrongType};
        for (kind, text, hint_has) in [
            (WrongType, "\"k\" belongs to DFAIR, the command to DLOCK", "`dlock run --fair`"),
            (WrongType, "\"k\" belongs to DRW, the command to DLOCK", "`dlock run -s` or `-x`"),
            (WrongType, "\"k\" belongs to DSEM, the command to DFAIR", "--limit"),
            (WrongType, "\"k\" belongs to DLOCK, the command to DSEM", "without -s, -x"),
            (WrongType, "\"k\" belongs to DLATCH, the command to DLOCK", "choose another key"),
            (WrongType, "\"k\" holds nothing of dlock", "choose another key"),
            (Refused, "NOPERM User monitor has no permissions", "ACL SETUSER"),
            (Refused, "WRONGPASS invalid username-password pair", "user:password@host"),
            (Invalid, "ERR DB index is out of range", "CONFIG GET databases"),
        ] {
            assert!(hint(kind, text).contains(hint_has), "{text}: {}", hint(kind, text));
        }
        assert_eq!(hint(Server, "MISCONF"), "");
    }

    #[test]
    fn passwords_are_not_shown() {
        for (url, shown) in [
            ("redis://user:p@ss@host:6379/2", "redis://host:6379/2"),
            ("redis-cluster://:secret@a:1,b:2", "redis-cluster://a:1,b:2"),
            ("unix:///run/redis.sock?user=a&pass=b", "unix:///run/redis.sock"),
            ("redis-sentinel://u:p@a/n?sentinel_password=x@y", "redis-sentinel://a/n"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(without_password(url), shown);
        }
    }
}
