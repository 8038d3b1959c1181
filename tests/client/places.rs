//! The servers that a test can run on: a real one, and the fake one of the client's feature `testing`.

use std::sync::Arc;

use dlock_client::{Client, ClientBuilder};
use dlock_testing::{Reply as _, Server, wait_until};
use dlock_testing_server::FakeServer;
use redis::Value;

/// A server of these tests.
pub trait Place: Send + Sync + Sized + 'static {
    /// A new one, without keys.
    fn new() -> Self;

    /// Connects a client.
    fn connect(&self, settings: ClientBuilder) -> impl Future<Output = Client> + Send;

    /// Sends one command over a connection of its own, and returns the reply.
    fn cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> Value;

    /// The number of blocked connections.
    fn blocked_clients(&self) -> i64;

    /// For the end of a test: waits until nothing is left.
    fn left_over_check(&self);

    /// Connects a client with the default settings.
    fn client(&self) -> impl Future<Output = Client> + Send {
        self.connect(Client::builder())
    }
}

impl Place for Server {
    fn new() -> Self {
        Self::start()
    }

    async fn connect(&self, settings: ClientBuilder) -> Client {
        settings.connect(&self.url()).await.unwrap()
    }

    #[track_caller]
    fn cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> Value {
        self.cmd(args)
    }

    fn blocked_clients(&self) -> i64 {
        self.blocked_clients()
    }

    #[track_caller]
    fn left_over_check(&self) {
        self.left_over_check();
    }
}

impl Place for FakeServer {
    fn new() -> Self {
        Self::start()
    }

    async fn connect(&self, settings: ClientBuilder) -> Client {
        self.connect(settings).await.unwrap()
    }

    #[track_caller]
    fn cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> Value {
        redis::parse_redis_value(&self.command(args)).unwrap()
    }

    fn blocked_clients(&self) -> i64 {
        number_of(self, "clients", "blocked_clients")
    }

    #[track_caller]
    fn left_over_check(&self) {
        wait_until("nothing to be left on the fake server", || {
            let left = left_over(self);
            // Shown if the test fails.
            println!("left over: {left}");
            left.is_empty()
        });
    }
}

impl<P: Place> Place for Arc<P> {
    fn new() -> Self {
        Self::new(P::new())
    }

    async fn connect(&self, settings: ClientBuilder) -> Client {
        P::connect(self, settings).await
    }

    #[track_caller]
    fn cmd<A: AsRef<[u8]>>(&self, args: &[A]) -> Value {
        P::cmd(self, args)
    }

    fn blocked_clients(&self) -> i64 {
        P::blocked_clients(self)
    }

    #[track_caller]
    fn left_over_check(&self) {
        P::left_over_check(self);
    }
}

/// The keys, holds, waiters, deadlines and bindings that are left.
fn left_over(server: &FakeServer) -> String {
    let fields = [
        "keys_entered",
        "held_locks",
        "leased_permits",
        "waiters_blocked",
        "waiters_queued",
        "armed_deadlines",
        "parked_clients",
        "connections_watched",
        "grants_in_flight",
    ];
    let keys = server.cmd(&["INFO", "keyspace"]).text();
    let counts = fields.map(|field| (field, number_of(server, "dlock", &format!("dlock_{field}"))));
    let left = counts.iter().filter(|(_, count)| *count != 0);
    let left: Vec<String> = left.map(|(field, count)| format!("{field} {count}")).collect();
    left.join(", ") + &keys
}

fn number_of(server: &FakeServer, section: &str, field: &str) -> i64 {
    let text = server.cmd(&["INFO", section]).text();
    let value = |line: &str| line.strip_prefix(field)?.strip_prefix(':')?.parse().ok();
    text.lines().find_map(value).unwrap_or_else(|| panic!("INFO {section} lacks {field}: {text}"))
}

/// Runs tests with either server: functions that have a [`Place`] for a parameter.
macro_rules! on_both {
    ($($test:ident),* $(,)?) => {
        mod real {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test::<dlock_testing::Server>().await;
                }
            )*
        }

        mod fake {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test::<dlock_testing_server::FakeServer>().await;
                }
            )*
        }
    };
}
