//! Single flight and elections of the blocking client.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use dlock_client::blocking::{Client, Lock};
use dlock_client::{Error, ErrorKind, Leader, Lost, Once};
use dlock_testing::{Reply as _, Server, wait_until};
use dlock_testing_server::FakeServer;

use crate::places::Place;
use crate::support::number;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A server of either kind, as blocking clients see it.
trait Blocking: Place {
    fn blocking(&self) -> Client;
}

impl Blocking for Server {
    fn blocking(&self) -> Client {
        Client::connect(&self.url()).unwrap()
    }
}

impl Blocking for FakeServer {
    fn blocking(&self) -> Client {
        self.blocking_client().unwrap()
    }
}

/// Tests that run with either server.
macro_rules! on_both_blocking {
    ($($test:ident),* $(,)?) => {
        mod real {
            $(
                #[test]
                fn $test() {
                    super::$test::<dlock_testing::Server>();
                }
            )*
        }

        mod fake {
            $(
                #[test]
                fn $test() {
                    super::$test::<dlock_testing_server::FakeServer>();
                }
            )*
        }
    };
}

on_both_blocking! {
    one_thread_runs_and_the_others_wait,
    when_the_run_fails_another_thread_runs,
    a_wait_for_runs_has_its_time_and_ends_with_the_client,
    candidates_lead_one_after_the_other,
}

fn observers(server: &impl Place) -> i64 {
    number(&server.cmd(&["DLOCK.INFO", "k"]), "observers")
}

fn one_thread_runs_and_the_others_wait<P: Blocking>() {
    let server = P::new();
    let (client, elsewhere) = (server.blocking(), server.blocking());
    let (begun, called) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let call = |lock: &Lock| {
        called.fetch_add(1, Ordering::SeqCst);
        lock.run_once(|guard| {
            begun.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>(guard.token())
        })
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| {
            let other = client.lock("other");
            client.lock("k").run_once(move |guard| {
                // Work may block, and use the client.
                assert!(other.try_acquire()?.is_some());
                may_go_on.recv().unwrap();
                Ok::<_, Error>(guard.token())
            })
        });
        wait_until("the run", || !server.cmd(&["DLOCK.INFO", "k"]).is_null());
        let others: Vec<_> = [&client, &elsewhere]
            .into_iter()
            .flat_map(|client| [(); 8].map(|()| client.lock("k")))
            .map(|lock| scope.spawn(move || call(&lock)))
            .collect();
        wait_until("all calls", || called.load(Ordering::SeqCst) == 16);
        wait_until("the other client to observe the run", || observers(&server) == 1);
        go_on.send(()).unwrap();
        assert!(matches!(first.join().unwrap().unwrap(), Once::Ran(token) if token > 0));
        let ends: Vec<_> = others.into_iter().map(|call| call.join().unwrap().unwrap()).collect();
        // Calls that were a step late may have run, too.
        let ran = ends.iter().filter(|end| matches!(end, Once::Ran(_))).count();
        assert_eq!(ran, begun.load(Ordering::SeqCst));
        assert!(ran < ends.len(), "{ends:?}");
    });
    drop(client);
    drop(elsewhere);
    server.left_over_check();
}

fn when_the_run_fails_another_thread_runs<P: Blocking>() {
    let server = P::new();
    let (client, elsewhere) = (server.blocking(), server.blocking());
    for how in ["error", "panic", "broken"] {
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let lock = client.lock("k");
        let first = thread::spawn(move || {
            lock.run_once(|guard| {
                may_go_on.recv().unwrap();
                assert!(how != "panic", "as intended by the test");
                if how == "broken" {
                    assert_eq!(guard.wait_lost(Duration::from_mins(1))?, Some(Lost::Broken));
                    return Ok(());
                }
                Err::<(), Failure>("no luck".into())
            })
        });
        wait_until("the run", || !server.cmd(&["DLOCK.INFO", "k"]).is_null());
        let next = elsewhere.lock("k");
        let next = thread::spawn(move || next.run_once(|_| Ok::<_, Error>(())));
        wait_until("the other client to observe the run", || observers(&server) == 1);
        if how == "broken" {
            server.cmd(&["DLOCK.BREAK", "k"]).int();
        }
        go_on.send(()).unwrap();
        match (how, first.join()) {
            ("panic", first) => assert!(first.is_err()),
            ("error", first) => assert_eq!(first.unwrap().unwrap_err().to_string(), "no luck"),
            (_, first) => {
                let error = first.unwrap().unwrap_err().downcast::<Error>().unwrap();
                assert!(matches!(error.kind(), ErrorKind::Lost { finished: true, .. }), "{error}");
            }
        }
        assert_eq!(next.join().unwrap().unwrap(), Once::Ran(()), "after {how}");
    }
    drop(client);
    drop(elsewhere);
    server.left_over_check();
}

fn a_wait_for_runs_has_its_time_and_ends_with_the_client<P: Blocking>() {
    let server = P::new();
    let (client, elsewhere) = (server.blocking(), server.blocking());
    let holder = client.lock("k").acquire().unwrap();
    let short = Duration::from_millis(20);
    let none = elsewhere.lock("k").timeout(short).run_once(|_| Ok::<_, Error>(()));
    assert_eq!(none.unwrap_err().kind(), ErrorKind::NotAcquired);
    let lock = elsewhere.lock("k");
    let waiting = thread::spawn(move || lock.run_once(|_| Ok::<_, Error>(())));
    wait_until("the call to observe the hold", || observers(&server) == 1);
    elsewhere.close().unwrap();
    assert_eq!(waiting.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
    holder.release().unwrap();
    // A hold that ended without a run leaves the work to the next call.
    let ran = client.lock("k").timeout(short).run_once(|_| Ok::<_, Error>(7)).unwrap();
    assert_eq!(ran, Once::Ran(7));
    drop(client);
    server.left_over_check();
}

fn candidates_lead_one_after_the_other<P: Blocking>() {
    let server = P::new();
    let (client, elsewhere) = (server.blocking(), server.blocking());
    let election = client.election("e").value("a").bind(Duration::from_secs(5));
    let mut leaders = elsewhere.election("e").observe();
    assert_eq!(election.leader().unwrap(), None);
    assert_eq!(leaders.next_timeout(Duration::from_millis(20)).unwrap(), None);
    let first = election.campaign().unwrap();
    let leader = |value: &str, token| Leader { value: value.into(), token };
    assert_eq!(election.leader().unwrap(), Some(leader("a", first.token())));
    assert_eq!(leaders.next().unwrap().unwrap(), leader("a", first.token()));

    let candidate = elsewhere.election("e").value("b");
    assert!(candidate.campaign_timeout(Duration::from_millis(20)).unwrap().is_none());
    let next = thread::spawn(move || candidate.campaign().unwrap());
    let waiters = || number(&server.cmd(&["DLOCK.INFO", "e"]), "waiters");
    wait_until("a candidate", || waiters() == 1);
    let token = first.token();
    first.resign().unwrap();
    let second = next.join().unwrap();
    assert!(second.token() > token);
    assert_eq!(leaders.next().unwrap().unwrap(), leader("b", second.token()));
    server.cmd(&["DLOCK.BREAK", "e"]).int();
    assert_eq!(second.wait_lost(Duration::from_mins(1)).unwrap(), Some(Lost::Broken));
    assert!(second.resign().is_err());
    // It hands over, leads again and stops.
    let mut tokens = Vec::new();
    let done = election.lead(|leadership| {
        tokens.push(leadership.token());
        if tokens.len() < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break("done") }
    });
    assert_eq!(done.unwrap(), "done");
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    drop(leaders);
    drop(election);
    drop(client);
    drop(elsewhere);
    server.left_over_check();
}
