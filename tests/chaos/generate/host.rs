//! Commands of the server itself that touch keys, connections and settings.

#![allow(
    clippy::unnecessary_wraps,
    reason = "all are rows of one table; most may find nothing to do"
)]

use super::{Scene, Seat};
use dlock_testing::Dice;

use crate::{
    call::{Call, Meaning, Scope},
    key::{Family, Key},
};

/// A command of the server.
type Make = fn(&mut Scene, &mut Seat, &mut Dice) -> Option<Call>;

/// Kinds of calls with their weights.
const TABLE: [(u32, Make); 26] = [
    (6, delete),
    (3, overwrite),
    (3, rename),
    (2, move_away),
    (2, copy),
    (3, dump),
    (3, restore),
    (3, expire),
    (3, break_it),
    (2, wrong_type),
    (4, plain),
    (2, look),
    (1, scan),
    (1, flush),
    (1, swap),
    (3, kill),
    (2, unblock),
    (1, pause),
    (2, setting),
    (1, trust),
    (1, refuse),
    (1, accept),
    (1, reload),
    (1, rewrite),
    (1, sleep),
    (1, hostile),
];

/// The next command of a connection.
pub fn next(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Call {
    loop {
        let row = dice.weighted(TABLE.iter().map(|row| row.0));
        if let Some(call) = TABLE[row].1(scene, seat, dice) {
            return call;
        }
    }
}

/// A command on keys, for use in a transaction.
pub fn about_keys(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let make: Make = dice.pick(&[delete as Make, rename, expire, break_it, move_away]);
    make(scene, seat, dice)
}

/// A key of any family that operators may change in this burst.
fn stormy(scene: &Scene, seat: &Seat, dice: &mut Dice) -> Option<Key> {
    if !scene.weather.operators {
        return None;
    }
    let family = dice.pick(&Family::ALL);
    let key = scene.key(dice, family, seat);
    (!key.is_calm(scene.burst)).then_some(key)
}

/// Another key of the same tag, mostly of the same family.
fn partner(scene: &Scene, seat: &Seat, dice: &mut Dice, key: Key) -> Option<Key> {
    let other = stormy(scene, seat, dice)?;
    let other =
        if dice.one_in(4) { other } else { Key { no: other.no % 2, family: key.family, ..other } };
    let other = Key { tag: key.tag, db: key.db, ..other };
    (other != key && !other.is_calm(scene.burst) && scene.keys.contains(&other)).then_some(other)
}

fn delete(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let key = stormy(scene, seat, dice)?;
    let word = dice.pick(&["DEL", "UNLINK"]);
    Some(Call::ending(&[word, &key.name()], vec![Scope::Key(key)]))
}

fn overwrite(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let key = stormy(scene, seat, dice)?;
    let name = key.name();
    // The value of another type is removed in the same write, or soon.
    let is_brief = scene.weather.ttls && dice.one_in(2);
    let mut words = vec!["SET", &name, "v"];
    words.extend(if is_brief { &["PX", "5"][..] } else { &[] });
    let mut call = Call::ending(&words, vec![Scope::Key(key)]);
    if !is_brief {
        call.frames.push(vec![b"DEL".to_vec(), name.into_bytes()]);
    }
    Some(call)
}

fn rename(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let key = stormy(scene, seat, dice)?;
    let other = partner(scene, seat, dice, key)?;
    let word = dice.pick(&["RENAME", "RENAMENX"]);
    let mut call = Call::new(&[word, &key.name(), &other.name()], moves(&[key, other]));
    call.capacity = vec![(key, u64::MAX), (other, u64::MAX)];
    Some(call)
}

/// Values of these keys appear and disappear.
fn moves(keys: &[Key]) -> Meaning {
    Meaning::Ends(keys.iter().map(|&key| Scope::Key(key)).collect())
}

fn move_away(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    if scene.cluster {
        return None;
    }
    let key = stormy(scene, seat, dice)?;
    let there = Key { db: 1 - key.db, ..key };
    let mut call = Call::new(&["MOVE", &key.name(), &there.db.to_string()], moves(&[key, there]));
    call.capacity = vec![(key, u64::MAX), (there, u64::MAX)];
    Some(call)
}

fn copy(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let key = stormy(scene, seat, dice)?;
    let other = partner(scene, seat, dice, key)?;
    Some(Call::new(&["COPY", &key.name(), &other.name(), "REPLACE"], moves(&[key, other])))
}

fn dump(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let family = dice.pick(&Family::ALL);
    Some(Call::plain(&["DUMP", &*scene.key(dice, family, seat).name()]))
}

fn restore(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let key = stormy(scene, seat, dice)?;
    let payload = scene.dumps.get(dice.index(scene.dumps.len()))?.clone();
    let mut words = vec![b"RESTORE".to_vec(), key.name().into_bytes(), b"0".to_vec(), payload];
    if dice.below(4) > 0 {
        words.push(b"REPLACE".to_vec());
    }
    Some(Call::new(&words, Meaning::Replaces(key)))
}

fn expire(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    if !scene.weather.ttls {
        return None;
    }
    let key = stormy(scene, seat, dice)?;
    if dice.one_in(4) {
        return Some(Call::ending(&["PERSIST", &*key.name()], vec![Scope::Key(key)]));
    }
    let ms = (1 + dice.below(50)).to_string();
    Some(Call::new(&["PEXPIRE", &key.name(), &ms], Meaning::EndsLater(key)))
}

fn break_it(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let key = stormy(scene, seat, dice)?;
    match key.family {
        Family::Lock | Family::Fair | Family::Rw => {
            Some(Call::ending(&[&*key.family.command("BREAK"), &key.name()], vec![Scope::Key(key)]))
        }
        Family::Sem | Family::Latch => None,
    }
}

fn wrong_type(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let family = dice.pick(&Family::ALL);
    let key = scene.key(dice, family, seat).name();
    let word = dice.pick(&["GET", "LLEN", "HGETALL", "STRLEN"]);
    Some(Call::plain(&[word, &key]))
}

fn plain(_: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let key = format!("{{t{}}}plain{}", dice.pick(&seat.tags), dice.below(3));
    Some(match dice.below(4) {
        0 => Call::plain(&["SET", &key, "value"]),
        1 => Call::plain(&["GET", &*key]),
        2 => Call::plain(&["DEL", &*key]),
        _ => Call::plain(&["APPEND", &key, "x"]),
    })
}

fn look(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let family = dice.pick(&Family::ALL);
    let key = scene.key(dice, family, seat).name();
    Some(match dice.below(7) {
        0 => Call::plain(&["MEMORY", "USAGE", &key]),
        1 => Call::plain(&["OBJECT", "ENCODING", &key]),
        2 => Call::plain(&["PTTL", &*key]),
        3 => Call::plain(&["TOUCH", &*key]),
        4 => Call::plain(&["INFO", "everything"]),
        5 => Call::plain(&["DEBUG", "OBJECT", &key]),
        _ => Call::plain(&["CLIENT", "LIST"]),
    })
}

fn scan(_: &mut Scene, _: &mut Seat, dice: &mut Dice) -> Option<Call> {
    Some(match dice.below(4) {
        0 => Call::plain(&["SCAN", "0", "TYPE", "dlock-mtx", "COUNT", "100"]),
        1 => Call::plain(&["KEYS", "*"]),
        2 => Call::plain(&["RANDOMKEY"]),
        _ => Call::plain(&["DBSIZE"]),
    })
}

fn flush(scene: &mut Scene, _: &mut Seat, dice: &mut Dice) -> Option<Call> {
    if !scene.weather.flushes || dice.below(3) > 0 {
        return None;
    }
    let word = dice.pick(&["FLUSHALL", "FLUSHDB"]);
    let how = dice.pick(&["ASYNC", "SYNC"]);
    Some(Call::ending(&[word, how], vec![Scope::World]))
}

fn swap(scene: &mut Scene, _: &mut Seat, dice: &mut Dice) -> Option<Call> {
    if !scene.weather.flushes || scene.cluster || dice.below(3) > 0 {
        return None;
    }
    Some(Call::ending(&["SWAPDB", "0", "1"], vec![Scope::World]))
}

/// The driver kills connections itself, because it must know whose bindings end. This call kills no existing one.
fn kill(scene: &mut Scene, _: &mut Seat, _: &mut Dice) -> Option<Call> {
    scene.weather.cuts.then(|| Call::plain(&["CLIENT", "KILL", "ID", "999999999"]))
}

fn unblock(scene: &mut Scene, _: &mut Seat, dice: &mut Dice) -> Option<Call> {
    if !scene.features.client_unblock || !scene.weather.cuts || scene.clients.is_empty() {
        return None;
    }
    let client = dice.pick(&scene.clients).to_string();
    Some(Call::plain(&["CLIENT", "UNBLOCK", &client, dice.pick(&["TIMEOUT", "ERROR"])]))
}

fn pause(scene: &mut Scene, _: &mut Seat, dice: &mut Dice) -> Option<Call> {
    if !scene.weather.pauses {
        return None;
    }
    if dice.one_in(3) {
        return Some(Call::plain(&["CLIENT", "UNPAUSE"]));
    }
    let ms = (5 + dice.below(80)).to_string();
    Some(Call::plain(&["CLIENT", "PAUSE", &ms, dice.pick(&["WRITE", "ALL"])]))
}

fn setting(scene: &mut Scene, _: &mut Seat, dice: &mut Dice) -> Option<Call> {
    if !scene.weather.settings {
        return None;
    }
    let (name, value) = dice.pick(&[
        ("dlock.default-lease-ms", "1000"),
        ("dlock.default-lease-ms", "30000"),
        ("dlock.fair-grace-ms", "0"),
        ("dlock.fair-grace-ms", "50"),
        ("dlock.fair-grace-ms", "300"),
        ("dlock.lock-delay-ms", "0"),
        ("dlock.lock-delay-ms", "20"),
        ("dlock.deadlock-detection", "no"),
        ("dlock.deadlock-detection", "yes"),
        ("dlock.log-max-len", "3"),
        ("dlock.log-max-len", "128"),
        ("dlock.log-wait-ms", "1"),
        ("dlock.log-hold-ms", "1"),
        ("dlock.max-waiters-per-key", "3"),
        ("dlock.max-waiters-per-key", "100000"),
        ("dlock.max-waiters", "10"),
        ("dlock.max-waiters", "1000000"),
    ]);
    Some(Call::plain(&["CONFIG", "SET", name, value]))
}

/// No server is diverged, so it changes nothing.
fn trust(_: &mut Scene, _: &mut Seat, _: &mut Dice) -> Option<Call> {
    Some(Call::plain(&["DLOCK.TRUST"]))
}

fn refuse(scene: &mut Scene, _: &mut Seat, _: &mut Dice) -> Option<Call> {
    scene.weather.refusals.then(|| Call::plain(&["CONFIG", "SET", "min-replicas-to-write", "5"]))
}

fn accept(scene: &mut Scene, _: &mut Seat, _: &mut Dice) -> Option<Call> {
    scene.weather.refusals.then(|| Call::plain(&["CONFIG", "SET", "min-replicas-to-write", "0"]))
}

/// Not during BGSAVE: a plain server that reloads while a child saves may load the child's file. It then writes the
/// next DEBUG RELOAD to its AOF, because its count of changes has become negative.
fn reload(scene: &mut Scene, _: &mut Seat, dice: &mut Dice) -> Option<Call> {
    (scene.weather.reloads && dice.one_in(3))
        .then(|| Call::new(&["DEBUG", "RELOAD"], Meaning::EndsBindings))
}

fn rewrite(scene: &mut Scene, _: &mut Seat, _: &mut Dice) -> Option<Call> {
    scene.weather.reloads.then(|| Call::plain(&["BGREWRITEAOF"]))
}

fn sleep(scene: &mut Scene, _: &mut Seat, dice: &mut Dice) -> Option<Call> {
    (scene.weather.reloads && dice.one_in(2)).then(|| Call::plain(&["DEBUG", "SLEEP", "0.02"]))
}

/// Damaged payloads and malformed calls.
fn hostile(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Option<Call> {
    let key = stormy(scene, seat, dice)?;
    if dice.one_in(2) {
        let name = key.name();
        return Some(Call::plain(&["DLOCK.ACQUIRE", &name, "o", "PX", "0", "BLOCK", "x"]));
    }
    let mut payload = scene.dumps.get(dice.index(scene.dumps.len()))?.clone();
    let at = dice.index(payload.len());
    *payload.get_mut(at)? ^= 1 << dice.below(8);
    let words =
        [b"RESTORE".to_vec(), key.name().into_bytes(), b"0".to_vec(), payload, b"REPLACE".to_vec()];
    Some(Call::new(&words, Meaning::Replaces(key)))
}
