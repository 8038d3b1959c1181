//! `INFO` as it is, for programs that know its fields.

use std::time::Duration;

use redis::Cmd;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::Admin;
use crate::base::error::Error;
use crate::base::reply::read;
use crate::connection::route::Server;

/// How long the nodes of a cluster are asked who has which slots, before INFO of those that were known before.
const ASK_SLOTS_FOR: Duration = Duration::from_secs(1);

/// What one primary answered to [`Admin::info_texts`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct InfoText {
    /// Where the server is, as the client reaches it: `127.0.0.1:6379`, or the name of the primary among Sentinels.
    pub server: String,
    /// The text of INFO; an error if the server did not answer.
    pub text: Result<String, Error>,
}

impl Admin {
    /// `INFO` with these sections, of each primary, sorted by server. A server without a connection counts as gone at
    /// once; the client keeps trying to reconnect. One that does not answer is given up after
    /// [`retry_for`](crate::ClientBuilder::retry_for). In a cluster, the client first learns which nodes it has.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// ```
    #[doc = example!()]
    /// for answer in client.admin().info_texts(&["dlock_waits"]).await {
    ///     let text = answer.text?;
    ///     assert!(text.contains("dlock_longest_queue:0\r\n"), "{}: {text}", answer.server);
    /// }
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn info_texts(&self, sections: &[&str]) -> Vec<InfoText> {
        let routes = &self.core.routes;
        // Without an answer, the nodes that were known before are asked.
        let _ = routes.refresh(self.core.ctx.retry_until().min(soon())).await;
        let mut ask = redis::cmd("INFO");
        ask.arg(sections);
        let mut tasks = JoinSet::new();
        for server in routes.servers() {
            let (admin, ask) = (self.clone(), ask.clone());
            tasks.spawn(async move {
                let text = admin.info_text(&server, &ask).await;
                InfoText { server: server.name.clone(), text }
            });
        }
        let mut all = tasks.join_all().await;
        all.sort_by(|a, b| a.server.cmp(&b.server));
        all
    }

    async fn info_text(&self, server: &Server, ask: &Cmd) -> Result<String, Error> {
        if let Some(error) = self.core.ctx.gate.refusal() {
            return Err(error);
        }
        let until = self.core.ctx.retry_until();
        let answer = timeout_at(until, async {
            let mut live = server.link.first().await?;
            let reply = live.send(ask).await.map_err(Error::from_redis)?;
            read::<Vec<u8>>(reply.extract_error().map_err(Error::from_redis)?)
        });
        let text = answer.await.map_err(|_| Error::unavailable("no answer in time"))??;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

fn soon() -> Instant {
    Instant::now() + ASK_SLOTS_FOR
}
