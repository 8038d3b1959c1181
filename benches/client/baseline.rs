//! The minimum cost of a lock with a queue: a list with one element, which the holder takes out and puts back. It has
//! no lease, no owner and no token: if a holder dies with the element, the lock is never released.

use redis::aio::MultiplexedConnection;

use crate::strategy::{LOCK, Strategy, ask, connect};

/// Each task waits on its own connection.
pub struct Token {
    dedicated: MultiplexedConnection,
    /// The connection that puts the element back.
    back: MultiplexedConnection,
}

impl Token {
    /// Adds the element.
    pub async fn make(url: &str) {
        let mut connection = connect(url).await;
        let () = ask(&mut connection, redis::cmd("DEL").arg(LOCK)).await;
        let () = ask(&mut connection, redis::cmd("LPUSH").arg(LOCK).arg("1")).await;
    }

    /// Removes it again.
    pub async fn unmake(url: &str) {
        let () = ask(&mut connect(url).await, redis::cmd("DEL").arg(LOCK)).await;
    }

    /// All calls on a dedicated connection, or the calls that do not wait on a shared one.
    pub async fn new(url: &str, shared: Option<&MultiplexedConnection>) -> Token {
        let dedicated = connect(url).await;
        let back = shared.unwrap_or(&dedicated).clone();
        Token { dedicated, back }
    }
}

impl Strategy for Token {
    type Held = ();

    async fn acquire(&mut self) {
        let () = ask(&mut self.dedicated, redis::cmd("BLPOP").arg(LOCK).arg(0)).await;
    }

    async fn release(&mut self, (): ()) {
        let () = ask(&mut self.back, redis::cmd("LPUSH").arg(LOCK).arg("1")).await;
    }
}
