//! A lock with a holder and three waiters, blocked, queued, blocked: the start of tests of server states.

#![allow(clippy::panic, reason = "a test that cannot go on stops here and says why")]

use std::time::{Duration, Instant};

use crate::{
    args,
    support::{Client, Family, Heard, Reply, SOON, Server, Subscription, wait_until},
};

/// The players, in order of service.
pub struct Scene<'a> {
    server: &'a Server,
    db: u32,
    key: String,
    /// The key was removed, and with it a DFAIR waiter without a blocked call.
    pub removed: bool,
    /// Holds the lock as `h`, for a minute if the test names no lease.
    pub holder: Client,
    /// Its token.
    pub token: i64,
    /// Blocked without a timeout as `first`.
    pub first: Client,
    /// Waits as `queued`, without a blocked call.
    pub queued: Client,
    /// Blocked without a timeout as `last`.
    pub last: Client,
    /// Messages about the holder and the queued waiter, and about flushed databases.
    pub messages: Subscription,
}

impl<'a> Scene<'a> {
    /// Sets the scene on `key` of database 0.
    #[track_caller]
    pub fn set(server: &'a Server, key: &str) -> Scene<'a> {
        Scene::set_in(server, 0, key)
    }

    /// Sets the scene on `key` of database 0, with a lease that ends: nothing shortens it later. It must be longer than
    /// the test needs for what comes first.
    #[track_caller]
    pub fn set_with_lease(server: &'a Server, key: &str, lease_ms: u64) -> Scene<'a> {
        Scene::set_all(server, 0, key, lease_ms)
    }

    /// Sets the scene on `key` of database `db`.
    #[track_caller]
    pub fn set_in(server: &'a Server, db: u32, key: &str) -> Scene<'a> {
        Scene::set_all(server, db, key, 60_000)
    }

    #[track_caller]
    fn set_all(server: &'a Server, db: u32, key: &str, lease_ms: u64) -> Scene<'a> {
        let channel = format!("about:{db}:{key}");
        let messages = server.subscribe(&[&channel, "dlock:notify"]);
        let mut holder = in_db(server, db);
        let call = args!["DLOCK.ACQUIRE", key, "h", "PX", lease_ms, "NOTIFY", &channel];
        let token = holder.cmd(&call).int();
        let mut first = in_db(server, db);
        block(server, &mut first, &args!["DLOCK.ACQUIRE", key, "first", "BLOCK", 0]);
        let mut queued = in_db(server, db);
        let call = args!["DLOCK.ACQUIRE", key, "queued", "QUEUE", 60_000, "NOTIFY", &channel];
        assert!(queued.cmd(&call).is_null());
        let mut last = in_db(server, db);
        block(server, &mut last, &args!["DLOCK.ACQUIRE", key, "last", "BLOCK", 0]);
        let (key, removed) = (key.to_owned(), false);
        Scene { server, db, key, removed, holder, token, first, queued, last, messages }
    }

    /// No waiter has got a reply.
    #[track_caller]
    pub fn assert_all_wait(&mut self) {
        assert_silent(self.server, &mut self.first);
        assert_silent(self.server, &mut self.last);
        self.messages.assert_none();
        let waiting = self.queued.cmd(&["DLOCK.WAITERS", &self.key]);
        let owners: Vec<_> = waiting.items().iter().map(|row| row.field("owner").text()).collect();
        let all = ["first", "queued", "last"];
        assert_eq!(owners, if self.is_without_place() { vec![all[0], all[2]] } else { all.into() });
    }

    fn is_without_place(&self) -> bool {
        self.removed && self.server.family() == Family::Fair
    }

    /// The first waiter is granted the lock with a larger token; those behind it still wait.
    #[track_caller]
    pub fn first_is_granted(&mut self) -> i64 {
        let token = self.first.reply(SOON).int();
        assert!(token > self.token, "{token} is not larger than {}", self.token);
        assert_eq!(self.queued.cmd(&["DLOCK.CHECK", &self.key, &token.to_string()]).int(), 1);
        assert_silent(self.server, &mut self.last);
        token
    }

    /// As [`Scene::first_is_granted`], because the key was removed.
    #[track_caller]
    pub fn first_is_granted_after_removal(&mut self) -> i64 {
        self.removed = true;
        self.first_is_granted()
    }

    /// The published message about the end of the holder's hold.
    pub fn message(&self, event: &str) -> String {
        format!("{event} {} {} 1 h 0  {}", self.db, self.token, self.key)
    }

    /// All waiters are served and release in order, from `first` on, which holds the lock with `token`. Nothing is
    /// left.
    #[track_caller]
    pub fn play_out(self, token: i64) {
        let server = self.server;
        self.take_turns(token);
        server.left_over_check();
    }

    /// As [`Scene::play_out`], with other keys on the server.
    #[track_caller]
    pub fn take_turns(mut self, token: i64) {
        let key = &self.key;
        assert_eq!(self.first.cmd(&["DLOCK.RELEASE", key, "first"]).int(), 0);
        let mut before = token;
        if !self.is_without_place() {
            let granted = self.messages.next_text();
            let claimed = self.queued.cmd(&["DLOCK.ACQUIRE", key, "queued", "NOREENTRY"]).int();
            assert!(claimed > token, "{claimed} is not larger than {token}");
            assert_eq!(granted, format!("granted {} {claimed} 6 queued 0  {key}", self.db));
            assert_silent(self.server, &mut self.last);
            assert_eq!(self.queued.cmd(&["DLOCK.RELEASE", key, "queued"]).int(), 0);
            before = claimed;
        }
        assert!(self.last.reply(SOON).int() > before);
        assert_eq!(self.last.cmd(&["DLOCK.RELEASE", key, "last"]).int(), 0);
        self.messages.assert_none();
    }
}

/// A new connection with database `db` selected.
#[track_caller]
pub fn in_db(server: &Server, db: u32) -> Client {
    let mut client = server.client();
    if db != 0 {
        client.cmd(&["SELECT", &db.to_string()]).ok();
    }
    client
}

/// Sends a call and returns when the server has blocked its connection.
#[track_caller]
pub fn block(server: &Server, client: &mut Client, call: &[Vec<u8>]) {
    client.send(call);
    wait_until("the call to block", || server.is_blocked(client.id()));
}

/// A connection on which a call of `owner` is blocked.
#[track_caller]
pub fn waiter(server: &Server, key: &str, owner: &str, ms: u64) -> Client {
    let mut client = server.client();
    block(server, &mut client, &args!["DLOCK.ACQUIRE", key, owner, "BLOCK", ms]);
    client
}

/// Fails the test if the server has replied. Exact: all earlier replies of the server have been sent when it returns.
#[track_caller]
pub fn assert_silent(server: &Server, client: &mut Client) {
    server.cmd(&["PING"]);
    match client.hear(Duration::ZERO) {
        Heard::Nothing => {}
        other => panic!("client {}: {other:?} comes too early", client.id()),
    }
}

/// Fails the test unless about `ms` milliseconds have elapsed since `start`: hardly less (some clocks of the server
/// have whole milliseconds), and not so much more that another timer must have been the cause.
#[track_caller]
pub fn assert_lasted(start: Instant, ms: u64) {
    let lasted = start.elapsed();
    let wanted = Duration::from_millis(ms);
    assert!(lasted + Duration::from_millis(2) >= wanted, "{lasted:?}, not {wanted:?}");
    assert!(lasted < wanted + SOON, "{lasted:?}, not {wanted:?}");
}

/// Fails the test unless an event mostly happens at once. `lateness` measures its delay; the tested servers would
/// check anyway once a second, at a random moment. A busy machine delays some tries; a server without a wake-up has a
/// smaller delay in one of ten.
#[track_caller]
pub fn assert_prompt(mut lateness: impl FnMut() -> Duration) {
    const TRIES: usize = 15;
    const ENOUGH: usize = 6;
    const LATE: Duration = Duration::from_millis(100);
    let mut seen = Vec::new();
    for _ in 0..TRIES {
        seen.push(lateness());
        if seen.iter().filter(|&&late| late < LATE).count() == ENOUGH {
            return;
        }
    }
    panic!("late by {seen:?}");
}

/// A blocked call is told to retry elsewhere: by the module, or by a server that becomes a replica and closes the
/// connection.
#[track_caller]
pub fn assert_sent_away(reply: &redis::Value) {
    let text = reply.error();
    let codes = ["MOVING ", "UNBLOCKED ", "REDIRECT "];
    assert!(codes.iter().any(|code| text.starts_with(code)), "{text}");
}
