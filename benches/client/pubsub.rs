//! The algorithm of the usual Java library, reimplemented on redis-rs: a hash for each lock with the count of its
//! owner, scripts by EVALSHA, and a channel that tells waiters of each unlock.
//!
//! As in the library, one connection for commands and one for messages serve all tasks of a client. A task that does
//! not get the lock joins the waiters for its channel in this client (the first one subscribes). It tries again, and
//! then waits for a message or for the end of the holder's lease. A message wakes one waiter; a message without a
//! waiter is kept for the next. A task that gets the lock leaves, and the last one to leave unsubscribes. There is no
//! queue: the first request after an unlock gets the lock, even that of the previous holder.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{AsyncConnectionConfig, PushInfo, PushKind, Script, Value, aio::MultiplexedConnection};
use tokio::{sync::Semaphore, time::timeout};

use crate::lua_lock;
use crate::strategy::{LEASE_MS, LOCK, Strategy, ask, connect};

const UNLOCKED: &str = "0";

/// State that the tasks of one client share.
pub struct PubSub {
    name: String,
    commands: MultiplexedConnection,
    messages: MultiplexedConnection,
    channels: Channels,
    /// Keeps subscribe and unsubscribe calls in order.
    changes: tokio::sync::Mutex<()>,
    take: Script,
    give: Script,
}

type Channels = Arc<Mutex<HashMap<String, Channel>>>;

/// A channel with waiting tasks of this client.
struct Channel {
    tasks: usize,
    /// One permit for each message.
    messages: Arc<Semaphore>,
}

impl PubSub {
    /// A client; `number` distinguishes it from others.
    pub async fn new(url: &str, number: usize) -> Arc<PubSub> {
        let channels = Channels::default();
        let heard = channels.clone();
        let config = AsyncConnectionConfig::new().set_push_sender(move |push: PushInfo| {
            if let (PushKind::Message, [Value::BulkString(channel), ..]) =
                (&push.kind, push.data.as_slice())
                && let Some(channel) = lock(&heard).get(&*String::from_utf8_lossy(channel))
            {
                channel.messages.add_permits(1);
            }
            Ok::<(), redis::aio::SendError>(())
        });
        let client = redis::Client::open(format!("{url}?protocol=resp3")).expect("a URL");
        let messages = client.get_multiplexed_async_connection_with_config(&config).await;
        Arc::new(PubSub {
            name: format!("{number:08x}-7d1c-4b0e-9f3a-000000000000"),
            commands: connect(url).await,
            messages: messages.expect("a connection"),
            channels,
            changes: tokio::sync::Mutex::default(),
            take: Script::new(lua_lock::LOCK),
            give: Script::new(lua_lock::UNLOCK),
        })
    }

    /// Joins the waiters for the channel.
    async fn join(&self, name: &str) -> Arc<Semaphore> {
        let _alone = self.changes.lock().await;
        let (first, messages) = {
            let mut channels = lock(&self.channels);
            let channel = channels
                .entry(name.to_owned())
                .or_insert_with(|| Channel { tasks: 0, messages: Arc::new(Semaphore::new(0)) });
            channel.tasks += 1;
            (channel.tasks == 1, channel.messages.clone())
        };
        if first {
            self.messages.clone().subscribe(name).await.expect("a subscription");
        }
        messages
    }

    async fn leave(&self, name: &str) {
        let _alone = self.changes.lock().await;
        let last = {
            let mut channels = lock(&self.channels);
            let channel = channels.get_mut(name).expect("joined before");
            channel.tasks -= 1;
            channel.tasks == 0
        };
        if last {
            lock(&self.channels).remove(name);
            self.messages.clone().unsubscribe(name).await.expect("an answer");
        }
    }
}

/// The lock of one task.
pub struct PubSubLock {
    client: Arc<PubSub>,
    connection: MultiplexedConnection,
    owner: String,
    channel: String,
}

impl PubSubLock {
    pub fn new(client: &Arc<PubSub>, task: usize) -> PubSubLock {
        PubSubLock {
            client: client.clone(),
            connection: client.commands.clone(),
            owner: format!("{}:{task}", client.name),
            channel: format!("lock_channel:{{{LOCK}}}"),
        }
    }

    /// None: the lock is ours. Else the remaining lease of the holder.
    async fn try_acquire(&mut self) -> Option<Duration> {
        let mut take = self.client.take.key(LOCK);
        let take = take.arg(LEASE_MS).arg(&self.owner);
        let left: Option<u64> = take.invoke_async(&mut self.connection).await.expect("an answer");
        left.map(Duration::from_millis)
    }
}

impl Strategy for PubSubLock {
    type Held = ();

    async fn acquire(&mut self) {
        if self.try_acquire().await.is_none() {
            return;
        }
        let client = self.client.clone();
        let messages = client.join(&self.channel).await;
        while let Some(left) = self.try_acquire().await {
            if let Ok(permit) = timeout(left, messages.acquire()).await {
                permit.expect("never closed").forget();
            }
        }
        client.leave(&self.channel).await;
    }

    async fn release(&mut self, (): ()) {
        let mut give = self.client.give.key(LOCK);
        let give = give.key(&self.channel).arg(UNLOCKED).arg(LEASE_MS).arg(&self.owner);
        let given: Option<u8> = give.invoke_async(&mut self.connection).await.expect("an answer");
        assert_eq!(given, Some(1), "it was ours");
    }
}

/// Loads the scripts: otherwise the first call of each would send them.
pub async fn load(url: &str) {
    let mut connection = connect(url).await;
    for script in [lua_lock::LOCK, lua_lock::UNLOCK] {
        let _: String = ask(&mut connection, redis::cmd("SCRIPT").arg("LOAD").arg(script)).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
