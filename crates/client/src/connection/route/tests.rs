//! Nodes that leave the cluster.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use dlock_testing::{Nodes, Server as TestServer};
use redis::ConnectionAddr;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use super::Server;
use crate::handles::client::Client;
use crate::handles::guard::Guard;

const LIMIT: Duration = Duration::from_secs(10);

/// A client of a cluster of one node, another server that no slot belongs to, and a hold that is bound.
struct Leaving {
    client: Client,
    guard: Guard,
    left: Arc<Server>,
}

async fn learn(client: &Client) {
    let routes = &client.core().routes;
    let server = routes.server_of(b"k").unwrap();
    routes.learn_from(&server, Instant::now() + LIMIT).await.unwrap();
}

/// Runs `work` with a node that is connected, and that only the map of servers has: its slots have moved away. The test
/// fails where that sticks.
fn runs_to_its_end<F: Future<Output = ()>>(work: impl FnOnce(Leaving) -> F + Send + 'static) {
    let nodes = Nodes::start(1);
    let other = TestServer::start();
    let (url, addr) = (nodes.url(), ConnectionAddr::Tcp("127.0.0.1".to_owned(), other.port()));
    let (done, ended) = mpsc::channel();
    // The test does not wait for this thread: it may be stuck.
    thread::spawn(move || {
        let working = async {
            let client = Client::connect(&url).await.unwrap();
            let guard = client.lock("k").bind(LIMIT).acquire().await.unwrap();
            let left = client.core().routes.server_at("left", addr);
            left.link.first().await.unwrap();
            work(Leaving { client, guard, left }).await;
        };
        Runtime::new().unwrap().block_on(working);
        done.send(()).unwrap();
    });
    ended.recv_timeout(LIMIT).expect("the client is not stuck");
}

/// The link of a node ends when the client forgets the node, and unbinds holds by their slots.
#[test]
fn a_node_that_leaves_may_have_a_connection_while_a_hold_is_bound() {
    runs_to_its_end(|Leaving { client, guard, left }| async move {
        drop(left);
        learn(&client).await;
        let _ = guard.release().await.unwrap();
    });
}

/// A redirection that comes late names a node that the client has forgotten since. The next one for that slot drops it.
#[test]
fn a_redirection_away_from_a_forgotten_node_ends_its_connection() {
    runs_to_its_end(|Leaving { client, guard, left }| async move {
        learn(&client).await;
        let routes = &client.core().routes;
        routes.moved(b"other", &left);
        drop(left);
        let server = routes.server_of(b"k").unwrap();
        routes.moved(b"other", &server);
        let _ = guard.release().await.unwrap();
    });
}
