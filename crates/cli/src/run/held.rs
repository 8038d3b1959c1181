//! The hold of `dlock run`: a lock or permits of a semaphore.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt as _;
use std::pin::Pin;
use std::time::Duration;

use dlock_admin::{Entry, Kind};
use dlock_client::{Client, Error, Guard, Hold, Lock, Lost, Permit};
use nix::unistd::gethostname;

use crate::args::Run;

/// The requested lock or permits, and the owner.
#[derive(Debug)]
pub struct Wanted {
    entry: Entry,
    owner: String,
}

/// A hold that [`Held::release`] ends; a view is released by the call that gave it.
pub struct Held {
    key: OsString,
    owner: String,
    what: What,
}

enum What {
    Lock(Guard),
    Permit(Permit),
    View(Hold),
}

/// A handle with the options of the user.
macro_rules! with_options {
    ($handle:expr, $args:expr, $owner:expr, $label:expr) => {{
        let mut handle = $handle.owner($owner).label($label);
        if let Some(lease) = $args.lease {
            handle = handle.fixed_lease(lease);
        }
        if let Some(max_hold) = $args.max_hold {
            handle = handle.max_hold(max_hold);
        }
        if let Some(bind) = $args.bind {
            handle = handle.bind(bind);
        }
        handle
    }};
}

/// Acquires a kind of lock, for at most the user's maximum wait.
macro_rules! take {
    ($handle:expr, $args:expr, $owner:expr, $label:expr) => {{
        let handle = with_options!($handle, $args, $owner, $label);
        match ($args.nonblock, $args.wait) {
            (true, _) | (_, Some(Duration::ZERO)) => handle.try_acquire().await,
            (false, Some(time)) => handle.acquire_timeout(time).await,
            (false, None) => handle.acquire().await.map(Some),
        }
    }};
}

impl Wanted {
    /// From the arguments.
    pub fn new(args: &Run) -> Self {
        let kind = if args.count.is_some() || args.limit.is_some() {
            Kind::Semaphore
        } else if args.shared || args.exclusive {
            Kind::ReadWrite
        } else if args.fair {
            Kind::Fair
        } else {
            Kind::Lock
        };
        Self { entry: Entry { key: args.key.as_bytes().to_vec(), kind }, owner: owner() }
    }

    /// The handle of a lock with one holder.
    pub fn lock(&self, client: &Client, args: &Run, label: &[u8]) -> Lock {
        let key = &self.entry.key;
        let lock = if args.fair { client.fair_lock(key) } else { client.lock(key) };
        with_options!(lock, args, &self.owner, label)
    }

    /// The hold that a call of `run_once` gave.
    pub fn held(&self, args: &Run, hold: Hold) -> Held {
        Held { key: args.key.clone(), owner: self.owner.clone(), what: What::View(hold) }
    }

    /// None: not available, or not in time.
    pub async fn take(
        &self,
        client: &Client,
        args: &Run,
        label: &[u8],
    ) -> Result<Option<Held>, Error> {
        let (key, owner) = (&self.entry.key, &self.owner);
        let what = if self.entry.kind == Kind::Semaphore {
            let mut semaphore = client.semaphore(key).count(args.count.unwrap_or(1));
            if let Some(limit) = args.limit {
                semaphore = semaphore.limit(limit);
            }
            take!(semaphore, args, owner, label)?.map(What::Permit)
        } else {
            let lock = match self.entry.kind {
                Kind::ReadWrite if args.shared => client.rw_lock(key).read(),
                Kind::ReadWrite => client.rw_lock(key).write(),
                Kind::Fair => client.fair_lock(key),
                _ => client.lock(key),
            };
            take!(lock, args, owner, label)?.map(What::Lock)
        };
        let (key, owner) = (args.key.clone(), self.owner.clone());
        Ok(what.map(|what| Held { key, owner, what }))
    }
}

impl Held {
    /// Resolves when the hold is lost.
    pub fn lost(&self) -> Pin<Box<dyn Future<Output = Lost>>> {
        match &self.what {
            What::Lock(guard) => Box::pin(guard.lost()),
            What::Permit(permit) => Box::pin(permit.lost()),
            What::View(hold) => Box::pin(hold.lost()),
        }
    }

    /// How the hold was lost, if it was.
    pub fn lost_now(&self) -> Option<Lost> {
        match &self.what {
            What::Lock(guard) => guard.lost_now(),
            What::Permit(permit) => permit.lost_now(),
            What::View(hold) => hold.lost_now(),
        }
    }

    /// Variables for the command; None removes a variable that an outer `dlock run` may have set.
    pub fn environment(&self) -> [(&'static str, Option<OsString>); 4] {
        let (token, permit) = match &self.what {
            What::View(hold) => (Some(hold.token().to_string().into()), None),
            What::Lock(guard) => (Some(guard.token().to_string().into()), None),
            What::Permit(permit) => (None, Some(permit.permit_id().into())),
        };
        [
            ("DLOCK_KEY", Some(self.key.clone())),
            ("DLOCK_OWNER", Some(self.owner.clone().into())),
            ("DLOCK_TOKEN", token),
            ("DLOCK_PERMIT", permit),
        ]
    }

    /// Releases the hold.
    pub async fn release(self) -> Result<(), Error> {
        match self.what {
            What::Lock(guard) => guard.release().await,
            What::Permit(permit) => permit.release().await,
            What::View(_) => Ok(()),
        }
    }
}

/// A unique owner: host and process for people, and a random part.
fn owner() -> String {
    let host = gethostname().unwrap_or_default();
    let host: String = host.to_string_lossy().chars().take(64).collect();
    let unique = uuid::Uuid::new_v4().simple().to_string();
    format!("{host}:{}:{}", std::process::id(), &unique[..16])
}
