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
}

impl Replicas {
    /// What the settings demand of every grant and renewal, if anything.
    pub(crate) fn of(settings: &Settings) -> Option<Self> {
        let timeout = (settings.lease / 6).min(settings.response_timeout / 3).min(WAIT_MAX);
        settings.replicas.map(|wanted| Self { wanted, timeout, on_disk: false })
    }

    pub(crate) fn timeout_ms(self) -> u64 {
        millis(self.timeout).max(1)
    }

    /// The request that waits for them. It covers what the connection wrote before it: the offset that it waits for is
    /// that of the connection's last write.
    pub(crate) fn request(self) -> Cmd {
        let mut wait = redis::cmd(if self.on_disk { "WAITAOF" } else { "WAIT" });
        if self.on_disk {
            wait.arg(1);
        }
        wait.arg(self.wanted).arg(self.timeout_ms());
        wait
    }

    /// Whether enough of them have the write, by the reply to WAIT or WAITAOF.
    pub(crate) fn check(self, reply: &Value) -> Result<(), Error> {
        self.enough(acknowledged(reply))
    }

    fn enough(self, acknowledged: u32) -> Result<(), Error> {
        let wanted = self.wanted;
        if acknowledged >= wanted {
            return Ok(());
        }
        let text = format!("{acknowledged} of {wanted} replicas have it in time");
        Err(Error::new(ErrorKind::Replicas { acknowledged, wanted }, text))
    }
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
    acknowledged: u32,
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
    ) -> Result<(), Error> {
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
    pub(crate) async fn confirm(&mut self, replicas: Replicas) -> Result<(), Error> {
        let confirmations = self.confirmations.clone();
        let before = confirmations.begun.load(Ordering::Acquire);
        let mut last = confirmations.last.lock().await;
        if last.number <= before {
            let number = confirmations.begun.fetch_add(1, Ordering::AcqRel) + 1;
            let wait = replicas.request();
            let answer = timeout(replicas.timeout * 3, self.send(&wait)).await;
            let reply = answer
                .map_err(|_| Error::unavailable("no answer in time"))?
                .and_then(Value::extract_error)
                .map_err(Error::from_redis)?;
            // Not before the answer: a task that is cancelled here answers for no other one.
            *last = LastWait { number, acknowledged: acknowledged(&reply) };
        }
        replicas.enough(last.acknowledged)
    }
}
