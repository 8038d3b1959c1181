//! Waiting for the end of a hold of another owner.

use std::time::Duration;

use dlock_client::{Error, internal};
use dlock_wire::reply::{HoldEnd, Kind};

use crate::{Admin, Entry};

impl Admin {
    /// Waits until the hold with this token has ended, at most `time`; says how. None: it is still in force. Blocks a
    /// dedicated connection.
    ///
    /// # Errors
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid): only locks with one holder can be waited for ([`Kind::Lock`],
    /// [`Kind::Fair`]).
    /// [`Unavailable`](crate::ErrorKind::Unavailable): no server answers, or it is a replica, which does not wait.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait.
    ///
    /// ```
    #[doc = example!()]
    /// use std::time::Duration;
    /// use dlock_admin::{Entry, HoldEnd, Kind};
    ///
    /// let guard = client.lock("door").acquire().await?;
    /// let (door, token) = (Entry { key: b"door".to_vec(), kind: Kind::Lock }, guard.token());
    /// let time = Duration::from_millis(20);
    /// assert_eq!(admin.await_end(&door, token, time).await?, None);
    /// guard.release().await?;
    /// assert_eq!(admin.await_end(&door, token, time).await?, Some(HoldEnd::Released));
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn await_end(
        &self,
        entry: &Entry,
        token: u64,
        time: Duration,
    ) -> Result<Option<HoldEnd>, Error> {
        let lock = match entry.kind {
            Kind::Lock => self.client.lock(&entry.key),
            Kind::Fair => self.client.fair_lock(&entry.key),
            _ => {
                return Err(internal::invalid(
                    "only the hold of a lock with one holder can be waited for",
                ));
            }
        };
        internal::await_end(&lock, token, time).await
    }
}
