//! Tasks of one client that call `run_once` for the same lock: they come one by one, in order of arrival, and learn at
//! once of a run that has finished. So any number of them need one connection.

use std::any::Any;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use crate::base::target::Family;

/// A lock.
type Name = (Family, Arc<[u8]>);

/// The flights of a client, by lock.
#[derive(Default)]
pub(crate) struct Flights {
    by_lock: Arc<Mutex<HashMap<Name, Weak<Flight>>>>,
}

/// The tasks that want the same work done.
pub(crate) struct Flight {
    name: Name,
    flights: Arc<Mutex<HashMap<Name, Weak<Flight>>>>,
    /// One of them at a time speaks with the server. Its queue is in order of arrival.
    turn: Arc<Semaphore>,
    /// Number of calls that have joined.
    joined: AtomicU64,
    finished: watch::Sender<Finished>,
}

/// The last run that finished.
#[derive(Default)]
struct Finished {
    /// The calls with numbers up to this have their answer: they had begun before the end of the run.
    up_to: u64,
    result: SharedResult,
}

/// The result of a run of this client, for the other calls of the client. None: another client ran.
#[derive(Clone, Default)]
pub(crate) struct SharedResult(Option<Arc<Mutex<dyn Any + Send>>>);

impl SharedResult {
    pub(crate) fn new(value: impl Any + Send) -> Self {
        Self(Some(Arc::new(Mutex::new(value))))
    }

    /// A clone of the result, if it has that type.
    pub(crate) fn get<T: Clone + 'static>(&self) -> Option<T> {
        let value = self.0.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        value.downcast_ref().cloned()
    }
}

impl Flights {
    /// The flight of a lock.
    pub(crate) fn join(&self, family: Family, key: &Arc<[u8]>) -> Arc<Flight> {
        let mut by_lock = self.by_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (family, key.clone());
        if let Some(flight) = by_lock.get(&name).and_then(Weak::upgrade) {
            return flight;
        }
        let flight = Arc::new(Flight {
            name: name.clone(),
            flights: self.by_lock.clone(),
            turn: Arc::new(Semaphore::new(1)),
            joined: AtomicU64::new(0),
            finished: watch::Sender::new(Finished::default()),
        });
        by_lock.insert(name, Arc::downgrade(&flight));
        flight
    }
}

impl Flight {
    /// A call begins; it gets a number.
    pub(crate) fn enter(&self) -> u64 {
        self.joined.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// The number of the last call that has begun.
    pub(crate) fn joined(&self) -> u64 {
        self.joined.load(Ordering::SeqCst)
    }

    /// A run has finished, and the calls up to this number had begun before its end.
    pub(crate) fn finish(&self, up_to: u64, result: SharedResult) {
        self.finished.send_if_modified(|finished| {
            let is_later = up_to > finished.up_to;
            if is_later {
                *finished = Finished { up_to, result };
            }
            is_later
        });
    }

    /// The result of the last run that finished, for a call that waited for it or for one before.
    pub(crate) fn result(&self) -> SharedResult {
        self.finished.borrow().result.clone()
    }

    /// Waits for the turn of the call with this number. None: a run has finished that it waited for.
    pub(crate) async fn turn(&self, number: u64) -> Option<OwnedSemaphorePermit> {
        let mut finished = self.finished.subscribe();
        let turn = tokio::select! {
            biased;
            _ = finished.wait_for(|finished| finished.up_to >= number) => None,
            // An error would mean that the semaphore is closed, which no code does.
            turn = self.turn.clone().acquire_owned() => turn.ok(),
        };
        turn.filter(|_| self.finished.borrow().up_to < number)
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        let mut by_lock = self.flights.lock().unwrap_or_else(PoisonError::into_inner);
        // Another task may have begun a new flight since the last one left this.
        if by_lock.get(&self.name).is_some_and(|flight| flight.strong_count() == 0) {
            by_lock.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_finished_run_answers_all_that_came_before_it_ended() {
        let flights = Flights::default();
        let key: Arc<[u8]> = (*b"k").into();
        let (first, second) = (flights.join(Family::Lock, &key), flights.join(Family::Lock, &key));
        let turn = first.turn(first.enter()).await.expect("the first gets the turn");
        let number = second.enter();
        let waiting = tokio::spawn(async move { second.turn(number).await.is_none() });
        tokio::task::yield_now().await;
        let up_to = first.joined();
        // A call that begins after the run has ended runs it again.
        let late = first.enter();
        first.finish(up_to, SharedResult::new(7_u8));
        drop(turn);
        assert_eq!(first.result().get::<u8>(), Some(7));
        assert_eq!(first.result().get::<u16>(), None, "it has another type");
        assert!(waiting.await.unwrap(), "another task ran it");
        assert!(first.turn(late).await.is_some());
        drop(first);
        assert!(flights.by_lock.lock().unwrap().is_empty(), "nothing is left");
    }

    #[tokio::test]
    async fn a_turn_that_ends_without_a_run_goes_to_the_next() {
        let flights = Flights::default();
        let key: Arc<[u8]> = (*b"k").into();
        let flight = flights.join(Family::Lock, &key);
        let turn = flight.turn(flight.enter()).await;
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        for n in 0..3 {
            let (flight, tell, number) = (flight.clone(), tell.clone(), flight.enter());
            tokio::spawn(async move {
                let turn = flight.turn(number).await;
                tell.send((n, turn.is_some())).unwrap();
            });
            tokio::task::yield_now().await;
        }
        drop(turn);
        for n in 0..3 {
            assert_eq!(told.recv().await, Some((n, true)));
        }
    }
}
