//! A web service with several instances: only the leader serves. The others answer 503 and name the leader.
//!
//! At SIGTERM the leader finishes the requests in flight and resigns. Requests that arrive meanwhile wait, and get the
//! address of the next leader. So the gap without a leader is one round trip to the lock server.
//!
//! ```text
//! cargo run --example leader_http -- redis://127.0.0.1:6379/ 127.0.0.1:8001
//! cargo run --example leader_http -- redis://127.0.0.1:6379/ 127.0.0.1:8002
//! curl http://127.0.0.1:8002/100
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use dlock_client::{Client, Election, Leadership};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::RwLock;

#[derive(Clone)]
struct Service {
    election: Election,
    /// While this instance leads. Each request reads it until it is answered, so no request outlives the leadership.
    leading: Arc<RwLock<Option<Leadership>>>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let url = args.next().unwrap_or_else(|| "redis://127.0.0.1:6379/".to_owned());
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8001".to_owned());
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?.to_string();
    let client = Client::connect(&url).await?;
    let election = client.election("example:leader_http").value(&address);
    let service = Service { election, leading: Arc::default() };
    let stop = signal(SignalKind::terminate())?;
    println!("{address} stands by");
    let routes = Router::new().route("/{ms}", get(serve)).with_state(service.clone());
    axum::serve(listener, routes).with_graceful_shutdown(service.lead(stop)).await?;
    println!("{address} has stopped");
    Ok(client.close().await?)
}

impl Service {
    /// Leads whenever it is elected, until it is told to stop and has handed over.
    async fn lead(self, mut stop: Signal) {
        loop {
            let elected = tokio::select! {
                elected = self.election.campaign() => elected,
                _ = stop.recv() => return,
            };
            let Ok(leadership) = elected.inspect_err(|error| println!("not elected: {error}"))
            else {
                continue;
            };
            let hold = leadership.hold();
            println!("leads, with token {}", hold.token());
            *self.leading.write().await = Some(leadership);
            let lost = tokio::select! {
                lost = hold.lost() => Some(lost),
                _ = stop.recv() => None,
            };
            // Waits for the requests in flight; later ones wait until this ends.
            let mut leading = self.leading.write().await;
            match (leading.take(), lost) {
                (Some(leadership), None) => {
                    let resigned = leadership.resign().await;
                    println!("resigns: {resigned:?}");
                    return;
                }
                (_, lost) => println!("leads no more: {lost:?}"),
            }
        }
    }
}

/// Work of `ms` milliseconds, which only the leader may do.
async fn serve(State(service): State<Service>, Path(ms): Path<u64>) -> (StatusCode, String) {
    let leading = service.leading.read().await;
    if let Some(leadership) = leading.as_ref() {
        println!("works for {ms} ms");
        return tokio::select! {
            biased;
            lost = leadership.lost() => (StatusCode::SERVICE_UNAVAILABLE, format!("{lost}\n")),
            // Here it would pass the token on to the code that writes the result.
            () = tokio::time::sleep(Duration::from_millis(ms)) =>
                (StatusCode::OK, format!("done with token {}\n", leadership.token())),
        };
    }
    drop(leading);
    let leader = match service.election.leader().await {
        Ok(Some(leader)) => String::from_utf8_lossy(&leader.value).into_owned(),
        Ok(None) => "not elected yet".to_owned(),
        Err(error) => error.to_string(),
    };
    (StatusCode::SERVICE_UNAVAILABLE, format!("the leader is {leader}\n"))
}
