//! From one mode of a read-write lock to the other.

use std::time::Duration;

use dlock_wire::request::Mode;

use super::Lock;
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::hold_ref::{Held, HoldRef};
use crate::base::target::{Family, Target};
use crate::handles::guard::Guard;
use crate::handles::with::Holding;

impl Guard {
    /// Of a reader of a [`RwLock`](crate::RwLock): waits until it is the only reader, in front of all other waiters,
    /// and writes. No other owner writes in between. The new hold has the owner, the options and the end (`max_hold`)
    /// of this one.
    ///
    /// Two readers that upgrade would wait for each other. The second one gets
    /// [`Deadlock`](crate::ErrorKind::Deadlock), and the end of its hold lets the first one write. Acquire
    /// [`write`](crate::RwLock::write) from the start if most readers upgrade. To keep the read hold, or for a limit of
    /// the wait, acquire `write().owner(guard.owner())`.
    ///
    /// # Errors
    ///
    /// After each, this hold is released in the background. As [`Lock::acquire`],
    /// [`Invalid`](crate::ErrorKind::Invalid) for any other guard, and [`Lost`](crate::ErrorKind::Lost) if this hold
    /// ended before it was a writer.
    ///
    /// # Cancel safety
    ///
    /// Dropping this future leaves the queue, and releases the hold in the background.
    ///
    /// ```
    #[doc = example!()]
    /// let reading = client.rw_lock("prices").read().acquire().await?;
    /// // What is read here is still true below, unless `upgrade` fails.
    /// let writing = reading.upgrade().await?;
    /// let reading = writing.downgrade().await?;
    /// # Ok::<(), dlock_client::Error>(()) }).unwrap();
    /// ```
    pub async fn upgrade(self) -> Result<Self, Error> {
        self.in_mode(Mode::Write).await
    }

    /// Of a writer of a [`RwLock`](crate::RwLock): reads from now on, with the other readers. No other owner writes in
    /// between. It does not wait. The new hold has the owner, the options and the end of this one.
    #[doc = errors_as!("[`upgrade`](Self::upgrade)")]
    pub async fn downgrade(self) -> Result<Self, Error> {
        self.in_mode(Mode::Read).await
    }

    /// Acquires that mode for its owner, and releases this hold.
    pub(crate) async fn in_mode(&self, mode: Mode) -> Result<Self, Error> {
        let HoldRef { keys, owner, held: Held::Lock(Family::Rw(now), _) } = &self.tracked.hold_ref
        else {
            return Err(Error::invalid("only holds of a read-write lock have two modes"));
        };
        if *now == mode {
            let text = format!("the hold has this mode already: {mode:?}");
            return Err(Error::invalid(text).of_key(self.key()));
        }
        let target = Target::Lock(Family::Rw(mode));
        let mut lock = Lock::new(&self.core, target, keys.clone());
        lock.handle.options = self.options.clone();
        let (terms, options) = (self.tracked.terms(), lock.handle.options_mut());
        options.owner = Some(owner.clone());
        options.lease = Some(terms.lease);
        let rest = |end: Moment| end.since(Moment::now()).max(Duration::from_millis(1));
        options.max_hold = terms.ends_by.map(rest);
        options.timeout = None;
        let guard = lock.acquire().await?;
        Holding::release(self).await?;
        Ok(guard)
    }
}
