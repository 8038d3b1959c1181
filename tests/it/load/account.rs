//! What the replies say, and what a server has.

use std::collections::BTreeMap;

use redis::Value;

use super::{KEYS, PERMITS, STEPS};
use crate::support::{Client, Reply, Server};

/// One connection's hold: key, owner, mode; locks have no mode.
pub type Hold = (String, String, &'static str);

/// Knowledge of one connection, or of all of them together.
#[derive(Clone, Debug, Default)]
pub struct Account {
    /// Token and count of each hold.
    pub holds: BTreeMap<Hold, (i64, i64)>,
    /// Key, owner and count of each permit, by id.
    pub permits: BTreeMap<String, (String, String, i64)>,
    /// Permits taken without a lease, by key.
    pub taken: BTreeMap<String, i64>,
    /// Steps of each latch.
    pub steps: BTreeMap<String, i64>,
    /// The last call, if what it took is still there, and its reply. The memory of finished requests may end with the
    /// process.
    last: Option<(Call, Value)>,
    /// The call that the end of the server interrupted.
    pub pending: Option<Call>,
}

/// A call, and what it is about.
#[derive(Clone, Debug)]
pub struct Call {
    pub words: Vec<Vec<u8>>,
    pub what: What,
}

#[derive(Clone, Debug)]
pub enum What {
    Acquire(Hold),
    /// Several locks of one owner.
    AcquireAll(Vec<Hold>),
    Release(Hold),
    /// Its reply is the token.
    Fence(Hold),
    Permit {
        key: String,
        owner: String,
        count: i64,
    },
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
    /// Records a reply. After a crash a call is `repeated`: its hold may be released already.
    #[track_caller]
    pub fn book(&mut self, call: &Call, answer: &Result<Value, String>, repeated: bool) {
        let is_gone = |text: &String| repeated && text.contains("NOTHELD");
        let is_held = |hold: &Hold| self.holds.contains_key(hold);
        match (&call.what, answer) {
            (What::Acquire(hold), Ok(Value::Int(token))) => self.begin(hold, *token, call),
            (What::AcquireAll(holds), Ok(Value::Array(tokens))) => {
                assert_eq!(holds.len(), tokens.len(), "{call:?}");
                for (hold, token) in holds.iter().zip(tokens) {
                    self.begin(hold, token.int(), call);
                }
            }
            // The holder of a mode gets it again, in spite of waiters.
            (What::Acquire(hold), Ok(Value::Nil)) if !is_held(hold) => {}
            (What::Acquire(hold), Err(text)) if text.contains("DEADLOCK") && !is_held(hold) => {}
            (What::AcquireAll(_), Err(text)) if text.contains("DEADLOCK") => {}
            (What::Fence(hold), Ok(Value::Int(token))) => {
                let known = self.holds.get_mut(hold).expect("a hold");
                assert!(known.0 <= *token, "{call:?}");
                known.0 = *token;
            }
            (What::Release(hold), Ok(Value::Int(left))) => {
                let known = self.holds.get_mut(hold).expect("what is given back was had");
                known.1 -= 1;
                assert_eq!(known.1, *left, "{call:?}");
                if *left == 0 {
                    self.holds.remove(hold);
                }
            }
            (What::Release(hold), Err(text)) if is_gone(text) => {
                let known = self.holds.remove(hold);
                assert!(known.is_some_and(|(_, holds)| holds == 1), "{call:?}");
            }
            (What::Permit { key, owner, count }, Ok(Value::BulkString(id))) => {
                let id = String::from_utf8(id.clone()).unwrap();
                let earlier = self.permits.insert(id, (key.clone(), owner.clone(), *count));
                assert_eq!(earlier, None, "{call:?}");
            }
            (What::Permit { .. } | What::Take { .. } | What::AcquireAll(_), Ok(Value::Nil))
            | (What::Other, Ok(_)) => {}
            (What::Return { id }, Ok(Value::Int(_))) => drop(self.permits.remove(id)),
            (What::Return { id }, Err(text)) if is_gone(text) => drop(self.permits.remove(id)),
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
        self.last = match (&call.what, answer) {
            (_, Ok(Value::Nil | Value::Int(0))) => None,
            (
                What::Acquire(_) | What::AcquireAll(_) | What::Permit { .. } | What::Release(_),
                Ok(reply),
            ) => Some((call.clone(), reply.clone())),
            _ => None,
        };
    }

    #[track_caller]
    fn begin(&mut self, hold: &Hold, token: i64, call: &Call) {
        let known = self.holds.entry(hold.clone()).or_insert((token, 0));
        assert_eq!(known.0, token, "{call:?}");
        known.1 += 1;
    }

    /// Repeats the interrupted call, which is executed once; else the last call, which gets the same reply and counts
    /// nothing.
    #[track_caller]
    pub fn repeat(&mut self, client: &mut Client) {
        if let Some(call) = self.pending.take() {
            let answer = match client.cmd(&call.words) {
                error @ Value::ServerError(_) => Err(error.error()),
                value => Ok(value),
            };
            self.book(&call, &answer, true);
        } else if let Some((call, reply)) = self.last.take() {
            assert_eq!(client.cmd(&call.words), reply, "{call:?}");
        }
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
        let mut add = |key: &str, hold: &Value, mode| {
            let name = (key.to_owned(), hold.field("owner").text(), mode);
            all.holds.insert(name, (number(hold, "token"), number(hold, "holds")));
        };
        for n in 0..KEYS {
            for (key, family) in [(format!("lock{n}"), "DLOCK"), (format!("fair{n}"), "DFAIR")] {
                let info = server.cmd(&[&format!("{family}.INFO"), &key]);
                if !info.is_null() && number(&info, "holds") > 0 {
                    add(&key, &info, "");
                }
            }
            let key = format!("rw{n}");
            let info = server.cmd(&["DRW.INFO", &key]);
            if info.is_null() {
                continue;
            }
            let writer = info.field("writer");
            let writers = (!writer.is_null()).then_some((writer, "WRITE"));
            let readers = info.field("readers").items().into_iter().map(|hold| (hold, "READ"));
            writers.into_iter().chain(readers).for_each(|(hold, mode)| add(&key, &hold, mode));
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
