//! What the client reports to a subscriber and to a recorder, on the server for unit tests.
// The server for unit tests needs the compiler of the core.
#![allow(clippy::incompatible_msrv)]
// A test stops where it cannot go on.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

mod counts;
mod spans;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use dlock_testing_server::FakeServer;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// Lets other tasks run, and time pass, until `condition` holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let start = tokio::time::Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_mins(10), "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// The waiters of a lock.
fn waiters(server: &FakeServer, key: &str) -> usize {
    let reply = server.command(&["DLOCK.WAITERS", key]);
    let text = String::from_utf8_lossy(&reply).into_owned();
    let count = text.strip_prefix('*').and_then(|rest| rest.split_once('\r'));
    count.map_or(0, |(count, _)| count.parse().unwrap())
}

thread_local! {
    /// Where the subscriber writes what happens on this thread, which is the runtime of one test.
    static LOG: Log = Log::default();
}

/// What the subscriber wrote about one test.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// That of this thread, from now on. The subscriber is that of the process: one for each thread could miss what is
    /// new to another thread at the same moment.
    fn start() -> Self {
        static SUBSCRIBER: Once = Once::new();
        SUBSCRIBER.call_once(|| {
            tracing_subscriber::fmt()
                .with_writer(|| LOG.with(Self::clone))
                .with_ansi(false)
                .without_time()
                .with_span_events(FmtSpan::CLOSE)
                .with_max_level(LevelFilter::DEBUG)
                .init();
        });
        let log = LOG.with(Self::clone);
        // Tests may share a thread, one after the other.
        log.0.lock().unwrap().clear();
        log
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// The lines that contain all of these.
    fn lines(&self, parts: &[&str]) -> Vec<String> {
        let text = self.text();
        let has_all = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().filter(has_all).map(str::to_owned).collect()
    }

    /// The only line that contains all of these.
    #[track_caller]
    fn line(&self, parts: &[&str]) -> String {
        let lines = self.lines(parts);
        assert_eq!(lines.len(), 1, "{parts:?} in\n{}", self.text());
        lines.into_iter().next().unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What a recorder counted.
struct Counts {
    snapshots: Snapshotter,
    totals: BTreeMap<String, f64>,
    /// Observations of histograms.
    times: BTreeMap<String, Vec<f64>>,
}

impl Counts {
    /// Takes the recorder of this thread as its own for the rest of the test.
    fn start() -> (Self, metrics::LocalRecorderGuard<'static>) {
        let recorder = Box::leak(Box::new(DebuggingRecorder::new()));
        let snapshots = recorder.snapshotter();
        let guard = metrics::set_default_local_recorder(&*recorder);
        (Self { snapshots, totals: BTreeMap::new(), times: BTreeMap::new() }, guard)
    }

    /// Takes over what was counted since the last call.
    fn read(&mut self) {
        for (key, _, _, value) in self.snapshots.snapshot().into_vec() {
            let labels: Vec<_> = key
                .key()
                .labels()
                .map(|label| format!("{}={}", label.key(), label.value()))
                .collect();
            let name = format!("{}{{{}}}", key.key().name(), labels.join(","));
            match value {
                DebugValue::Counter(count) => {
                    *self.totals.entry(name).or_default() +=
                        f64::from(u32::try_from(count).unwrap());
                }
                // A snapshot takes the value away.
                DebugValue::Gauge(value) => *self.totals.entry(name).or_default() += value.0,
                DebugValue::Histogram(times) => {
                    let times = times.into_iter().map(|time| time.0);
                    self.times.entry(name).or_default().extend(times);
                }
            }
        }
    }

    /// A counter or a gauge, as it is now.
    fn of(&mut self, name: &str) -> f64 {
        self.read();
        self.totals.get(name).copied().unwrap_or(0.0)
    }

    /// The observations of a histogram, in seconds.
    fn times(&mut self, name: &str) -> Vec<f64> {
        self.read();
        self.times.get(name).cloned().unwrap_or_default()
    }
}
