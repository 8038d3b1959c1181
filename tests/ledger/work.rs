//! The workers: each takes turns of one kind, and writes into the ledger what it believed.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use dlock_client::{Client, Error, ErrorKind, Hold, Lock, Lost, MultiHold, Wait};
use dlock_testing::Dice;

use super::{
    book::{At, Ledger, Outcome, Turn},
    witness::family,
};

/// How long a request waits for its grant.
const PATIENCE: Duration = Duration::from_secs(20);

/// A kind of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Locks,
    Multi,
    Elections,
    Owners,
}

impl Kind {
    pub const ALL: [Kind; 4] = [Kind::Locks, Kind::Multi, Kind::Elections, Kind::Owners];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Locks => "locks",
            Kind::Multi => "multi-locks",
            Kind::Elections => "elections",
            Kind::Owners => "owners",
        }
    }

    /// Few keys, so that the workers meet.
    pub fn keys(self) -> Vec<String> {
        let names = |name: &str, n: usize| (0..n).map(|n| format!("{name}{n}")).collect::<Vec<_>>();
        match self {
            Kind::Locks | Kind::Owners => [names("lock", 6), names("fair", 6)].concat(),
            Kind::Multi => names("multi", 48),
            Kind::Elections => names("election", 20),
        }
    }
}

/// The outcome of a call that ended work, from the API of the client. The only place that knows it.
fn outcome_of<T>(result: &Result<T, Error>) -> Outcome {
    match result.as_ref().map_err(Error::kind) {
        Ok(_) => Outcome::Success,
        Err(ErrorKind::Lost { reason, .. }) => Outcome::Lost { by_clock: reason == Lost::Expired },
        Err(ErrorKind::NotHeld) => Outcome::Lost { by_clock: false },
        Err(_) => Outcome::Unknown,
    }
}

/// What a hold says of itself: whether it is lost, and how long it is valid.
type Check = Box<dyn Fn() -> (bool, Duration) + Send>;

/// The check of any view of a hold.
macro_rules! check {
    ($hold:expr) => {{
        let hold = $hold;
        Box::new(move || (hold.lost_now().is_some(), hold.valid_for())) as Check
    }};
}

/// What all workers of a run share.
#[derive(Debug)]
pub struct Crew {
    pub kind: Kind,
    pub ledger: Arc<Ledger>,
    /// Turns that are left.
    pub left: AtomicUsize,
    /// Grants count only when a replica has them.
    pub replicas: bool,
    /// Some workers ignore a loss: a fault that the verdicts must find.
    pub planted: bool,
    /// The longest work.
    pub longest: Duration,
    /// Requests without a grant, by error.
    pub refusals: Mutex<BTreeMap<String, usize>>,
}

impl Crew {
    fn refuse(&self, error: &Error) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        *refusals.entry(format!("{:?}", error.kind())).or_default() += 1;
    }
}

/// A turn while it is under way: the work writes, and it is read when the work was dropped, too.
#[derive(Clone)]
struct Slip(Arc<Mutex<Draft>>);

struct Draft {
    ledger: Arc<Ledger>,
    /// Entered never, so far.
    turn: Turn,
    was_told: bool,
}

impl Slip {
    fn draft(&self) -> std::sync::MutexGuard<'_, Draft> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `check()`; true: go on.
    fn check(&self, check: &Check, ignores: bool) -> bool {
        let draft = &mut *self.draft();
        let before = draft.ledger.now();
        let (is_lost, valid) = check();
        if is_lost && !ignores {
            draft.was_told = true;
            draft.turn.is_finished = false;
            return false;
        }
        draft.turn.valid = valid;
        draft.turn.entered = draft.turn.entered.min(draft.ledger.now());
        draft.turn.yes = before;
        true
    }

    /// Works under a hold; it ends with a check.
    async fn work(self, check: Check, holds: Vec<(String, u64)>, plan: Plan) {
        self.draft().turn.holds = holds;
        let end = tokio::time::Instant::now() + plan.work;
        loop {
            if !self.check(&check, plan.ignores) {
                return;
            }
            let left = end.saturating_duration_since(tokio::time::Instant::now());
            if left.is_zero() {
                self.draft().turn.is_finished = true;
                return;
            }
            tokio::time::sleep(left.min(Duration::from_millis(10))).await;
        }
    }

    /// Writes the turn, if it had a hold; returns the number of turns.
    fn settle(&self, outcome: Outcome, plan: Plan) -> usize {
        let draft = self.draft();
        if draft.turn.entered == At::MAX {
            return 0;
        }
        let outcome = match outcome {
            _ if draft.was_told => Outcome::CutShort,
            _ if plan.ignores => Outcome::Success,
            outcome => outcome,
        };
        draft.ledger.write(Turn { outcome, settled: draft.ledger.now(), ..draft.turn.clone() });
        1
    }
}

/// One turn with a lock or several: by `with`, or by a guard and its release.
macro_rules! take {
    ($worker:ident, $lock:expr, $plan:ident, $holds:expr) => {{
        let (lock, plan, slip, holds) = ($lock, $plan, $worker.slip(), $holds);
        if plan.by_with {
            let result = lock.timeout(PATIENCE).with(|hold| {
                let (slip, holds) = (slip.clone(), holds(&hold));
                async move {
                    slip.work(check!(hold), holds, plan).await;
                    Ok(())
                }
            });
            let result = result.await;
            match (slip.settle(outcome_of(&result), plan), result) {
                (0, Err(error)) if error.kind() != ErrorKind::NotAcquired => Err(error),
                (turns, _) => Ok(turns),
            }
        } else {
            let Some(guard) = lock.acquire_timeout(PATIENCE).await? else { return Ok(0) };
            slip.clone().work(check!(guard.hold()), holds(&guard), plan).await;
            if plan.drops {
                drop(guard);
                return Ok(slip.settle(Outcome::CutShort, plan));
            }
            let released = guard.release().await;
            Ok(slip.settle(outcome_of(&released), plan))
        }
    }};
}

/// The choices of one turn.
#[derive(Clone, Copy)]
struct Plan {
    work: Duration,
    lease: Option<Duration>,
    by_with: bool,
    /// The guard is dropped instead of released.
    drops: bool,
    ignores: bool,
}

/// A worker with its client.
pub struct Worker {
    crew: Arc<Crew>,
    client: Client,
    number: usize,
    dice: Dice,
    keys: Vec<String>,
}

impl Worker {
    pub fn new(crew: &Arc<Crew>, client: &Client, number: usize, seed: u64) -> Worker {
        let dice = Dice::part(seed, 1_000 + number as u64);
        let keys = crew.kind.keys();
        Worker { crew: crew.clone(), client: client.clone(), number, dice, keys }
    }

    /// Takes turns until there are none left.
    pub async fn run(mut self) {
        while self.crew.left.load(Ordering::SeqCst) > 0 {
            let turned = match self.crew.kind {
                Kind::Locks => self.lock().await,
                Kind::Multi => self.multi_lock().await,
                Kind::Elections => self.election().await,
                Kind::Owners => self.owner().await,
            };
            match turned {
                Ok(turns) => {
                    let minus = |left: usize| Some(left.saturating_sub(turns));
                    let _ = self.crew.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, minus);
                }
                Err(error) => {
                    self.crew.refuse(&error);
                    tokio::time::sleep(self.dice.millis(20)).await;
                }
            }
        }
    }

    fn slip(&self) -> Slip {
        let (ledger, asked) = (self.crew.ledger.clone(), self.crew.ledger.now());
        let turn = Turn { worker: self.number, asked, entered: At::MAX, ..Turn::default() };
        Slip(Arc::new(Mutex::new(Draft { ledger, turn, was_told: false })))
    }

    /// Mostly short work; some is longer than its lease, and some is long enough for several faults.
    fn plan(&mut self) -> Plan {
        let dice = &mut self.dice;
        // Leaders lead for long; and what is done to them takes seconds.
        let rare = if self.crew.kind == Kind::Elections { 60 } else { 200 };
        let lease = dice.one_in(8).then(|| Duration::from_millis(60) + dice.millis(200));
        let most = match lease {
            Some(_) => 300,
            None if dice.one_in(rare) => u64::try_from(self.crew.longest.as_millis()).unwrap_or(0),
            None if dice.one_in(10) => 100,
            None => 5,
        };
        let ignores = self.crew.planted && dice.one_in(10);
        Plan {
            work: dice.millis(most),
            lease,
            by_with: !ignores && dice.one_in(2),
            drops: dice.one_in(8),
            ignores,
        }
    }

    fn key(&mut self) -> String {
        self.keys[self.dice.index(self.keys.len())].clone()
    }

    /// A lock with the options of a plan.
    fn options(&mut self, lock: Lock, plan: Plan) -> Lock {
        let lock = lock.wait(self.dice.pick(&[Wait::Queue, Wait::Blocking]));
        let lock = match plan.lease {
            Some(lease) => lock.fixed_lease(lease),
            None => lock,
        };
        if self.crew.replicas { lock.replicas(1, Duration::from_secs(1)) } else { lock }
    }

    /// A lock of its own owner, or of a named one.
    async fn lock(&mut self) -> Result<usize, Error> {
        let (plan, key) = (self.plan(), self.key());
        let is_fair = family(&key) == "DFAIR";
        let lock = if is_fair { self.client.fair_lock(&key) } else { self.client.lock(&key) };
        let lock = if self.dice.one_in(3) { lock.owner(self.owner_name()) } else { lock };
        let holds = |hold: &Hold| vec![(key.clone(), hold.token())];
        take!(self, self.options(lock, plan), plan, holds)
    }

    fn owner_name(&self) -> String {
        format!("worker-{}", self.number)
    }

    /// Two to four locks at once.
    async fn multi_lock(&mut self) -> Result<usize, Error> {
        let plan = self.plan();
        let mut keys = self.keys.clone();
        for n in 0..4 {
            let other = n + self.dice.index(keys.len() - n);
            keys.swap(n, other);
        }
        keys.truncate(2 + self.dice.index(3));
        let lock = self.client.multi_lock(&keys);
        let lock = if self.dice.one_in(3) { lock.owner(self.owner_name()) } else { lock };
        let lock = match plan.lease {
            Some(lease) => lock.fixed_lease(lease),
            None => lock,
        };
        let holds =
            |hold: &MultiHold| keys.iter().cloned().zip(hold.tokens().iter().copied()).collect();
        take!(self, lock, plan, holds)
    }

    /// Campaigns, leads for a while, and resigns.
    async fn election(&mut self) -> Result<usize, Error> {
        let (plan, key) = (self.plan(), self.key());
        let election = self.client.election(&key).value(self.owner_name());
        let election =
            if self.dice.one_in(4) { election.bind(Duration::from_millis(300)) } else { election };
        let slip = self.slip();
        let Some(leadership) = election.campaign_timeout(PATIENCE).await? else { return Ok(0) };
        let holds = vec![(key, leadership.token())];
        slip.clone().work(check!(leadership.hold()), holds, plan).await;
        let resigned = leadership.resign().await;
        Ok(slip.settle(outcome_of(&resigned), plan))
    }

    /// One owner for the locks of a task: a lock, entered again while it is held, or a second lock.
    async fn owner(&mut self) -> Result<usize, Error> {
        let (plan, inner_plan) = (self.plan(), self.plan());
        let (key, second) = (self.key(), self.key());
        let name = self.owner_name();
        let is_new = self.dice.one_in(2);
        let owner = if is_new { self.client.new_owner() } else { self.client.owner(name) };
        let of = |key: &str| {
            if family(key) == "DFAIR" { owner.fair_lock(key) } else { owner.lock(key) }
        };
        let outer = self.options(of(&key), plan);
        let again = if self.dice.one_in(3) { second } else { key.clone() };
        let inner = self.options(of(&again), inner_plan);
        let slip = self.slip();
        let Some(guard) = outer.acquire_timeout(PATIENCE).await? else { return Ok(0) };
        slip.clone().work(check!(guard.hold()), vec![(key, guard.token())], plan).await;
        let inner_slip = self.slip();
        // Two locks in any order may be a deadlock: then there is no inner turn.
        let inner = inner.acquire_timeout(PATIENCE).await.ok().flatten();
        if let Some(inner) = &inner {
            let holds = vec![(again, inner.token())];
            inner_slip.clone().work(check!(inner.hold()), holds, inner_plan).await;
        }
        let mut held: Vec<_> =
            inner.map(|guard| (guard, inner_slip, inner_plan)).into_iter().collect();
        held.insert(self.dice.index(held.len() + 1), (guard, slip, plan));
        let mut turns = 0;
        for (guard, slip, plan) in held {
            // The release of the other one may have taken long.
            slip.check(&check!(guard.hold()), plan.ignores);
            let released = guard.release().await;
            turns += slip.settle(outcome_of(&released), plan);
        }
        Ok(turns)
    }
}
