//! Random calls of every family, with every option.

mod families;
mod host;

use std::{collections::VecDeque, rc::Rc};

use dlock_testing::{Dice, Reply as _, redis::Value};

use super::{
    call::{Call, Form, Meaning, Mode},
    key::{Family, Key, Owner},
};

/// Features of a server beyond the first version of the commands.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is one command or option")]
pub struct Features {
    /// DLOCK.AWAIT.
    pub lock_await: bool,
    /// DSEM.RESIZE BY.
    pub resize_by: bool,
    /// CLIENT UNBLOCK of calls of a module is safe.
    pub client_unblock: bool,
}

/// Operations allowed in one burst.
#[derive(Debug, Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is one kind of fault")]
pub struct Weather {
    /// DEL, RENAME, BREAK and similar on keys that are not calm.
    pub operators: bool,
    /// FLUSHDB, FLUSHALL, SWAPDB.
    pub flushes: bool,
    /// CLIENT PAUSE.
    pub pauses: bool,
    /// CLIENT KILL, CLIENT UNBLOCK, closed connections.
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

/// State shared by all connections of a burst.
#[derive(Debug)]
pub struct Scene {
    /// Number of the burst, which determines the calm keys.
    pub burst: u64,
    /// The keys.
    pub keys: Vec<Key>,
    /// Several slots: each call stays in one tag, and only database 0 exists.
    pub cluster: bool,
    /// Allowed operations.
    pub weather: Weather,
    /// Features of the server.
    pub features: Features,
    /// Ids of connections, for CLIENT KILL and UNBLOCK.
    pub clients: Vec<u64>,
    /// DUMP payloads, for RESTORE.
    pub dumps: VecDeque<Vec<u8>>,
    /// Numbers REQIDs.
    pub requests: u64,
    /// The last requests with an id that ask for holds.
    pub asked: VecDeque<Asked>,
    /// Calls that may be repeated, with their database.
    pub repeatable: VecDeque<(Rc<Call>, u8)>,
}

/// A request with an id that asks for a hold.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Its keys.
    pub keys: Vec<Key>,
    /// The owner.
    pub owner: Owner,
    /// The mode.
    pub mode: Mode,
    /// REQID.
    pub id: String,
}

/// Number of requests among which a RELEASE finds its own.
const ASKED: usize = 100;

impl Scene {
    /// A request with this id is about to be sent.
    fn ask(&mut self, meaning: &Meaning, id: &str) {
        let (keys, owner, mode) = match meaning {
            Meaning::Acquire(acquire) => (acquire.keys.clone(), acquire.owner, acquire.mode),
            Meaning::Permit { key, owner, .. } => (vec![*key], *owner, Mode::Exclusive),
            _ => return,
        };
        self.asked.push_back(Asked { keys, owner, mode, id: id.to_owned() });
        if self.asked.len() > ASKED {
            self.asked.pop_front();
        }
    }

    /// A random key of a family in the connection's database, with one of these tags.
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

/// Knowledge of one connection.
#[derive(Debug)]
pub struct Seat {
    /// Its number.
    pub no: u16,
    /// Its database.
    pub db: u8,
    /// The tags that its node serves, as it believes.
    pub tags: Vec<u8>,
    /// The connection mostly waits in blocked calls.
    pub waits: bool,
    /// Locks that it holds, from replies.
    pub held: Vec<(Key, Owner, Mode, i64)>,
    /// Permits that it has, from replies.
    pub permits: Vec<(Key, String)>,
}

impl Seat {
    fn serves(&self, key: Key) -> bool {
        key.db == self.db && self.tags.contains(&key.tag)
    }

    fn owner(&self, dice: &mut Dice) -> Owner {
        // Sometimes it acts for an owner of another connection.
        let no = if dice.one_in(25) { self.no ^ 1 } else { self.no };
        Owner(no, u8::try_from(dice.below(3)).unwrap_or(0))
    }

    /// Learns its holds from a reply.
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

/// The call inside a script, where it does not wait and has no connection.
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
    // The only key of these calls is their first argument, unless they count their keys.
    let Some(key) = frame.get(1).filter(|key| key.starts_with(b"{")).cloned() else { return call };
    let mut words =
        vec![b"EVAL".to_vec(), b"return redis.pcall(unpack(ARGV))".to_vec(), b"1".to_vec(), key];
    words.extend(frame.iter().cloned());
    Call { frames: vec![words], block: None, waits: None, ..call }
}

/// The call with a second one inside MULTI and EXEC, sometimes with WATCH.
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
        release: None,
    }
}
