//! Waiting with a blocked call, over a private connection, also for replicas.

use std::sync::atomic::Ordering;

use redis::Value;

use super::words::How;
use super::{Ask, Granted, Patience};
use crate::channel::Draft;
use crate::clock::{Moment, millis};
use crate::error::{Error, ErrorKind};
use crate::options::Replicas;
use crate::private::{self, Private, Seat, Tries};

impl Ask {
    /// With a blocked call over a private connection.
    pub(super) async fn block(&self, patience: Patience) -> Result<Option<Granted>, Error> {
        let mut tries = Tries::new(patience);
        // When the first request was sent whose outcome is not known: its grant may be the one that a later answer
        // repeats.
        let mut first = None;
        let mut place = Seat::default();
        loop {
            let slice = patience.block_ms(self.core.settings.queue);
            let sent = *first.get_or_insert_with(Moment::now);
            let request = [self.draft(How::Block(slice))];
            match private::one(self.ask(patience, &request, slice, &mut place).await) {
                Ok(reply) => {
                    tries.answered();
                    self.asked.store(true, Ordering::Relaxed);
                    match self.granted(&reply, sent)? {
                        Some(granted) => {
                            if let Some(granted) = self.settle(granted).await? {
                                return Ok(Some(granted));
                            }
                        }
                        None if patience.is_over() => return Ok(self.leave().await),
                        None => {}
                    }
                    first = None;
                }
                Err(error) => tries.after(self.note(error), &self.core).await?,
            }
        }
    }

    /// Over a private connection.
    async fn ask(
        &self,
        patience: Patience,
        drafts: &[Draft<'_>],
        slice: u64,
        seat: &mut Seat,
    ) -> Result<Vec<Value>, Error> {
        let private = Private::open(&self.core, &self.key, patience, seat, drafts).await?;
        self.pending.store(true, Ordering::Relaxed);
        private.ask(drafts, Some(slice)).await
    }

    /// A grant that came over a private connection after a wait: its lease began somewhere between our asking and
    /// now. If we asked long ago, or the tie is to be to the shared connection, it begins anew.
    async fn settle(&self, granted: Granted) -> Result<Option<Granted>, Error> {
        let waited = Moment::now().since(granted.sent);
        if self.options.bind.is_none() && waited < self.lease / 4 {
            return Ok(Some(granted));
        }
        self.claim(granted.id).await
    }

    /// Until so many replicas have it.
    pub(super) async fn replicated(
        &self,
        replicas: Replicas,
        patience: Patience,
    ) -> Result<Option<Granted>, Error> {
        let mut tries = Tries::new(patience);
        let mut first = None;
        let mut place = Seat::default();
        loop {
            let slice = patience.block_ms(self.core.settings.queue);
            let (how, slice) =
                if patience == Patience::None { (How::Now, 0) } else { (How::Block(slice), slice) };
            let timeout_ms = millis(replicas.timeout).max(1);
            let wait = if replicas.on_disk {
                redis::cmd("WAITAOF").arg(1).arg(replicas.wanted).arg(timeout_ms).clone()
            } else {
                redis::cmd("WAIT").arg(replicas.wanted).arg(timeout_ms).clone()
            };
            let sent = *first.get_or_insert_with(Moment::now);
            let limit = slice.saturating_add(timeout_ms);
            let drafts = [self.draft(how), wait.into()];
            let answer = self.ask(patience, &drafts, limit, &mut place).await;
            let (reply, acknowledged) = match private::two(answer) {
                Ok(replies) => replies,
                Err(error) => {
                    tries.after(self.note(error), &self.core).await?;
                    continue;
                }
            };
            tries.answered();
            let Some(granted) = self.granted(&reply, sent)? else {
                if patience == Patience::None && !self.asked.load(Ordering::Relaxed) {
                    self.pending.store(false, Ordering::Relaxed);
                }
                if patience.is_over() {
                    return Ok(if patience == Patience::None { None } else { self.leave().await });
                }
                first = None;
                continue;
            };
            let got = acknowledgements(&acknowledged?);
            if got < replicas.wanted {
                return Err(Error::new(
                    ErrorKind::Replicas { acknowledged: got, wanted: replicas.wanted },
                    format!(
                        "{got} of {} replicas have the grant: it was given back",
                        replicas.wanted
                    ),
                ));
            }
            if let Some(granted) = self.settle(granted).await? {
                return Ok(Some(granted));
            }
        }
    }
}

/// How many replicas WAIT or WAITAOF counted.
fn acknowledgements(reply: &Value) -> u32 {
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
