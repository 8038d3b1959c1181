//! Whether the client is open, what it still does when it closes, and whether its runtime is still there.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Poll;

use tokio::sync::Notify;

use crate::base::error::Error;

/// One per client.
#[derive(Default)]
pub(crate) struct Gate {
    phase: AtomicU8,
    /// The phase has changed.
    changed: Notify,
    /// Shared during each poll of a call that may take something, exclusive while the phase changes: when that is done,
    /// no such call sends anything more, whether or not its future is polled again.
    polls: RwLock<()>,
    /// Calls that may take something.
    calls: Arc<Count>,
    /// Releases, also of acquires that were given up.
    cleanups: Arc<Count>,
    /// Some of that work failed while the client closed.
    failed: AtomicBool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum GatePhase {
    Open,
    /// No acquire begins; holds are released.
    Closing,
    /// Nothing more is sent.
    Closed,
    /// The runtime has ended: nothing is sent.
    Abandoned,
}

impl Gate {
    fn phase(&self) -> GatePhase {
        match self.phase.load(Ordering::Acquire) {
            0 => GatePhase::Open,
            1 => GatePhase::Closing,
            2 => GatePhase::Closed,
            _ => GatePhase::Abandoned,
        }
    }

    /// True if that is later than the phase of now.
    fn advance(&self, to: GatePhase) -> bool {
        let _alone = self.polls.write().unwrap_or_else(PoisonError::into_inner);
        let before = self.phase.fetch_max(to as u8, Ordering::AcqRel);
        self.changed.notify_waiters();
        before < to as u8
    }

    /// Nothing is taken from now on. True for the first to say so.
    pub(crate) fn begin_to_close(&self) -> bool {
        self.advance(GatePhase::Closing)
    }

    /// Nothing is sent from now on.
    pub(crate) fn close(&self) {
        self.advance(GatePhase::Closed);
    }

    /// The runtime of the client is ending. A client that is closed already stays that.
    pub(crate) fn abandon(&self) {
        if self.phase() < GatePhase::Closed {
            self.advance(GatePhase::Abandoned);
        }
    }

    /// Why nothing can be sent any more, if that is so.
    pub(crate) fn refusal(&self) -> Option<Error> {
        match self.phase() {
            GatePhase::Open | GatePhase::Closing => None,
            GatePhase::Closed => Some(Error::closed()),
            GatePhase::Abandoned => Some(Error::abandoned()),
        }
    }

    /// Whether the client was closed, not abandoned.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase() == GatePhase::Closed
    }

    /// Why nothing can be taken any more, if that is so.
    pub(crate) fn no_admission(&self) -> Option<Error> {
        match self.phase() {
            GatePhase::Open => None,
            GatePhase::Closing | GatePhase::Closed => Some(Error::closed()),
            GatePhase::Abandoned => Some(Error::abandoned()),
        }
    }

    /// Returns when nothing can be taken any more.
    pub(crate) async fn closing(&self) {
        self.reached(GatePhase::Closing).await;
    }

    /// Returns when nothing can be sent any more.
    pub(crate) async fn shut(&self) {
        self.reached(GatePhase::Closed).await;
    }

    async fn reached(&self, phase: GatePhase) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.phase() >= phase {
                return;
            }
            changed.await;
        }
    }

    /// A call that may take something begins; to be kept until nothing of it is left here.
    pub(crate) fn call(&self) -> Counted {
        self.calls.begin()
    }

    /// The outcome of such a call; an error as soon as the client closes or its runtime ends.
    pub(crate) async fn admit<T>(
        &self,
        mut call: Pin<&mut impl Future<Output = Result<T, Error>>>,
    ) -> Result<T, Error> {
        let mut closing = pin!(self.closing());
        std::future::poll_fn(|context| {
            let _turn = self.polls.read().unwrap_or_else(PoisonError::into_inner);
            if closing.as_mut().poll(context).is_ready()
                && let Some(error) = self.no_admission()
            {
                return Poll::Ready(Err(error));
            }
            call.as_mut().poll(context)
        })
        .await
    }

    /// The outcome of a call that waits; an error as soon as the client closes or its runtime ends.
    pub(crate) async fn admitted<T>(
        &self,
        call: Pin<Box<impl Future<Output = Result<T, Error>>>>,
    ) -> Result<T, Error> {
        let _call = self.call();
        self.admit(pin!(call)).await
    }

    /// A release begins; to be kept until it is done.
    pub(crate) fn cleanup(&self) -> Counted {
        self.cleanups.begin()
    }

    /// Returns when no call is left that may take something.
    pub(crate) async fn no_calls(&self) {
        self.calls.zero().await;
    }

    /// Returns when all releases are done.
    pub(crate) async fn clean(&self) {
        self.cleanups.zero().await;
    }

    /// Something may be left on a server.
    pub(crate) fn failed(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Whether something may be left on a server.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }
}

/// How much of something is under way.
#[derive(Default)]
pub(crate) struct Count {
    count: AtomicUsize,
    zero: Notify,
}

impl Count {
    pub(crate) fn begin(self: &Arc<Self>) -> Counted {
        self.count.fetch_add(1, Ordering::AcqRel);
        Counted(self.clone())
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    async fn zero(&self) {
        loop {
            let mut zero = pin!(self.zero.notified());
            zero.as_mut().enable();
            if self.is_zero() {
                return;
            }
            zero.await;
        }
    }
}

/// It is under way until this is dropped.
pub(crate) struct Counted(Arc<Count>);

impl Drop for Counted {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.zero.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::error::ErrorKind;

    #[tokio::test]
    async fn a_call_ends_when_the_gate_closes_and_none_begins_after() {
        let gate = Gate::default();
        let waiting = async { gate.admit(pin!(std::future::pending::<Result<(), Error>>())).await };
        let close = async { assert!(gate.begin_to_close()) };
        let (waited, ()) = tokio::join!(waiting, close);
        assert_eq!(waited.unwrap_err().kind(), ErrorKind::Closed);
        assert!(!gate.begin_to_close());
        let mut begun = false;
        let late = pin!(async {
            begun = true;
            Ok(())
        });
        assert_eq!(gate.admit(late).await.unwrap_err().kind(), ErrorKind::Closed);
        assert!(!begun);
        // Until it is closed, what is left can be released.
        assert!(gate.refusal().is_none());
        gate.close();
        gate.abandon();
        let text = gate.refusal().map(|error| error.text().to_owned());
        assert_eq!(text.as_deref(), Some(Error::closed().text()));
    }

    #[tokio::test]
    async fn the_end_of_all_cleanups_is_noticed() {
        let gate = Arc::new(Gate::default());
        gate.clean().await;
        let (one, two) = (gate.cleanup(), gate.cleanup());
        let mut clean = pin!(gate.clean());
        drop(one);
        assert!(futures_are_pending(clean.as_mut()).await);
        drop(two);
        clean.await;
    }

    async fn futures_are_pending(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
        std::future::poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending()))
            .await
    }
}
