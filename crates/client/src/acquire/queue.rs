//! Waiting with a place in the queue, over the shared connection: a message says when it is our turn.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dlock_wire::permit;
use tokio::time::Instant;

use super::words::How;
use super::{Ask, Granted, Id, LEAVE_WITHIN, Patience, What};
use crate::clock::Moment;
use crate::error::Error;
use crate::held::certain;
use crate::registry::{Entered, Told};
use crate::route::Server;

impl Ask {
    /// With a place in the queue, told by a message when it is our turn.
    pub(super) async fn queue(
        &self,
        patience: Patience,
        entered: &Entered<'_>,
    ) -> Result<Option<Granted>, Error> {
        let core = &self.core;
        let again = core.settings.queue / 2;
        // From the first message on, and after a lost connection, others may know the id of this request. Then a message
        // could be forged, and is not trusted without asking the server.
        let mut is_secret = true;
        loop {
            let server = core.routes.server_of(&self.key);
            let generation = server.as_ref().map_or(0, |server| server.link.generation());
            let sent = Moment::now();
            let until = match patience {
                // However short the wait: the server is given time to say no.
                Patience::Until(end) => end.max(Instant::now() + LEAVE_WITHIN),
                _ => core.patience(),
            };
            let reply = self.send(How::Queue, until).await?;
            self.asked.store(true, Ordering::Relaxed);
            if let Some(granted) = self.granted(&reply, sent)? {
                return Ok(Some(granted));
            }
            // Not ours when this was answered. From here on, a message can say that it is.
            let end = patience.end_within(again);
            // A message that is here by now may have come before the answer: of a grant that had lapsed by then.
            let mut after_answer = false;
            loop {
                match entered.take_told() {
                    Some(Told::Granted(id)) => {
                        let was_secret = std::mem::replace(&mut is_secret, false);
                        match self.announced(&id, sent, after_answer && was_secret).await? {
                            Some(granted) => return Ok(Some(granted)),
                            None => break,
                        }
                    }
                    // It says nothing for certain. The server knows.
                    Some(Told::Other) => break,
                    None => {}
                }
                tokio::select! {
                    biased;
                    () = entered.news() => after_answer = true,
                    () = self.place_lost(server.as_ref(), generation) => {
                        is_secret = false;
                        break;
                    }
                    () = tokio::time::sleep_until(end) => break,
                }
            }
            if patience.is_over() {
                return Ok(self.leave().await);
            }
        }
    }

    /// Returns when the connection over which we asked was replaced by another one, or the key has moved away.
    async fn place_lost(&self, server: Option<&Arc<Server>>, generation: u64) {
        match server {
            Some(server) => tokio::select! {
                () = server.link.replaced(generation) => {}
                () = self.core.routes.left(&self.key, server) => {}
            },
            None => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }

    /// A message said that it is our turn. The grant was made after the server answered our last request, which was
    /// sent at `asked`, and it lasts for QUEUE from then on (no longer than any server's `dlock.claim-ms`): so long we are
    /// certain without asking. That is so if the message came after the answer and cannot be forged (`is_certain`).
    async fn announced(
        &self,
        id: &[u8],
        asked: Moment,
        is_certain: bool,
    ) -> Result<Option<Granted>, Error> {
        let announced = self.core.settings.announced();
        let id = match self.what {
            What::Permit { .. } => permit::parse(id).map(Id::Permit),
            _ => std::str::from_utf8(id).ok().and_then(|id| id.parse().ok()).map(Id::Token),
        };
        let Some(id) = id else { return Ok(None) };
        let granted = Granted { id, sent: asked, lasts: announced, unclaimed: true };
        let certain_for = asked.after(certain(announced)).since(Moment::now());
        // With a QUEUE of 10 s, at most half of it has passed since we asked, unless this process was held up.
        // A message about a named owner may be an old one, of an earlier hold of the same name.
        if is_certain
            && self.watched
            && self.own_name
            && self.options.bind.is_none()
            && certain_for >= announced / 3
        {
            return Ok(Some(granted));
        }
        // Else it is claimed before it counts; that also begins a lease of its own, and makes a tie.
        self.claim(id).await
    }
}
