//! Work under a hold: it ends with the hold, and its result counts only if the hold lasted.

use crate::error::Error;
use crate::lost::{Lost, Released};

/// A guard, as `with` sees it.
pub(crate) trait Holding {
    /// Resolves when the hold is lost.
    fn lost(&self) -> impl Future<Output = Lost> + Send;

    /// How the hold was lost, if it was, by the clock of this moment.
    fn lost_now(&self) -> Option<Lost>;

    /// Releases the hold.
    fn release(&self) -> impl Future<Output = Result<Released, Error>> + Send;
}

/// Works under a hold and releases it. Error [`Lost`](crate::ErrorKind::Lost) if the hold was over before the work was;
/// the work is dropped then.
pub(crate) async fn under<T, F>(hold: &impl Holding, work: impl FnOnce() -> F) -> Result<T, Error>
where
    F: Future<Output = T>,
{
    // No step of the work begins after the hold was lost: `lost` is polled before the work each time, and looks at the
    // clock each time.
    let done = tokio::select! {
        biased;
        how = hold.lost() => return Err(Error::lost(how)),
        done = work() => done,
    };
    // The last step of the work may have taken longer than the lease.
    if let Some(how) = hold.lost_now() {
        return Err(Error::lost_by_the_end(how));
    }
    verdict(done, &hold.release().await)
}

/// The result of work, if it counts after that outcome of the release.
pub(crate) fn verdict<T>(done: T, released: &Result<Released, Error>) -> Result<T, Error> {
    match released {
        Ok(Released::Gone) => Err(Error::lost_by_the_end(Lost::Refused)),
        // Whether the answer to the release comes does not change what was done under the lock.
        Ok(Released::Remaining(_) | Released::Already) | Err(_) => Ok(done),
    }
}
