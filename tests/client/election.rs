//! Leader elections: candidates, observers, and leaders that die.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use dlock_client::{Client, Election, ErrorKind, Hold, Leader};
use dlock_testing::{Guarded, Proxy, Reply as _, Sentinels, Server};

use crate::places::Place;
use crate::support::{PATIENCE, number, quick, start, start_on, until, within};

on_both!(candidates_lead_one_after_the_other, a_candidate_leads_again_after_a_loss);

/// What an observer has seen.
type Seen = Arc<Mutex<Vec<Leader>>>;

fn observe(election: &Election) -> (Seen, tokio::task::JoinHandle<()>) {
    let (seen, mut leaders) = (Seen::default(), election.observe());
    let to = seen.clone();
    let task = tokio::spawn(async move {
        loop {
            match leaders.next().await {
                Ok(leader) => to.lock().unwrap().push(leader),
                Err(error) => println!("{:?}: {error}", error.kind()),
            }
        }
    });
    (seen, task)
}

/// Tokens rise strictly: no leader is seen twice, and none after its successor.
fn check_order(seen: &Seen) -> Vec<Leader> {
    let seen = seen.lock().unwrap().clone();
    assert!(seen.is_sorted_by(|a, b| a.token < b.token), "{seen:?}");
    seen
}

async fn candidates_lead_one_after_the_other<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let election = client.election("scheduler");
    assert_eq!(election.leader().await.unwrap(), None);
    let (seen, observer) = observe(&election);
    let mut last = None;
    for name in ["a", "b", "c"] {
        let next = election.clone().value(name);
        let next = tokio::spawn(async move { next.campaign().await });
        if let Some(leadership) = last.take() {
            let leadership: dlock_client::Leadership = leadership;
            leadership.resign().await.unwrap();
        }
        let leadership = within("the campaign", next).await.unwrap().unwrap();
        let leader = election.leader().await.unwrap().expect("a leader");
        assert_eq!((leader.value.as_slice(), leader.token), (name.as_bytes(), leadership.token()));
        let is_seen = || seen.lock().unwrap().last().is_some_and(|last| *last == leader);
        until("the observer to see it", is_seen).await;
        let busy = election.campaign_timeout(Duration::from_millis(20)).await.unwrap();
        assert!(busy.is_none());
        last = Some(leadership);
    }
    assert_eq!(check_order(&seen).len(), 3);
    observer.abort();
    drop(last);
    client.close().await.unwrap();
    server.left_over_check();
}

async fn a_candidate_leads_again_after_a_loss<P: Place>() {
    let (server, client) = start_on::<P>().await;
    let terms: Arc<Mutex<Vec<(&str, u64)>>> = Arc::default();
    let last = || terms.lock().unwrap().last().map_or("", |term| term.0);
    let go_on = Arc::new(tokio::sync::Notify::new());
    let leading = ["a", "b"].map(|name| {
        let (election, terms, go_on) =
            (client.election("e").value(name), terms.clone(), go_on.clone());
        async move {
            let work = async |hold: Hold| {
                terms.lock().unwrap().push((name, hold.token()));
                go_on.notified().await;
                if terms.lock().unwrap().len() < 4 {
                    return ControlFlow::Continue(());
                }
                ControlFlow::Break(hold.token())
            };
            election.lead(work).await
        }
    });
    let [a, b] = leading;
    let a = tokio::spawn(a);
    until("a to lead", || last() == "a").await;
    let b = tokio::spawn(b);
    let waiters = || number(&server.cmd(&["DLOCK.INFO", "e"]), "waiters");
    until("b to wait", || waiters() == 1).await;
    // It hands over, and waits again.
    go_on.notify_one();
    until("b to lead", || last() == "b").await;
    until("a to wait", || waiters() == 1).await;
    // It loses its leadership: the work is dropped.
    assert_eq!(server.cmd(&["DLOCK.BREAK", "e"]).int(), 1);
    until("a to lead again", || terms.lock().unwrap().len() == 3).await;
    until("b to wait", || waiters() == 1).await;
    go_on.notify_one();
    until("b to lead again", || terms.lock().unwrap().len() == 4).await;
    go_on.notify_one();
    let token = within("the end of b", b).await.unwrap().unwrap();
    until("a to lead", || terms.lock().unwrap().len() == 5).await;
    assert_eq!(terms.lock().unwrap()[3], ("b", token));
    client.close().await.unwrap();
    let error = within("the end of a", a).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    server.left_over_check();
}

/// Twenty candidates, each a client of its own behind a proxy; leaders are cut off and servers fail over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_candidates_with_kills_and_a_failover() {
    const CANDIDATES: usize = 20;
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    let sentinels = Sentinels::start(3, &primary, 1);
    let url = sentinels.url();
    let connect = async || quick().retry_for(PATIENCE).connect(&url).await.unwrap();
    // Leadership as its holders see it: no token leads after a larger one has begun.
    let led: Arc<Mutex<Vec<u64>>> = Arc::default();
    let mut candidates = Vec::new();
    for n in 0..CANDIDATES {
        let client = connect().await;
        let led = led.clone();
        let election = client.election("e").value(format!("candidate-{n}"));
        candidates.push(tokio::spawn(async move {
            match election.campaign().await {
                Ok(leadership) => {
                    led.lock().unwrap().push(leadership.token());
                    let how = leadership.lost().await;
                    println!("candidate {n} lost it: {how:?}");
                }
                Err(error) => println!("candidate {n}: {error}"),
            }
            client
        }));
    }
    let watcher = connect().await;
    let election = watcher.election("e");
    let observers: Vec<_> = (0..3).map(|_| observe(&election)).collect();
    let all_see = async |leader: &Leader| {
        let sees = |(seen, _): &(Seen, _)| seen.lock().unwrap().last().is_some_and(|l| l == leader);
        until("all observers to see the leader", || observers.iter().all(sees)).await;
    };
    let leader = async |after: u64| {
        let start = Instant::now();
        loop {
            match election.leader().await {
                Ok(Some(leader)) if leader.token > after => return leader,
                _ if start.elapsed() > PATIENCE => panic!("no leader after {after}"),
                _ => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    };
    let mut last = leader(0).await;
    all_see(&last).await;
    for _ in 0..6 {
        // An operator breaks the leadership: the leader hears of it, the next one leads.
        primary.cmd(&["DLOCK.BREAK", "e"]);
        last = leader(last.token).await;
        all_see(&last).await;
    }
    tokio::task::block_in_place(|| sentinels.failover());
    tokio::task::block_in_place(|| sentinels.wait_replica(&primary));
    replica.forget_connection();
    replica.cmd(&["DLOCK.BREAK", "e"]);
    last = leader(last.token).await;
    all_see(&last).await;
    for (seen, task) in observers {
        let seen = check_order(&seen);
        assert_eq!(seen.last(), Some(&last));
        task.abort();
    }
    let led = led.lock().unwrap().clone();
    assert!(led.is_sorted_by(|a, b| a < b), "leaders overlapped: {led:?}");
    for candidate in candidates {
        candidate.abort();
    }
    let _ = watcher.close().await;
}

/// Processes that lead are killed (SIGKILL), one after the other. Prints the time until the next candidate leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_killed_is_followed_after_its_bind_time() {
    let (server, client) = start().await;
    let election = client.election("e").value("next");
    for bind in [Duration::ZERO, Duration::from_millis(100)] {
        let mut times = Vec::new();
        for n in 0..40 {
            let (port, ms) = (server.port(), bind.as_millis());
            let lead = format!(
                "exec 3<>/dev/tcp/127.0.0.1/{port}; \
                 printf 'DLOCK.ACQUIRE e leader-{n} PX 60000 BIND {ms}\\r\\n' >&3; exec cat <&3"
            );
            let mut command = std::process::Command::new("bash");
            command.args(["-c", &lead]).stdout(std::process::Stdio::null());
            let mut process = Guarded::spawn(command).unwrap();
            let info = || server.cmd(&["DLOCK.INFO", "e"]);
            let owner = format!("leader-{n}");
            until("it to lead", || !info().is_null() && info().field("owner").text() == owner)
                .await;
            let next = election.clone();
            let next = tokio::spawn(async move { next.campaign().await });
            until("a candidate", || number(&info(), "waiters") == 1).await;
            let killed = Instant::now();
            process.kill();
            let leadership = within("the next leader", next).await.unwrap().unwrap();
            let time = killed.elapsed();
            assert!(time >= bind, "{time:?}");
            times.push(time);
            leadership.resign().await.unwrap();
        }
        times.sort_unstable();
        println!("BIND {bind:?}: p50 {:?}, p99 {:?} of {}", times[20], times[39], times.len());
    }
    client.close().await.unwrap();
    server.left_over_check();
}

/// A leader whose machine dies: the time until the next leads is its bind time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_is_followed_after_its_bind_time() {
    let server = Server::start();
    let proxy = Proxy::to(&server);
    let dying = Client::connect(&proxy.url()).await.unwrap();
    let bind = Duration::from_millis(100);
    let leadership = dying.election("e").value("a").bind(bind).campaign().await.unwrap();
    let client = Client::connect(&server.url()).await.unwrap();
    let (seen, observer) = observe(&client.election("e"));
    let next = client.election("e").value("b");
    let next = tokio::spawn(async move { next.campaign().await });
    let token = leadership.token();
    until("the first leader to be seen", || !seen.lock().unwrap().is_empty()).await;
    // Before the cut: the server may notice it before this thread goes on.
    let start = Instant::now();
    proxy.refuse();
    proxy.cut(dlock_testing::Cut::Reset);
    let next = within("the next leader", next).await.unwrap().unwrap();
    println!("without a leader for {:?}, bound for {bind:?}", start.elapsed());
    assert!(next.token() > token && start.elapsed() >= bind);
    until("the next leader to be seen", || seen.lock().unwrap().len() == 2).await;
    check_order(&seen);
    observer.abort();
    next.resign().await.unwrap();
    drop(leadership);
    client.close().await.unwrap();
    server.left_over_check();
}
