//! Checks the slots of waiting keys. In a cluster, a slot can move to another node without an event for keys that
//! have waiters but no value. So all waiting keys are checked once a second, a few queues at a time. Above
//! 100,000 queues a check of all takes longer: 10 ms for each 1,000.

use dlock_core::ids::QueueId;
use dlock_core::key::Key;
use dlock_core::regime::Gate;
use dlock_core::slab::SlabId;
use dlock_core::store::Lookup;
use dlock_core::time::{Instant, Now};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::ffi::{Args, Ctx, Verdict};
use crate::keyspace::Scope;
use crate::shell::{self, Shell};
use crate::tick::{self, Allowed};

const PERIOD_MS: u64 = 1_000;

/// Queues checked at a time.
const QUEUES_PER_TURN: u32 = 1_000;

/// Pause between two such checks, in milliseconds: however many keys are awaited, they cost a few percent of a core.
const PAUSE_MS: u64 = 10;

/// The current round.
#[derive(Debug, Default)]
pub struct Round {
    /// When to continue, or when the next round begins.
    due: Instant,
    /// Number of the first queue that this round has not checked.
    next_queue: u32,
    /// Slots that this round has asked about.
    asked: BTreeSet<u16>,
    /// Those slots among them that this node does not serve.
    lost: BTreeSet<u16>,
}

/// When the next check is due; `None` if none is needed.
pub fn next_check(shell: &Shell) -> Option<Instant> {
    let needed =
        shell.machine.tables().settings.cluster && !shell.machine.tables().waits.is_empty();
    needed.then_some(shell.slot_round.due)
}

/// If a check is due, ends the waits for keys whose slot this node no longer serves.
pub fn check(ctx: Ctx<'_>, now: Now) {
    let due = |shell: &mut Shell| next_check(shell).is_some_and(|at| at <= now.mono);
    let next = shell::with(|shell| due(shell).then(|| look_at_next(shell, now))).flatten();
    let Some((queues, names, mut lost)) = next else { return };
    let names = names.into_iter();
    let not_ours = names.filter(|(_, name)| ctx.accepts_writes(name) == Verdict::NotOurSlot);
    lost.extend(not_ours.map(|(slot, _)| slot));
    if lost.is_empty() {
        return;
    }
    if ctx.knows_its_slots() {
        let allowed = Allowed { gate: Gate::Unknown, scope: Scope::Everywhere };
        tick::on_keys(ctx, allowed, |shell, turn| {
            // A key that exists while this node does not own its slot is being imported, with its queue if it is a
            // fair lock.
            let mut is_missing = |name: &[u8]| {
                matches!(turn.keys.get(Key { db: 0, name }), Lookup::Missing | Lookup::Elsewhere)
            };
            let lost = |name: &[u8]| lost.contains(&slot(name)) && is_missing(name);
            let end = queues.end;
            let next = shell.machine.slot_lost(queues, lost, turn.fx);
            if next < end {
                shell.slot_round.next_queue = next.number();
                shell.slot_round.due = now.mono;
            }
        });
    }
    // Later queues of these slots are ended in this round, too.
    let _ = shell::with(|shell| {
        if shell.slot_round.next_queue > 0 {
            shell.slot_round.lost = lost;
        }
    });
}

/// The next queues to check, one waiting key for each slot that this round has not asked about, and the slots that
/// are known to be lost.
fn look_at_next(
    shell: &mut Shell,
    now: Now,
) -> (Range<QueueId>, BTreeMap<u16, Vec<u8>>, BTreeSet<u16>) {
    let waits = &shell.machine.tables().waits;
    let Round { next_queue, mut asked, lost, .. } = std::mem::take(&mut shell.slot_round);
    let start = QueueId::new(next_queue);
    let end = QueueId::new(next_queue.saturating_add(QUEUES_PER_TURN)).min(waits.queue_bound());
    let mut names = BTreeMap::new();
    for queue in start.up_to(end).filter_map(|id| waits.queue(id)) {
        let slot = slot(&queue.name);
        if asked.insert(slot) {
            names.insert(slot, queue.name.to_vec());
        }
    }
    shell.slot_round = if end < waits.queue_bound() {
        Round { due: now.mono + PAUSE_MS, next_queue: end.number(), asked, lost: BTreeSet::new() }
    } else {
        Round { due: now.mono + PERIOD_MS, ..Round::default() }
    };
    (start..end, names, lost)
}

/// Error for a call with several keys that this cluster node cannot serve; `keys` are the arguments from index
/// `first` on.
///
/// The server itself checks only the first key (see the registration of commands). This function checks that the
/// others are in the same slot, and that all exist while the slot moves: a missing key may have moved already.
pub fn refusal(
    ctx: Ctx<'_>,
    args: &Args<'_>,
    first: usize,
    keys: &[&[u8]],
) -> Option<&'static str> {
    if !shell::is_cluster() {
        return None;
    }
    let mut slots = keys.iter().map(|key| slot(key));
    let one = slots.next()?;
    if slots.any(|other| other != one) {
        return Some("CROSSSLOT Keys in request don't hash to the same slot");
    }
    // The server has admitted the first key. If it refuses it here, its verdicts are unreliable and do not count.
    let moves = !ctx.serves_all(args, first, keys.len())
        && keys.first().is_some_and(|key| ctx.accepts_writes(key) != Verdict::NotOurSlot);
    moves.then_some("TRYAGAIN Multiple keys request during rehashing of slot")
}

/// The hash slot of a key: CRC16 (XMODEM), modulo 16384, of the key or of its hash tag. The hash tag is the text
/// between the first `{` and the next `}`, unless that is empty (Redis cluster specification, "Key distribution
/// model").
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|&byte| byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16(tag.unwrap_or(key)) % 16_384
}

const fn crc16(bytes: &[u8]) -> u16 {
    let (mut crc, mut at) = (0_u16, 0);
    while at < bytes.len() {
        crc = crc << 8 ^ CRC_OF_BYTE[(crc >> 8 ^ bytes[at] as u16) as usize];
        at += 1;
    }
    crc
}

const CRC_OF_BYTE: [u16; 256] = {
    let (mut table, mut byte) = ([0; 256], 0_u16);
    while byte < 256 {
        let (mut crc, mut bit) = (byte << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

// The module cannot be tested without a server, so the known check value is verified here.
const _: () = assert!(crc16(b"123456789") == 0x31C3);
