//! Work on keys that is no operation of a caller, and what the machine may do meanwhile.

use dlock_core::machine::Fact;
use dlock_core::ports::turn::Turn;
use dlock_core::tables::regime::Gate;

use crate::ffi::{self, Ctx, Mode, Verdict};
use crate::keyspace::{Keys, Named, Scope};
use crate::perform;
use crate::shell::{self, Shell};

/// What the machine may do in a turn.
#[derive(Debug, Clone, Copy)]
pub struct Allowed {
    /// Whether the server would accept a client's write. Only an open gate lets the machine write.
    pub gate: Gate,
    /// The keys that may be accessed.
    pub scope: Scope,
}

impl Allowed {
    /// Asks the server about the gate, unless that is known. Once per turn is enough, because no other command runs
    /// in it.
    pub fn ask(&mut self, ctx: Ctx<'_>) {
        if self.gate == Gate::Unknown {
            self.gate = ask_gate(ctx);
        }
    }
}

/// Asks the server whether it would accept a client's write now.
pub fn ask_gate(ctx: Ctx<'_>) -> Gate {
    if ffi::avoid_replica_traffic() {
        return Gate::Shut;
    }
    let flags = ctx.flags();
    if flags.loading() || flags.async_loading() || !flags.primary() {
        return Gate::Shut;
    }
    match ctx.accepts_writes(b"dlock") {
        Verdict::Accepts => Gate::Open,
        // Another node, or none, serves the slot of this word. It only matters that the cluster is up.
        Verdict::NotOurSlot if ctx.cluster_is_up() => Gate::Open,
        Verdict::NotOurSlot | Verdict::Refused(_) => Gate::Shut,
    }
}

/// Lets the machine work on keys, and performs the effects.
pub fn on_keys(ctx: Ctx<'_>, allowed: Allowed, run: impl FnOnce(&mut Shell, &mut Turn<'_>)) {
    shell::with_effects(|effects| {
        let asked = shell::with(|shell| {
            let now = shell::now();
            shell.machine.learn(Fact::Gate(allowed.gate, now.mono));
            let mut keys = Keys::new(ctx, Mode::Write, allowed.scope, Named::none());
            run(shell, &mut Turn::without_caller(&mut keys, now, effects));
        });
        if asked.is_some() {
            perform::perform(ctx, Named::none(), effects);
        }
    });
}
