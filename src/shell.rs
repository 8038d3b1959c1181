//! The one instance of the machine, and its surroundings.

use dlock_core::effects::Effects;
use dlock_core::machine::{Machine, Role};
use dlock_core::queue::HashKeys;
use dlock_core::time::{Instant, Now};

use crate::config;
use crate::ffi::{self, Ctx, MainCell};

/// The state of the module.
pub struct Shell {
    /// Decides.
    pub machine: Machine,
    /// Is used again and again; see [`Effects`].
    pub effects: Effects,
    /// For INFO.
    pub lateness: Lateness,
    /// When the alarm is set to ring.
    pub armed: Option<Instant>,
    /// When to look next whether our slots are still ours; only in a cluster.
    pub slot_check: Instant,
    /// The event loop runs: what is loaded from here on is no start.
    pub started: bool,
    /// Keys that were loaded into a data set that is not served yet.
    pub aside: Vec<(u32, Box<[u8]>)>,
    cluster: bool,
    settings_seen: u32,
}

/// How late alarms ran, in microseconds.
#[derive(Debug, Default, Clone, Copy)]
pub struct Lateness {
    /// The last one.
    pub last_us: u64,
    /// The latest of all.
    pub worst_us: u64,
}

static SHELL: MainCell<Option<Shell>> = MainCell::new(None);

/// What the clocks show.
pub fn now() -> Now {
    Now { mono: Instant(ffi::monotonic_us()), wall_us: ffi::wall_us() }
}

/// Sets the machine up. Called once, by loading.
pub fn start(ctx: Ctx<'_>) -> Result<(), String> {
    let flags = ctx.flags();
    let mut machine = Machine::new(random_keys()?, config::current(flags.cluster()));
    let now = now();
    machine.observe(now.mono, false);
    if flags.replica() {
        machine.demote(&mut Effects::default());
    } else {
        machine.begin_quarantine(now.mono);
    }
    let shell = Shell {
        machine,
        effects: Effects::default(),
        lateness: Lateness::default(),
        armed: None,
        slot_check: now.mono,
        started: false,
        aside: Vec::new(),
        cluster: flags.cluster(),
        settings_seen: config::changes(),
    };
    SHELL.try_with(|place| *place = Some(shell)).ok_or_else(|| "loaded on another thread".into())
}

/// Lends the shell to `f`. `None` while it is lent already, which only happens when the server
/// calls us in the middle of our own call to it.
pub fn with<R>(f: impl FnOnce(&mut Shell) -> R) -> Option<R> {
    SHELL.try_with(|shell| {
        let shell = shell.as_mut()?;
        if shell.settings_seen != config::changes() {
            shell.settings_seen = config::changes();
            shell.machine.settings = config::current(shell.cluster);
        }
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
