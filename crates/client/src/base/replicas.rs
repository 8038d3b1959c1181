//! Replicas that must have what a server wrote, and the requests that ask for that.

use std::time::Duration;

use redis::{Cmd, Value};

use crate::base::clock::millis;
use crate::base::error::{Error, ErrorKind};
use crate::base::settings::Settings;

/// Longest time that a renewal or a grant waits for replicas over the shared connection, which serves nothing else
/// meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Replicas that must have a grant or a renewal before it counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Replicas {
    pub(crate) wanted: u32,
    pub(crate) timeout: Duration,
    /// On their disks (WAITAOF), not only in their memory (WAIT).
    pub(crate) on_disk: bool,
    /// A grant does not count while the server is in quarantine: a replica that has come over since the grant may have
    /// confirmed another one, of the primary that it came from.
    pub(crate) checks_quarantine: bool,
}

/// The write is on enough replicas.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Confirmed {
    pub(crate) in_quarantine: bool,
}

impl Replicas {
    /// What the settings demand of every grant and renewal, if anything.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let timeout = (settings.lease / 6).min(settings.response_timeout / 3).min(WAIT_MAX);
        let checks_quarantine = true;
        settings.replicas.map(|wanted| Self { wanted, timeout, on_disk: false, checks_quarantine })
    }

    pub(crate) fn timeout_ms(self) -> u64 {
        millis(self.timeout).max(1)
    }

    /// The requests that wait for them, in this order. WAIT covers what the connection wrote before it: the offset that
    /// it waits for is that of the connection's last write.
    pub(crate) fn requests(self) -> Vec<Cmd> {
        let mut wait = redis::cmd(if self.on_disk { "WAITAOF" } else { "WAIT" });
        if self.on_disk {
            wait.arg(1);
        }
        wait.arg(self.wanted).arg(self.timeout_ms());
        let mut requests = vec![wait];
        if self.checks_quarantine {
            let mut info = redis::cmd("INFO");
            info.arg("dlock_keys");
            requests.push(info);
        }
        requests
    }

    /// What the replies to [`Replicas::requests`] say.
    ///
    /// # Errors
    ///
    /// `Replicas`: fewer have the write. Another kind: the server refused a request.
    pub(crate) fn check(self, replies: Vec<Value>) -> Result<Confirmed, Error> {
        self.enough(self.read(replies)?)
    }

    /// What the replies say of any number of replicas.
    pub(crate) fn read(self, replies: Vec<Value>) -> Result<Acknowledged, Error> {
        let mut replies =
            replies.into_iter().map(|reply| reply.extract_error().map_err(Error::from_redis));
        let replicas = replies.next().transpose()?.map_or(0, |reply| acknowledged(&reply));
        let info = replies.next().transpose()?;
        let in_quarantine = match info {
            Some(info) if self.checks_quarantine => is_in_quarantine(&info)?,
            _ => false,
        };
        Ok(Acknowledged { replicas, in_quarantine })
    }

    /// The error `Replicas` if that is too few.
    pub(crate) fn enough(self, found: Acknowledged) -> Result<Confirmed, Error> {
        let (acknowledged, wanted) = (found.replicas, self.wanted);
        if acknowledged >= wanted {
            return Ok(Confirmed { in_quarantine: found.in_quarantine });
        }
        let text = format!("{acknowledged} of {wanted} replicas have it in time");
        Err(Error::new(ErrorKind::Replicas { acknowledged, wanted }, text))
    }
}

/// What the server said of its replicas.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Acknowledged {
    replicas: u32,
    in_quarantine: bool,
}

fn is_in_quarantine(info: &Value) -> Result<bool, Error> {
    let text: String = redis::from_redis_value_ref(info).map_err(|_| Error::protocol(info))?;
    let left = text.lines().find_map(|line| line.strip_prefix("dlock_quarantine_left_ms:"));
    left.map(|left| left.trim() != "0").ok_or_else(|| Error::protocol(info))
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
