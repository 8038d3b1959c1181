//! The log of notable events: `DLOCK.LOG`.

use dlock_client::Error;
use dlock_client::internal::command;
use dlock_wire::reply::LogEntry;
use dlock_wire::request::{Log, Request};

use crate::Admin;

/// The log of one server.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerLog {
    /// Where the server is, as the client reaches it, for example `127.0.0.1:6379`.
    pub server: String,
    /// Its entries, the newest first.
    pub entries: Vec<LogEntry>,
}

impl Admin {
    /// The log of each primary, sorted by server; at most `count` (1 or more) entries of each, or all. The user needs
    /// the right to run `dlock.log`.
    #[doc = as_all_calls!()]
    ///
    /// ```
    #[doc = example!()]
    /// # server.cmd(&["DLOCK.ACQUIRE", "door", "alice"]);
    /// use dlock_admin::LogEvent;
    ///
    /// admin.break_key(b"door").await?;
    /// let log = admin.log(Some(10)).await?;
    /// let newest = &log[0].entries[0];
    /// assert_eq!((newest.event, newest.owner.as_slice()), (LogEvent::Broken, &b"alice"[..]));
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn log(&self, count: Option<u64>) -> Result<Vec<ServerLog>, Error> {
        let get = command(Request::Log(Log::Get { count }));
        let logs = self.ask_servers(&get).await?.into_iter();
        Ok(logs.map(|(server, entries)| ServerLog { server, entries }).collect())
    }

    /// Removes all entries of the logs of all primaries.
    #[doc = as_all_calls!()]
    pub async fn reset_log(&self) -> Result<(), Error> {
        let reset = command(Request::Log(Log::Reset));
        self.ask_servers::<Vec<u8>>(&reset).await?;
        Ok(())
    }
}
