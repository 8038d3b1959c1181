//! Task owners: re-entry and deadlocks across the locks of one task.

use std::time::{Duration, Instant};

use dlock_client::{Client, Error, ErrorKind, Owner};
use dlock_testing::{Reply as _, Server};
use redis::Value;

use crate::support::{WAITS, number, start, until, within};

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
    inner.release().await.unwrap();
    // That of `outer`.
    several.release().await.unwrap();
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

/// Two tasks under one name: the earlier is told at once, with every way to wait, in one client and in two. It does not
/// ask again, which would take the place back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_earlier_of_two_tasks_of_an_owner_is_told_at_once() {
    let (server, client) = start().await;
    let other = Client::connect(&server.url()).await.unwrap();
    for (n, (first, second)) in
        WAITS.into_iter().flat_map(|first| WAITS.map(|second| (first, second))).enumerate()
    {
        for (latter, family) in [(&client, "DLOCK"), (&other, "DLOCK"), (&client, "DFAIR")] {
            let key = format!("k{n}");
            let lock = |client: &Client| match family {
                "DFAIR" => client.fair_lock(&key).owner("o"),
                _ => client.lock(&key).owner("o"),
            };
            let case = format!("{first:?}, then {second:?}, {family}");
            let waiter = || {
                let all = server.cmd(&[&format!("{family}.WAITERS"), &key]).items();
                all.first().map_or(0, |waiter| number(waiter, "client-id"))
            };
            let holder = match family {
                "DFAIR" => client.fair_lock(&key).acquire().await.unwrap(),
                _ => client.lock(&key).acquire().await.unwrap(),
            };
            let waits = lock(&client).wait(first);
            let earlier = tokio::spawn(async move { waits.acquire().await });
            until("the earlier to wait", || waiter() != 0).await;
            let asked = Instant::now();
            let waits = lock(latter).wait(second);
            let later = tokio::spawn(async move { waits.acquire().await });
            let error = within("the earlier", earlier).await.unwrap().unwrap_err();
            let told = asked.elapsed();
            assert_eq!(error.kind(), ErrorKind::Replaced, "{case}: {error}");
            assert!(told < Duration::from_secs(3), "{case}: told after {told:?}");
            assert!(error.to_string().contains(&key), "{error}");
            holder.release().await.unwrap();
            let guard = within("the later", later).await.unwrap().unwrap();
            guard.release().await.unwrap();
        }
    }
    other.close().await.unwrap();
    server.left_over_check();
}
