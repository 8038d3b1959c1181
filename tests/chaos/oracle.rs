//! The meaning of replies for holds, and whether all of them can be true.
//!
//! A hold is *certain* while its owner has been told of it, its lease cannot have ended, and no call has been sent
//! that might end it. Two certain holds that exclude each other mean two owners at one time, for any execution order
//! of the calls. Sending a call that may end a hold makes it uncertain at once. A reply makes it certain only if no
//! such call can have come after it.

mod facts;
mod releases;
mod scopes;
mod tokens;

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use dlock_testing::{Reply as _, redis::Value};

use super::{
    call::{Acquire, Call, Form, Meaning, Mode, Scope},
    key::{Key, Owner},
};
pub use facts::{Hold, Permit, Violation};
use releases::Releases;
use scopes::Scopes;
use tokens::Tokens;

/// How long a hold may continue after its binding has ended: BIND itself, or the grace after a restart.
const LAPSE: Duration = Duration::from_secs(1);

/// Unique number of a connection.
pub type ConnId = u64;

/// Send time and reply time of a call, and its connection.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// The connection.
    pub conn: ConnId,
    /// When it was sent.
    pub sent: Instant,
    /// When its reply was read.
    pub now: Instant,
}

/// All certain facts.
#[derive(Debug, Default)]
pub struct Oracle {
    holds: HashMap<Key, Vec<Hold>>,
    permits: HashMap<Key, Vec<Permit>>,
    /// Maximum number of permits out.
    capacity: HashMap<Key, u64>,
    /// Holds with a BIND request.
    bound: HashSet<Scope>,
    /// Holds that a connection has requested: a binding may be to this connection, because a repeated request or a
    /// claim moves it there.
    bindings: HashMap<ConnId, HashSet<Scope>>,
    scopes: Scopes,
    tokens: Tokens,
    releases: Releases,
    /// Pending reloads that end bindings.
    reloads: u32,
    /// Holds whose binding has ended, and when the holds have ended, too: counted from the first calm moment after
    /// it.
    lapsing: HashMap<Scope, Option<Instant>>,
    /// Leases may have been extended since the last calm moment.
    stood_still: bool,
    /// Number of replies compared with certain holds.
    pub judged: u64,
}

impl Oracle {
    /// Records a call that is about to be sent.
    pub fn sent(&mut self, call: &Call, conn: ConnId, now: Instant) {
        for &(key, n) in &call.capacity {
            let most = self.capacity.entry(key).or_insert(0);
            *most = n.max(*most);
        }
        self.releases.sent(call, now);
        self.sending(&call.meaning, conn);
    }

    fn sending(&mut self, meaning: &Meaning, conn: ConnId) {
        match meaning {
            Meaning::Ends(scopes) => scopes.iter().for_each(|scope| {
                self.scopes.begin(scope);
                self.drop_within(scope);
            }),
            Meaning::Replaces(key) => {
                self.scopes.begin(&Scope::Key(*key));
                self.drop_within(&Scope::Key(*key));
                self.capacity.insert(*key, u64::MAX);
            }
            Meaning::EndsLater(key) => {
                self.scopes.begin(&Scope::Key(*key));
                self.drop_within(&Scope::Key(*key));
            }
            Meaning::Several(all) => all.iter().for_each(|one| self.sending(one, conn)),
            Meaning::Renew { keys, owner, mode, bind, .. }
            | Meaning::Acquire(Acquire { bind, keys, owner, mode, .. }) => {
                self.binding(*bind, keys, (*owner, *mode), conn);
            }
            Meaning::EndsBindings => {
                self.reloads += 1;
                self.end_bindings();
            }
            Meaning::Permit { key, owner, bind, .. } => {
                self.binding(*bind, &[*key], (*owner, Mode::Exclusive), conn);
            }
            Meaning::Nothing => {}
        }
    }

    /// All bound holds may end, until the system is settled. They may also stay bound, if another server was meant:
    /// then they may end the next time.
    fn end_bindings(&mut self) {
        let bound: Vec<Scope> = self.bound.iter().cloned().collect();
        for scope in &bound {
            self.unbind(scope);
        }
    }

    /// A connection that a hold may be bound to closes: the hold ends some time later.
    fn unbind(&mut self, scope: &Scope) {
        self.scopes.begin(scope);
        self.drop_within(scope);
        self.lapsing.insert(scope.clone(), None);
    }

    /// Records that holds may be bound to a connection from now on.
    fn binding(&mut self, bind: bool, keys: &[Key], hold: (Owner, Mode), conn: ConnId) {
        for key in keys {
            let scope = Scope::Hold(*key, hold.0, hold.1);
            if bind {
                self.bound.insert(scope.clone());
            }
            if self.scopes.is_doomed(conn) || self.reloads > 0 {
                if self.bound.contains(&scope) {
                    self.unbind(&scope);
                }
            } else {
                self.bindings.entry(conn).or_default().insert(scope);
            }
        }
    }

    /// Records a reply.
    pub fn answered(
        &mut self,
        meaning: &Meaning,
        times: Times,
        reply: &Value,
    ) -> Result<(), Violation> {
        match meaning {
            Meaning::Ends(scopes) => {
                for scope in scopes {
                    self.scopes.end(scope, times);
                    self.drop_within(scope);
                }
                Ok(())
            }
            Meaning::Replaces(key) => {
                self.scopes.end(&Scope::Key(*key), times);
                self.drop_within(&Scope::Key(*key));
                Ok(())
            }
            Meaning::Renew { keys, owner, mode, lease, tells_token, .. } => {
                let (Value::Int(number), [key], true) = (reply, &keys[..], *tells_token) else {
                    return Ok(());
                };
                let until = times.sent + *lease;
                let hold = Hold { owner: *owner, mode: *mode, token: *number, until };
                self.granted(*key, hold, times)
            }
            Meaning::EndsBindings => {
                self.reloads = self.reloads.saturating_sub(1);
                self.end_bindings();
                Ok(())
            }
            Meaning::Acquire(acquire) => self.acquired(acquire, times, reply),
            Meaning::Nothing | Meaning::EndsLater(_) => Ok(()),
            Meaning::Permit { key, owner, count, lease, .. } => {
                let Value::BulkString(id) = reply else { return Ok(()) };
                let permit = Permit {
                    id: String::from_utf8_lossy(id).into_owned(),
                    count: *count,
                    until: times.sent + *lease,
                    owner: *owner,
                };
                self.permitted(*key, permit, times)
            }
            Meaning::Several(all) => {
                if let Value::Array(replies) = reply {
                    for (one, reply) in all.iter().zip(replies) {
                        self.answered(one, times, reply)?;
                    }
                } else {
                    for one in all {
                        self.refused(one, times);
                    }
                }
                Ok(())
            }
        }
    }

    /// Records that a call was not executed.
    fn refused(&mut self, meaning: &Meaning, times: Times) {
        let _ = self.answered(meaning, times, &Value::Nil);
    }

    fn acquired(
        &mut self,
        acquire: &Acquire,
        times: Times,
        reply: &Value,
    ) -> Result<(), Violation> {
        let hold = |token| Hold {
            owner: acquire.owner,
            mode: acquire.mode,
            token,
            until: times.sent + acquire.lease,
        };
        match (acquire.form, reply) {
            (Form::One, Value::Int(token)) => self.granted(acquire.keys[0], hold(*token), times),
            (Form::All, Value::Array(tokens)) => {
                for (&key, token) in acquire.keys.iter().zip(tokens) {
                    self.granted(key, hold(token.int()), times)?;
                }
                Ok(())
            }
            (Form::Any, Value::Array(pair)) => {
                let name = pair[0].text();
                match acquire.keys.iter().find(|key| key.name() == name) {
                    Some(&key) => self.granted(key, hold(pair[1].int()), times),
                    None => Err(Violation::new(format!(
                        "ANYACQUIRE granted {name}, a key that was not asked for"
                    ))),
                }
            }
            _ => Ok(()),
        }
    }

    fn granted(&mut self, key: Key, mut hold: Hold, times: Times) -> Result<(), Violation> {
        let scope = Scope::Hold(key, hold.owner, hold.mode);
        if self.scopes.may_have_ended(&Scope::Key(key), times) {
            return Ok(());
        }
        self.tokens.seen(key, &hold, times)?;
        if self.scopes.may_have_ended(&scope, times) {
            return Ok(());
        }
        if let Some(old) = self.hold(key, hold.owner, hold.mode).filter(|old| old.until > times.now)
        {
            if old.token != hold.token {
                let text = format!(
                    "{} was told token {} while it certainly held token {}",
                    hold.owner, hold.token, old.token
                );
                return Err(Violation::of(key, text));
            }
            // Nothing shortens what was promised.
            hold.until = hold.until.max(old.until);
        }
        self.keep(key, hold, times)
    }

    fn keep(&mut self, key: Key, hold: Hold, times: Times) -> Result<(), Violation> {
        self.judged += 1;
        if hold.until <= times.now {
            self.drop_within(&Scope::Hold(key, hold.owner, hold.mode));
            return Ok(());
        }
        let holds = self.holds.entry(key).or_default();
        holds.retain(|other| {
            other.until > times.now && (other.owner, other.mode) != (hold.owner, hold.mode)
        });
        let both_read = |other: &Hold| other.mode == Mode::Read && hold.mode == Mode::Read;
        let other = holds.iter().find(|other| other.owner != hold.owner && !both_read(other));
        if let Some(other) = other {
            let text = format!(
                "two owners at one time: {} ({:?}, token {}, told now, lease until {} ms from now at least) \
                 and {} ({:?}, token {}, certain, \
                 lease until {} ms from now at least)",
                hold.owner,
                hold.mode,
                hold.token,
                (hold.until - times.now).as_millis(),
                other.owner,
                other.mode,
                other.token,
                (other.until - times.now).as_millis(),
            );
            return Err(Violation::of(key, text));
        }
        holds.push(hold);
        Ok(())
    }

    fn permitted(&mut self, key: Key, permit: Permit, times: Times) -> Result<(), Violation> {
        let scope = Scope::Permit(key, permit.id.clone());
        if self.scopes.may_have_ended(&Scope::Key(key), times)
            || self.scopes.may_have_ended(&scope, times)
            || permit.until <= times.now
            || self.scopes.may_have_ended(&Scope::Hold(key, permit.owner, Mode::Exclusive), times)
        {
            return Ok(());
        }
        self.judged += 1;
        let permits = self.permits.entry(key).or_default();
        permits.retain(|other| other.until > times.now && other.id != permit.id);
        permits.push(permit);
        let out: u64 = permits.iter().map(|permit| permit.count).sum();
        let most = self.capacity.get(&key).copied().unwrap_or(u64::MAX);
        if out > most {
            let text =
                format!("{out} permits are certainly out, the capacity was never above {most}");
            return Err(Violation::of(key, text));
        }
        Ok(())
    }

    /// A connection will close, or may close: its bound holds may end, until the system is settled.
    pub fn doomed(&mut self, conn: ConnId) {
        self.scopes.doom(conn);
        for scope in self.bindings.remove(&conn).unwrap_or_default() {
            if self.bound.contains(&scope) {
                self.unbind(&scope);
            }
        }
    }

    /// All connections close, or their bindings may end.
    pub fn all_doomed(&mut self, conns: impl Iterator<Item = ConnId>) {
        conns.for_each(|conn| self.doomed(conn));
        self.end_bindings();
    }

    /// An external event may end all holds; to be called again when it is over.
    pub fn world_disturbed(&mut self) {
        self.drop_within(&Scope::World);
        self.scopes.world_disturbed();
    }

    /// A pause, refused writes or a restart: leases may be extended until the system is settled.
    pub fn stands_still(&mut self) {
        self.stood_still = true;
    }

    /// No calls are in progress: calls of closed connections were executed, or never will be.
    pub fn settled(&mut self, now: Instant) {
        self.reloads = 0;
        self.releases = Releases::default();
        self.scopes.settled(now);
        let was_calm = !std::mem::take(&mut self.stood_still);
        self.lapsing.retain(|_, end| !was_calm || end.is_none_or(|end| end > now));
        for (scope, end) in &mut self.lapsing {
            if !was_calm || end.is_none() {
                *end = Some(now + LAPSE);
            }
            self.scopes.begin(scope);
        }
    }

    /// All holds have ended: a flush.
    pub fn cleared(&mut self) {
        self.drop_within(&Scope::World);
        self.capacity.clear();
        self.bindings.clear();
        self.bound.clear();
    }

    /// The holds that stay certain for at least this time.
    pub fn certain(&self, now: Instant, spare: Duration) -> Vec<(Key, Hold)> {
        let lasts = |hold: &&Hold| hold.until > now + spare;
        let all = self.holds.iter();
        all.flat_map(|(key, holds)| holds.iter().filter(lasts).map(|hold| (*key, hold.clone())))
            .collect()
    }

    /// The permits that stay certain for at least this time.
    pub fn certain_permits(&self, now: Instant, spare: Duration) -> Vec<(Key, Permit)> {
        let lasts = |permit: &&Permit| permit.until > now + spare;
        let all = self.permits.iter();
        all.flat_map(|(key, permits)| permits.iter().filter(lasts).map(|p| (*key, p.clone())))
            .collect()
    }

    fn hold(&mut self, key: Key, owner: Owner, mode: Mode) -> Option<&mut Hold> {
        let holds = self.holds.get_mut(&key)?;
        holds.iter_mut().find(|hold| (hold.owner, hold.mode) == (owner, mode))
    }

    fn drop_within(&mut self, scope: &Scope) {
        match scope {
            Scope::World => {
                self.holds.clear();
                self.permits.clear();
                self.tokens.forget_all();
                self.capacity.values_mut().for_each(|most| *most = u64::MAX);
            }
            Scope::Key(key) => {
                self.holds.remove(key);
                self.permits.remove(key);
                self.tokens.forget(*key);
            }
            Scope::Hold(key, owner, mode) => {
                if let Some(holds) = self.holds.get_mut(key) {
                    holds.retain(|hold| (hold.owner, hold.mode) != (*owner, *mode));
                }
                if let Some(permits) = self.permits.get_mut(key) {
                    permits.retain(|permit| permit.owner != *owner);
                }
            }
            Scope::Permit(key, id) => {
                if let Some(permits) = self.permits.get_mut(key) {
                    permits.retain(|permit| permit.id != *id);
                }
            }
        }
    }
}
