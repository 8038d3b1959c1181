//! What is there while the commands run: each state can be made at any size.

use dlock_testing::{Client, SOON, Server, Setup, words};
use redis::Value;

use super::Kind;

/// No lease and no wait ends by itself.
pub const LONG: &str = "PX 600000";

/// Commands in one write.
const AT_ONCE: usize = 500;

/// A server in some state, with what keeps it there.
pub struct Site {
    pub server: Server,
    pub client: Client,
    /// Connections that hold or wait.
    kept: Vec<Client>,
    _replica: Option<Server>,
}

impl Site {
    pub fn start(state: &State, size: usize, setup: fn() -> Setup) -> Site {
        let server = setup().and(state.settings).start();
        let replica = (state.settings == REPLICATED).then(|| {
            let replica = setup().replica_of(&server).start();
            replica.wait_linked();
            replica
        });
        let client = server.client();
        let mut made = Site { server, client, kept: Vec::new(), _replica: replica };
        (state.build)(&mut made, size);
        made
    }

    /// Sends a command for each number; none of the replies may be an error.
    fn each(&mut self, count: usize, call: impl Fn(usize) -> String) {
        let client = &mut self.client;
        for first in (0..count).step_by(AT_ONCE) {
            let calls: Vec<String> = (first..count.min(first + AT_ONCE)).map(&call).collect();
            run(client, &calls);
        }
    }

    /// As [`Site::each`], on a connection of its own.
    fn aside(&mut self, count: usize, call: impl Fn(usize) -> String) {
        let other = self.server.client();
        let client = std::mem::replace(&mut self.client, other);
        self.each(count, call);
        self.kept.push(client);
    }

    /// Blocked calls, each on a connection of its own.
    fn blocked(&mut self, count: usize, call: impl Fn(usize) -> String) {
        let before = self.server.blocked_clients();
        for n in 0..count {
            let mut client = self.server.client();
            client.send(&words(&call(n)));
            self.kept.push(client);
        }
        let due = usize::try_from(before).unwrap() + count;
        self.server.wait_blocked(due);
    }
}

/// Runs calls in one write. Refusals that a call is measured for are no failures.
pub fn run(client: &mut Client, calls: &[String]) {
    let calls: Vec<Vec<&str>> = calls.iter().map(|call| words(call)).collect();
    for (call, reply) in calls.iter().zip(client.pipeline(&calls)) {
        let Value::ServerError(error) = &reply else { continue };
        assert!(["STALE", "NOTHELD"].contains(&error.code()), "{call:?}: {reply:?}");
    }
}

#[derive(Clone, Copy)]
pub struct State {
    pub name: &'static str,
    /// What the key `s` has, if anything.
    pub kind: Option<Kind>,
    settings: &'static [&'static str],
    build: fn(&mut Site, usize),
    /// A tenth of the size is enough: each unit needs a connection or a user.
    pub is_costly: bool,
}

const REPLICATED: &[&str] = &["repl-diskless-sync-delay", "0"];

const fn state(name: &'static str, kind: Option<Kind>, build: fn(&mut Site, usize)) -> State {
    State { name, kind, settings: &[], build, is_costly: false }
}

const fn with(settings: &'static [&'static str], state: State) -> State {
    State { settings, ..state }
}

const fn costly(state: State) -> State {
    State { is_costly: true, ..state }
}

fn holds(site: &mut Site, n: usize) {
    site.each(n, |n| format!("DLOCK.ACQUIRE k{n} o{n} {LONG}"));
}

fn held(site: &mut Site) {
    site.each(1, |_| format!("DLOCK.ACQUIRE s h {LONG}"));
}

fn places(site: &mut Site, n: usize, more: &str) {
    held(site);
    site.aside(n, |n| format!("DLOCK.ACQUIRE s w{n} QUEUE 600000{more}"));
}

fn fair(site: &mut Site, n: usize) {
    site.each(1, |_| format!("DFAIR.ACQUIRE s h {LONG}"));
    site.aside(n, |n| format!("DFAIR.ACQUIRE s w{n} QUEUE 600000"));
}

/// The connections with places close.
fn absent(site: &mut Site) {
    let connected = |site: &Site| site.server.info_number("clients", "connected_clients");
    let before = connected(site);
    let closed = i64::try_from(std::mem::take(&mut site.kept).len()).unwrap();
    dlock_testing::wait_until("the end of connections", || connected(site) == before - closed);
}

fn full(site: &mut Site) {
    site.each(1, |_| "DSEM.INIT s 1".to_owned());
    site.each(1, |_| format!("DSEM.ACQUIRE s h {LONG}"));
}

pub const STATES: &[State] = &[
    state("nothing else", None, |_, _| ()),
    state("held locks", None, holds),
    with(&["appendonly", "yes"], state("held locks, append-only file", None, holds)),
    with(REPLICATED, state("held locks, a replica", None, holds)),
    with(&["notify-keyspace-events", "KEA"], state("held locks, keyspace events", None, holds)),
    with(
        &["databases", "100000"],
        state("databases in use", None, |site, n| {
            site.each(2 * (n / 10), |n| match n % 2 {
                0 => format!("SELECT {}", 10 + n / 2),
                _ => format!("DLOCK.ACQUIRE k{n} o {LONG}"),
            });
            site.each(1, |_| "SELECT 0".to_owned());
        }),
    ),
    state("a lock with places", Some(Kind::Lock), |site, n| places(site, n, "")),
    state("a lock with places that get messages", Some(Kind::Lock), |site, n| {
        places(site, n, " NOTIFY c");
    }),
    state("a lock with absent places", Some(Kind::Lock), |site, n| {
        places(site, n, "");
        absent(site);
    }),
    costly(state("a lock with blocked calls", Some(Kind::Lock), |site, n| {
        held(site);
        site.blocked(n, |n| format!("DLOCK.ACQUIRE s w{n} BLOCK 0"));
    })),
    state("a free lock with places", None, |site, n| {
        places(site, n, "");
        site.each(1, |_| "DLOCK.RELEASE s h".to_owned());
    }),
    state("a lock held many times", Some(Kind::Lock), |site, n| {
        site.each(n, |_| format!("DLOCK.ACQUIRE s h {LONG}"));
    }),
    state("a fair lock with places", Some(Kind::Fair), fair),
    state("a fair lock with absent places", Some(Kind::Fair), |site, n| {
        fair(site, n);
        absent(site);
    }),
    state("places on other locks", None, |site, n| {
        holds(site, n);
        site.aside(n, |n| format!("DLOCK.ACQUIRE k{n} w QUEUE 600000"));
    }),
    state("places on other fair locks", None, |site, n| {
        site.each(n, |n| format!("DFAIR.ACQUIRE k{n} o{n} {LONG}"));
        site.aside(n, |n| format!("DFAIR.ACQUIRE k{n} w QUEUE 600000"));
    }),
    state("a chain of owners", None, |site, n| {
        holds(site, n);
        site.aside(n - 1, |n| format!("DLOCK.ACQUIRE k{} o{n} QUEUE 600000", n + 1));
    }),
    state("owners that hold a lock and wait for one", Some(Kind::Lock), |site, n| {
        holds(site, n);
        held(site);
        site.aside(n, |n| format!("DLOCK.ACQUIRE s o{n} QUEUE 600000"));
    }),
    state("readers", Some(Kind::Rw), |site, n| {
        site.each(1, |_| format!("DRW.ACQUIRE s h READ {LONG}"));
        site.each(n, |n| format!("DRW.ACQUIRE s r{n} READ {LONG}"));
    }),
    state("readers, and a writer that waits", Some(Kind::Rw), |site, n| {
        site.each(1, |_| format!("DRW.ACQUIRE s h READ {LONG}"));
        site.each(n, |n| format!("DRW.ACQUIRE s r{n} READ {LONG}"));
        site.aside(1, |_| "DRW.ACQUIRE s w0 WRITE QUEUE 600000".to_owned());
    }),
    state("a writer, and readers that wait", Some(Kind::Rw), |site, n| {
        site.each(1, |_| format!("DRW.ACQUIRE s h WRITE {LONG}"));
        site.aside(n, |n| format!("DRW.ACQUIRE s w{n} READ QUEUE 600000"));
    }),
    state("permits of many owners", Some(Kind::Sem), |site, n| {
        site.each(1, |_| format!("DSEM.INIT s {}", n + 1));
        site.each(1, |_| format!("DSEM.ACQUIRE s h {LONG}"));
        site.each(n, |n| format!("DSEM.ACQUIRE s o{n} {LONG}"));
    }),
    state("a full semaphore with places", Some(Kind::Sem), |site, n| {
        full(site);
        site.aside(n, |n| format!("DSEM.ACQUIRE s w{n} QUEUE 600000"));
    }),
    state("taken permits and places", Some(Kind::Sem), |site, n| {
        site.each(1, |_| "DSEM.INIT s 5".to_owned());
        site.each(1, |_| format!("DSEM.ACQUIRE s h {LONG}"));
        site.each(1, |_| "DSEM.TAKE s 4".to_owned());
        site.aside(n, |n| format!("DSEM.ACQUIRE s w{n} QUEUE 600000"));
    }),
    costly(state("a latch with blocked calls", Some(Kind::Latch), |site, n| {
        site.each(1, |_| "DLATCH.INIT s 1000000".to_owned());
        site.blocked(n, |_| "DLATCH.AWAIT s BLOCK 0".to_owned());
    })),
    state("finished requests", None, |site, n| {
        site.each(2 * n, |n| match n % 2 {
            0 => format!("DLOCK.ACQUIRE k{n} o REQID id{n}"),
            _ => format!("DLOCK.RELEASE k{} o", n - 1),
        });
    }),
    state("bound holds of one connection", None, |site, n| {
        site.aside(n, |n| format!("DLOCK.ACQUIRE k{n} o{n} {LONG} BIND 60000"));
    }),
    costly(state("calls that wait for two locks", None, |site, n| {
        holds(site, n);
        site.blocked(n, |n| format!("DLOCK.MACQUIRE 2 k{n} m{n} p{n} BLOCK 0"));
    })),
    costly(state("a lock with calls that wait for two", Some(Kind::Lock), |site, n| {
        held(site);
        site.blocked(n, |n| format!("DLOCK.MACQUIRE 2 s m{n} p{n} BLOCK 0"));
    })),
    costly(state("a lock with calls that wait for any", Some(Kind::Lock), |site, n| {
        held(site);
        site.each(1, |_| format!("DLOCK.ACQUIRE t h {LONG}"));
        site.blocked(n, |n| format!("DLOCK.ANYACQUIRE 2 s t p{n} BLOCK 0"));
    })),
    costly(state("users", Some(Kind::Lock), |site, n| {
        held(site);
        site.each(n, |n| format!("ACL SETUSER user{n} on nopass ~* &* +@all"));
    })),
    costly(state("subscribers", None, |site, n| {
        for n in 0..n {
            let mut client = site.server.client();
            client.send(&["SUBSCRIBE", &format!("dlock:notify:s{n}")]);
            let _ = client.reply(SOON);
            site.kept.push(client);
        }
    })),
    state("locks that were just deleted", None, |site, n| {
        holds(site, n);
        site.each(1, |_| (0..n).fold("UNLINK".to_owned(), |call, n| format!("{call} k{n}")));
    }),
];
