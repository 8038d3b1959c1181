//! The families as rows: holder, waiters, and expected grants.

/// The reply to the second waiter when the first one leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// None: it continues to wait for the holder.
    Waits,
    /// It is granted its request.
    Granted,
}

/// One way to hold and to wait. All keys are in slot `{a}`. `$1` is the reply to the holder's call, `$3` that to the
/// second waiter's.
pub struct Row {
    pub name: &'static str,
    /// Calls that come first.
    pub prepare: &'static [&'static str],
    /// The holder's call.
    pub hold: &'static str,
    /// Whether that takes BIND and PX.
    pub has_lease: bool,
    /// The requests of the two waiters, without BLOCK.
    pub first: &'static str,
    pub second: &'static str,
    /// The reply to the second waiter when the first one leaves.
    pub leaves: Outcome,
    /// The releases of the holder, of the first waiter and of the second; empty: nothing to release.
    pub release: &'static str,
    pub release_first: &'static str,
    pub release_second: &'static str,
    /// Possible replies to both waiters when the only key, `{a}k`, is removed. `None`: there are two keys.
    pub removed: Option<&'static [&'static str]>,
}

/// The client must retry: the key may have moved to another node.
const ASK_AGAIN: Option<&[&str]> = Some(&["MOVING "]);

/// Each family, and each pair of waiters of which the first blocks the second.
pub const ROWS: [Row; 11] = [
    Row {
        name: "DLOCK",
        prepare: &[],
        hold: "DLOCK.ACQUIRE {a}k o1",
        has_lease: true,
        first: "DLOCK.ACQUIRE {a}k o2",
        second: "DLOCK.ACQUIRE {a}k o3",
        leaves: Outcome::Waits,
        release: "DLOCK.RELEASE {a}k o1",
        release_first: "DLOCK.RELEASE {a}k o2",
        release_second: "DLOCK.RELEASE {a}k o3",
        removed: ASK_AGAIN,
    },
    Row {
        name: "DFAIR",
        prepare: &[],
        hold: "DFAIR.ACQUIRE {a}k o1",
        has_lease: true,
        first: "DFAIR.ACQUIRE {a}k o2",
        second: "DFAIR.ACQUIRE {a}k o3",
        leaves: Outcome::Waits,
        release: "DFAIR.RELEASE {a}k o1",
        release_first: "DFAIR.RELEASE {a}k o2",
        release_second: "DFAIR.RELEASE {a}k o3",
        removed: ASK_AGAIN,
    },
    Row {
        name: "DRW, writers",
        prepare: &[],
        hold: "DRW.ACQUIRE {a}k o1 WRITE",
        has_lease: true,
        first: "DRW.ACQUIRE {a}k o2 WRITE",
        second: "DRW.ACQUIRE {a}k o3 WRITE",
        leaves: Outcome::Waits,
        release: "DRW.RELEASE {a}k o1 WRITE",
        release_first: "DRW.RELEASE {a}k o2 WRITE",
        release_second: "DRW.RELEASE {a}k o3 WRITE",
        removed: ASK_AGAIN,
    },
    Row {
        name: "DRW, a reader behind a writer",
        prepare: &[],
        hold: "DRW.ACQUIRE {a}k o1 READ",
        has_lease: true,
        first: "DRW.ACQUIRE {a}k o2 WRITE",
        second: "DRW.ACQUIRE {a}k o3 READ",
        leaves: Outcome::Granted,
        release: "DRW.RELEASE {a}k o1 READ",
        release_first: "DRW.RELEASE {a}k o2 WRITE",
        release_second: "DRW.RELEASE {a}k o3 READ",
        removed: ASK_AGAIN,
    },
    Row {
        name: "DSEM",
        prepare: &["DSEM.INIT {a}k 1"],
        hold: "DSEM.ACQUIRE {a}k o1",
        has_lease: true,
        first: "DSEM.ACQUIRE {a}k o2",
        second: "DSEM.ACQUIRE {a}k o3",
        leaves: Outcome::Waits,
        release: "DSEM.RELEASE {a}k $1",
        release_first: "DSEM.RELEASE {a}k $2",
        release_second: "DSEM.RELEASE {a}k $3",
        removed: ASK_AGAIN,
    },
    Row {
        name: "DSEM, a narrow request behind a wide one",
        prepare: &["DSEM.INIT {a}k 2"],
        hold: "DSEM.ACQUIRE {a}k o1",
        has_lease: true,
        first: "DSEM.ACQUIRE {a}k o2 COUNT 2",
        second: "DSEM.ACQUIRE {a}k o3",
        leaves: Outcome::Granted,
        release: "DSEM.RELEASE {a}k $1",
        release_first: "DSEM.RELEASE {a}k $2",
        release_second: "DSEM.RELEASE {a}k $3",
        removed: ASK_AGAIN,
    },
    Row {
        name: "DSEM.TAKE",
        prepare: &["DSEM.INIT {a}k 1"],
        hold: "DSEM.TAKE {a}k",
        has_lease: false,
        first: "DSEM.TAKE {a}k",
        second: "DSEM.TAKE {a}k",
        leaves: Outcome::Waits,
        release: "DSEM.GIVE {a}k",
        release_first: "DSEM.GIVE {a}k",
        release_second: "DSEM.GIVE {a}k",
        removed: ASK_AGAIN,
    },
    Row {
        name: "DLATCH",
        prepare: &[],
        hold: "DLATCH.INIT {a}k 1",
        has_lease: false,
        first: "DLATCH.AWAIT {a}k",
        second: "DLATCH.AWAIT {a}k",
        leaves: Outcome::Waits,
        release: "DLATCH.COUNTDOWN {a}k",
        release_first: "",
        release_second: "",
        removed: Some(&["BROKEN "]),
    },
    Row {
        name: "MACQUIRE",
        prepare: &[],
        hold: "DLOCK.MACQUIRE 2 {a}k {a}l o1",
        has_lease: true,
        first: "DLOCK.MACQUIRE 2 {a}l {a}k o2",
        second: "DLOCK.MACQUIRE 2 {a}k {a}l o3",
        leaves: Outcome::Waits,
        release: "DLOCK.MRELEASE 2 {a}k {a}l o1",
        release_first: "DLOCK.MRELEASE 2 {a}k {a}l o2",
        release_second: "DLOCK.MRELEASE 2 {a}k {a}l o3",
        removed: None,
    },
    Row {
        name: "a lock that a MACQUIRE keeps closed",
        prepare: &[],
        hold: "DLOCK.ACQUIRE {a}l o1",
        has_lease: true,
        first: "DLOCK.MACQUIRE 2 {a}k {a}l o2",
        second: "DLOCK.ACQUIRE {a}k o3",
        leaves: Outcome::Granted,
        release: "DLOCK.RELEASE {a}l o1",
        release_first: "DLOCK.MRELEASE 2 {a}k {a}l o2",
        release_second: "DLOCK.RELEASE {a}k o3",
        removed: None,
    },
    Row {
        name: "ANYACQUIRE",
        prepare: &[],
        hold: "DLOCK.ACQUIRE {a}k o1",
        has_lease: true,
        first: "DLOCK.ANYACQUIRE 1 {a}k o2",
        second: "DLOCK.ANYACQUIRE 1 {a}k o3",
        leaves: Outcome::Waits,
        release: "DLOCK.RELEASE {a}k o1",
        release_first: "DLOCK.RELEASE {a}k o2",
        release_second: "DLOCK.RELEASE {a}k o3",
        removed: ASK_AGAIN,
    },
];

/// Calls for slot `{b}`, each of which processes pending notices. They do not affect waiters for keys of `{a}`.
pub const CALLS: [&[&str]; 8] = [
    &["DLOCK.ACQUIRE {b}k o9"],
    &["MULTI", "DLOCK.ACQUIRE {b}k o9", "EXEC"],
    &["EVAL return{redis.call('DLOCK.ACQUIRE',KEYS[1],'o9')} 1 {b}k"],
    &["DFAIR.ACQUIRE {b}k o9 QUEUE 1000"],
    &["DRW.ACQUIRE {b}k o9 READ"],
    &["DSEM.ACQUIRE {b}k o9 LIMIT 1"],
    &["DLATCH.INIT {b}k 1"],
    &["DLOCK.INFO {b}k"],
];
