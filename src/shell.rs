//! The one instance of the machine, and the state around it.

use dlock_core::events::tick::Progress;
use dlock_core::tables::regime::{Gate, Role};
use std::sync::atomic::{AtomicU64, Ordering};

use dlock_core::base::hash::HashKeys;
use dlock_core::base::time::{Instant, Now};
use dlock_core::machine::{Fact, Machine};
use dlock_core::ports::effects::Effects;
use dlock_core::record::{Level, Standing};
use dlock_core::value::spent::{Prints, SpentRequests};

use crate::config;
use crate::ffi::{self, Ctx, MainCell};
use crate::round::Round;

/// The state of the module.
pub struct Shell {
    /// The lock rules.
    pub machine: Machine,
    /// Counters for INFO.
    pub lateness: Lateness,
    /// When the alarm will ring.
    pub armed: Option<Instant>,
    /// Progress of the check that this node still serves its slots; only in a cluster.
    pub slot_round: Round,
    /// Whether the event loop runs. Data that is loaded after that does not belong to the start.
    pub started: bool,
    /// The server's last answer to whether it accepts writes.
    pub gate: Gate,
    /// Whether the last turn of the loop left due work over.
    pub progress: Progress,
    /// Keys that were loaded into a data set that is not served yet.
    pub aside: Vec<(u32, Box<[u8]>)>,
    /// The finished requests of that data set.
    pub spent_aside: Option<SpentRequests>,
    /// How the data set of a full synchronization stands that is not complete.
    pub sync: Option<Standing>,
    settings_seen: u32,
}

/// How far the wall clock is ahead of the monotonic clock, in microseconds. Read once per turn of the loop: only
/// fencing tokens need the wall clock, and they grow anyway.
static WALL_AHEAD: AtomicU64 = AtomicU64::new(0);

/// Delay of alarms, in microseconds.
#[derive(Debug, Default, Clone, Copy)]
pub struct Lateness {
    /// The delay of the last alarm.
    pub last_us: u64,
    /// The longest delay.
    pub worst_us: u64,
}

/// How fingerprints of requests are made. Callbacks need it while the shell is lent.
static PRINTS: MainCell<Option<Prints>> = MainCell::new(None);

/// How fingerprints of requests are made; `None` before the start.
pub fn prints() -> Option<Prints> {
    PRINTS.try_with(|prints| *prints).flatten()
}

impl Shell {
    /// Another data set replaces the present one, and with it the finished requests.
    pub fn replace_spent(&mut self, spent: Option<SpentRequests>) {
        self.machine.learn(Fact::Requests(spent));
        self.share_prints();
    }

    fn share_prints(&self) {
        PRINTS.try_with(|prints| *prints = Some(self.machine.tables().spent.prints()));
    }

    /// Learns the level of data, which may belong to a full synchronization that is not complete.
    pub fn learn_level(&mut self, level: Level) {
        match &mut self.sync {
            Some(sync) => sync.level = sync.level.max(level),
            None => {
                self.machine.learn(Fact::Level(level));
            }
        }
    }
}

/// Error for a re-entrant call: another module called a dlock command during a call of dlock to the server.
pub const BUSY: &str = "ERR re-entrant call: dlock is already executing a command";

static SHELL: MainCell<Option<Shell>> = MainCell::new(None);

/// Reused, so that most operations allocate nothing for their effects.
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
    // Re-entrant call: another module reacted to one of our keyspace events. It gets a separate buffer.
    if let Some(f) = f {
        f(&mut Effects::default());
    }
}

/// The current time; the wall clock is as of the beginning of this turn of the loop.
pub fn now() -> Now {
    let mono = ffi::monotonic_us();
    Now { mono: Instant(mono), wall_us: mono.wrapping_add(WALL_AHEAD.load(Ordering::Relaxed)) }
}

/// As [`now`], but reads the wall clock, too. Called once per turn of the loop.
pub fn read_clocks() -> Now {
    let ahead = ffi::wall_us().wrapping_sub(ffi::monotonic_us());
    WALL_AHEAD.store(ahead, Ordering::Relaxed);
    now()
}

/// Creates the machine. Called once, while the module loads.
pub fn start(ctx: Ctx<'_>) -> Result<(), String> {
    let flags = ctx.flags();
    let mut machine = Machine::new(random_keys()?, config::current(ffi::is_cluster()));
    let now = read_clocks();
    machine.learn(Fact::Paused(false, now.mono));
    if flags.replica() {
        machine.learn(Fact::Demoted);
    } else {
        machine.learn(Fact::InService(now.mono));
    }
    let shell = Shell {
        machine,
        lateness: Lateness::default(),
        armed: None,
        slot_round: Round::default(),
        started: false,
        gate: Gate::Unknown,
        progress: Progress::Done,
        aside: Vec::new(),
        spent_aside: None,
        sync: None,
        settings_seen: config::changes(),
    };
    shell.share_prints();
    SHELL.try_with(|place| *place = Some(shell)).ok_or_else(|| "loaded on another thread".into())
}

/// Lends the shell to `f`. `None` if it is lent already: the module called the server, and the server called the module
/// back. The last answer about the gate does not count in `f`, which asks and reports it if it writes.
pub fn with<R>(f: impl FnOnce(&mut Shell) -> R) -> Option<R> {
    SHELL.try_with(|shell| {
        let shell = shell.as_mut()?;
        if shell.settings_seen != config::changes() {
            shell.settings_seen = config::changes();
            shell.machine.configure(|settings| *settings = config::current(ffi::is_cluster()));
        }
        shell.machine.learn(Fact::GateForgotten);
        Some(f(shell))
    })?
}

/// Whether the machine tracks anything for this connection. Also true if the shell is lent at the moment.
pub fn knows_client(client: u64) -> bool {
    SHELL
        .try_with(|shell| {
            shell
                .as_ref()
                .is_some_and(|shell| shell.machine.tables().connections.get(client).is_some())
        })
        .unwrap_or(true)
}

/// A staged data set has just replaced all keys.
pub fn data_replaced() {
    let _ = with(|shell| shell.machine.keys_flushed(None));
}

/// Whether this server decides. False before the start.
pub fn is_primary() -> bool {
    with(|shell| shell.machine.tables().regime.role() == Role::Primary).unwrap_or(false)
}

/// Random keys of the hash tables: clients choose names and owners, and must not be able to force collisions.
fn random_keys() -> Result<HashKeys, String> {
    let (mut one, mut other) = ([0_u8; 8], [0_u8; 8]);
    ffi::random(&mut one)?;
    ffi::random(&mut other)?;
    Ok(HashKeys(u64::from_ne_bytes(one), u64::from_ne_bytes(other)))
}
