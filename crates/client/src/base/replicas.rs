//! Replicas that must have what a server wrote, and the requests that ask for that.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::base::clock::{Moment, millis};
use crate::base::error::{Error, ErrorKind};
use crate::base::settings::Settings;

/// Longest time that a renewal or a grant waits for replicas over the shared connection, which serves nothing else
/// meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Replicas that must have a grant or a renewal before it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replicas {
    pub(crate) wanted: u32,
    pub(crate) timeout: Duration,
    /// On their disks (WAITAOF), not only in their memory (WAIT).
    pub(crate) on_disk: bool,
    /// A grant does not count while the server is in quarantine: a replica that has come over since the grant may have
    /// confirmed another one, of the primary that it came from.
    pub(crate) checks_quarantine: bool,
    /// Nothing counts at a server whose quarantine is shorter than this.
    pub(crate) lease: Duration,
}

/// What a server says of its quarantine, once enough replicas have a write: it decides what that confirms. The default
/// confirms nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Quarantine {
    /// It is in one.
    is_on: bool,
    /// How long that has been so.
    age: Duration,
}

impl Quarantine {
    /// There was never one, or nobody asked.
    const NONE: Self = Self { is_on: false, age: Duration::MAX };

    /// Whether this lets a renewal count that was sent then. Not if a replica came online since: WAIT may have counted
    /// it on its old connection and on its new one.
    pub(crate) fn covers(self, sent: Moment) -> bool {
        self.age >= Moment::now().since(sent)
    }

    /// Whether this lets a grant count that was asked for then: there was no quarantine in all that time. What the
    /// server answered in one may be older than it, and what confirmed it may have gone to another server since.
    pub(crate) fn grants(self, sent: Moment) -> bool {
        !self.is_on && self.covers(sent)
    }
}

impl Replicas {
    /// What the settings demand of every grant and renewal, if anything.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let timeout = (settings.lease / 6).min(settings.response_timeout / 3).min(WAIT_MAX);
        let (checks_quarantine, lease) = (true, settings.lease);
        let of = |wanted| Self { wanted, timeout, on_disk: false, checks_quarantine, lease };
        settings.replicas.map(of)
    }

    /// The requests that wait for them, in this order. WAIT covers what the connection wrote before it: the offset that
    /// it waits for is that of the connection's last write.
    pub(crate) fn requests(self) -> Vec<Cmd> {
        let mut wait = redis::cmd(if self.on_disk { "WAITAOF" } else { "WAIT" });
        if self.on_disk {
            wait.arg(1);
        }
        wait.arg(self.wanted).arg(millis(self.timeout).max(1));
        let mut requests = vec![wait];
        if self.checks_quarantine {
            let mut info = redis::cmd("INFO");
            info.arg("dlock_keys");
            requests.push(info);
        }
        requests
    }

    /// What the replies say. The error `Replicas`: too few have it.
    pub(crate) fn read(self, replies: Vec<Value>) -> Result<Quarantine, Error> {
        let mut replies =
            replies.into_iter().map(|reply| reply.extract_error().map_err(Error::from_redis));
        let acknowledged = replies.next().transpose()?.map_or(0, |reply| acknowledged(&reply));
        let info = replies.next().transpose()?;
        if acknowledged < self.wanted {
            let text = format!("{acknowledged} of {} replicas have it in time", self.wanted);
            let kind = ErrorKind::Replicas { acknowledged, wanted: self.wanted };
            return Err(Error::new(kind, text));
        }
        let Some(info) = info.filter(|_| self.checks_quarantine) else {
            return Ok(Quarantine::NONE);
        };
        let is_short = |length| length < millis(self.lease);
        if quarantine_ms(&info, "length")?.is_some_and(is_short) {
            return Ok(Quarantine::default());
        }
        quarantine(&info)
    }

    /// Why they do not confirm a renewal that was sent then, if they have to.
    pub(crate) fn confirm(
        this: Option<Self>,
        found: Option<Result<Quarantine, Error>>,
        sent: Moment,
    ) -> Result<(), Error> {
        if this.is_none() {
            return Ok(());
        }
        let found = found.unwrap_or_else(|| Err(Error::unavailable("no answer in time")));
        if found?.covers(sent) { Ok(()) } else { Err(Error::in_quarantine()) }
    }
}

fn quarantine(info: &Value) -> Result<Quarantine, Error> {
    let field = |name| quarantine_ms(info, name)?.ok_or_else(|| Error::protocol(info));
    Ok(Quarantine { is_on: field("left")? > 0, age: Duration::from_millis(field("age")?) })
}

/// What the reply to INFO says of the quarantine of the server: `left`, `age`, or `length`, in milliseconds.
pub(crate) fn quarantine_ms(info: &Value, what: &str) -> Result<Option<u64>, Error> {
    let text: String = redis::from_redis_value_ref(info).map_err(|_| Error::protocol(info))?;
    let name = format!("dlock_quarantine_{what}_ms:");
    Ok(text.lines().find_map(|line| line.strip_prefix(&name)?.trim().parse().ok()))
}

/// Number of replicas in the reply to WAIT or WAITAOF.
fn acknowledged(reply: &Value) -> u32 {
    let count = match reply {
        Value::Int(count) => *count,
        Value::Array(local_and_replicas) => match local_and_replicas.as_slice() {
            [Value::Int(1..), Value::Int(count)] => *count,
            _ => 0,
        },
        _ => 0,
    };
    u32::try_from(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// WAIT may have counted a replica twice that came online since. And a grant counts if there was no quarantine
    /// since.
    #[test]
    fn what_a_quarantine_began_or_ended_across_does_not_count() {
        let sent = Moment::from_nanos(Moment::now().nanos() - 1_000_000_000);
        let cases = [
            (0, 60_000, true, true),
            (0, 100, false, false),
            (900, 100, false, false),
            (3_000, 60_000, true, false),
        ];
        for (left, age, is_covered, is_grant) in cases {
            let text =
                format!("dlock_quarantine_left_ms:{left}\r\ndlock_quarantine_age_ms:{age}\r\n");
            let quarantine = quarantine(&Value::BulkString(text.into_bytes())).unwrap();
            assert_eq!(quarantine.covers(sent), is_covered, "{left} {age}");
            assert_eq!(quarantine.grants(sent), is_grant, "{left} {age}");
        }
        assert!(quarantine(&Value::BulkString(b"dlock_version:1".to_vec())).is_err());
    }
}
