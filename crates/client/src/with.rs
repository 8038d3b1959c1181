//! Work under a hold: it ends with the hold, and its result counts only if the hold lasted.

use crate::error::Error;
use crate::held::{Lost, Released};

/// A guard, as `with` sees it.
pub(crate) trait Holding {
    /// Resolves when the hold is lost.
    fn lost(&self) -> impl Future<Output = Lost> + Send;

    /// How the hold was lost, if it was, by the clock of this moment.
    fn lost_now(&self) -> Option<Lost>;

    /// Gives the hold back.
    fn give_back(&self) -> impl Future<Output = Result<Released, Error>> + Send;
}

/// Works under a hold and gives it back. Error [`Lost`](crate::ErrorKind::Lost) if the hold was over before the work was;
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
    verdict(done, &hold.give_back().await)
}

/// Whether the result of work counts whose hold was given back with that outcome.
pub(crate) fn verdict<T>(done: T, released: &Result<Released, Error>) -> Result<T, Error> {
    match released {
        Ok(Released::Gone) => Err(Error::lost_by_the_end(Lost::Refused)),
        // Whether the answer to the release comes does not change what was done under the lock.
        Ok(Released::Remaining(_) | Released::Already) | Err(_) => Ok(done),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::task::Poll;
    use std::time::Duration;

    use dlock_testing::Server;

    use crate::{Client, ErrorKind, Lost, QuorumLock};

    /// Longer than what a quorum of one asks for at least.
    const LEASE: Duration = Duration::from_millis(150);

    /// A short await that lets no driver be polled: the task is ready again at once.
    async fn step() {
        let mut polled = false;
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// As a process that is stopped for longer than the lease: the clock runs on, and no timer fires.
    async fn work(steps: &Cell<u32>) {
        tokio::time::pause();
        std::thread::sleep(LEASE * 2);
        for _ in 0..1_000 {
            steps.set(steps.get() + 1);
            step().await;
        }
    }

    #[tokio::test]
    async fn no_step_begins_after_the_lease_whether_or_not_a_timer_fires() {
        let server = Server::start();
        let client = Client::connect(&server.url()).await.unwrap();
        for kind in ["lock", "permit", "all", "any", "quorum"] {
            let steps = Cell::new(0);
            let done = match kind {
                "lock" => client.lock(kind).lease(LEASE).with(|_| work(&steps)).await,
                "permit" => {
                    let semaphore = client.semaphore(kind).limit(1).lease(LEASE);
                    semaphore.with(|| work(&steps)).await
                }
                "all" => client.multi_lock([kind]).lease(LEASE).with(|_| work(&steps)).await,
                "any" => client.any_lock([kind]).lease(LEASE).with(|_| work(&steps)).await,
                _ => {
                    let quorum = QuorumLock::new([client.clone()], kind).lease(LEASE);
                    quorum.with(|_| work(&steps)).await
                }
            };
            tokio::time::resume();
            let lost = ErrorKind::Lost { reason: Lost::Expired, finished: false };
            assert_eq!(done.unwrap_err().kind(), lost, "{kind}");
            assert_eq!(steps.get(), 1, "{kind}: the step in which the process was stopped");
        }
        server.left_over_check();
    }
}
