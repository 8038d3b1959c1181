//! What reading commands show, as tables write it.

use super::{Table, number};
use dlock_core::base::kind::Kind;
use dlock_core::machine::Fact;
use dlock_core::ports::turn::Caller;
use dlock_core::view;
use dlock_wire::permit;
use dlock_wire::reply::{HolderInfo, Info, LockInfo, LogToken, PermitInfo, RwInfo};
use dlock_wire::request::{LatchRead, ListWaiters, LockRead, Log, Read, RwRead, SemRead};
use std::fmt::Write as _;
use std::time::Duration;

impl Table {
    /// The reply of INFO.
    fn info(&mut self, caller: Caller, kind: Kind, key: &[u8]) -> String {
        let now = self.world.now();
        let key = caller.key(key);
        let (machine, keys) = (&self.world.machine, &mut self.world.keys);
        match view::info(machine.tables(), keys, now, kind, key) {
            Err(_) => "WRONGTYPE".to_owned(),
            Ok(None) => "null".to_owned(),
            Ok(Some(Info::Lock(info))) => self.lock(&info),
            Ok(Some(Info::ReadWrite(info))) => self.rw(&info),
            Ok(Some(Info::Semaphore(info))) => format!(
                "capacity {} available {} leased {} taken {} waiters {}",
                info.capacity, info.available, info.leased, info.taken, info.waiters
            ),
            Ok(Some(Info::Latch(info))) => {
                let ttl = info.left.map_or("-".to_owned(), |left| left.as_millis().to_string());
                format!("{}/{} ttl {ttl} waiters {}", info.count, info.initial, info.waiters)
            }
            Ok(Some(other)) => panic!("{other:?}"),
        }
    }

    /// The reply of `DLOCK.LOG`; entries as `event kind db/key [owner] token [label] held waited waiters (text)`, and
    /// how often if not once.
    pub(super) fn log(&mut self, call: Log) -> String {
        let log = &self.world.machine.tables().log;
        let count = match call {
            Log::Get { count } => count.map_or(usize::MAX, |count| count.try_into().expect("few")),
            Log::Len => return log.len().to_string(),
            Log::Reset => {
                self.world.machine.learn(Fact::LogReset);
                return "OK".to_owned();
            }
        };
        let entries = log.newest().take(count).map(|entry| {
            let [key, owner, label, text] = [&entry.key, &entry.owner, &entry.label, &entry.text]
                .map(|bytes| String::from_utf8_lossy(bytes));
            let token = match entry.token {
                LogToken::None => "-".to_owned(),
                LogToken::Token(token) => self.name(token),
                LogToken::Permit(id) => {
                    format!("p{}", number(permit::parse(id.as_bytes()).expect("a permit id")))
                }
            };
            format!(
                "{} {} {}/{key} [{owner}] {token} [{label}] held {} waited {} waiters {} ({text}){}",
                entry.event,
                entry.kind,
                entry.db,
                entry.held.as_millis(),
                entry.waited.as_millis(),
                entry.waiters,
                if entry.count > 1 { format!(" x{}", entry.count) } else { String::new() },
            )
        });
        entries.collect::<Vec<_>>().join("; ")
    }

    fn lock(&self, info: &LockInfo) -> String {
        let shown = info.holder.clone().unwrap_or_default();
        let owner = String::from_utf8_lossy(&shown.owner);
        let label = String::from_utf8_lossy(&shown.label);
        let token = if shown.token == 0 { "-".to_owned() } else { self.name(shown.token) };
        let [lease, ttl, held] =
            [shown.lease, shown.left.max(info.closed_for), shown.held].map(|time| time.as_millis());
        format!(
            "[{owner}] {token} holds {} lease {lease} ttl {ttl} held {held} [{label}] bound {} waiters {}{}",
            shown.holds,
            shown.bound_client.unwrap_or(0),
            info.waiters,
            more(info)
        )
    }

    fn rw(&self, info: &RwInfo) -> String {
        let holder = |holder: &HolderInfo| {
            let owner = String::from_utf8_lossy(&holder.owner);
            let left = holder.left.as_millis();
            format!("{owner} {} {} {left}", self.name(holder.token), holder.holds)
        };
        let writer = info.writer.as_ref().map_or("-".to_owned(), holder);
        let readers: Vec<String> = info.readers.iter().map(holder).collect();
        let mode = info.mode.name().to_uppercase();
        format!("{mode} [{writer}] [{}] waiters {}", readers.join(", "), info.waiters)
    }

    /// The answer of a reading command.
    pub(super) fn view(&mut self, caller: Caller, read: &Read<'_>) -> String {
        let kind = Kind::from(read);
        let now = self.world.now();
        let (machine, keys) = (&self.world.machine, &mut self.world.keys);
        match *read {
            Read::Lock(_, LockRead::Info(call))
            | Read::Rw(RwRead::Info(call))
            | Read::Sem(SemRead::Info(call))
            | Read::Latch(LatchRead::Info(call)) => self.info(caller, kind, call.key),
            Read::Sem(SemRead::Permits(call)) => {
                match view::permits(machine.tables(), keys, now, caller.key(call.key)) {
                    Err(_) => "WRONGTYPE".to_owned(),
                    Ok(rows) => {
                        let row = |row: &PermitInfo| {
                            let owner = String::from_utf8_lossy(&row.owner).into_owned();
                            let id = permit::parse(row.id.as_bytes()).expect("a permit id");
                            format!(
                                "p{} {owner} {} {}",
                                number(id),
                                row.count,
                                row.left.as_millis()
                            )
                        };
                        rows.iter().map(row).collect::<Vec<_>>().join("; ")
                    }
                }
            }
            Read::Lock(_, LockRead::Waiters(ListWaiters { key, count }))
            | Read::Rw(RwRead::Waiters(ListWaiters { key, count }))
            | Read::Sem(SemRead::Waiters(ListWaiters { key, count }))
            | Read::Latch(LatchRead::Waiters(ListWaiters { key, count })) => {
                let most = count.map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(9));
                let rows = view::waiters(machine.tables(), keys, now, kind, caller.key(key), most);
                let Ok(rows) = rows else { return "WRONGTYPE".to_owned() };
                let rows: Vec<String> = rows
                    .iter()
                    .map(|row| {
                        let owner = String::from_utf8_lossy(&row.owner);
                        let millis = |time: Duration| time.as_millis().to_string();
                        let left = row.remaining.map_or("-".to_owned(), millis);
                        let label = String::from_utf8_lossy(&row.label);
                        let (client, waiting) = (row.client.unwrap_or(0), millis(row.waiting));
                        format!("{owner} {client} {waiting} {left} [{label}]")
                    })
                    .collect();
                if rows.is_empty() { "nobody".to_owned() } else { rows.join("; ") }
            }
            Read::Lock(_, LockRead::Position(call))
            | Read::Rw(RwRead::Position(call))
            | Read::Sem(SemRead::Position(call)) => {
                match view::position(
                    machine.tables(),
                    keys,
                    now,
                    kind,
                    caller.key(call.key),
                    call.owner,
                ) {
                    Err(_) => "WRONGTYPE".to_owned(),
                    Ok(None) => "null".to_owned(),
                    Ok(Some(position)) => position.to_string(),
                }
            }
            Read::Lock(_, LockRead::Check(call)) | Read::Rw(RwRead::Check(call)) => {
                match view::is_current(
                    machine.tables(),
                    keys,
                    now,
                    kind,
                    caller.key(call.key),
                    call.token,
                ) {
                    Err(_) => "WRONGTYPE".to_owned(),
                    Ok(true) => "1".to_owned(),
                    Ok(false) => "STALE".to_owned(),
                }
            }
        }
    }
}

/// The fields of INFO that are empty most of the time.
fn more(info: &LockInfo) -> String {
    let mut more = String::new();
    if info.observers > 0 {
        let _ = write!(more, " observers {}", info.observers);
    }
    if !info.reserved_for.is_empty() {
        let _ = write!(more, " reserved for {}", String::from_utf8_lossy(&info.reserved_for));
    }
    more
}
