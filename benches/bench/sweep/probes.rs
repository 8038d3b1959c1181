//! What is measured: short lists of calls that leave the state as it was.

use super::Kind;

/// The nearest operation of the plain server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    Pair,
    Get,
    Rename,
    Dump,
    Restore,
    MemoryUsage,
    SwapDb,
    FlushDb,
    Info,
    Ping,
    /// MSETNX and DEL of two keys.
    Two,
}

impl Plain {
    pub const ALL: [Plain; 11] = [
        Self::Pair,
        Self::Get,
        Self::Rename,
        Self::Dump,
        Self::Restore,
        Self::MemoryUsage,
        Self::SwapDb,
        Self::FlushDb,
        Self::Info,
        Self::Ping,
        Self::Two,
    ];

    pub fn calls(self) -> &'static str {
        match self {
            Self::Pair => "SET u o NX PX 600000; DEL u",
            Self::Get => "GET s",
            Self::Rename => "SET u o; RENAME u v; DEL v",
            Self::Dump => "DUMP s",
            Self::Restore => "RENAME s s2; RENAME s2 s",
            Self::MemoryUsage => "MEMORY USAGE s",
            Self::SwapDb => "SWAPDB 3 4",
            Self::FlushDb => "FLUSHDB",
            Self::Info => "INFO commandstats",
            Self::Ping => "PING",
            Self::Two => "MSETNX u o v o; DEL u v",
        }
    }
}

#[derive(Clone, Copy)]
pub struct Probe {
    /// Separated by `;`. `{mid}` is a number in the middle of the state, `{id}` another text in each repetition.
    pub calls: &'static str,
    /// Only where `s` is of this kind.
    pub on: Option<Kind>,
    pub plain: Plain,
    /// Why its cost may grow with the state.
    pub grows: Option<&'static str>,
    /// Measured by a test, too.
    pub is_checked: bool,
}

const fn any(calls: &'static str, plain: Plain) -> Probe {
    Probe { calls, on: None, plain, grows: None, is_checked: false }
}

const fn on(kind: Kind, calls: &'static str, plain: Plain) -> Probe {
    Probe { calls, on: Some(kind), plain, grows: None, is_checked: false }
}

const fn checked(probe: Probe) -> Probe {
    Probe { is_checked: true, ..probe }
}

const fn grows(why: &'static str, probe: Probe) -> Probe {
    Probe { grows: Some(why), ..probe }
}

use Kind::{Fair, Latch, Lock, Rw, Sem};
use Plain::{Dump, FlushDb, Get, Info, MemoryUsage, Pair, Ping, Rename, SwapDb, Two};

const REPLY: &str = "its reply is as large as the state";

pub const PROBES: &[Probe] = &[
    // Another key than that of the state.
    checked(any("DLOCK.ACQUIRE u o PX 600000; DLOCK.RELEASE u o", Pair)),
    any("DLOCK.ACQUIRE u o PX 600000 REQID {id}; DLOCK.RELEASE u o REQID {id}", Pair),
    any("DLOCK.ACQUIRE u o PX 600000 BIND 1000 LABEL text; DLOCK.RELEASE u o", Pair),
    any("DLOCK.ACQUIRE u o PX 600000 NOTIFY c; DLOCK.RELEASE u o", Pair),
    any(
        "DLOCK.ACQUIRE u o PX 600000; DLOCK.ACQUIRE u p QUEUE 10000; DLOCK.RELEASE u p; DLOCK.RELEASE u o",
        Pair,
    ),
    any(
        "DLOCK.ACQUIRE u o PX 600000; DLOCK.ACQUIRE u p QUEUE 10000; DLOCK.RELEASE u o; DLOCK.RELEASE u p",
        Pair,
    ),
    any("DLOCK.ACQUIRE u o PX 600000; DLOCK.BREAK u", Pair),
    any("DLOCK.ACQUIRE u o PX 600000; DLOCK.RENEW u o; DLOCK.INFO u; DLOCK.RELEASE u o", Pair),
    any("DLOCK.ACQUIRE u o PX 600000; DLOCK.INFO u; DLOCK.WAITERS u; DLOCK.RELEASE u o", Pair),
    any("DFAIR.ACQUIRE u o PX 600000; DFAIR.RELEASE u o", Pair),
    any("DRW.ACQUIRE u o READ PX 600000; DRW.RELEASE u o READ", Pair),
    any("DRW.ACQUIRE u o WRITE PX 600000; DRW.RELEASE u o WRITE", Pair),
    any("DSEM.INIT u 5; DSEM.ACQUIRE u o; DEL u", Pair),
    any("DSEM.INIT u 5; DSEM.TAKE u; DSEM.GIVE u; DSEM.DRAIN u; DEL u", Pair),
    any("DLATCH.INIT u 1; DLATCH.COUNTDOWN u", Pair),
    checked(any("DLOCK.MACQUIRE 2 u v o PX 600000; DLOCK.MRELEASE 2 u v o", Two)),
    any("DLOCK.MACQUIRE 2 u v o PX 600000; DLOCK.MRENEW 2 u v o; DLOCK.MRELEASE 2 u v o", Two),
    any("DLOCK.ANYACQUIRE 2 u v o PX 600000; DEL u v", Two),
    checked(any("DLOCK.ACQUIRE u o PX 600000; DEL u", Pair)),
    any("DLOCK.ACQUIRE u o PX 600000; UNLINK u", Pair),
    any("DLOCK.ACQUIRE u o PX 600000; PEXPIRE u 100000; SET u x; DEL u", Pair),
    checked(any("DLOCK.ACQUIRE u o PX 600000; RENAME u v; DEL v", Rename)),
    any("DLOCK.INFO none; DLOCK.WAITERS none; DLOCK.POSITION none o; DLOCK.AWAIT none", Get),
    any("DLOCK.RELEASE none o REQID {id}", Get),
    any("DLOCK.UNBLOCK 999999999", Ping),
    any("DLOCK.LOG GET 1", Ping),
    any("INFO dlock", Info),
    any("SWAPDB 3 4", SwapDb),
    any("SELECT 5; FLUSHDB; SELECT 0", FlushDb),
    any("PING", Ping),
    // The key of the state.
    any("EXISTS s; TYPE s; OBJECT ENCODING t; TTL s", Get),
    checked(on(Lock, "DLOCK.ACQUIRE s x", Get)),
    on(Lock, "DLOCK.ACQUIRE s h PX 600000; DLOCK.RELEASE s h", Pair),
    checked(on(Lock, "DLOCK.ACQUIRE s x QUEUE 10000; DLOCK.RELEASE s x", Pair)),
    on(
        Lock,
        "DLOCK.ACQUIRE s x QUEUE 10000 REQID {id}; DLOCK.ACQUIRE s x QUEUE 10000 REQID {id}; DLOCK.RELEASE s x",
        Pair,
    ),
    on(Lock, "DLOCK.ACQUIRE s w{mid} QUEUE 600000", Pair),
    on(Lock, "DLOCK.RENEW s h PX 600000; DLOCK.CHECK s 1", Get),
    checked(on(Lock, "DLOCK.INFO s", Get)),
    on(Lock, "DLOCK.POSITION s w{mid}", Get),
    on(Lock, "DLOCK.WAITERS s COUNT 1", Get),
    grows(REPLY, on(Lock, "DLOCK.WAITERS s COUNT 100000", Get)),
    on(
        Lock,
        "DLOCK.ACQUIRE s h PX 600000; DLOCK.ACQUIRE u h PX 600000; DLOCK.RELEASE u h; DLOCK.RELEASE s h",
        Pair,
    ),
    on(Lock, "DLOCK.MACQUIRE 2 s u x", Two),
    on(Lock, "RENAME s s2; RENAME s2 s", Rename),
    grows(REPLY, on(Lock, "DUMP s", Dump)),
    on(Lock, "MEMORY USAGE s SAMPLES 5", MemoryUsage),
    checked(on(Fair, "DFAIR.ACQUIRE s x", Get)),
    on(Fair, "DFAIR.ACQUIRE s x QUEUE 10000; DFAIR.RELEASE s x", Pair),
    on(Fair, "DFAIR.ACQUIRE s w{mid} QUEUE 600000", Pair),
    on(Fair, "DFAIR.ACQUIRE s h PX 600000; DFAIR.RELEASE s h", Pair),
    on(Fair, "DFAIR.INFO s", Get),
    on(Fair, "DFAIR.POSITION s w{mid}", Get),
    on(Fair, "DFAIR.WAITERS s COUNT 1", Get),
    on(Fair, "RENAME s s2; RENAME s2 s", Rename),
    on(Fair, "MEMORY USAGE s SAMPLES 5", MemoryUsage),
    checked(on(Rw, "DRW.ACQUIRE s x WRITE", Get)),
    on(Rw, "DRW.ACQUIRE s x READ", Get),
    on(Rw, "DRW.ACQUIRE s x WRITE QUEUE 10000; DRW.RELEASE s x WRITE", Pair),
    on(Rw, "DRW.ACQUIRE s w{mid} READ QUEUE 600000", Pair),
    grows(REPLY, on(Rw, "DRW.INFO s", Get)),
    on(Rw, "DRW.POSITION s w{mid}; DRW.WAITERS s COUNT 1; DRW.CHECK s 1", Get),
    on(Rw, "RENAME s s2; RENAME s2 s", Rename),
    on(Rw, "MEMORY USAGE s SAMPLES 5", MemoryUsage),
    checked(on(Sem, "DSEM.ACQUIRE s x QUEUE 10000; DSEM.RELEASE s x ALL", Pair)),
    on(Sem, "DSEM.ACQUIRE s w{mid} QUEUE 600000", Pair),
    on(Sem, "DSEM.TAKE s", Get),
    checked(on(Sem, "DSEM.INFO s", Get)),
    on(Sem, "DSEM.WAITERS s COUNT 1; DSEM.POSITION s w{mid}", Get),
    grows(REPLY, on(Sem, "DSEM.PERMITS s", Get)),
    on(Sem, "RENAME s s2; RENAME s2 s", Rename),
    on(Sem, "MEMORY USAGE s SAMPLES 5", MemoryUsage),
    on(Latch, "DLATCH.COUNTDOWN s", Pair),
    on(Latch, "DLATCH.AWAIT s", Get),
    on(Latch, "DLATCH.INFO s; DLATCH.WAITERS s COUNT 1", Get),
];
