//! `INFO` as it is, for programs that know its fields.

use std::time::Duration;

use dlock_client::Error;
use dlock_client::internal::{self, Moment, read};
use tokio::task::JoinSet;

use crate::Admin;

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
    /// [`retry_for`](dlock_client::ClientBuilder::retry_for). In a cluster, the client first learns which nodes it has.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future has no effect.
    ///
    /// ```
    #[doc = example!()]
    /// for answer in admin.info_texts(&["dlock_waits"]).await {
    ///     let text = answer.text?;
    ///     assert!(text.contains("dlock_longest_queue:0\r\n"), "{}: {text}", answer.server);
    /// }
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn info_texts(&self, sections: &[&str]) -> Vec<InfoText> {
        // Without an answer, the nodes that were known before are asked.
        let within = internal::retry_for(&self.client).min(ASK_SLOTS_FOR);
        let _ = self.client.core().learn(Moment::now().after(within)).await;
        let mut ask = redis::cmd("INFO");
        ask.arg(sections);
        let mut tasks = JoinSet::new();
        for (number, server) in self.client.core().servers() {
            let (client, ask) = (self.client.clone(), ask.clone());
            tasks.spawn(async move {
                let reply = client.core().ask_once(number, ask, false).await;
                let text = reply.and_then(read::<Vec<u8>>);
                let text = text.map(|text| String::from_utf8_lossy(&text).into_owned());
                InfoText { server, text }
            });
        }
        let mut all = tasks.join_all().await;
        all.sort_by(|a, b| a.server.cmp(&b.server));
        all
    }
}
