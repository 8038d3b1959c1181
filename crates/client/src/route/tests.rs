//! Nodes that leave the cluster.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dlock_testing::{Nodes, Server as TestServer};
use redis::ConnectionAddr;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::client::Client;

const LIMIT: Duration = Duration::from_secs(10);

/// The link of a node ends when the client forgets the node, and unbinds holds by their slots.
#[test]
fn a_node_that_leaves_may_have_a_connection_while_a_hold_is_bound() {
    let nodes = Nodes::start(1);
    let other = TestServer::start();
    let (url, addr) = (nodes.url(), ConnectionAddr::Tcp("127.0.0.1".to_owned(), other.port()));
    let (done, learnt) = mpsc::channel();
    // The test does not wait for this thread: it may be stuck.
    thread::spawn(move || {
        let learning = async {
            let client = Client::connect(&url).await.unwrap();
            let guard = client.lock("k").bind(LIMIT).acquire().await.unwrap();
            let routes = client.core().routes.clone();
            // As a node whose slots have moved away: only the map of servers has it.
            routes.server_at("left", addr).link.first().await.unwrap();
            let server = routes.server_of(b"k").unwrap();
            routes.learn_from(&server, Instant::now() + LIMIT).await.unwrap();
            guard.release().await.unwrap();
        };
        Runtime::new().unwrap().block_on(learning);
        done.send(()).unwrap();
    });
    learnt.recv_timeout(LIMIT).expect("the client is not stuck");
}
