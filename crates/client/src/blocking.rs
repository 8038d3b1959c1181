//! The same client for programs without tokio: each call blocks its thread.
//!
//! A background thread renews holds and reads messages, so holds stay alive while the program works. Asynchronous code
//! is refused with [`Invalid`](crate::ErrorKind::Invalid): these calls would block its runtime. Threads that may block,
//! such as those of `tokio::task::spawn_blocking`, may call them.
//!
//! When the last handle of a client is dropped, the client closes, after all releases in the background. Asynchronous
//! code does not wait for that. [`Client::close`] closes before that.
//!
//! ```
//! # let server = dlock_testing::Server::start();
//! # let url = server.url();
//! let client = dlock_client::blocking::Client::connect(&url)?;
//! let guard = client.lock("orders:7").acquire()?;
//! println!("ours, with fencing token {}", guard.token());
//! guard.release()?;
//! # Ok::<(), dlock_client::Error>(())
//! ```

mod background;

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::HolderInfo;

use self::background::Background;
use crate::base::error::Error;
use crate::base::settings::Wait;
use crate::handles::connect::ClientBuilder;

/// A type of the asynchronous client, and the runtime that it works in.
macro_rules! wrapper {
    ($(#[$attribute:meta])* $name:ident) => {
        $(#[$attribute])*
        #[derive(Debug)]
        pub struct $name {
            pub(in crate::blocking) inner: crate::$name,
            pub(in crate::blocking) background: Arc<Background>,
        }
    };
}

/// What is said of a method that waits for that of the asynchronous type.
macro_rules! waiting_as {
    ($name:ident::$method:ident) => {
        concat!(
            "As [`crate::",
            stringify!($name),
            "::",
            stringify!($method),
            "`].\n\n# Errors\n\n",
            "As there, and [`Invalid`](crate::ErrorKind::Invalid) in asynchronous code."
        )
    };
}

wrapper! {
    /// As [`crate::Client`].
    #[derive(Clone)]
    Client
}

impl Client {
    #[doc = waiting_as!(Client::connect)]
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::connect_with(crate::Client::builder(), url)
    }

    /// Connects with the settings of `builder`.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`].
    ///
    /// ```
    /// # let server = dlock_testing::Server::start();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let builder = dlock_client::Client::builder().lease(Duration::from_secs(5));
    /// let client = dlock_client::blocking::Client::connect_with(builder, &url)?;
    /// # Ok::<(), dlock_client::Error>(())
    /// ```
    pub fn connect_with(builder: ClientBuilder, url: &str) -> Result<Self, Error> {
        Self::connected(builder.connect(url))
    }

    /// The client that `connect` makes, in a runtime of its own.
    #[doc(hidden)]
    pub fn connected(
        connect: impl Future<Output = Result<crate::Client, Error>>,
    ) -> Result<Self, Error> {
        let mut background = Background::start()?;
        let inner = background.run(connect)??;
        background.client = Some(inner.clone());
        Ok(Self { inner, background: Arc::new(background) })
    }

    /// Blocks this thread until the work is done, in the client's runtime. Error Invalid in asynchronous code.
    #[doc(hidden)]
    pub fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, Error> {
        self.background.run(work)
    }

    /// The asynchronous client.
    #[doc(hidden)]
    pub fn inner(&self) -> &crate::Client {
        &self.inner
    }

    /// Closes this client with all its clones, handles and guards, as [`crate::Client::close`]. Calls that wait in
    /// other threads end with [`Closed`](crate::ErrorKind::Closed).
    ///
    /// # Errors
    ///
    /// As [`crate::Client::close`], and [`Invalid`](crate::ErrorKind::Invalid) in asynchronous code.
    pub fn close(&self) -> Result<(), Error> {
        self.background.run(self.inner.close())?
    }
}

/// Methods that make handles.
macro_rules! makes {
    ($of:ident: $($method:ident($($arg:ident: $type:ty),*) -> $name:ident),* $(,)?) => {
        impl $of {
            $(
                #[doc = concat!("As [`crate::", stringify!($of), "::", stringify!($method), "`].")]
                #[must_use]
                pub fn $method(&self, $($arg: $type),*) -> $name {
                    $name { inner: self.inner.$method($($arg),*), background: self.background.clone() }
                }
            )*
        }
    };
}

makes! {
    Client: owner(name: impl AsRef<[u8]>) -> Owner,
    new_owner() -> Owner,
    lock(key: impl AsRef<[u8]>) -> Lock,
    fair_lock(key: impl AsRef<[u8]>) -> Lock,
    rw_lock(key: impl AsRef<[u8]>) -> RwLock,
    semaphore(key: impl AsRef<[u8]>) -> Semaphore,
    latch(key: impl AsRef<[u8]>) -> Latch,
    multi_lock(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> MultiLock,
    any_lock(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> AnyLock,
    striped_lock(key: impl AsRef<[u8]>, stripes: u32) -> AnyLock,
    election(name: impl AsRef<[u8]>) -> Election,
}

wrapper! {
    /// As [`crate::Owner`].
    #[derive(Clone)]
    Owner
}

makes! {
    Owner: lock(key: impl AsRef<[u8]>) -> Lock,
    fair_lock(key: impl AsRef<[u8]>) -> Lock,
    rw_lock(key: impl AsRef<[u8]>) -> RwLock,
    semaphore(key: impl AsRef<[u8]>) -> Semaphore,
    multi_lock(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> MultiLock,
    any_lock(keys: impl IntoIterator<Item = impl AsRef<[u8]>>) -> AnyLock,
    striped_lock(key: impl AsRef<[u8]>, stripes: u32) -> AnyLock,
}

impl Owner {
    /// As [`crate::Owner::name`].
    pub fn name(&self) -> &[u8] {
        self.inner.name()
    }
}

/// Methods that wait for those of the asynchronous type.
macro_rules! waits {
    ($name:ident: $($method:ident($($arg:ident: $type:ty),*) -> $out:ty),* $(,)?) => {
        impl $name {
            $(
                #[doc = waiting_as!($name::$method)]
                pub fn $method(&self, $($arg: $type),*) -> Result<$out, Error> {
                    // Inside the runtime: the time begins to run there.
                    self.background.run(async { self.inner.$method($($arg),*).await })?
                }
            )*
        }
    };
}

/// Methods that return what those of the asynchronous type do.
macro_rules! reads {
    ($name:ident as $of:ident: $($method:ident -> $out:ty),* $(,)?) => {
        impl $name {
            $(
                #[doc = concat!("As [`crate::", stringify!($of), "::", stringify!($method), "`].")]
                pub fn $method(&self) -> $out {
                    self.inner.$method()
                }
            )*
        }
    };
}

/// Options, which are those of the asynchronous type.
macro_rules! options {
    ($name:ident: $($option:ident($($arg:ident: $type:ty),*)),* $(,)?) => {
        impl $name {
            $(
                #[doc = concat!("As [`crate::", stringify!($name), "::", stringify!($option), "`].")]
                #[must_use]
                pub fn $option(mut self, $($arg: $type),*) -> Self {
                    self.inner = self.inner.$option($($arg),*);
                    self
                }
            )*
        }
    };
}

mod election;
mod guards;
mod once;

pub use self::election::{Election, Leaders, Leadership};
pub use self::guards::{Guard, MultiGuard, Permit};

/// A handle: the options that all have, and the three ways to acquire.
macro_rules! handle {
    ($(#[$doc:meta])* $name:ident gives $guard:ident) => {
        wrapper! {
            $(#[$doc])*
            #[derive(Clone)]
            $name
        }

        options! {
            $name: lease(time: Duration), fixed_lease(time: Duration), timeout(time: Duration),
            max_hold(time: Duration), owner(owner: impl AsRef<[u8]>), label(label: impl AsRef<[u8]>),
            bind(rest: Duration),
        }

        impl $name {
            #[doc = waiting_as!($name::try_acquire)]
            pub fn try_acquire(&self) -> Result<Option<$guard>, Error> {
                Ok(self.background.run(self.inner.try_acquire())??.map(|guard| self.guard(guard)))
            }

            #[doc = waiting_as!($name::acquire)]
            pub fn acquire(&self) -> Result<$guard, Error> {
                Ok(self.guard(self.background.run(self.inner.acquire())??))
            }

            #[doc = waiting_as!($name::acquire_timeout)]
            pub fn acquire_timeout(&self, time: Duration) -> Result<Option<$guard>, Error> {
                // Inside the runtime: the time begins to run there.
                let guard = self.background.run(async { self.inner.acquire_timeout(time).await })??;
                Ok(guard.map(|guard| self.guard(guard)))
            }

            /// Acquires it, runs the work under it, and releases it. Nothing can cancel the work of a thread: a lost
            /// hold shows only at the end, so ask the guard (`lost_now`) before each step that needs the lock.
            ///
            /// # Errors
            ///
            /// As `acquire`, and that of the work, as it is. [`Lost`](crate::ErrorKind::Lost) if the hold was over
            /// before the work was, whatever that returned. [`ReleaseUnknown`](crate::ErrorKind::ReleaseUnknown) after
            /// work that succeeded: whether the hold lasted until then is not known.
            pub fn with<T, E: From<Error>>(
                &self,
                work: impl FnOnce(&$guard) -> Result<T, E>,
            ) -> Result<T, E> {
                self.acquire()?.with(work)
            }

            fn guard(&self, inner: crate::$guard) -> $guard {
                $guard { inner, background: self.background.clone() }
            }
        }
    };
}

handle! {
    /// As [`crate::Lock`].
    Lock gives Guard
}
options! {
    Lock: no_reentry(), wait(wait: Wait), replicas(replicas: u32, timeout: Duration),
    replicas_on_disk(replicas: u32, timeout: Duration),
}

handle! {
    /// As [`crate::Semaphore`].
    Semaphore gives Permit
}
options!(Semaphore: count(permits: u32), limit(permits: u32), wait(wait: Wait));

handle! {
    /// As [`crate::MultiLock`].
    MultiLock gives MultiGuard
}

handle! {
    /// As [`crate::AnyLock`].
    AnyLock gives Guard
}

waits!(Lock: check(token: u64) -> (), is_locked() -> bool, holder() -> Option<HolderInfo>);

waits! {
    Semaphore: init(permits: u32) -> bool, resize(permits: u32) -> i64, resize_by(delta: i64) -> i64,
    take(permits: u32) -> bool, take_timeout(permits: u32, time: Duration) -> bool, give(permits: u32) -> i64,
    drain() -> i64, available() -> i64,
}

wrapper! {
    /// As [`crate::RwLock`].
    #[derive(Clone)]
    RwLock
}
makes!(RwLock: read() -> Lock, write() -> Lock);
waits!(RwLock: is_locked() -> bool, holders() -> Vec<HolderInfo>);

wrapper! {
    /// As [`crate::Latch`].
    #[derive(Clone)]
    Latch
}
waits! {
    Latch: init(count: u32) -> bool, init_for(count: u32, time: Duration) -> bool, count_down(by: u32) -> i64,
    wait() -> (), wait_timeout(time: Duration) -> bool, remaining() -> Option<u64>, is_open() -> bool,
}
