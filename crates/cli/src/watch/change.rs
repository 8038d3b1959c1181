//! Differences between two looks at a key.

use std::fmt;
use std::time::Duration;

use dlock_admin::{Entry, HoldEnd, HolderInfo, Info, Kind, PermitInfo, RwMode};
use serde_json::{Map, Value, json};

use crate::json::Bytes;
use crate::text;

/// A hold, or permits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    id: Id,
    /// Of a read-write lock.
    mode: Option<RwMode>,
    owner: Vec<u8>,
    label: Vec<u8>,
    /// Of permits.
    count: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Id {
    Token(u64),
    Permit(String),
}

/// A key at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// Of a lock with one holder.
    lock: Option<Entry>,
    holds: Vec<Seen>,
    latch: Option<Count>,
}

/// Of a latch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    count: u64,
    initial: u64,
}

/// The end of a hold, as the server reported it.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// The hold.
    pub token: u64,
    /// How it ended.
    pub how: HoldEnd,
}

/// A line of the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Held(Seen),
    Ended(Seen, Option<HoldEnd>),
    /// Nobody holds it.
    Free,
    Count(Count),
    /// A latch is open, or was deleted.
    Gone,
    /// The server is out of reach.
    Away(String),
    /// The server is back.
    Back,
}

impl Snapshot {
    /// From the replies of the server.
    pub fn of(key: &[u8], info: Option<&Info>, permits: &[PermitInfo]) -> Self {
        let hold = |mode: Option<RwMode>| move |hold: &HolderInfo| Seen::of_hold(hold, mode);
        match info {
            Some(Info::Lock(lock)) => {
                let kind = info.map_or(Kind::Lock, Info::kind);
                let lock_entry = Entry { key: key.to_vec(), kind };
                let holds = lock.holder.iter().map(hold(None)).collect();
                Self { lock: Some(lock_entry), holds, latch: None }
            }
            Some(Info::ReadWrite(lock)) => {
                let writer = lock.writer.iter().map(hold(Some(RwMode::Write)));
                let readers = lock.readers.iter().map(hold(Some(RwMode::Read)));
                Self { holds: writer.chain(readers).collect(), ..Self::default() }
            }
            Some(Info::Semaphore(_)) => {
                Self { holds: permits.iter().map(Seen::of_permit).collect(), ..Self::default() }
            }
            Some(Info::Latch(latch)) => {
                let latch = Some(Count { count: latch.count, initial: latch.initial });
                Self { latch, ..Self::default() }
            }
            _ => Self::default(),
        }
    }

    /// The hold whose end the server reports.
    pub fn only_hold(&self) -> Option<(Entry, u64)> {
        match (&self.lock, self.holds.as_slice()) {
            (Some(lock), [Seen { id: Id::Token(token), .. }]) => Some((lock.clone(), *token)),
            _ => None,
        }
    }
}

impl Seen {
    fn of_hold(hold: &HolderInfo, mode: Option<RwMode>) -> Self {
        let (owner, label) = (hold.owner.clone(), hold.label.clone());
        Self { id: Id::Token(hold.token), mode, owner, label, count: None }
    }

    fn of_permit(permit: &PermitInfo) -> Self {
        let (owner, label) = (permit.owner.clone(), permit.label.clone());
        let id = Id::Permit(permit.id.to_string());
        Self { id, mode: None, owner, label, count: Some(permit.count) }
    }

    /// Whether it is the same hold. FENCE gives a hold another token, which shows as an end and a new hold.
    fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.mode == other.mode
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("owner", json!(Bytes(&self.owner)));
        set("label", json!(Bytes(&self.label)));
        match &self.id {
            Id::Token(token) => set("token", json!(token)),
            Id::Permit(permit) => set("permit", json!(permit)),
        };
        if let Some(mode) = self.mode {
            set("mode", json!(mode.name()));
        }
        if let Some(count) = self.count {
            set("count", json!(count));
        }
        fields
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text::bytes(&self.owner))?;
        if let Some(mode) = self.mode {
            write!(f, ", {}", mode.name())?;
        }
        match &self.id {
            Id::Token(token) => write!(f, ", token {token}")?,
            Id::Permit(permit) => write!(f, ", permit {permit}")?,
        }
        if let Some(count @ 2..) = self.count {
            write!(f, " (counts {count})")?;
        }
        if !self.label.is_empty() {
            write!(f, ", label {}", text::bytes(&self.label))?;
        }
        Ok(())
    }
}

/// What happened between two looks; without an earlier one, the state. `ended` is what the server reported meanwhile.
pub fn between(before: Option<&Snapshot>, now: &Snapshot, ended: Option<Ended>) -> Vec<Change> {
    let nothing = Snapshot::default();
    let earlier = before.unwrap_or(&nothing);
    let mut changes = Vec::new();
    for hold in earlier.holds.iter().filter(|hold| !now.holds.iter().any(|other| other.is(hold))) {
        let reported = ended.filter(|ended| hold.id == Id::Token(ended.token));
        let how = reported.map(|ended| ended.how);
        let how = how.filter(|how| !matches!(how, HoldEnd::Unknown | HoldEnd::Free));
        changes.push(Change::Ended(hold.clone(), how));
    }
    let new = now.holds.iter().filter(|hold| !earlier.holds.iter().any(|other| other.is(hold)));
    changes.extend(new.cloned().map(Change::Held));
    match (earlier.latch, now.latch) {
        (before, Some(count)) if before != Some(count) => changes.push(Change::Count(count)),
        (Some(_), None) => changes.push(Change::Gone),
        _ => {}
    }
    let was_free = before.is_some() && earlier.holds.is_empty() && earlier.latch.is_none();
    if now.holds.is_empty() && now.latch.is_none() && !was_free && earlier.latch.is_none() {
        changes.push(Change::Free);
    }
    changes
}

impl Change {
    const fn name(&self) -> &'static str {
        match self {
            Self::Held(_) => "held",
            Self::Ended(..) => "ended",
            Self::Free => "free",
            Self::Count(_) => "count",
            Self::Gone => "gone",
            Self::Away(_) => "unreachable",
            Self::Back => "reachable",
        }
    }

    /// For programs; `now` is the time since 1970.
    pub fn as_json(&self, key: &[u8], now: Duration) -> Value {
        let mut fields = match self {
            Self::Held(hold) | Self::Ended(hold, _) => hold.fields(),
            _ => Map::new(),
        };
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("time-ms", json!(u64::try_from(now.as_millis()).unwrap_or(u64::MAX)));
        set("event", json!(self.name()));
        set("key", json!(Bytes(key)));
        match self {
            Self::Ended(_, how) => {
                set("how", json!(how.map(HoldEnd::as_str)));
            }
            Self::Count(Count { count, initial }) => {
                set("count", json!(count));
                set("initial", json!(initial));
            }
            Self::Away(error) => {
                set("error", json!(error));
            }
            Self::Held(_) | Self::Free | Self::Gone | Self::Back => {}
        }
        fields.into()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Held(hold) | Self::Ended(hold, None) => write!(f, " {hold}"),
            Self::Ended(hold, Some(how)) => write!(f, " {hold}: {how}"),
            Self::Count(Count { count, initial }) => write!(f, " {count} of {initial} to go"),
            Self::Away(error) => write!(f, ", trying again: {error}"),
            Self::Free | Self::Gone | Self::Back => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(tokens: &[u64]) -> Snapshot {
        let hold = |&token: &u64| Seen {
            id: Id::Token(token),
            mode: None,
            owner: format!("o{token}").into_bytes(),
            label: Vec::new(),
            count: None,
        };
        Snapshot { holds: tokens.iter().map(hold).collect(), ..Snapshot::default() }
    }

    fn latch(count: u64) -> Snapshot {
        Snapshot { latch: Some(Count { count, initial: 3 }), ..Snapshot::default() }
    }

    fn lines(before: Option<&Snapshot>, now: &Snapshot, ended: Option<Ended>) -> Vec<String> {
        between(before, now, ended).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn changes() {
        let free = Snapshot::default();
        let broken = Some(Ended { token: 1, how: HoldEnd::Broken });
        let other = Some(Ended { token: 9, how: HoldEnd::Broken });
        for (before, now, ended, expected) in [
            (None, &free, None, &["free"][..]),
            (Some(&free), &free, None, &[]),
            (None, &held(&[1]), None, &["held o1, token 1"]),
            (Some(&held(&[1])), &held(&[1]), broken, &[]),
            (
                Some(&held(&[1])),
                &held(&[2]),
                broken,
                &["ended o1, token 1: broken", "held o2, token 2"],
            ),
            (Some(&held(&[1])), &free, other, &["ended o1, token 1", "free"]),
            (
                Some(&held(&[1, 2])),
                &held(&[2, 3]),
                None,
                &["ended o1, token 1", "held o3, token 3"],
            ),
            (None, &latch(3), None, &["count 3 of 3 to go"]),
            (Some(&latch(3)), &latch(3), None, &[]),
            (Some(&latch(3)), &latch(1), None, &["count 1 of 3 to go"]),
            (Some(&latch(1)), &free, None, &["gone"]),
            (Some(&free), &latch(3), None, &["count 3 of 3 to go"]),
            (Some(&held(&[1])), &latch(3), None, &["ended o1, token 1", "count 3 of 3 to go"]),
        ] {
            assert_eq!(lines(before, now, ended), expected, "{before:?} -> {now:?}");
        }
    }

    #[test]
    fn hostile_names_are_quoted() {
        let mut now = held(&[1]);
        now.holds[0].owner = b"\x1b[2J\nx".to_vec();
        now.holds[0].label = b"a b".to_vec();
        assert_eq!(lines(None, &now, None), [r#"held "\x1b[2J\nx", token 1, label "a b""#]);
        let value = between(None, &now, None)[0].as_json(b"k\xff", Duration::from_millis(5));
        let expected = json!({"event": "held", "key": {"hex": "6bff"}, "owner": "\u{1b}[2J\nx",
            "label": "a b", "token": 1, "time-ms": 5});
        assert_eq!(value, expected);
    }
}
