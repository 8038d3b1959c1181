//! Compares the machine with the model: the same answers and the same views.

use super::{OWNERS, Simulation};
use crate::model::{Answer, Counters, Family, KEYS, Model, Out};
use crate::support::{Seen, World};
use dlock_core::base::key::Key;
use dlock_core::base::kind::Kind;
use dlock_core::ports::effects::Outcome;
use dlock_core::view;
use dlock_wire::reply::{ErrorCode, Info};

impl Simulation {
    pub(super) fn compare(
        &mut self,
        act: impl FnOnce(&mut World) -> Seen,
        predict: impl FnOnce(&mut Model, &[usize]) -> Out,
    ) {
        for (k, name) in KEYS.into_iter().enumerate() {
            self.model.there[k] = self.world.has_key(Key { db: 0, name: name.as_bytes() });
        }
        let seen = act(&mut self.world);
        self.model.wall_us = self.world.now().wall_us;
        let touched: Vec<usize> = seen.recorded.iter().map(|(_, key)| number_of(key)).collect();
        let over = seen.wakes.iter().filter(|(_, outcome)| *outcome == Outcome::Null);
        self.model.found_over = over.map(|(client, _)| *client).collect();
        let mut got = Out {
            reply: seen.reply.as_ref().map(answer),
            wakes: seen.wakes.iter().map(|(client, outcome)| (*client, answer(outcome))).collect(),
            messages: seen.messages.iter().map(|(to, text)| (lossy(to), lossy(text))).collect(),
            events: seen.events.iter().map(|(event, _, key)| (*event, number_of(key))).collect(),
            counters: counters(seen.counted),
        };
        sort_wakes(&mut got);
        sort_ends(&mut got);
        if self.traced {
            println!("        → {got:?}, writes {touched:?}");
        }
        let mut expected = predict(&mut self.model, &touched);
        sort_wakes(&mut expected);
        sort_ends(&mut expected);
        if self.has_portions {
            // A portion of one key may come before or after one of another, and a grant between two expired ones. The
            // tokens show the order of the grants.
            for out in [&mut got, &mut expected] {
                out.events.sort_by_key(|&(event, key)| (key, event));
                out.messages.sort();
            }
        }
        self.model.note_written(&touched);
        for (k, name) in KEYS.into_iter().enumerate() {
            self.model.there[k] = self.world.has_key(Key { db: 0, name: name.as_bytes() });
        }
        let remembered = self.world.machine.tables().known_requests(self.world.now());
        assert_eq!(remembered, self.model.remembered(), "requests that are remembered");
        assert_eq!(got, expected, "the machine (left) and the model (right) disagree");
    }

    pub(super) fn compare_views(&mut self) {
        let now = self.world.now();
        let owner = self.random.pick(&OWNERS);
        let asked = self.random.pick(&[Family::Lock, Family::Fair, Family::Rw]);
        let (machine, keys) = (&self.world.machine, &mut self.world.keys);
        for (k, name) in KEYS.into_iter().enumerate() {
            let key = Key { db: 0, name: name.as_bytes() };
            let family = self.model.family(k);
            if self.model.is_foreign(k) || family.is_some_and(|family| family != asked) {
                let rows =
                    view::waiters(machine.tables(), keys, now, kind_of(asked), key, usize::MAX);
                assert!(rows.is_err(), "no WRONGTYPE for {name} as {asked:?}");
            }
            if self.model.is_foreign(k) {
                continue;
            }
            let family = family.unwrap_or(asked);
            let kind = kind_of(family);
            let info = view::info(machine.tables(), keys, now, kind, key).expect("the family");
            assert_eq!(info, self.model.info(k, family), "INFO {name}");
            let rows = view::waiters(machine.tables(), keys, now, kind, key, usize::MAX)
                .expect("the family");
            assert_eq!(rows, self.model.rows(k), "WAITERS {name}");
            let position = view::position(machine.tables(), keys, now, kind, key, owner.as_bytes());
            assert_eq!(position, Ok(self.model.position(k, owner)), "POSITION {name} {owner}");
            let shown: Vec<u64> =
                info.iter().flat_map(Info::holders).map(|hold| hold.token).collect();
            for &token in &shown {
                let current = view::is_current(machine.tables(), keys, now, kind, key, token);
                assert_eq!(current, Ok(true), "CHECK {name} {token}");
            }
            for token in self.model.tokens(k) {
                let current = view::is_current(machine.tables(), keys, now, kind, key, token);
                assert_eq!(current, Ok(shown.contains(&token)), "CHECK {name} {token}");
            }
        }
    }
}

fn kind_of(family: Family) -> Kind {
    match family {
        Family::Lock => Kind::Lock,
        Family::Fair => Kind::Fair,
        Family::Rw => Kind::Rw,
    }
}

/// The counters in the order in which a [`World`] tells them.
fn counters(grown: [u64; 9]) -> Counters {
    let [grants_at_once, grants_after_waiting, timeouts, expiries, releases, rest @ ..] = grown;
    let [broken, disconnected, replaced, unclaimed] = rest;
    Counters {
        grants_at_once,
        grants_after_waiting,
        timeouts,
        expiries,
        releases,
        broken,
        disconnected,
        replaced,
        unclaimed,
    }
}

/// Sorts holds of one key that end in the same step: their order is undefined, but they come before the grants that
/// follow.
fn sort_ends(out: &mut Out) {
    for ends in out.messages.split_mut(|(_, text)| is_grant(text)) {
        ends.sort();
    }
}

fn is_grant(text: &str) -> bool {
    text.starts_with("granted") || text.starts_with("offered")
}

/// Sorts calls that end without a grant at the same moment: their order is undefined.
fn sort_wakes(out: &mut Out) {
    out.wakes.sort_by_key(|(client, answer)| match answer {
        Answer::Token(_) => u64::MAX,
        _ => *client,
    });
}

fn answer(outcome: &Outcome) -> Answer {
    match outcome {
        Outcome::Token(token) => Answer::Token(*token),
        Outcome::Count(count) => Answer::Count(*count),
        Outcome::Null => Answer::Null,
        Outcome::Fault(fault) if fault.code == ErrorCode::Lost => {
            let reasons = ["expired", "broken", "deleted", "disconnected", "released"];
            let reason = reasons.into_iter().find(|reason| fault.text.starts_with(reason));
            Answer::Lost(reason.expect("a known reason"))
        }
        Outcome::Fault(fault) => Answer::Error(fault.code.as_str()),
        other => panic!("no answer of a lock: {other:?}"),
    }
}

pub(super) fn key_number(name: &str) -> usize {
    number_of(name.as_bytes())
}

fn number_of(name: &[u8]) -> usize {
    KEYS.iter().position(|key| key.as_bytes() == name).expect("a known key")
}

pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
