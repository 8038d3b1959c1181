//! Values, and data outside keys, as the server's files store them.

use dlock_core::events::replay::Unfit;
use dlock_core::tables::regime::Role;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use dlock_core::base::time::{Instant, Now};
use dlock_core::machine::{Fact, Machine};
use dlock_core::record::{self, Beside, BesideInput, Clocks, DecodeError, Level, Standing};

use crate::ffi::{self, Ctx, Origin, Senders, Strings, TypeIndex, Value, log};
use crate::inbox::{self, Load, Notice, PendingWaiters};
use crate::shell;

/// Encoding version of the key types; the payload carries a separate, finer version.
const ENCODING: i32 = 1;

/// A value as RDB, DUMP and MIGRATE store it. Also runs in forked children.
pub fn save(value: &Value) -> Vec<u8> {
    let mono = Instant(ffi::monotonic_us());
    let mut payload = Vec::new();
    let known = shell::with(|shell| {
        (shell.machine.tables().regime.lease(mono), shell.machine.tables().level)
    });
    let (lease, level) = known.unwrap_or_default();
    record::encode(value, Clocks { mono, lease }, level, &mut payload);
    payload
}

/// A value as an AOF rewrite stores it: the payload of `DLOCK.APPLY`. Also runs in forked children.
pub fn rewrite(value: &Value) -> Vec<u8> {
    save(value)
}

/// Reads a value. The error says why it is refused. Outside of a RESTORE on a primary a refused value is missing from
/// the data: then this server is diverged.
pub fn load(
    kind: TypeIndex,
    encoding: i32,
    payload: &[u8],
    name: Option<&[u8]>,
    db: Option<u32>,
    origin: Origin,
) -> Result<Value, String> {
    let loaded = load_value(kind, encoding, payload, name, db, origin);
    loaded.map_err(|refusal| {
        let is_missed = match origin {
            Origin::Restore => !shell::is_primary(),
            Origin::Loading => true,
            // The old data set stays.
            Origin::AsyncLoading => false,
        };
        if is_missed {
            let _ = shell::with(|shell| shell.machine.learn(Fact::Unreadable(refusal.why())));
        }
        refusal.to_string()
    })
}

/// Why a value is refused.
enum Refusal {
    Encoding(i32),
    OtherType,
    Undecoded(DecodeError),
    Unfit(Unfit),
}

impl Refusal {
    fn why(&self) -> DecodeError {
        match self {
            Self::Undecoded(error) => *error,
            Self::Encoding(_) | Self::OtherType | Self::Unfit(_) => DecodeError::Impossible,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding(encoding) => write!(f, "it has the unknown encoding {encoding}"),
            Self::OtherType => f.write_str("it is empty or of another type"),
            Self::Undecoded(error) => error.fmt(f),
            Self::Unfit(unfit) => f.write_str(reason(*unfit)),
        }
    }
}

fn load_value(
    kind: TypeIndex,
    encoding: i32,
    payload: &[u8],
    name: Option<&[u8]>,
    db: Option<u32>,
    origin: Origin,
) -> Result<Value, Refusal> {
    if encoding != ENCODING {
        return Err(Refusal::Encoding(encoding));
    }
    if origin == Origin::Restore {
        // Checked before decoding: a payload that will be refused may have a million waiters.
        let waiters = record::waiters(payload);
        judge(|machine, pending| machine.tables().admit_waiters(waiters, pending))?;
        // Its operator has not raised the level: replicas and files may have readers of the present one.
        let level = Level::of(payload).unwrap_or_default();
        judge(|machine, _| machine.tables().admit_level(level))?;
    }
    let mut value = match record::decode(payload, Instant(ffi::monotonic_us())) {
        Ok(value) if !value.is_free() && value.kind() as usize == kind => value,
        Ok(_) => return Err(Refusal::OtherType),
        Err(error) => return Err(Refusal::Undecoded(error)),
    };
    if origin == Origin::Restore {
        judge(|machine, pending| machine.tables().admit(&value, pending, ffi::wall_us()))?;
        if shell::is_primary() {
            drop_channels(&mut value, name.unwrap_or_default());
        }
    }
    // Done here and not only when the value is indexed: later commands in the AOF may delete it before that.
    let token = value.largest_token();
    let _ = shell::with(|shell| {
        shell.machine.learn(Fact::Token(token));
        shell.learn_level(Level::of(payload).unwrap_or_default());
    });
    value.from_snapshot = origin != Origin::Restore;
    if let (Some(name), Some(db)) = (name, db) {
        let waiters = value.waiters();
        let loaded = |aside| {
            let waiters = PendingWaiters::new(if aside { 0 } else { waiters });
            inbox::push(Notice::Loaded { db, name: name.into(), aside, waiters });
        };
        match origin {
            Origin::Loading => inbox::push_loaded(db, name),
            Origin::Restore => loaded(false),
            Origin::AsyncLoading => loaded(true),
        }
    }
    Ok(value)
}

/// Checks whether RESTORE may add a value. A replica skips this: its primary has already checked.
fn judge(admit: impl FnOnce(&Machine, usize) -> Result<(), Unfit>) -> Result<(), Refusal> {
    let admitted = shell::with(|shell| match shell.machine.tables().regime.role() {
        Role::Replica => Ok(()),
        Role::Primary => admit(&shell.machine, PendingWaiters::count()),
    });
    match admitted {
        Some(Err(unfit)) => Err(Refusal::Unfit(unfit)),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Most questions about a user and a channel that the server is asked for one value, at some 0.1 µs each.
const CHECKS_MOST: usize = 16_000;

/// Removes channels that not all possible senders may publish on. The server does not say which user sent a RESTORE.
fn drop_channels(value: &mut Value, key: &[u8]) {
    if !value.names_channels() {
        return;
    }
    let senders = Senders::of_restore(key);
    let channels_most = CHECKS_MOST / senders.as_ref().map_or(1, Senders::count).max(1);
    let mut known: HashMap<Box<[u8]>, bool> = HashMap::new();
    value.drop_channels(|channel| {
        if let Some(&may) = known.get(channel) {
            return may;
        }
        let is_looked_at = known.len() < channels_most;
        let may = is_looked_at && senders.as_ref().is_some_and(|all| all.may_all_publish(channel));
        if is_looked_at {
            known.insert(channel.into(), may);
        }
        may
    });
}

fn reason(unfit: Unfit) -> &'static str {
    match unfit {
        Unfit::TokenTooFarAhead => {
            "its token is too far ahead of the wall clock (dlock.max-token-lead-ms)"
        }
        Unfit::TooManyWaiters => "with its waiters there would be more than dlock.max-waiters",
        Unfit::LevelTooHigh => "its level is above that of this server (dlock.record-level)",
    }
}

/// When the last refusal was logged, on the monotonic clock in microseconds; 0: never.
static LAST_REFUSAL: AtomicU64 = AtomicU64::new(0);

/// Refusals since then that were not logged.
static UNTOLD: AtomicU64 = AtomicU64::new(0);

const SECOND_US: u64 = 1_000_000;

/// Logs that a value was refused, at most once a second: clients can provoke any number of refusals.
pub fn log_refusal(origin: Origin, why: &str) {
    if origin != Origin::Restore {
        log(ffi::Level::Warning, &format!("a value cannot be loaded: {why}"));
        return;
    }
    let (now, last) = (ffi::monotonic_us(), LAST_REFUSAL.load(Relaxed));
    if last > 0 && now.saturating_sub(last) < SECOND_US {
        UNTOLD.fetch_add(1, Relaxed);
        return;
    }
    LAST_REFUSAL.store(now.max(1), Relaxed);
    let more = match UNTOLD.swap(0, Relaxed) {
        0 => String::new(),
        n => format!(" (and {n} others since the last line)"),
    };
    log(ffi::Level::Warning, &format!("a value cannot be loaded: {why}{more}"));
}

/// Whether an RDB file was loaded, other than the first part of an AOF or a full synchronization.
static SNAPSHOT: AtomicBool = AtomicBool::new(false);

/// The server loads a file of its own in place of all data.
pub fn file_begins(is_snapshot: bool) {
    SNAPSHOT.fetch_or(is_snapshot, Relaxed);
    let _ = shell::with(|shell| shell.machine.learn(Fact::FileBegun));
}

/// Warns at the start of a primary that grants may have been lost: its data set comes from an RDB file, and neither
/// an AOF nor a quarantine covers what the file lacks.
pub fn warn_at_start(ctx: Ctx<'_>, machine: &Machine) {
    let is_protected = machine.tables().settings.restart_quarantine_ms > 0 || ctx.flags().aof();
    if machine.tables().regime.role() == Role::Primary && SNAPSHOT.load(Relaxed) && !is_protected {
        log(ffi::Level::Warning, STARTED_FROM_SNAPSHOT);
    }
}

const STARTED_FROM_SNAPSHOT: &str = "started from an RDB file without an AOF: grants and longer leases after the last \
    save are lost, and a lock can be granted again while its holder still works; turn appendonly on, or set \
    dlock.restart-quarantine-ms to the longest lease";

/// Input of DEBUG DIGEST: everything but times, which differ between a primary and its replicas.
pub fn digest(value: &Value) -> Vec<Vec<u8>> {
    record::digest(value)
}

/// Bytes of memory that a value owns, without the value itself, estimated from `samples` of its parts.
pub fn memory(value: &Value, samples: usize) -> usize {
    value.memory(samples) - size_of::<Value>()
}

/// Saves the data outside keys, string by string: the largest token and the finished requests, also those of values
/// that the server removed in this turn of its loop. Saves nothing if a
/// restart or a replica would not miss it, so that a file without locks can be loaded without the module. Also runs
/// in forked children.
pub fn aux_save(put: impl FnMut(&[u8])) {
    let now = Now { mono: Instant(ffi::monotonic_us()), wall_us: ffi::wall_us() };
    let _ = inbox::with_lost(|lost| {
        shell::with(|shell| shell.machine.tables().save_beside(now, lost.into_iter(), put))
    });
}

/// Whether anything is not in keys that an AOF rewrite without an RDB preamble lacks. Also runs in forked children.
pub fn has_rest() -> bool {
    shell::with(|shell| !shell.machine.tables().records_beside(ffi::wall_us()).is_empty())
        .unwrap_or(false)
}

/// Reads what [`aux_save`] wrote. `false` refuses the file.
pub fn aux_load(strings: &mut Strings<'_>, origin: Origin) -> bool {
    let Some(head) = strings.next() else { return false };
    if head.bytes().is_empty() {
        return true;
    }
    match beside(strings, head.bytes()) {
        Ok(Some(beside)) => learn(beside, origin),
        Ok(None) => {
            log(ffi::Level::Warning, "the data end in the middle of what is not in keys");
            false
        }
        Err(error) => {
            log(ffi::Level::Warning, &format!("what is not in keys was refused: {error}"));
            if origin == Origin::Loading {
                let _ = shell::with(|shell| shell.machine.learn(Fact::Unreadable(error)));
            }
            false
        }
    }
}

/// `None` if the data end too early. The server runs its event loop while it reads, so the shell is not lent meanwhile.
fn beside(strings: &mut Strings<'_>, head: &[u8]) -> Result<Option<Beside>, DecodeError> {
    let mono = Instant(ffi::monotonic_us());
    let clocks = shell::with(|shell| {
        let machine = &shell.machine;
        (machine.tables().regime.lease(mono), machine.tables().settings.request_limits())
    });
    let (lease, limits) = clocks.ok_or(DecodeError::Impossible)?;
    let mut input = BesideInput::open(head, lease, limits)?;
    while input.wants_more() {
        let Some(piece) = strings.next() else { return Ok(None) };
        input.read(piece.bytes())?;
    }
    input.finish().map(Some)
}

fn learn(Beside { token, spent, standing }: Beside, origin: Origin) -> bool {
    let learnt = shell::with(|shell| {
        shell.machine.learn(Fact::Token(token));
        match &mut shell.sync {
            Some(sync) => {
                sync.level = sync.level.max(standing.level);
                sync.divergence = standing.divergence;
            }
            None => {
                shell.machine.learn(Fact::FileStanding(standing));
            }
        }
        match origin {
            Origin::Loading => shell.replace_spent(Some(spent)),
            Origin::AsyncLoading => shell.spent_aside = Some(spent),
            // The server does not restore what is beside the keys.
            Origin::Restore => {}
        }
    });
    learnt.is_some()
}

/// A full synchronization begins and replaces the data set: the finished requests go with the old data.
pub fn sync_begins() {
    let _ = shell::with(|shell| {
        shell.replace_spent(None);
        shell.sync = Some(Standing::default());
    });
}

/// A load has ended. Of a full synchronization: only now this server stands like its primary.
pub fn load_ends(is_complete: bool) {
    let _ = shell::with(|shell| {
        if let Some(standing) = shell.sync.take()
            && is_complete
        {
            shell.machine.learn(Fact::PrimaryStanding(standing));
        }
    });
}

/// Progress of a full synchronization into a second data set. Records of the primary follow directly after its end,
/// so this cannot wait for the tick.
pub fn sync_aside(load: Load) {
    let _ = shell::with(|shell| {
        let spent = shell.spent_aside.take();
        let standing = shell.sync.take();
        match load {
            Load::Started => shell.sync = Some(Standing::default()),
            Load::Ended => {
                shell.replace_spent(spent);
                shell.machine.learn(Fact::PrimaryStanding(standing.unwrap_or_default()));
            }
            Load::Failed => {}
        }
    });
}
