//! Many connections that use read-write locks, semaphores and latches at random, and record their replies.

use std::collections::BTreeMap;

use redis::{Value, cmd};

use crate::{
    args,
    support::{Client, Dice, Reply, Server},
    workload::{Gone, Work, Workload, answer},
};

/// Number of keys of each kind; also the initial count of semaphores and latches.
const KEYS: u64 = 5;
const PERMITS: i64 = 12;
const STEPS: i64 = 1_000_000;

/// One connection's read or write hold: key, owner, mode.
pub type Hold = (String, String, &'static str);

/// Knowledge of one connection, or of all of them together.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Token and count of each hold.
    pub holds: BTreeMap<Hold, (i64, i64)>,
    /// The ids of the granted requests of each hold.
    ids: BTreeMap<Hold, Vec<String>>,
    /// Key, owner and count of each permit, by id.
    pub permits: BTreeMap<String, (String, String, i64)>,
    /// The id of the request of each permit.
    permit_requests: BTreeMap<String, String>,
    /// Permits taken without a lease, by key.
    pub taken: BTreeMap<String, i64>,
    /// Steps of each latch.
    pub steps: BTreeMap<String, i64>,
    /// The call that the end of the server interrupted.
    pub pending: Option<Call>,
}

/// A call, and what it is about.
#[derive(Clone, Debug)]
pub struct Call {
    words: Vec<Vec<u8>>,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// The hold, and the id of the request.
    Acquire(Hold, String),
    /// The same.
    Release(Hold, String),
    Permit {
        key: String,
        owner: String,
        count: i64,
        request: String,
    },
    /// The permit id.
    Return {
        id: String,
    },
    Take {
        key: String,
        n: i64,
    },
    Give {
        key: String,
        n: i64,
    },
    Step {
        key: String,
    },
    Other,
}

impl Account {
    /// Records a reply.
    #[track_caller]
    fn book(&mut self, call: &Call, answer: &Result<Value, String>) {
        match (&call.what, answer) {
            (What::Acquire(hold, id), Ok(Value::Int(token))) => {
                self.ids.entry(hold.clone()).or_default().push(id.clone());
                let known = self.holds.entry(hold.clone()).or_insert((*token, 0));
                assert_eq!(known.0, *token, "{call:?}");
                known.1 += 1;
            }
            // The holder of a mode gets it again, in spite of waiters.
            (What::Acquire(hold, _), Ok(Value::Nil)) if !self.holds.contains_key(hold) => {}
            (What::Acquire(hold, _), Err(text))
                if text.contains("DEADLOCK") && !self.holds.contains_key(hold) => {}
            (What::Release(hold, id), Ok(Value::Int(left))) => {
                self.ids.entry(hold.clone()).or_default().retain(|open| open != id);
                let known = self.holds.get_mut(hold).expect("what is given back was had");
                known.1 -= 1;
                assert_eq!(known.1, *left, "{call:?}");
                if *left == 0 {
                    self.holds.remove(hold);
                }
            }
            (What::Permit { key, owner, count, request }, Ok(Value::BulkString(id))) => {
                let id = String::from_utf8(id.clone()).unwrap();
                self.permit_requests.insert(id.clone(), request.clone());
                let earlier = self.permits.insert(id, (key.clone(), owner.clone(), *count));
                assert_eq!(earlier, None, "{call:?}");
            }
            (What::Permit { .. } | What::Take { .. }, Ok(Value::Nil)) | (What::Other, Ok(_)) => {}
            (What::Return { id }, Ok(Value::Int(_))) => drop(self.permits.remove(id)),
            (What::Take { key, n }, Ok(Value::Int(1))) => {
                *self.taken.entry(key.clone()).or_default() += n;
            }
            (What::Give { key, n }, Ok(Value::Int(_))) => {
                *self.taken.entry(key.clone()).or_default() -= n;
            }
            (What::Step { key }, Ok(Value::Int(_))) => {
                *self.steps.entry(key.clone()).or_default() += 1;
            }
            _ => panic!("{call:?}: {answer:?}\n{self:?}"),
        }
    }

    /// Repeats the interrupted calls.
    #[track_caller]
    pub fn repeat_pending(&mut self, client: &mut Client) {
        let Some(call) = self.pending.take() else { return };
        let answer = match client.cmd(&call.words) {
            error @ Value::ServerError(_) => Err(error.error()),
            value => Ok(value),
        };
        self.book(&call, &answer);
    }

    /// The sum of all accounts.
    pub fn sum(accounts: Vec<Account>) -> Account {
        let mut all = Account::default();
        for account in accounts {
            all.holds.extend(account.holds);
            all.permits.extend(account.permits);
            for (key, n) in account.taken {
                *all.taken.entry(key).or_default() += n;
            }
            for (key, n) in account.steps {
                *all.steps.entry(key).or_default() += n;
            }
        }
        all.taken.retain(|_, n| *n != 0);
        all
    }

    /// All state that a server shows.
    #[track_caller]
    pub fn of(server: &Server) -> Account {
        let mut all = Account::default();
        let number = |map: &Value, field: &str| map.field(field).int();
        for key in (0..KEYS).map(|n| format!("rw{n}")) {
            let info = server.cmd(&["DRW.INFO", &key]);
            if info.is_null() {
                continue;
            }
            let writer = info.field("writer");
            let writers = (!writer.is_null()).then_some((writer, "WRITE"));
            let readers = info.field("readers").items().into_iter().map(|hold| (hold, "READ"));
            for (hold, mode) in writers.into_iter().chain(readers) {
                let name = (key.clone(), hold.field("owner").text(), mode);
                all.holds.insert(name, (number(&hold, "token"), number(&hold, "holds")));
            }
        }
        for key in (0..KEYS).map(|n| format!("sem{n}")) {
            for permit in server.cmd(&["DSEM.PERMITS", &key]).items() {
                let is = (key.clone(), permit.field("owner").text(), number(&permit, "count"));
                all.permits.insert(permit.field("id").text(), is);
            }
            let info = server.cmd(&["DSEM.INFO", &key]);
            if number(&info, "taken") != 0 {
                all.taken.insert(key.clone(), number(&info, "taken"));
            }
            assert_eq!(number(&info, "capacity"), PERMITS, "{key}");
        }
        for key in (0..KEYS).map(|n| format!("latch{n}")) {
            let info = server.cmd(&["DLATCH.INFO", &key]);
            assert_eq!(number(&info, "initial"), STEPS, "{key}");
            all.steps.insert(key, STEPS - number(&info, "count"));
        }
        all.steps.retain(|_, n| *n != 0);
        all
    }
}

/// Starts the connections. If `ruthless`, leases are short, all options are used, and random keys are broken,
/// deleted, renamed or resized: then no connection can rely on its replies.
pub fn start(server: &Server, connections: u64, ruthless: bool, seed: u64) -> Workload<Account> {
    for n in 0..KEYS {
        server.cmd(&args!["DSEM.INIT", format!("sem{n}"), PERMITS]).int();
        server.cmd(&args!["DLATCH.INIT", format!("latch{n}"), STEPS]).int();
    }
    let address = redis::Client::open(server.url()).unwrap();
    let worker = |n| Worker {
        connection: server.conn(),
        address: address.clone(),
        dice: Dice::new(seed ^ (n + 1) << 32),
        owner: format!("owner{n}"),
        ruthless,
        calls: 0,
        last_id: String::new(),
        account: Account::default(),
    };
    Workload::run((0..connections).map(worker))
}

struct Worker {
    connection: redis::Connection,
    address: redis::Client,
    dice: Dice,
    owner: String,
    ruthless: bool,
    calls: u64,
    /// The last permit that it had.
    last_id: String,
    account: Account,
}

impl Work for Worker {
    type Account = Account;

    fn step(&mut self) -> Result<(), Gone> {
        self.calls += 1;
        let call = self.next_call();
        let mut sent = cmd(std::str::from_utf8(&call.words[0]).unwrap());
        for word in &call.words[1..] {
            sent.arg(word);
        }
        if self.ruthless && self.dice.below(40) == 0 {
            // Disconnects without reading the reply, and reconnects.
            let sent = self.connection.send_packed_command(&sent.get_packed_command());
            let back = self.address.get_connection();
            self.connection = sent.and(back).map_err(|_| Gone)?;
            return Ok(());
        }
        self.account.pending = Some(call);
        let answer = answer(sent.query(&mut self.connection))?;
        let call = self.account.pending.take().unwrap();
        if let Ok(Value::BulkString(id)) = &answer {
            self.last_id = String::from_utf8_lossy(id).into_owned();
        }
        if !self.ruthless {
            self.account.book(&call, &answer);
        } else if let Err(text) = answer {
            let expected = [
                "NOTHELD",
                "LOST",
                "UNKNOWN",
                "DEADLOCK",
                "LIMIT",
                "REPLACED",
                "no such semaphore",
                "no such key",
            ];
            assert!(expected.iter().any(|part| text.contains(part)), "{call:?}: {text}");
        }
        Ok(())
    }

    fn into_account(self) -> Account {
        self.account
    }
}

impl Worker {
    fn next_call(&mut self) -> Call {
        let key = self.dice.below(KEYS);
        match self.dice.below(12) {
            0 if self.ruthless => self.trample(key),
            0..6 => self.rw(format!("rw{key}")),
            6..10 => self.sem(format!("sem{key}")),
            _ => {
                let key = format!("latch{key}");
                let words = args!["DLATCH.COUNTDOWN", &key, "REQID", self.id()];
                Call { words, what: What::Step { key } }
            }
        }
    }

    /// A new request id.
    fn id(&self) -> String {
        format!("{}-{}", self.owner, self.calls)
    }

    /// The options of a call that takes something.
    fn options(&mut self) -> Vec<Vec<u8>> {
        let lease = if self.ruthless { 10 + self.dice.below(400) } else { 600_000 };
        let mut options = args!["PX", lease, "REQID", self.id()];
        match self.dice.below(6) {
            0..=2 => options.extend(args!["BLOCK", 1 + self.dice.below(40)]),
            3 if self.ruthless => options.extend(args!["QUEUE", 60]),
            4 if self.ruthless => options.extend(args!["BIND", 5, "NOTIFY", "news"]),
            5 => options.extend(args!["LABEL", format!("label of {}", self.id())]),
            _ => {}
        }
        options
    }

    fn rw(&mut self, key: String) -> Call {
        let mode = if self.dice.below(3) == 0 { "WRITE" } else { "READ" };
        let hold = (key, self.owner.clone(), mode);
        let has = self.ruthless || self.account.holds.contains_key(&hold);
        let head = |verb: &str| args![verb, &hold.0, &hold.1, mode];
        let (words, what) = match self.dice.below(10) {
            0..5 if has => {
                let ids = self.account.ids.get(&hold).map_or(&[][..], Vec::as_slice);
                let id = if self.ruthless {
                    format!("{}-{}", self.owner, self.calls.saturating_sub(self.dice.below(40)))
                } else {
                    ids[self.dice.index(ids.len())].clone()
                };
                ([head("DRW.RELEASE"), args!["REQID", &id]].concat(), What::Release(hold, id))
            }
            5 if has => (head("DRW.RENEW"), What::Other),
            _ => ([head("DRW.ACQUIRE"), self.options()].concat(), What::Acquire(hold, self.id())),
        };
        Call { words, what }
    }

    fn sem(&mut self, key: String) -> Call {
        let n = 1 + i64::try_from(self.dice.below(2)).unwrap();
        let some = self.account.permits.first_key_value();
        let known = some.map(|(id, permit)| (id.clone(), permit.0.clone()));
        let permit = if self.ruthless && !self.last_id.is_empty() {
            Some((self.last_id.clone(), key.clone()))
        } else {
            known
        };
        let taken = self.account.taken.get(&key).copied().unwrap_or_default();
        let (words, what) = match (self.dice.below(10), permit) {
            (0..3, Some((id, key))) => {
                let request = self.account.permit_requests.get(&id);
                let words = if let Some(request) = request.filter(|_| !self.ruthless) {
                    args!["DSEM.RELEASE", key, &self.owner, "REQID", request]
                } else {
                    args!["DSEM.RELEASE", key, &id]
                };
                (words, What::Return { id })
            }
            (3, Some((id, key))) => (args!["DSEM.RENEW", key, &id], What::Other),
            (4, _) => (
                args!["DSEM.TAKE", &key, n, "REQID", self.id(), "BLOCK", 1 + self.dice.below(20)],
                What::Take { key, n },
            ),
            (5, _) if taken >= n || self.ruthless => {
                (args!["DSEM.GIVE", &key, n, "REQID", self.id()], What::Give { key, n })
            }
            _ => {
                let mut words = args!["DSEM.ACQUIRE", &key, &self.owner, "COUNT", n];
                if self.ruthless && self.dice.below(2) == 0 {
                    words.extend(args!["LIMIT", PERMITS]);
                }
                words.extend(self.options());
                let (owner, request) = (self.owner.clone(), self.id());
                (words, What::Permit { key, owner, count: n, request })
            }
        };
        Call { words, what }
    }

    /// Interference of an operator with any key.
    fn trample(&mut self, key: u64) -> Call {
        let kind = ["rw", "sem", "latch"][usize::try_from(self.dice.below(3)).unwrap()];
        let (key, other) = (format!("{kind}{key}"), format!("{kind}{}", self.dice.below(KEYS)));
        let n = 1 + self.dice.below(20);
        let words = match (self.dice.below(8), kind) {
            (0, _) => args!["DEL", key],
            (1, _) => args!["PEXPIRE", key, 20 + self.dice.below(2_000)],
            (2, _) => args!["RENAME", key, other],
            (_, "rw") => args!["DRW.BREAK", key],
            (3, "sem") => args!["DSEM.DRAIN", key],
            (4, "sem") => args!["DSEM.GIVE", key, n],
            (5, "sem") => args!["DSEM.INIT", key, n],
            (_, "sem") => args!["DSEM.RESIZE", key, n],
            (3, _) => args!["DLATCH.COUNTDOWN", key, STEPS],
            _ => {
                args!["DLATCH.INIT", key, 1 + self.dice.below(40), "PX", 10 + self.dice.below(400)]
            }
        };
        Call { words, what: What::Other }
    }
}
