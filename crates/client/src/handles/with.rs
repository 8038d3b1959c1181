//! Work under a hold: it ends with the hold, and its result counts only if the hold lasted.

use crate::base::error::{Error, ErrorKind};
use crate::base::lost::Lost;

/// A guard, as `with` sees it.
pub trait Holding {
    /// Resolves when the hold is lost.
    fn lost(&self) -> impl Future<Output = Lost> + Send;

    /// How the hold was lost, if it was, by the clock of this moment.
    fn lost_now(&self) -> Option<Lost>;

    /// The keys that were lost, if it was: all of them, unless the server named some.
    fn lost_keys(&self) -> Vec<Vec<u8>>;

    /// Releases the hold.
    fn release(&self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Works under a hold and releases it.
///
/// # Errors
///
/// [`Lost`](crate::ErrorKind::Lost) if the hold was over before the work was; the work is dropped then. Those of the
/// work and of the release.
pub async fn under<T, E, F>(hold: &impl Holding, work: impl FnOnce() -> F) -> Result<T, E>
where
    E: From<Error>,
    F: Future<Output = Result<T, E>>,
{
    let done = while_held(hold, work()).await?;
    lasted(hold)?;
    verdict(done, hold.release().await)
}

/// The work, as far as it gets under the hold.
///
/// # Errors
///
/// [`Lost`](crate::ErrorKind::Lost) if the hold was over before the work was; the work is dropped then.
pub(crate) async fn while_held<T>(
    hold: &impl Holding,
    work: impl Future<Output = T>,
) -> Result<T, Error> {
    // No step of the work begins after the hold was lost: `lost` is polled before the work each time, and looks at the
    // clock each time.
    tokio::select! {
        biased;
        how = hold.lost() => Err(Error::lost(how).of_keys(hold.lost_keys())),
        done = work => Ok(done),
    }
}

/// Whether the hold lasted until now.
///
/// # Errors
///
/// [`Lost`](crate::ErrorKind::Lost) if it did not, by the clock of this moment: the last step of the work may have
/// taken longer than the lease.
pub fn lasted(hold: &impl Holding) -> Result<(), Error> {
    hold.lost_now().map_or(Ok(()), |how| Err(Error::lost_by_the_end(how).of_keys(hold.lost_keys())))
}

/// The result of work, after that outcome of the release.
///
/// # Errors
///
/// Those of the work and of the release. The error of work that failed comes before an outcome that is not known.
pub fn verdict<T, E: From<Error>>(done: Result<T, E>, released: Result<(), Error>) -> Result<T, E> {
    match (released, done) {
        (Ok(()), done) => done,
        (Err(error), _) if matches!(error.kind(), ErrorKind::Lost { .. }) => Err(error.into()),
        (Err(error), Ok(_)) => Err(error.after_work().into()),
        (Err(_), failed) => failed,
    }
}
