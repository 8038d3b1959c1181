//! The least that a lock with a queue costs: a list with one element, which the holder takes out and puts back. It has
//! no lease, no owner and no token: who dies with the element ends the lock for ever.

use redis::aio::MultiplexedConnection;

use crate::way::{LOCK, Way, ask, connect};

/// Everybody waits on a connection of their own.
pub struct Token {
    private: MultiplexedConnection,
    /// What the element is put back over.
    back: MultiplexedConnection,
}

impl Token {
    /// Puts the element in.
    pub async fn make(url: &str) {
        let mut connection = connect(url).await;
        let () = ask(&mut connection, redis::cmd("DEL").arg(LOCK)).await;
        let () = ask(&mut connection, redis::cmd("LPUSH").arg(LOCK).arg("1")).await;
    }

    /// Takes it out again.
    pub async fn unmake(url: &str) {
        let () = ask(&mut connect(url).await, redis::cmd("DEL").arg(LOCK)).await;
    }

    /// With all on the private connection, or with what does not wait on one that all tasks share.
    pub async fn new(url: &str, shared: Option<&MultiplexedConnection>) -> Token {
        let private = connect(url).await;
        let back = shared.unwrap_or(&private).clone();
        Token { private, back }
    }
}

impl Way for Token {
    type Held = ();

    async fn acquire(&mut self) {
        let () = ask(&mut self.private, redis::cmd("BLPOP").arg(LOCK).arg(0)).await;
    }

    async fn release(&mut self, (): ()) {
        let () = ask(&mut self.back, redis::cmd("LPUSH").arg(LOCK).arg("1")).await;
    }
}
