//! The client of this repository.

use dlock_client::{Client, Guard, Lock, Wait};

use crate::strategy::{LOCK, Strategy};

/// A client with this strategy of waiting.
pub async fn client(url: &str, wait: Wait, tasks: usize) -> Client {
    let builder = Client::builder().wait(wait).dedicated_connections(tasks.max(256));
    builder.connect(url).await.expect("a client")
}

/// The lock of this client.
pub struct Ours(Lock);

impl Ours {
    pub fn new(client: &Client) -> Ours {
        Ours(client.lock(LOCK))
    }
}

impl Strategy for Ours {
    type Held = Guard;

    async fn acquire(&mut self) -> Guard {
        self.0.acquire().await.expect("the lock")
    }

    async fn release(&mut self, guard: Guard) {
        guard.release().await.expect("a release");
    }
}
