//! Calls of the module's own commands.

mod counting;
mod several;

use std::time::Duration;

use super::{Asked, Scene, Seat};
use dlock_testing::Dice;

use crate::{
    call::{Acquire, Call, Form, Meaning, Mode, Scope, Waits},
    key::{Family, Key, Owner},
};

/// Minimum lease of a call without PX, with any default of the burst.
pub const LEAST_DEFAULT_LEASE: Duration = Duration::from_secs(1);

/// A call that is being made.
struct Draft<'a> {
    scene: &'a mut Scene,
    seat: &'a mut Seat,
    dice: &'a mut Dice,
}

/// Creates a call.
type Make = fn(&mut Draft) -> Call;

/// Kinds of calls with their weights: on busy and on waiting connections.
const TABLE: [(u32, u32, Make); 19] = [
    (30, 30, |draft| draft.acquire()),
    (25, 0, |draft| draft.release()),
    (6, 0, |draft| draft.renew()),
    (2, 0, |draft| draft.fence()),
    (6, 0, |draft| draft.look()),
    (10, 15, |draft| draft.acquire_rw()),
    (9, 10, |draft| draft.acquire_permit()),
    (8, 0, |draft| draft.release_permit()),
    (2, 0, |draft| draft.renew_permit()),
    (2, 0, |draft| draft.make_semaphore()),
    (2, 3, |draft| draft.take()),
    (2, 0, |draft| draft.give()),
    (2, 0, |draft| draft.count_down()),
    (1, 6, |draft| draft.await_latch()),
    (3, 10, |draft| draft.acquire_all()),
    (2, 6, |draft| draft.acquire_any()),
    (2, 0, |draft| draft.release_all()),
    (1, 0, |draft| draft.renew_all()),
    (1, 0, |draft| draft.unblock()),
];

/// The next call of a connection.
pub fn next(scene: &mut Scene, seat: &mut Seat, dice: &mut Dice) -> Call {
    if dice.one_in(25)
        && let Some(call) = again(scene, seat, dice)
    {
        return call;
    }
    let waits = seat.waits;
    let weight = |row: &(u32, u32, Make)| if waits { row.1 } else { row.0 };
    let row = dice.weighted(TABLE.iter().map(weight));
    TABLE[row].2(&mut Draft { scene, seat, dice })
}

/// Another copy of a recent request, as a client sends it after a lost connection.
fn again(scene: &Scene, seat: &Seat, dice: &mut Dice) -> Option<Call> {
    let (first, db) = scene.repeatable.get(dice.index(scene.repeatable.len()))?;
    if *db != seat.db || !(seat.waits || first.is_brief()) {
        return None;
    }
    let mut call = Call::clone(first);
    call.repeatable = false;
    Some(call)
}

/// The options of a call that takes something.
#[derive(Default)]
struct Terms {
    words: Vec<String>,
    lease: Duration,
    block: Option<Duration>,
    bind: bool,
    id: Option<String>,
}

impl Terms {
    #[allow(clippy::needless_pass_by_value, reason = "numbers and texts are given as they are")]
    fn word(&mut self, name: &str, value: impl ToString) {
        self.words.extend([name.to_owned(), value.to_string()]);
    }
}

impl Draft<'_> {
    fn key(&mut self, family: Family) -> Key {
        self.scene.key(self.dice, family, self.seat)
    }

    fn lock_family(&mut self) -> Family {
        if self.dice.below(5) < 3 { Family::Lock } else { Family::Fair }
    }

    fn lease(&mut self) -> Duration {
        let ms = if self.dice.below(10) < 6 {
            20_000 + self.dice.below(20_000)
        } else {
            5 + self.dice.below(200)
        };
        Duration::from_millis(ms)
    }

    /// Random lease, wait and other options. `queues`: QUEUE may be among them.
    fn terms(&mut self, queues: bool) -> Terms {
        let mut terms = Terms { lease: LEAST_DEFAULT_LEASE, ..Terms::default() };
        if !self.dice.one_in(10) {
            terms.lease = self.lease();
            if terms.lease.as_secs() > 1 && self.dice.one_in(4) {
                terms.lease = Duration::from_secs(terms.lease.as_secs());
                terms.word("EX", terms.lease.as_secs());
            } else {
                terms.word("PX", terms.lease.as_millis());
            }
        }
        let block = match (self.seat.waits, self.dice.below(10)) {
            (true, 0) => Some(0),
            (true, _) => Some(1 + self.dice.below(1_500)),
            (false, 0) => Some(1 + self.dice.below(15)),
            (false, _) => None,
        };
        if let Some(ms) = block {
            terms.word("BLOCK", ms);
            terms.block = Some(Duration::from_millis(ms));
        }
        if queues && self.dice.one_in(7) {
            terms.word("QUEUE", 20 + self.dice.below(400));
        }
        if self.dice.one_in(12) {
            terms.word("NOTIFY", format!("news{}", self.dice.below(4)));
        }
        if self.dice.one_in(10) {
            terms.word("BIND", self.dice.pick(&[0, 5, 60]));
            terms.bind = true;
        }
        if self.dice.one_in(12) {
            terms.word("LABEL", format!("label{}", self.dice.below(100)));
        }
        self.id(&mut terms, 3);
        terms
    }

    /// Adds a request id, once in `n` times.
    fn id(&mut self, terms: &mut Terms, n: u64) {
        if self.dice.one_in(n) {
            let id = self.scene.request();
            terms.word("REQID", &id);
            terms.id = Some(id);
        }
    }

    fn call(&mut self, fixed: &[&str], terms: &Terms, meaning: Meaning) -> Call {
        if let Some(id) = &terms.id {
            self.scene.ask(&meaning, id);
        }
        let words: Vec<&str> =
            fixed.iter().copied().chain(terms.words.iter().map(String::as_str)).collect();
        Call { block: terms.block, repeatable: terms.id.is_some(), ..Call::new(&words, meaning) }
    }

    fn acquire(&mut self) -> Call {
        let family = self.lock_family();
        let key = self.key(family);
        let owner = self.seat.owner(self.dice);
        let mut terms = self.terms(true);
        if self.dice.one_in(15) {
            terms.words.push("NOREENTRY".to_owned());
        }
        let meaning = acquire(vec![key], Form::One, owner, Mode::Exclusive, &terms);
        let mut call = self.call(
            &[&family.command("ACQUIRE"), &key.name(), &owner.to_string()],
            &terms,
            meaning,
        );
        call.waits = waits(&[key], owner, &terms);
        call
    }

    fn acquire_rw(&mut self) -> Call {
        let key = self.key(Family::Rw);
        let owner = self.seat.owner(self.dice);
        let terms = self.terms(true);
        let (mode, word) =
            if self.dice.below(3) == 0 { (Mode::Write, "WRITE") } else { (Mode::Read, "READ") };
        let meaning = acquire(vec![key], Form::One, owner, mode, &terms);
        let mut call =
            self.call(&["DRW.ACQUIRE", &key.name(), &owner.to_string(), word], &terms, meaning);
        call.waits = waits(&[key], owner, &terms);
        if let Some(waits) = &mut call.waits {
            waits.reads = mode == Mode::Read;
        }
        call
    }

    fn held(&mut self, forget: bool) -> (Key, Owner, Mode, i64) {
        let count = self.seat.held.len();
        if count > 0 && !self.dice.one_in(20) {
            let n = self.dice.index(count);
            return if forget { self.seat.held.swap_remove(n) } else { self.seat.held[n] };
        }
        let family = self.dice.pick(&[Family::Lock, Family::Fair, Family::Rw]);
        let mode = match family {
            Family::Rw => self.dice.pick(&[Mode::Read, Mode::Write]),
            _ => Mode::Exclusive,
        };
        (self.key(family), self.seat.owner(self.dice), mode, 1)
    }

    fn release(&mut self) -> Call {
        if self.dice.one_in(2)
            && let Some(call) = self.release_request()
        {
            return call;
        }
        let (key, owner, mode, token) = self.held(true);
        let mut terms = Terms::default();
        if self.dice.one_in(3) {
            terms.words.push("ALL".to_owned());
        }
        if self.dice.one_in(4) {
            terms.word("TOKEN", token);
        }
        self.delay(&mut terms, mode);
        let meaning = Meaning::Ends(vec![Scope::Hold(key, owner, mode)]);
        self.of_hold("RELEASE", key, owner, mode, &terms, meaning)
    }

    /// Releases what a recent request has, of whichever connection: sometimes before it has arrived.
    fn release_request(&mut self) -> Option<Call> {
        let n = self.dice.index(self.scene.asked.len());
        let Asked { keys, owner, mode, id } = self.scene.asked.get(n)?.clone();
        let key = keys[self.dice.index(keys.len())];
        if !self.seat.serves(key) {
            return None;
        }
        let mut terms = Terms::default();
        if key.family != Family::Sem {
            self.delay(&mut terms, mode);
        }
        terms.word("REQID", &id);
        terms.id = Some(id.clone());
        let meaning = Meaning::Ends(vec![Scope::Hold(key, owner, mode)]);
        if keys.len() > 1 && self.dice.one_in(2) {
            terms.words = vec!["REQID".to_owned(), id];
            let scopes = keys.iter().map(|&key| Scope::Hold(key, owner, mode)).collect();
            let meaning = Meaning::Ends(scopes);
            return Some(self.call_of_keys("DLOCK.MRELEASE", &keys, owner, &terms, meaning));
        }
        let call = self.of_hold("RELEASE", key, owner, mode, &terms, meaning);
        Some(Call { release: Some((key, id)), ..call })
    }

    fn delay(&mut self, terms: &mut Terms, mode: Mode) {
        if mode != Mode::Read && self.dice.one_in(20) {
            terms.word("DELAY", 1 + self.dice.below(30));
        }
    }

    fn renew(&mut self) -> Call {
        let (key, owner, mode, token) = self.held(false);
        let mut terms = Terms { lease: self.lease(), ..Terms::default() };
        terms.word("PX", terms.lease.as_millis());
        if self.dice.one_in(4) {
            terms.word("TOKEN", token);
        }
        let bind = self.dice.one_in(10);
        if bind {
            terms.word("BIND", 10);
        }
        let meaning = Meaning::Renew {
            keys: vec![key],
            owner,
            mode,
            lease: terms.lease,
            bind,
            tells_token: true,
        };
        self.of_hold("RENEW", key, owner, mode, &terms, meaning)
    }

    fn of_hold(
        &mut self,
        verb: &str,
        key: Key,
        owner: Owner,
        mode: Mode,
        terms: &Terms,
        meaning: Meaning,
    ) -> Call {
        let (command, name, owner) = (key.family.command(verb), key.name(), owner.to_string());
        let mut fixed = vec![&*command, &*name, &*owner];
        fixed.extend(match mode {
            Mode::Exclusive => None,
            Mode::Read => Some("READ"),
            Mode::Write => Some("WRITE"),
        });
        self.call(&fixed, terms, meaning)
    }

    fn fence(&mut self) -> Call {
        let (key, owner, mode, token) = self.held(false);
        if mode != Mode::Exclusive {
            return self.look();
        }
        let token = token.saturating_add(i64::try_from(self.dice.below(3)).unwrap_or(0));
        let words =
            [&*key.family.command("FENCE"), &key.name(), &owner.to_string(), &token.to_string()];
        Call::ending(&words, vec![Scope::Hold(key, owner, mode)])
    }

    fn look(&mut self) -> Call {
        let family = self.dice.pick(&Family::ALL);
        let key = self.key(family).name();
        let owner = self.seat.owner(self.dice).to_string();
        match self.dice.below(4) {
            0 => Call::plain(&[&*family.command("INFO"), &key]),
            1 => Call::plain(&[&*family.command("WAITERS"), &key, "COUNT", "5"]),
            2 if family != Family::Latch => {
                Call::plain(&[&*family.command("POSITION"), &key, &owner])
            }
            3 if family == Family::Sem => Call::plain(&["DSEM.PERMITS", &*key]),
            3 if family != Family::Latch => {
                Call::plain(&[&*family.command("CHECK"), &key, "1700000000000000"])
            }
            _ if self.dice.one_in(2) => {
                Call::plain(&["DLOCK.LOG", self.dice.pick(&["GET", "LEN", "RESET"])])
            }
            _ => Call::plain(&["TYPE", &*key]),
        }
    }

    fn unblock(&mut self) -> Call {
        if self.scene.clients.is_empty() {
            return self.look();
        }
        let client = self.dice.pick(&self.scene.clients).to_string();
        let mut words = vec!["DLOCK.UNBLOCK", &client];
        words.extend(self.dice.one_in(2).then_some("ERROR"));
        Call::plain(&words)
    }
}

fn acquire(keys: Vec<Key>, form: Form, owner: Owner, mode: Mode, terms: &Terms) -> Meaning {
    let (lease, bind) = (terms.lease, terms.bind);
    Meaning::Acquire(Acquire { keys, form, owner, mode, lease, bind })
}

/// The wait of a call, if it blocks.
fn waits(keys: &[Key], owner: Owner, terms: &Terms) -> Option<Waits> {
    terms.block?;
    Some(Waits {
        keys: keys.to_vec(),
        owner: owner.to_string(),
        all: false,
        count: 1,
        reads: false,
    })
}
