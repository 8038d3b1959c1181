//! What the handles of locks and permits share.

/// What every type with a field `handle` can do: the shared options, and the three ways to acquire. What is said of
/// those comes before their errors, which are the same for all.
macro_rules! handle {
    ($name:ident, $guard:ident of $hold:ident, $at_once:literal, $in_turn:literal) => {
        impl $name {
            pub(crate) fn new(
                core: &std::sync::Arc<$crate::shell::Core>,
                target: $crate::base::target::Target,
                keys: $crate::base::target::Keys,
            ) -> Self {
                Self { handle: $crate::acquire::Handle::new(core, target, keys) }
            }

            /// The lease, 30 ms to 365 days, which the watchdog renews every third of it: the time until others get the
            /// lock after this process dies. Without this, it is that of the client
            /// ([`ClientBuilder::lease`](crate::ClientBuilder::lease)).
            #[must_use]
            pub fn lease(mut self, lease: std::time::Duration) -> Self {
                self.handle.options_mut().lease = Some(lease);
                self.handle.options_mut().is_fixed = false;
                self
            }

            /// A lease of this length, 1 ms to 365 days, that nothing renews: the hold ends after that time unless it
            /// is released or renewed by hand.
            #[must_use]
            pub fn fixed_lease(mut self, lease: std::time::Duration) -> Self {
                self.handle.options_mut().lease = Some(lease);
                self.handle.options_mut().is_fixed = true;
                self
            }

            /// How long [`acquire`](Self::acquire) and [`with`](Self::with) wait at most: after that the error is
            /// [`NotAcquired`](crate::ErrorKind::NotAcquired), as that of `run_once`. The time of the work is not
            /// limited. No effect on [`acquire_timeout`](Self::acquire_timeout), and none on `upgrade`.
            #[must_use]
            pub fn timeout(mut self, time: std::time::Duration) -> Self {
                self.handle.options_mut().timeout = Some(time);
                self
            }

            /// The longest time that the watchdog keeps the hold alive, 1 ms to 365 days, so that a holder that hangs
            /// cannot keep the lock forever. After it the hold is lost with the reason
            /// [`MaxHold`](crate::Lost::MaxHold), and the server gives the lock to the next waiter: at most 1/64 and 3
            /// ms later, unless another guard of the same owner holds it. No effect on holds with
            /// a [`fixed_lease`](Self::fixed_lease), which nothing renews. Without this, the time is that of
            /// [`ClientBuilder::max_hold`](crate::ClientBuilder::max_hold).
            #[must_use]
            pub fn max_hold(mut self, time: std::time::Duration) -> Self {
                self.handle.options_mut().max_hold = Some(time);
                self
            }

            /// Acts for this owner, 1 to 256 bytes. Without this, each acquire has its own owner. Name one to hold a
            /// lock several times (re-entry); each guard releases one hold. An owner is one logical task: of two tasks
            /// that wait for the same key under one name, the later replaces the earlier.
            #[must_use]
            pub fn owner(mut self, owner: impl AsRef<[u8]>) -> Self {
                self.handle.options_mut().owner = Some(owner.as_ref().into());
                self
            }

            /// A text for people, 0 to 256 bytes, that INFO and WAITERS show.
            #[must_use]
            pub fn label(mut self, label: impl AsRef<[u8]>) -> Self {
                self.handle.options_mut().label = Some(label.as_ref().into());
                self
            }

            /// Binds the hold to the client's connection: when that is lost, the server shortens the lease to this
            /// time, 20 ms to 365 days (else [`Invalid`](crate::ErrorKind::Invalid)). Leave enough time to reconnect:
            /// the client then binds its holds again. The hold is certain for this time only, from when the last
            /// request about it was sent that the server answered: it is lost here before the server can free it,
            /// whatever happened to the connection. So the client renews it every third of this time. A server that
            /// was made a replica refuses the renewal; one in a minority answers for a while, so check the token.
            ///
            /// Guards of one named owner share its hold, which is bound while all of them are.
            #[must_use]
            pub fn bind(mut self, rest: std::time::Duration) -> Self {
                self.handle.options_mut().bind = Some(rest);
                self
            }

            #[doc = $at_once]
            ///
            /// # Errors
            ///
            /// [`Reentry`](crate::ErrorKind::Reentry), [`Quarantine`](crate::ErrorKind::Quarantine),
            /// [`WrongType`](crate::ErrorKind::WrongType), [`Unavailable`](crate::ErrorKind::Unavailable) and the
            /// others that say what is wrong with the call or the server.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future releases in the background what it was granted.
            pub async fn try_acquire(&self) -> Result<Option<$guard>, $crate::base::error::Error> {
                $crate::acquire::acquire(&self.handle, None).await
            }

            #[doc = $in_turn]
            ///
            /// It waits as long as servers answer. It fails with [`Unavailable`](crate::ErrorKind::Unavailable) when
            /// no server has answered for [`ClientBuilder::retry_for`](crate::ClientBuilder::retry_for).
            ///
            /// # Errors
            ///
            /// As [`try_acquire`](Self::try_acquire), and [`NotAcquired`](crate::ErrorKind::NotAcquired) (the
            /// [`timeout`](Self::timeout) is over), [`Deadlock`](crate::ErrorKind::Deadlock),
            /// [`Limit`](crate::ErrorKind::Limit) (too many wait), [`Stopped`](crate::ErrorKind::Stopped).
            ///
            /// # Cancel safety
            ///
            /// Dropping this future leaves the queue. What it was granted is released in the background.
            pub async fn acquire(&self) -> Result<$guard, $crate::base::error::Error> {
                let deadline = Some(self.handle.deadline());
                let guard = $crate::acquire::acquire(&self.handle, deadline).await?;
                guard.ok_or_else(|| self.handle.not_acquired())
            }

            /// As [`acquire`](Self::acquire), but waits at most `time`. None: not granted in that time.
            #[doc = errors_as!("[`acquire`](Self::acquire)")]
            pub async fn acquire_timeout(
                &self,
                time: std::time::Duration,
            ) -> Result<Option<$guard>, $crate::base::error::Error> {
                let deadline = Some($crate::base::clock::Moment::now().after(time));
                $crate::acquire::acquire(&self.handle, deadline).await
            }

            /// Acquires as [`acquire`](Self::acquire), runs the work under the hold, and releases it. When the hold is
            /// lost, the work is cancelled: its future is dropped.
            ///
            /// The error type of the work is made from [`Error`](crate::Error) by `From`. An inline block that ends in
            /// `Ok` has to name it: `Ok::<_, Failure>(value)`. To spawn this, it has to be `Send`, as
            /// `Box<dyn std::error::Error + Send + Sync>` is.
            ///
            /// # Errors
            ///
            /// As [`acquire`](Self::acquire), and that of the work, as it is. [`Lost`](crate::ErrorKind::Lost), which
            /// says why and whether the work had finished, whatever that returned.
            /// [`ReleaseUnknown`](crate::ErrorKind::ReleaseUnknown) after work that succeeded: whether the hold lasted
            /// until then is not known.
            ///
            /// # Cancel safety
            ///
            /// Dropping this future leaves the queue, or drops the work and releases the hold in the background. It
            /// does not borrow the handle, so it can be spawned if the work can.
            pub fn with<T, E, F, W>(
                &self,
                work: W,
            ) -> impl Future<Output = Result<T, E>> + use<T, E, F, W>
            where
                F: Future<Output = Result<T, E>>,
                E: From<$crate::base::error::Error>,
                W: FnOnce($hold) -> F,
            {
                let handle = self.clone();
                async move { handle.acquire().await?.with(work).await }
            }
        }
    };
}
pub(crate) use handle;
