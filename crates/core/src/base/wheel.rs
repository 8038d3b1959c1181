//! A hierarchical timing wheel over small integer ids.
//!
//! Arming, re-arming and disarming cost O(1) and never search; a deadline moves down at most once per level on its way.
//! Eight levels of 64 slots, half a millisecond per slot at the bottom, hold any deadline of more than 4,000 years. (G.
//! Varghese and A. Lauck, "Hashed and hierarchical timing wheels", 1987. The level of a deadline is the highest base-64
//! digit in which it differs from the wheel's own time, as in the timer of the tokio runtime.)
//!
//! [`Wheel::step`] does a bounded piece of work. So a million deadlines in one millisecond can be spread over many
//! turns of the server's loop.

#![allow(clippy::cast_possible_truncation)] // levels are below 8 and slots below 512

use crate::base::slab::SlabId;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::marker::PhantomData;

const LEVELS: usize = 8;
const SLOTS: usize = 64;
const DIGIT_BITS: u32 = 6;

/// Microseconds in one tick of the wheel.
pub const TICK_US: u64 = 512;

/// Nodes per chunk of the link table.
const CHUNK: usize = 256;

/// No node.
const NIL: u32 = u32::MAX;

/// In `Node::prev`: this node is the first of the slot in the low bits.
const HEAD: u32 = 1 << 31;

#[derive(Debug, Clone, Copy)]
struct Node {
    /// Tick at which the node is due.
    due: u64,
    /// The node before, or `HEAD | slot`, or `NIL` when the node is not armed.
    prev: u32,
    next: u32,
}

#[derive(Debug)]
struct Chunk {
    nodes: Box<[Node; CHUNK]>,
    armed: usize,
}

const IDLE: Node = Node { due: 0, prev: NIL, next: NIL };

/// What one [`Wheel::step`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance<I> {
    /// The deadline of this id has passed; it is no longer armed.
    Due(I),
    /// A deadline moved one level down; there may be more to do.
    Moved,
    /// Nothing is due.
    Idle,
}

/// See the module documentation. Times are microseconds on a clock that the caller chooses.
#[derive(Debug)]
pub struct Wheel<I> {
    /// All deadlines before this tick have been returned.
    elapsed: u64,
    heads: Box<[u32; LEVELS * SLOTS]>,
    occupied: [u64; LEVELS],
    /// The slot that is being moved down, if the last step left it unfinished.
    cascading: Option<usize>,
    /// `None`: no id in that chunk is armed, and its memory is freed.
    chunks: Vec<Option<Chunk>>,
    /// The chunk that emptied last. It is kept until another one empties, in case its ids are armed again.
    spare: usize,
    armed: usize,
    ids: PhantomData<I>,
}

impl<I> Default for Wheel<I> {
    fn default() -> Self {
        Self {
            elapsed: 0,
            heads: Box::new([NIL; LEVELS * SLOTS]),
            occupied: [0; LEVELS],
            cascading: None,
            chunks: Vec::new(),
            spare: 0,
            armed: 0,
            ids: PhantomData,
        }
    }
}

impl<I: SlabId> Wheel<I> {
    /// Number of armed ids.
    pub fn armed(&self) -> usize {
        self.armed
    }

    /// The deadline of `id` in microseconds (rounded up to a tick), if it is armed.
    pub fn deadline(&self, id: I) -> Option<u64> {
        let node = self.find(id.number())?;
        (node.prev != NIL).then(|| node.due.saturating_mul(TICK_US))
    }

    /// Sets the deadline of `id`, whether or not it had one. It is due at the first tick that is
    /// not before `at_us`: never early, at most one tick late.
    pub fn arm(&mut self, id: I, at_us: u64) {
        let id = id.number();
        let due = at_us.div_ceil(TICK_US);
        if self.find(id).is_some_and(|node| node.prev != NIL) {
            self.unlink(id);
        }
        self.link(id, due);
    }

    /// Removes the deadline of `id`, if it has one.
    pub fn disarm(&mut self, id: I) {
        let id = id.number();
        if self.find(id).is_some_and(|node| node.prev != NIL) {
            self.unlink(id);
        }
    }

    /// Removes all deadlines.
    #[must_use]
    pub fn take_all(&mut self) -> Self {
        let fresh = Self { elapsed: self.elapsed, ..Self::default() };
        core::mem::replace(self, fresh)
    }

    /// The wheel in parts, to be freed piece by piece.
    pub(crate) fn into_parts(self) -> impl Iterator<Item = impl Sized> {
        self.chunks.into_iter()
    }

    /// A time not after the next deadline: the deadline itself if it is near, otherwise the time of the next step.
    /// `None` if no id is armed.
    pub fn next(&self) -> Option<u64> {
        if self.cascading.is_some() {
            return Some(self.elapsed * TICK_US);
        }
        let (level, digit) = self.first_occupied()?;
        Some(self.slot_start(level, digit).saturating_mul(TICK_US))
    }

    /// Does one piece of the work at `now_us`.
    pub fn step(&mut self, now_us: u64) -> Advance<I> {
        let now = now_us / TICK_US;
        if let Some(slot) = self.cascading {
            return self.move_down(slot);
        }
        let Some((level, digit)) = self.first_occupied() else {
            self.elapsed = self.elapsed.max(now);
            return Advance::Idle;
        };
        let start = self.slot_start(level, digit);
        if start > now {
            // Nothing is due before `start`, so `now` has the digits of `elapsed` above `level`
            // and a smaller one than `digit` in it: every node stays where it belongs.
            self.elapsed = self.elapsed.max(now);
            return Advance::Idle;
        }
        self.elapsed = self.elapsed.max(start);
        let slot = level * SLOTS + digit;
        if level > 0 {
            self.cascading = Some(slot);
            return self.move_down(slot);
        }
        let id = self.heads[slot];
        self.unlink(id);
        Advance::Due(I::new(id))
    }

    fn move_down(&mut self, slot: usize) -> Advance<I> {
        let id = self.heads[slot];
        if id != NIL {
            let due = self.node(id).due;
            self.unlink(id);
            self.link(id, due);
        }
        if self.heads[slot] == NIL {
            self.cascading = None;
        }
        Advance::Moved
    }

    /// The lowest level that has anything, and its first slot: nothing is due before it, because
    /// a deadline on level n shares all digits above n with `elapsed` and is larger in digit n.
    fn first_occupied(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&bits| bits != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    fn slot_start(&self, level: usize, digit: usize) -> u64 {
        let shift = DIGIT_BITS * level as u32;
        let above = (self.elapsed >> shift) >> DIGIT_BITS;
        ((above << DIGIT_BITS) | digit as u64) << shift
    }

    fn slot_of(&self, due: u64) -> usize {
        let due = due.max(self.elapsed);
        let differs = (self.elapsed ^ due) | (SLOTS as u64 - 1);
        let level = (differs.ilog2() / DIGIT_BITS) as usize;
        let level = level.min(LEVELS - 1);
        let digit = (due >> (DIGIT_BITS * level as u32)) as usize % SLOTS;
        level * SLOTS + digit
    }

    fn find(&self, id: u32) -> Option<&Node> {
        let chunk = self.chunks.get(id as usize / CHUNK)?.as_ref()?;
        Some(&chunk.nodes[id as usize % CHUNK])
    }

    /// The node of an id that is armed.
    fn node(&self, id: u32) -> Node {
        self.find(id).copied().unwrap_or(IDLE)
    }

    /// Changes the node of an id that is armed.
    fn set(&mut self, id: u32, change: impl FnOnce(&mut Node)) {
        if let Some(Some(chunk)) = self.chunks.get_mut(id as usize / CHUNK) {
            change(&mut chunk.nodes[id as usize % CHUNK]);
        }
    }

    /// The chunk of an id that is about to be armed.
    fn chunk(&mut self, id: u32) -> &mut Chunk {
        let index = id as usize / CHUNK;
        if self.chunks.len() <= index {
            self.chunks.resize_with(index + 1, || None);
        }
        self.chunks[index].get_or_insert_with(|| Chunk { nodes: Box::new([IDLE; CHUNK]), armed: 0 })
    }

    /// Removes the node of `id`. Memory is freed chunk by chunk: after a million deadlines in a row no large block is
    /// left to free at once.
    fn clear(&mut self, id: u32) {
        let index = id as usize / CHUNK;
        let Some(Some(chunk)) = self.chunks.get_mut(index) else { return };
        chunk.nodes[id as usize % CHUNK] = IDLE;
        chunk.armed -= 1;
        if chunk.armed == 0 && self.spare != index {
            let spare = core::mem::replace(&mut self.spare, index);
            if let Some(chunk) = self.chunks.get_mut(spare) {
                chunk.take_if(|chunk| chunk.armed == 0);
            }
        }
    }

    fn link(&mut self, id: u32, due: u64) {
        let slot = self.slot_of(due);
        let next = self.heads[slot];
        let chunk = self.chunk(id);
        chunk.nodes[id as usize % CHUNK] = Node { due, prev: HEAD | slot as u32, next };
        chunk.armed += 1;
        if next != NIL {
            self.set(next, |node| node.prev = id);
        }
        self.heads[slot] = id;
        self.occupied[slot / SLOTS] |= 1 << (slot % SLOTS);
        self.armed += 1;
    }

    fn unlink(&mut self, id: u32) {
        let Node { prev, next, .. } = self.node(id);
        if prev & HEAD == 0 {
            self.set(prev, |node| node.next = next);
        } else {
            let slot = (prev & !HEAD) as usize;
            self.heads[slot] = next;
            if next == NIL {
                self.occupied[slot / SLOTS] &= !(1 << (slot % SLOTS));
                if self.cascading == Some(slot) {
                    self.cascading = None;
                }
            }
        }
        if next != NIL {
            self.set(next, |node| node.prev = prev);
        }
        self.clear(id);
        self.armed -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeMap;

    fn drain(wheel: &mut Wheel<u32>, now_us: u64) -> Vec<u32> {
        let mut due = Vec::new();
        loop {
            match wheel.step(now_us) {
                Advance::Due(id) => due.push(id),
                Advance::Moved => {}
                Advance::Idle => return due,
            }
        }
    }

    #[test]
    fn never_early_and_at_most_a_tick_late() {
        let mut wheel = Wheel::<u32>::default();
        for at in [1, 511, 512, 513, 40_000, 5_000_000, 365 * 86_400 * 1_000_000] {
            wheel.arm(3, at);
            assert_eq!(drain(&mut wheel, at - 1).len(), 0, "{at}");
            assert_eq!(drain(&mut wheel, at + TICK_US), [3], "{at}");
        }
        assert_eq!(wheel.armed(), 0);
        assert_eq!(wheel.next(), None);
    }

    #[test]
    fn the_wheel_agrees_with_a_sorted_map() {
        for seed in 1..300u64 {
            let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let mut random = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            let mut wheel = Wheel::<u32>::default();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = random(1 << 45);
            for _ in 0..400 {
                let id = random(40) as u32;
                match random(4) {
                    0 => {
                        wheel.disarm(id);
                        model.remove(&id);
                    }
                    1 => {
                        let far = random(40);
                        now += random(1 << far);
                        let mut fired = drain(&mut wheel, now);
                        fired.sort_unstable();
                        let due: Vec<u32> = model
                            .iter()
                            .filter(|(_, at)| at.div_ceil(TICK_US) <= now / TICK_US)
                            .map(|(&id, _)| id)
                            .collect();
                        assert_eq!(fired, due, "seed {seed}");
                        model.retain(|id, _| !due.contains(id));
                    }
                    _ => {
                        let far = random(42);
                        let at = now.saturating_sub(1000) + random(1 << far);
                        wheel.arm(id, at);
                        model.insert(id, at);
                    }
                }
                assert_eq!(wheel.armed(), model.len(), "seed {seed}");
                match (wheel.next(), model.values().min()) {
                    (None, None) => {}
                    (Some(next), Some(&first)) => {
                        assert!(next <= first.max(now) + TICK_US, "seed {seed}");
                    }
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
        }
    }
}
