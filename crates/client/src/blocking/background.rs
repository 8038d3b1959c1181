//! The thread behind a blocking client, and how other threads wait for what runs there.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::coop;

use crate::base::error::Error;

/// A runtime with a thread of its own; ends with the last handle of the client.
#[derive(Debug)]
pub(super) struct Background {
    runtime: Handle,
    /// The client that runs here: closed before the runtime ends.
    pub(super) client: Option<crate::Client>,
    /// Ends the thread, with the client to close.
    end: Option<oneshot::Sender<crate::Client>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(super) fn start() -> Result<Self, Error> {
        let failed = |error| Error::unavailable(format!("no thread for the background: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (end, ended) = oneshot::channel::<crate::Client>();
        let thread = thread::Builder::new().name("dlock-client".to_owned()).spawn(move || {
            runtime.block_on(async {
                if let Ok(client) = ended.await {
                    // An error has no receiver; what is left ends with its lease.
                    let _ = client.close().await;
                }
            });
            // Does not wait for lookups of names.
            runtime.shutdown_background();
        });
        let thread = Some(thread.map_err(failed)?);
        Ok(Self { runtime: handle, client: None, end: Some(end), thread })
    }

    /// Blocks this thread until the work is done. Error Invalid: this thread runs asynchronous code.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        if runs_async_code() {
            return Err(Error::invalid(
                "a blocking call in asynchronous code: use the asynchronous client there, or spawn_blocking",
            ));
        }
        let _timers_of = self.runtime.enter();
        // A budget that a foreign executor gave this thread is filled by nobody while it is blocked.
        Ok(park_until(coop::unconstrained(work)))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let (Some(end), Some(client)) = (self.end.take(), self.client.take()) {
            // An error: the thread has ended.
            let _ = end.send(client);
        }
        // Asynchronous code is not blocked, and may be what the thread itself runs.
        if let Some(thread) = self.thread.take().filter(|_| !runs_async_code()) {
            let _ = thread.join();
        }
    }
}

/// Whether this thread is in the middle of polling a task, or what `block_on` runs.
///
/// Tokio gives each poll of a task a budget of operations; a thread that may block has none. So: is there an end to it?
fn runs_async_code() -> bool {
    /// More than the budget of any poll.
    const MANY: usize = 1_000;
    if Handle::try_current().is_err() {
        return false;
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut taken = Vec::new();
    let mut ends = false;
    while taken.len() < MANY && !ends {
        match coop::poll_proceed(&mut context) {
            Poll::Ready(restore) => taken.push(restore),
            Poll::Pending => ends = true,
        }
    }
    // The budget is restored, last first.
    while taken.pop().is_some() {}
    ends
}

/// Polls on this thread, and parks it meanwhile. (`Handle::block_on` panics in a task without a budget, for which
/// `runs_async_code` is false.)
fn park_until<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut work = pin!(work);
    loop {
        match work.as_mut().poll(&mut context) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_may_block_are_told_from_those_that_may_not() {
        for runtime in [Builder::new_current_thread(), Builder::new_multi_thread()] {
            let mut runtime = runtime;
            let runtime = runtime.build().unwrap();
            runtime.block_on(async {
                assert!(runs_async_code());
                // The budget is as it was.
                assert!(coop::has_budget_remaining());
                assert!(tokio::spawn(async { runs_async_code() }).await.unwrap());
                let blocking = tokio::task::spawn_blocking(runs_async_code);
                assert!(!blocking.await.unwrap());
            });
            let _entered = runtime.enter();
            assert!(!runs_async_code());
        }
    }
}
