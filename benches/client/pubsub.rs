//! The algorithm of the usual Java library, written anew on redis-rs: a hash for each lock with the count of its owner,
//! scripts by EVALSHA, and a channel that tells waiters of each unlock.
//!
//! As there, one connection for commands and one for messages serve all tasks of a client. Who does not get the lock
//! joins those of this client who wait for its channel (the first of them subscribes), tries again, and then waits for
//! a message or for the end of the holder's lease. A message wakes one of them; one that nobody waits for is kept for
//! the next. Who has the lock leaves, and the last one to leave unsubscribes. There is no queue: whoever asks first
//! after an unlock has it, also who has just given it back.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{AsyncConnectionConfig, PushInfo, PushKind, Script, Value, aio::MultiplexedConnection};
use tokio::{sync::Semaphore, time::timeout};

use crate::lua_lock;
use crate::way::{LEASE_MS, LOCK, Way, ask, connect};

const UNLOCKED: &str = "0";

/// What the tasks of one client share.
pub struct PubSub {
    name: String,
    commands: MultiplexedConnection,
    messages: MultiplexedConnection,
    channels: Channels,
    /// Subscribing and unsubscribing must not overtake each other.
    changes: tokio::sync::Mutex<()>,
    take: Script,
    give: Script,
}

type Channels = Arc<Mutex<HashMap<String, Channel>>>;

/// A channel that tasks of this client wait for.
struct Channel {
    tasks: usize,
    /// One permit for each message.
    messages: Arc<Semaphore>,
}

impl PubSub {
    /// A client; `number` tells it from others.
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

    /// Joins those who wait for the channel.
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

    /// None: it is ours. Else how long the holder's lease lasts.
    async fn try_acquire(&mut self) -> Option<Duration> {
        let mut take = self.client.take.key(LOCK);
        let take = take.arg(LEASE_MS).arg(&self.owner);
        let left: Option<u64> = take.invoke_async(&mut self.connection).await.expect("an answer");
        left.map(Duration::from_millis)
    }
}

impl Way for PubSubLock {
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

/// Makes the server know the scripts: the first call of each would send them otherwise.
pub async fn load(url: &str) {
    let mut connection = connect(url).await;
    for script in [lua_lock::LOCK, lua_lock::UNLOCK] {
        let _: String = ask(&mut connection, redis::cmd("SCRIPT").arg("LOAD").arg(script)).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
