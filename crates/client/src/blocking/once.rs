//! Single flight for threads.

use super::{Guard, Lock};
use crate::Once;
use crate::base::error::Error;
use crate::handles::lock::Begun;

impl Lock {
    /// As [`crate::Lock::run_once`]. Nothing can cancel the work of a thread: ask `lost_now` before each step that
    /// needs the lock.
    ///
    /// # Errors
    ///
    /// As there, and [`Invalid`](crate::ErrorKind::Invalid) in asynchronous code. If the hold was over before the work
    /// was, the work has always finished, and its result is dropped.
    ///
    /// ```
    /// # let server = dlock_testing::Server::start();
    /// # let url = server.url();
    /// use dlock_client::{Error, Once, blocking::Client};
    ///
    /// let entry = Client::connect(&url)?.lock("cache:report");
    /// match entry.run_once(|guard| Ok::<_, Error>(guard.token()))? {
    ///     Once::Ran(token) => println!("computed under token {token}"),
    ///     Once::AnotherRan(Some(token)) => println!("computed by another thread under token {token}"),
    ///     Once::AnotherRan(None) => println!("it is in the cache now"),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn run_once<T: Clone + Send + 'static, E: From<Error>>(
        &self,
        work: impl FnOnce(&Guard) -> Result<T, E>,
    ) -> Result<Once<T>, E> {
        // Inside the runtime: the time begins to run there.
        let begin = async { self.inner.begin_once().await };
        match self.background.run(begin)?? {
            Begun::Ours(guard, run) => {
                // The work runs outside of the runtime: it may block, and call this client. If it fails or panics, the
                // hold is released before the next call gets its turn.
                let guard = self.guard(guard);
                let value = work(&guard)?;
                let value = self.background.run(run.finish(&guard.inner, value))??;
                Ok(Once::Ran(value))
            }
            Begun::AnotherRan(result) => Ok(Once::AnotherRan(result.get())),
        }
    }
}
