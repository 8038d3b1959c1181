//! The one instance of the machine, and its surroundings.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use dlock_core::effects::Effects;
use dlock_core::machine::{Gate, Machine, Role};
use dlock_core::queue::HashKeys;
use dlock_core::spent::SpentRequests;
use dlock_core::time::{Instant, Now};

use crate::ffi::{self, Ctx, MainCell};
#[cfg(debug_assertions)]
use crate::keyspace::{Keys, Named, Scope};
use crate::{cluster, config};

/// Keys and waiters up to which debug builds check everything after each operation.
#[cfg(debug_assertions)]
const CHECKED_UP_TO: usize = 64;

/// The state of the module.
pub struct Shell {
    /// Decides.
    pub machine: Machine,
    /// For INFO.
    pub lateness: Lateness,
    /// When the alarm is set to ring.
    pub armed: Option<Instant>,
    /// How far it is checked that our slots are still ours; only in a cluster.
    pub slot_round: cluster::Round,
    /// The event loop runs: what is loaded from here on is no start.
    pub started: bool,
    /// What the server said when it was last asked whether it accepts writes.
    pub gate: Gate,
    /// Keys that were loaded into a data set that is not served yet.
    pub aside: Vec<(u32, Box<[u8]>)>,
    /// The requests that are over according to that data set.
    pub spent_aside: Option<SpentRequests>,
    settings_seen: u32,
}

/// How far the wall clock is ahead of the monotonic one, in microseconds. Read once per turn of the
/// loop: only fencing tokens need the wall clock, and they grow all the same.
static WALL_AHEAD: AtomicU64 = AtomicU64::new(0);

/// Whether the server runs in cluster mode, which never changes.
static IS_CLUSTER: AtomicBool = AtomicBool::new(false);

/// Whether the server runs in cluster mode.
pub fn is_cluster() -> bool {
    IS_CLUSTER.load(Ordering::Relaxed)
}

/// How late alarms ran, in microseconds.
#[derive(Debug, Default, Clone, Copy)]
pub struct Lateness {
    /// The last one.
    pub last_us: u64,
    /// The latest of all.
    pub worst_us: u64,
}

impl Shell {
    /// In debug builds: what must hold after every operation, as long as looking is cheap.
    #[cfg(debug_assertions)]
    pub fn check(&self, ctx: Ctx<'_>) {
        let size = self.machine.waits().len() + self.machine.leases().len();
        if size <= CHECKED_UP_TO && crate::inbox::is_empty() && !crate::inbox::has_loaded() {
            let mut keys = Keys::new(ctx, ffi::Mode::Read, Scope::Everywhere, Named::none());
            let broken = self.machine.broken_invariant(&mut keys, now());
            assert!(broken.is_none(), "this does not hold: {}", broken.unwrap_or_default());
        }
    }

    /// In debug builds: what must hold after every operation.
    #[cfg(not(debug_assertions))]
    pub fn check(&self, _ctx: Ctx<'_>) {}
}

static SHELL: MainCell<Option<Shell>> = MainCell::new(None);

/// Used again and again, so that most operations allocate nothing for their effects.
static EFFECTS: MainCell<Option<Effects>> = MainCell::new(None);

/// Runs `f` with an empty buffer for effects.
pub fn with_effects(f: impl FnOnce(&mut Effects)) {
    let mut f = Some(f);
    EFFECTS.try_with(|buffer| {
        let effects = buffer.get_or_insert_default();
        effects.clear();
        if let Some(f) = f.take() {
            f(effects);
        }
    });
    // Another module called us from within a keyspace event of ours: it gets a buffer of its own.
    if let Some(f) = f {
        f(&mut Effects::default());
    }
}

/// What the clocks show; the wall clock as it was set at the beginning of this turn of the loop.
pub fn now() -> Now {
    let mono = ffi::monotonic_us();
    Now { mono: Instant(mono), wall_us: mono.wrapping_add(WALL_AHEAD.load(Ordering::Relaxed)) }
}

/// Looks at the wall clock, too. Once per turn of the loop.
pub fn read_clocks() -> Now {
    let ahead = ffi::wall_us().wrapping_sub(ffi::monotonic_us());
    WALL_AHEAD.store(ahead, Ordering::Relaxed);
    now()
}

/// Sets the machine up. Called once, by loading.
pub fn start(ctx: Ctx<'_>) -> Result<(), String> {
    let flags = ctx.flags();
    let mut machine = Machine::new(random_keys()?, config::current(flags.cluster()));
    let now = read_clocks();
    machine.observe(now.mono, false);
    if flags.replica() {
        machine.demote();
    } else {
        machine.begin_quarantine(now.mono);
    }
    IS_CLUSTER.store(flags.cluster(), Ordering::Relaxed);
    let shell = Shell {
        machine,
        lateness: Lateness::default(),
        armed: None,
        slot_round: cluster::Round::default(),
        started: false,
        gate: Gate::Unknown,
        aside: Vec::new(),
        spent_aside: None,
        settings_seen: config::changes(),
    };
    SHELL.try_with(|place| *place = Some(shell)).ok_or_else(|| "loaded on another thread".into())
}

/// Lends the shell to `f`. `None` while it is lent already, which only happens when the server
/// calls us in the middle of our own call to it. The machine knows of no gate then: `f` says what the server said.
pub fn with<R>(f: impl FnOnce(&mut Shell) -> R) -> Option<R> {
    SHELL.try_with(|shell| {
        let shell = shell.as_mut()?;
        if shell.settings_seen != config::changes() {
            shell.settings_seen = config::changes();
            shell.machine.settings = config::current(is_cluster());
        }
        shell.machine.set_gate(Gate::Unknown);
        Some(f(shell))
    })?
}

/// Whether the machine has anything of this connection. Also true if it cannot be asked now.
pub fn knows_client(client: u64) -> bool {
    SHELL
        .try_with(|shell| {
            shell.as_ref().is_some_and(|shell| shell.machine.connections().get(client).is_some())
        })
        .unwrap_or(true)
}

/// Whether this server decides. Also false before the start.
pub fn is_primary() -> bool {
    with(|shell| shell.machine.role() == Role::Primary).unwrap_or(false)
}

/// Keys of the hash tables: clients choose names and owners, and must not be able to choose ones
/// that collide.
fn random_keys() -> Result<HashKeys, String> {
    let (mut one, mut other) = ([0_u8; 8], [0_u8; 8]);
    ffi::random(&mut one)?;
    ffi::random(&mut other)?;
    Ok(HashKeys(u64::from_ne_bytes(one), u64::from_ne_bytes(other)))
}
