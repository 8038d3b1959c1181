//! Random calls of every family, with every option.

mod families;
mod host;

use std::{collections::VecDeque, rc::Rc, time::Instant};

use dlock_testing::{Reply as _, redis::Value};

use super::{
    call::{Call, Form, Meaning, Mode},
    dice::Dice,
    key::{Family, Key, Owner},
};

/// What a server understands beyond the first version of the commands.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is one command or option")]
pub struct Features {
    /// CANCEL with REQID.
    pub cancel_id: bool,
    /// DLOCK.AWAIT.
    pub lock_await: bool,
    /// DSEM.RESIZE BY.
    pub resize_by: bool,
    /// CLIENT UNBLOCK of calls of a module is safe.
    pub client_unblock: bool,
}

/// What may happen in one burst.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is one kind of fault")]
pub struct Weather {
    /// DEL, RENAME, BREAK and so on of keys that are not calm.
    pub operators: bool,
    /// FLUSHDB, FLUSHALL, SWAPDB.
    pub flushes: bool,
    /// CLIENT PAUSE.
    pub pauses: bool,
    /// CLIENT KILL, CLIENT UNBLOCK, connections that are cut.
    pub cuts: bool,
    /// CONFIG SET of the module's settings.
    pub settings: bool,
    /// Refused writes.
    pub refusals: bool,
    /// DEBUG RELOAD, BGREWRITEAOF, DEBUG SLEEP.
    pub reloads: bool,
    /// TTLs on keys.
    pub ttls: bool,
}

/// What is common to all connections of a burst.
#[derive(Debug)]
pub struct Scene {
    /// The number of the burst: it decides which keys are calm.
    pub burst: u64,
    /// The keys.
    pub keys: Vec<Key>,
    /// More than one slot matters: calls stay in one tag, databases cannot be changed.
    pub cluster: bool,
    /// What may happen.
    pub weather: Weather,
    /// What the server understands.
    pub features: Features,
    /// Ids of connections, for CLIENT KILL and UNBLOCK.
    pub clients: Vec<u64>,
    /// Payloads that DUMP gave, for RESTORE.
    pub dumps: VecDeque<Vec<u8>>,
    /// Numbers REQIDs.
    pub requests: u64,
    /// Calls that may be sent again, with the time of their first copy and their database.
    pub repeatable: VecDeque<(Rc<Call>, Instant, u8)>,
}

impl Scene {
    /// A key of a family in a database, out of these tags.
    fn key(&self, dice: &mut Dice, family: Family, seat: &Seat) -> Key {
        let fits = |key: &&Key| key.family == family && seat.serves(**key);
        let count = self.keys.iter().filter(fits).count();
        let chosen = self.keys.iter().filter(fits).nth(dice.index(count)).copied();
        chosen.unwrap_or(Key { db: seat.db, tag: 0, family, no: 0 })
    }

    /// Several DLOCK keys of one tag.
    fn several(&self, dice: &mut Dice, seat: &Seat) -> Vec<Key> {
        let first = self.key(dice, Family::Lock, seat);
        let same =
            |key: &&Key| (key.db, key.tag, key.family) == (first.db, first.tag, first.family);
        let mut keys: Vec<Key> = self.keys.iter().filter(same).copied().collect();
        let wanted = 1 + dice.index(keys.len());
        while keys.len() > wanted {
            let out = dice.index(keys.len());
            keys.remove(out);
        }
        if dice.one_in(2) {
            keys.reverse();
        }
        keys
    }

    /// An id that no other request has.
    fn request(&mut self) -> String {
        self.requests += 1;
        format!("r{}", self.requests)
    }
}

/// What one connection knows.
#[derive(Debug)]
pub struct Seat {
    /// Its number.
    pub no: u16,
    /// Its database.
    pub db: u8,
    /// The tags that its node serves, as it believes.
    pub tags: Vec<u8>,
    /// It spends its time in blocked calls.
    pub waits: bool,
    /// Locks that it was told it holds.
    pub held: Vec<(Key, Owner, Mode, i64)>,
    /// Permits that it was told it has.
    pub permits: Vec<(Key, String)>,
}

impl Seat {
    fn serves(&self, key: Key) -> bool {
        key.db == self.db && self.tags.contains(&key.tag)
    }

    fn owner(&self, dice: &mut Dice) -> Owner {
        // Now and then it acts for an owner that usually comes over another connection.
        let no = if dice.one_in(25) { self.no ^ 1 } else { self.no };
        Owner(no, u8::try_from(dice.below(3)).unwrap_or(0))
    }

    /// Learns from an answer what it holds.
    pub fn learn(&mut self, meaning: &Meaning, reply: &Value) {
        match (meaning, reply) {
            (Meaning::Acquire(acquire), Value::Int(token)) => {
                self.held.push((acquire.keys[0], acquire.owner, acquire.mode, *token));
            }
            (Meaning::Acquire(acquire), Value::Array(tokens)) if acquire.form == Form::All => {
                for (key, token) in acquire.keys.iter().zip(tokens) {
                    let Value::Int(token) = token else { continue };
                    self.held.push((*key, acquire.owner, acquire.mode, *token));
                }
            }
            (Meaning::Acquire(acquire), Value::Array(pair)) if acquire.form == Form::Any => {
                let [Value::BulkString(name), Value::Int(token)] = &pair[..] else { return };
                let key = acquire.keys.iter().find(|key| key.name().as_bytes() == name);
                self.held.extend(key.map(|key| (*key, acquire.owner, acquire.mode, *token)));
            }
            (Meaning::Permit { key, .. }, Value::BulkString(_)) => {
                self.permits.push((*key, reply.text()));
            }
            _ => {}
        }
    }
}

/// The next call of a connection.
pub fn next(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Call {
    if !seat.waits && dice.one_in(40) {
        return host::next(scene, seat, dice);
    }
    let call = families::next(scene, seat, dice);
    if seat.waits {
        return call;
    }
    match dice.below(30) {
        0 => in_script(call),
        1 => in_transaction(scene, seat, dice, call),
        _ => call,
    }
}

/// The call inside a script: it does not wait there, and has no connection.
fn in_script(call: Call) -> Call {
    let [frame] = &call.frames[..] else { return call };
    let has = |word: &str| frame.iter().any(|w| w.eq_ignore_ascii_case(word.as_bytes()));
    if has("BIND")
        || has("QUEUE")
        || has("DLOCK.UNBLOCK")
        || call.waits.as_ref().is_some_and(|w| w.all)
    {
        return call;
    }
    // The only key of all calls that get here is their second word, unless they count their keys.
    let Some(key) = frame.get(1).filter(|key| key.starts_with(b"{")).cloned() else { return call };
    let mut words =
        vec![b"EVAL".to_vec(), b"return redis.pcall(unpack(ARGV))".to_vec(), b"1".to_vec(), key];
    words.extend(frame.iter().cloned());
    Call { frames: vec![words], block: None, waits: None, ..call }
}

/// The call with a second one inside MULTI and EXEC, at times under WATCH.
fn in_transaction(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice, call: Call) -> Call {
    let about_keys = if dice.one_in(4) { host::about_keys(scene, seat, dice) } else { None };
    let second = about_keys.unwrap_or_else(|| families::next(scene, seat, dice));
    let keys = |call: &Call| call.frames[0].iter().find(|word| word.starts_with(b"{")).cloned();
    let (Some(one), Some(two)) = (keys(&call), keys(&second)) else { return call };
    let slot = |key: &[u8]| key.iter().take_while(|&&b| b != b'}').copied().collect::<Vec<_>>();
    if call.frames.len() > 1
        || second.frames.len() > 1
        || (scene.cluster && slot(&one) != slot(&two))
    {
        return call;
    }
    let mut frames = Vec::new();
    if dice.one_in(2) {
        frames.push(vec![b"WATCH".to_vec(), one]);
    }
    frames.push(vec![b"MULTI".to_vec()]);
    frames.extend(call.frames.iter().chain(&second.frames).cloned());
    frames.push(vec![b"EXEC".to_vec()]);
    Call {
        frames,
        meaning: Meaning::Several(vec![call.meaning, second.meaning]),
        block: None,
        capacity: [call.capacity, second.capacity].concat(),
        waits: None,
        repeatable: false,
    }
}
