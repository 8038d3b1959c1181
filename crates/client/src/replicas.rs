//! Waiting until replicas have what a server wrote.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::clock::millis;
use crate::error::{Error, ErrorKind};
use crate::link::live::Live;
use crate::route::Routes;
use crate::settings::Settings;

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

    fn read(self, replies: Vec<Value>) -> Result<Acknowledged, Error> {
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

    fn enough(self, found: Acknowledged) -> Result<Confirmed, Error> {
        let (acknowledged, wanted) = (found.replicas, self.wanted);
        if acknowledged >= wanted {
            return Ok(Confirmed { in_quarantine: found.in_quarantine });
        }
        let text = format!("{acknowledged} of {wanted} replicas have it in time");
        Err(Error::new(ErrorKind::Replicas { acknowledged, wanted }, text))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Acknowledged {
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

/// The waits for replicas over one shared connection. One WAIT serves all tasks whose writes were answered before it.
#[derive(Default)]
pub(crate) struct Confirmations {
    /// Number of waits that have begun.
    begun: AtomicU64,
    last: Mutex<LastWait>,
}

/// The last one that was answered.
#[derive(Default)]
struct LastWait {
    /// Which of those that have begun, from 1.
    number: u64,
    found: Acknowledged,
    wanted: u32,
    on_disk: bool,
}

impl Routes {
    /// Waits until replicas have what was written over shared connection `generation`, to the server that has `key`.
    ///
    /// # Errors
    ///
    /// `Replicas`: fewer have it in time. `Unavailable`: another connection took its place, or it does not answer.
    pub(crate) async fn confirm(
        &self,
        key: &[u8],
        generation: u64,
        replicas: Replicas,
    ) -> Result<Confirmed, Error> {
        let server = self.server_of(key).filter(|server| server.link.generation() == generation);
        let gone = || Error::unavailable("the connection to the server is lost");
        let server = server.ok_or_else(gone)?;
        let mut live = server.link.live(Instant::now() + replicas.timeout).await?;
        if live.generation != generation {
            return Err(gone());
        }
        let confirmed = live.confirm(replicas).await;
        if let Err(error) = &confirmed
            && error.kind() == ErrorKind::Unavailable
        {
            server.link.report_broken(generation);
        }
        confirmed
    }
}

impl Live {
    /// Waits until replicas have what was written over this connection and answered before this call.
    ///
    /// # Errors
    ///
    /// `Replicas`: fewer have it in time. Another kind: the connection does not answer.
    pub(crate) async fn confirm(&mut self, replicas: Replicas) -> Result<Confirmed, Error> {
        // A connection that does not answer delays no task by more than that, however many wait for each other.
        let confirmed = timeout(replicas.timeout * 3, self.confirm_in_turn(replicas)).await;
        confirmed.unwrap_or_else(|_| Err(Error::unavailable("no answer in time")))
    }

    async fn confirm_in_turn(&mut self, replicas: Replicas) -> Result<Confirmed, Error> {
        let confirmations = self.confirmations.clone();
        let before = confirmations.begun.load(Ordering::Acquire);
        let mut last = confirmations.last.lock().await;
        // Not that of a wait for fewer, or for memory instead of disks.
        let is_alike = (last.on_disk, last.wanted) == (replicas.on_disk, replicas.wanted);
        if last.number <= before || !is_alike {
            let number = confirmations.begun.fetch_add(1, Ordering::AcqRel) + 1;
            let mut pipeline = redis::pipe();
            let requests = replicas.requests();
            for request in &requests {
                pipeline.add_command(request.clone());
            }
            let replies = self.send_all(&pipeline, requests.len()).await;
            let found = replicas.read(replies.map_err(Error::from_redis)?)?;
            // Not before the answer: a task that is cancelled here answers for no other one.
            let Replicas { wanted, on_disk, .. } = replicas;
            *last = LastWait { number, found, wanted, on_disk };
        }
        replicas.enough(last.found)
    }
}
