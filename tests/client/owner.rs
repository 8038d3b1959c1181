//! Task owners: re-entry and deadlocks across the locks of one task.

use std::time::Duration;

use dlock_client::{Error, ErrorKind, Owner, Released};
use dlock_testing::{Reply as _, Server};
use redis::Value;

use crate::support::{number, start, until, within};

/// What two tasks lock, in opposite orders.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Lock,
    Fair,
    Write,
    /// One of the keys is that of the other task; the second is its own.
    Multi,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Lock, Self::Fair, Self::Write, Self::Multi];

    fn prefix(self) -> &'static str {
        match self {
            Self::Lock | Self::Multi => "DLOCK",
            Self::Fair => "DFAIR",
            Self::Write => "DRW",
        }
    }

    /// Acquires the key for the owner, keeps it while `work` runs, and releases it.
    async fn under<T>(
        self,
        owner: &Owner,
        key: &str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match self {
            Self::Lock => {
                let _guard = owner.lock(key).acquire().await?;
                work.await
            }
            Self::Fair => {
                let _guard = owner.fair_lock(key).acquire().await?;
                work.await
            }
            Self::Write => {
                let _guard = owner.rw_lock(key).write().acquire().await?;
                work.await
            }
            Self::Multi => {
                let own = format!("of {}", owner.name().escape_ascii());
                let _guard = owner.multi_lock([key, &own]).acquire().await?;
                work.await
            }
        }
    }

    fn info(self, server: &Server, key: &str) -> Value {
        server.cmd(&[&format!("{}.INFO", self.prefix()), key])
    }

    fn is_held(self, server: &Server, key: &str) -> bool {
        let info = self.info(server, key);
        !info.is_null()
            && match self {
                Self::Write => !info.field("writer").is_null(),
                _ => number(&info, "holds") > 0,
            }
    }
}

/// Locks the first key, then the second one.
async fn both(
    kind: Kind,
    owner: Owner,
    keys: [String; 2],
    go: impl Future<Output = ()>,
) -> Result<(), Error> {
    let [first, second] = keys;
    kind.under(&owner, &first, async {
        go.await;
        kind.under(&owner, &second, async { Ok(()) }).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_that_closes_a_cycle_is_told_and_the_other_one_gets_both() {
    let (server, client) = start().await;
    for kind in Kind::ALL {
        let keys = [1, 2].map(|n| format!("{kind:?}:{n}"));
        let opposite = [keys[1].clone(), keys[0].clone()];
        let all_held = || keys.iter().all(|key| kind.is_held(&server, key));
        let waits = || number(&kind.info(&server, &keys[1]), "waiters") == 1;
        let first =
            both(kind, client.new_owner(), keys.clone(), until("both to be held", all_held));
        let second =
            both(kind, client.new_owner(), opposite, until("the other task to wait", waits));
        let (first, second) =
            within(&format!("{kind:?}"), Box::pin(async { tokio::join!(first, second) })).await;
        assert_eq!(second.unwrap_err().kind(), ErrorKind::Deadlock, "{kind:?}");
        first.unwrap();
    }
    // Readers that both ask for the exclusive mode wait for each other.
    let tasks = [client.new_owner(), client.new_owner()].map(|owner| owner.rw_lock("u"));
    let readers =
        (tasks[0].read().acquire().await.unwrap(), tasks[1].read().acquire().await.unwrap());
    let first = tokio::spawn({
        let write = tasks[0].write();
        async move { write.acquire().await }
    });
    until("the first to wait", || number(&server.cmd(&["DRW.INFO", "u"]), "waiters") == 1).await;
    let closes = within("the second", tasks[1].write().acquire()).await;
    assert_eq!(closes.unwrap_err().kind(), ErrorKind::Deadlock);
    drop(readers.1);
    drop(within("the first", first).await.unwrap().unwrap());
    drop(readers.0);
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_enters_its_locks_again() {
    let (server, client) = start().await;
    let task = client.owner("task");
    assert_eq!(task.name(), b"task");
    let outer = task.lock("a").acquire().await.unwrap();
    assert_eq!(outer.owner(), b"task");
    let inner = task.lock("a").try_acquire().await.unwrap().expect("re-entry");
    let several = task.multi_lock(["a", "b"]).try_acquire().await.unwrap().expect("re-entry");
    assert_eq!(number(&server.cmd(&["DLOCK.INFO", "a"]), "holds"), 3);
    assert!(task.client().lock("a").try_acquire().await.unwrap().is_none());
    assert!(client.new_owner().lock("a").try_acquire().await.unwrap().is_none());
    assert_eq!(inner.release().await.unwrap(), Released::Remaining(2));
    // That of `outer`.
    assert_eq!(several.release().await.unwrap(), Released::Remaining(1));
    let any = task.any_lock(["a", "b"]).acquire().await.unwrap();
    assert_eq!(any.owner(), b"task");
    let stripe = task.striped_lock("s", 2).acquire().await.unwrap();
    let permit = task.semaphore("p").limit(1).acquire().await.unwrap();
    let owner = server.cmd(&["DSEM.PERMITS", "p"]).items()[0].field("owner").text();
    assert_eq!(owner, "task");
    drop((outer, any, stripe, permit));
    for wrong in [String::new(), "x".repeat(257)] {
        let error = client.owner(wrong).lock("a").try_acquire().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
    server.left_over_check();
}

/// The same tasks without owners: each acquire is an owner of its own, so the server sees no cycle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acquires_of_the_client_have_owners_of_their_own() {
    let (server, client) = start().await;
    let short = Duration::from_millis(50);
    let (one, two) = (client.lock("d:1"), client.lock("d:2"));
    let guards = (one.acquire().await.unwrap(), two.acquire().await.unwrap());
    let waits = async { tokio::join!(two.acquire_timeout(short), one.acquire_timeout(short)) };
    let (first, second) = within("both", Box::pin(waits)).await;
    assert!(first.unwrap().is_none() && second.unwrap().is_none());
    drop(guards);
    server.left_over_check();
}

#[test]
fn threads_have_owners_too() {
    let server = Server::start();
    let client = dlock_client::blocking::Client::connect(&server.url()).unwrap();
    let task = client.new_owner();
    let outer = task.lock("a").acquire().unwrap();
    let inner = task.lock("a").acquire().unwrap();
    assert_eq!((inner.owner(), inner.token()), (task.name(), outer.token()));
    assert!(client.owner("other").lock("a").try_acquire().unwrap().is_none());
    drop((outer, inner));
    server.left_over_check();
}
