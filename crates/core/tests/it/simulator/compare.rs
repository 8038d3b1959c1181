//! The machine beside the model: the same answers and the same views.

use super::{OWNERS, Simulation};
use crate::model::{Answer, Counters, Info, KEYS, Model, Out, Row};
use crate::support::{Seen, World};
use dlock_core::effects::Outcome;
use dlock_core::store::Key;

impl Simulation {
    pub(super) fn compare(
        &mut self,
        act: impl FnOnce(&mut World) -> Seen,
        predict: impl Fn(&mut Model, &[usize]) -> Out,
    ) {
        let seen = act(&mut self.world);
        self.model.wall_us = self.world.now().wall_us;
        let touched: Vec<usize> = seen.recorded.iter().map(|(_, key)| number_of(key)).collect();
        let woken = seen.wakes.iter().filter_map(|(client, _)| self.model.blocked_at(*client));
        self.model.woken = woken.filter(|k| !touched.contains(k)).collect();
        let mut got = Out {
            reply: seen.reply.as_ref().map(answer),
            wakes: seen.wakes.iter().map(|(client, outcome)| (*client, answer(outcome))).collect(),
            messages: seen.messages.iter().map(|(to, text)| (lossy(to), lossy(text))).collect(),
            events: seen.events.iter().map(|(event, _, key)| (*event, number_of(key))).collect(),
            counters: counters(seen.counted),
        };
        sort_wakes(&mut got);
        if self.traced {
            println!("        → {got:?}, writes {touched:?}");
        }
        let before = (!self.model.woken.is_empty()).then(|| self.model.clone());
        let mut expected = predict(&mut self.model, &touched);
        sort_wakes(&mut expected);
        if got != expected
            && let Some(mut model) = before
        {
            model.woken_last = true;
            expected = predict(&mut model, &touched);
            sort_wakes(&mut expected);
            model.woken_last = false;
            self.model = model;
        }
        assert_eq!(got, expected, "the machine (left) and the model (right) disagree");
    }

    pub(super) fn compare_views(&mut self) {
        let now = self.world.now();
        let (machine, keys) = (&self.world.machine, &mut self.world.keys);
        let owner = self.random.pick(&OWNERS);
        for (k, name) in KEYS.into_iter().enumerate() {
            let key = Key { db: 0, name: name.as_bytes() };
            let Ok(info) = machine.lock_info(keys, now, key) else {
                assert!(self.model.is_foreign(k), "WRONGTYPE for a lock");
                continue;
            };
            assert!(!self.model.is_foreign(k), "no WRONGTYPE for another type");
            let info = info.map(|info| Info {
                owner: lossy(&info.owner),
                token: info.token,
                holds: info.holds,
                lease_ms: info.lease_ms,
                ttl_ms: info.ttl_ms,
                held_ms: info.held_ms,
                label: lossy(&info.label),
                bound_client: info.bound_client,
                waiters: info.waiters,
            });
            assert_eq!(info, self.model.info(k), "INFO {name}");
            let rows = machine.waiters(keys, now, key, usize::MAX).expect("a lock");
            let rows: Vec<Row> = rows
                .into_iter()
                .map(|row| {
                    let (owner, label) = (lossy(&row.owner), lossy(&row.label));
                    (owner, row.client, row.waiting_ms, row.remaining_ms, label)
                })
                .collect();
            assert_eq!(rows, self.model.rows(k), "WAITERS {name}");
            let position = machine.position(keys, now, key, owner.as_bytes()).expect("a lock");
            assert_eq!(position, self.model.position(k, owner), "POSITION {name} {owner}");
            if let Some(info) = info {
                let current = machine.is_current(keys, now, key, info.token.max(1));
                assert_eq!(current, Ok(info.token > 0), "CHECK {name} {}", info.token);
            }
        }
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

/// Calls that end without a grant at the same moment do so in any order.
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
        Outcome::Fault(fault) => Answer::Error(fault.code.as_str()),
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
