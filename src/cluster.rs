//! In a cluster, a slot can move to another node without a word about the keys that are only
//! waited for. So the slots of all waiting keys are checked once a second, a few queues per turn of
//! the loop.

use std::collections::{BTreeMap, BTreeSet};

use dlock_core::store::{Key, Slot, Store};
use dlock_core::time::{Instant, Now};

use crate::ffi::{Ctx, Verdict};
use crate::shell::{self, Shell};
use crate::tick;

const PERIOD_MS: u64 = 1_000;

/// Queues looked at in one turn of the loop.
const QUEUES_PER_TURN: u32 = 1_000;

/// The round that is going on.
#[derive(Debug, Default)]
pub struct Round {
    /// When to go on, or when the next round begins.
    due: Instant,
    /// The first queue that was not looked at in this round.
    next_queue: u32,
    /// Slots that were asked for in this round.
    asked: BTreeSet<u16>,
}

/// When the next check is due; `None` if none is needed.
pub fn next_check(shell: &Shell) -> Option<Instant> {
    let needed = shell.machine.settings.cluster && !shell.machine.waits().is_empty();
    needed.then_some(shell.slot_round.due)
}

/// Ends the waits for keys whose slot this node does not serve any more, if a check is due.
pub fn check(ctx: Ctx<'_>, now: Now) {
    let due = |shell: &mut Shell| next_check(shell).is_some_and(|at| at <= now.mono);
    let names = shell::with(|shell| due(shell).then(|| names_to_ask_for(shell, now)));
    let lost: BTreeSet<u16> = names
        .flatten()
        .unwrap_or_default()
        .into_iter()
        .filter(|(_, name)| ctx.accepts_writes(name) == Verdict::NotOurSlot)
        .map(|(slot, _)| slot)
        .collect();
    if !lost.is_empty() {
        tick::on_keys(ctx, |shell, keys, _, effects| {
            // A key that is here while its slot is not ours yet has just come, with its queue if it is a fair lock's.
            let mut is_missing =
                |name: &[u8]| matches!(keys.get(Key { db: 0, name }), Slot::Missing);
            shell.machine.slot_lost(|name| lost.contains(&slot(name)) && is_missing(name), effects);
        });
    }
}

/// One waiting key of each slot that was not asked for in this round, among the next queues.
fn names_to_ask_for(shell: &mut Shell, now: Now) -> BTreeMap<u16, Vec<u8>> {
    let waits = shell.machine.waits();
    let round = &mut shell.slot_round;
    let end = round.next_queue.saturating_add(QUEUES_PER_TURN);
    let mut names = BTreeMap::new();
    for queue in (round.next_queue..end).filter_map(|id| waits.queue(id)) {
        let slot = slot(&queue.name);
        if round.asked.insert(slot) {
            names.insert(slot, queue.name.to_vec());
        }
    }
    *round = if end < waits.queue_bound() {
        Round { due: now.mono, next_queue: end, asked: std::mem::take(&mut round.asked) }
    } else {
        Round { due: now.mono + PERIOD_MS, ..Round::default() }
    };
    names
}

/// The hash slot of a key: CRC16 (XMODEM) of the key, or of what stands between its first `{` and
/// the next `}` unless that is empty, modulo 16384 (Redis cluster specification, "Key distribution
/// model").
fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|&byte| byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % 16_384
}

// The module itself cannot be tested without a server, so the one known answer is checked here.
const _: () = assert!(crc_of_check_word() == 0x31C3);

const fn crc_of_check_word() -> u16 {
    let word = b"123456789";
    let (mut crc, mut at) = (0_u16, 0);
    while at < word.len() {
        crc ^= (word[at] as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        at += 1;
    }
    crc
}
