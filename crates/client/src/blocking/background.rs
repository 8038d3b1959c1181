//! The runtime behind a blocking client, and how a thread waits for what runs there.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::coop;

use crate::base::error::Error;

/// The runtime behind a client; ends with the last handle of it.
#[derive(Debug)]
pub(super) struct Background {
    runtime: Option<Quiet>,
    /// Closed before the runtime ends.
    client: OnceLock<crate::Client>,
}

/// A runtime that ends in the background: dropping one in place panics in asynchronous code.
#[derive(Debug)]
struct Quiet(Option<Runtime>);

impl Drop for Quiet {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Background {
    /// A runtime with a thread of its own.
    pub(super) fn start() -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("dlock-client")
            .enable_all()
            .build()
            .map_err(|error| {
                Error::unavailable(format!("no thread for the background: {error}"))
            })?;
        let runtime = Some(Quiet(Some(runtime)));
        Ok(Self { runtime, client: OnceLock::new() })
    }

    /// The client that runs here.
    pub(super) fn is_of(&self, client: &crate::Client) {
        // Told once.
        let _ = self.client.set(client.clone());
    }

    /// Blocks this thread until the work is done. Error Invalid: this thread runs asynchronous code.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        let Some(runtime) = self.runtime.as_ref().and_then(|runtime| runtime.0.as_ref()) else {
            return Err(Error::closed());
        };
        if Handle::try_current().is_err() {
            return Ok(runtime.block_on(work));
        }
        if runs_async_code() {
            return Err(Error::invalid(
                "a blocking call in asynchronous code: use the asynchronous client there, or spawn_blocking",
            ));
        }
        let _timers_of = runtime.enter();
        Ok(park_until(coop::unconstrained(work)))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        let (Some(runtime), Some(client)) = (self.runtime.take(), self.client.take()) else {
            return;
        };
        let close = move || {
            if let Some(runtime) = &runtime.0 {
                // An error has no receiver; what is left ends with its lease.
                let _ = runtime.block_on(client.close());
            }
            drop((client, runtime));
        };
        if Handle::try_current().is_err() {
            return close();
        }
        // Neither may a runtime be waited for in another one, nor would that one like to be blocked.
        let builder = thread::Builder::new().name("dlock-client closes".to_owned());
        if let Ok(closing) = builder.spawn(close)
            && !runs_async_code()
        {
            let _ = closing.join();
        }
    }
}

/// Whether this thread is in the middle of polling a task, or what `block_on` runs. Inside a runtime's context only.
///
/// Tokio gives each poll of a task a budget of operations; a thread that may block has none. So: is there an end to it?
fn runs_async_code() -> bool {
    /// More than the budget of any poll.
    const MANY: usize = 1_000;
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

/// Polls on this thread, and parks it meanwhile. (`Runtime::block_on` refuses threads that have a runtime's context.)
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
