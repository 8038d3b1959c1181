//! `dlock ls`, `info`, `waiters`.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt as _;

use dlock_admin::{Admin, HolderInfo, Info, Kind, LockInfo, PermitInfo, RwMode, WaiterInfo};
use dlock_client::Client;

use crate::args::{Ls, OfKey, Waiters};
use crate::exit::{Failure, NOTHING};
use crate::look::{self, Seen};
use crate::table::Table;
use crate::{json, text};

/// `dlock ls`
pub async fn ls(client: &Client, args: &Ls, out: &mut impl Write) -> Result<(), Failure> {
    let admin = Admin::new(client);
    let failed = |error| Failure::of("cannot list the locks", &error);
    let entries = admin.locks(args.pattern.as_bytes()).await.map_err(failed)?;
    let (seen, hidden) = look::infos(&admin, entries).await.map_err(failed)?;
    if args.json {
        let keys: Vec<_> =
            seen.iter().map(|seen| json::Key::new(&seen.entry.key, &seen.info, None)).collect();
        json::write(out, &keys)?;
    } else if !seen.is_empty() {
        list(&seen).write(out)?;
    } else if hidden == 0 {
        // On stderr: stdout stays empty for an empty list.
        crate::say(&format!("no lock matches {}", text::quoted(args.pattern.as_bytes())));
    }
    if let Some(line) = look::left_out(hidden) {
        crate::say(&line);
    }
    Ok(())
}

/// The table of `dlock ls`.
pub fn list(seen: &[Seen]) -> Table {
    let mut table = Table::new(&["KEY", "KIND", "HELD BY", ">LEFT", ">WAITERS", "LABEL"]);
    for Seen { entry, info } in seen {
        table.row([
            text::bytes(&entry.key),
            info.kind().name().to_owned(),
            held_by(info),
            left(info),
            info.waiters().to_string(),
            label(info),
        ]);
    }
    table
}

/// The holders, on one line.
pub fn held_by(info: &Info) -> String {
    match info {
        Info::Lock(lock) => match &lock.holder {
            Some(hold) => text::bytes(&hold.owner),
            None if !lock.reserved_for.is_empty() => {
                format!("nobody, reserved for {}", text::bytes(&lock.reserved_for))
            }
            None if lock.closed_for.is_zero() => "nobody".to_owned(),
            None => format!("nobody, closed for {}", text::time(lock.closed_for)),
        },
        Info::ReadWrite(lock) => match (&lock.writer, lock.readers.as_slice()) {
            (Some(hold), _) => format!("writer {}", text::bytes(&hold.owner)),
            (None, []) => "nobody".to_owned(),
            (None, [hold]) => format!("reader {}", text::bytes(&hold.owner)),
            (None, many) => format!("{} readers", many.len()),
        },
        Info::Semaphore(semaphore) => {
            let out = semaphore.leased + semaphore.taken;
            format!("{out} of {}", text::plural(semaphore.capacity, "permit"))
        }
        Info::Latch(latch) => format!("{} of {} to go", latch.count, latch.initial),
        _ => text::NONE.to_owned(),
    }
}

/// The remaining lease; of several holds the longest.
pub fn left(info: &Info) -> String {
    let left = match info {
        Info::Latch(latch) => latch.left,
        _ => info.holders().map(|hold| hold.left).max(),
    };
    text::time_or(left, text::NONE)
}

/// The label of the only holder.
pub fn label(info: &Info) -> String {
    let mut holders = info.holders();
    match (holders.next(), holders.next()) {
        (Some(only), None) => text::bytes_or_none(&only.label),
        _ => text::NONE.to_owned(),
    }
}

/// `dlock info`
pub async fn info(client: &Client, args: &OfKey, out: &mut impl Write) -> Result<(), Failure> {
    let (admin, key) = (Admin::new(client), args.key.as_bytes());
    let failed = |error| Failure::of(format!("cannot look at {}", text::quoted(key)), &error);
    let Some(info) = admin.info(key).await.map_err(failed)? else {
        return Err(Failure::new(NOTHING, format!("there is no lock {}", text::quoted(key))));
    };
    let permits = match info {
        Info::Semaphore(_) => Some(admin.permits(key).await.map_err(failed)?),
        _ => None,
    };
    if args.json {
        json::write(out, &json::Key::new(key, &info, permits.as_deref()))?;
    } else {
        page(key, &info, permits.as_deref().unwrap_or_default(), out)?;
    }
    Ok(())
}

/// All about one key, for people.
pub fn page(
    key: &[u8],
    info: &Info,
    permits: &[PermitInfo],
    out: &mut impl Write,
) -> io::Result<()> {
    let mut line = |name: &str, value: String| writeln!(out, "{name:<11}{value}");
    line("key", text::bytes(key))?;
    line("kind", format!("{}, a {}", info.kind().name(), in_words(info.kind())))?;
    match info {
        Info::Lock(_) => line("held by", held_by(info))?,
        Info::ReadWrite(lock) => line("mode", lock.mode.name().to_owned())?,
        Info::Semaphore(semaphore) => {
            line("capacity", semaphore.capacity.to_string())?;
            line("available", semaphore.available.to_string())?;
            line("leased", semaphore.leased.to_string())?;
            line("taken", semaphore.taken.to_string())?;
        }
        Info::Latch(latch) => {
            line("count", latch.count.to_string())?;
            line("initial", latch.initial.to_string())?;
            line("left", text::time_or(latch.left, "no end is set"))?;
        }
        _ => {}
    }
    line("waiters", info.waiters().to_string())?;
    if let Info::Lock(LockInfo { observers: observers @ 1.., .. }) = info {
        line("observers", observers.to_string())?;
    }
    if let Some(table) = holds(info) {
        writeln!(out)?;
        table.write(out)?;
    }
    if !permits.is_empty() {
        writeln!(out)?;
        of_permits(permits).write(out)?;
    }
    Ok(())
}

const fn in_words(kind: Kind) -> &'static str {
    match kind {
        Kind::Lock => "re-entrant lock",
        Kind::Fair => "lock with a durable queue",
        Kind::ReadWrite => "read-write lock",
        Kind::Semaphore => "semaphore",
        Kind::Latch => "count-down latch",
        _ => "lock",
    }
}

/// The current holds, if there are any.
pub fn holds(info: &Info) -> Option<Table> {
    info.holders().next()?;
    let mut headings =
        vec!["OWNER", ">TOKEN", ">HOLDS", ">LEASE", ">LEFT", ">HELD", ">CLIENT", "LABEL"];
    let cells = |hold: &HolderInfo| {
        vec![
            text::bytes(&hold.owner),
            hold.token.to_string(),
            hold.holds.to_string(),
            text::time(hold.lease),
            text::time(hold.left),
            text::time(hold.held),
            text::number_or_none(hold.bound_client),
            text::bytes_or_none(&hold.label),
        ]
    };
    let Info::ReadWrite(lock) = info else {
        let mut table = Table::new(&headings);
        info.holders().for_each(|hold| table.row(cells(hold)));
        return Some(table);
    };
    headings.insert(0, "MODE");
    let mut table = Table::new(&headings);
    let mut row = |mode: RwMode, hold| {
        let mut cells = cells(hold);
        cells.insert(0, mode.name().to_owned());
        table.row(cells);
    };
    lock.writer.iter().for_each(|hold| row(RwMode::Write, hold));
    lock.readers.iter().for_each(|hold| row(RwMode::Read, hold));
    Some(table)
}

/// The permits that are out with a lease.
pub fn of_permits(permits: &[PermitInfo]) -> Table {
    let mut table =
        Table::new(&["=PERMIT", "OWNER", ">COUNT", ">LEFT", ">HELD", ">CLIENT", "LABEL"]);
    for permit in permits {
        table.row([
            permit.id.to_string(),
            text::bytes(&permit.owner),
            permit.count.to_string(),
            text::time(permit.left),
            text::time(permit.held),
            text::number_or_none(permit.bound_client),
            text::bytes_or_none(&permit.label),
        ]);
    }
    table
}

/// `dlock waiters`
pub async fn waiters(client: &Client, args: &Waiters, out: &mut impl Write) -> Result<(), Failure> {
    let key = args.key.as_bytes();
    let found = Admin::new(client).waiters(key, args.count).await;
    let found = found
        .map_err(|error| Failure::of(format!("cannot look at {}", text::quoted(key)), &error))?;
    if args.json {
        json::write(out, &found.iter().map(json::Row::of).collect::<Vec<_>>())?;
    } else if found.is_empty() {
        crate::say(&format!("nobody waits for {}", text::quoted(key)));
    } else {
        of_waiters(&found).write(out)?;
    }
    Ok(())
}

/// The queue, in order of service.
pub fn of_waiters(waiters: &[WaiterInfo]) -> Table {
    let mut table = Table::new(&[">PLACE", "OWNER", ">CLIENT", ">WAITING", ">LEFT", "LABEL"]);
    for (at, waiter) in waiters.iter().enumerate() {
        table.row([
            (at + 1).to_string(),
            text::bytes_or_none(&waiter.owner),
            text::number_or_none(waiter.client),
            text::time(waiter.waiting),
            text::time_or(waiter.remaining, "no end"),
            text::bytes_or_none(&waiter.label),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dlock_admin::{LatchInfo, LockInfo, RwInfo, SemInfo};

    use super::*;

    fn hold(owner: &str, left: u64) -> HolderInfo {
        HolderInfo {
            owner: owner.as_bytes().to_vec(),
            token: 41,
            holds: 1,
            lease: Duration::from_mins(1),
            left: Duration::from_millis(left),
            held: Duration::from_millis(5406),
            label: b"night run".to_vec(),
            bound_client: Some(8),
        }
    }

    fn page_of(info: &Info) -> String {
        let mut out = Vec::new();
        page(b"door", info, &[], &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_lock_that_is_held() {
        let holder = Some(hold("alice", 54_594));
        let info =
            Info::Lock(LockInfo { holder, waiters: 2, observers: 3, ..LockInfo::free(Kind::Lock) });
        assert_eq!(
            page_of(&info),
            "key        door\n\
             kind       dlock, a re-entrant lock\n\
             held by    alice\n\
             waiters    2\n\
             observers  3\n\
             \n\
             OWNER  TOKEN  HOLDS  LEASE   LEFT  HELD  CLIENT  LABEL\n\
             alice     41      1  1m00s  54.5s  5.4s       8  \"night run\"\n"
        );
    }

    #[test]
    fn a_free_lock() {
        let closed_for = Duration::from_millis(250);
        let lock = LockInfo { closed_for, waiters: 1, ..LockInfo::free(Kind::Fair) };
        assert_eq!(
            page_of(&Info::Lock(lock)),
            "key        door\n\
             kind       dfair, a lock with a durable queue\n\
             held by    nobody, closed for 250ms\n\
             waiters    1\n"
        );
    }

    #[test]
    fn a_lock_that_is_reserved() {
        let reserved_for = b"mover".to_vec();
        let lock = LockInfo { reserved_for, waiters: 1, ..LockInfo::free(Kind::Lock) };
        assert_eq!(held_by(&Info::Lock(lock)), "nobody, reserved for mover");
    }

    #[test]
    fn readers() {
        let readers = vec![hold("alice", 100), hold("b b", 2000)];
        let lock = RwInfo { mode: RwMode::Read, writer: None, readers, waiters: 0 };
        let info = Info::ReadWrite(lock);
        assert_eq!(
            (held_by(&info), left(&info), label(&info)),
            ("2 readers".into(), "2.0s".into(), "-".into())
        );
        assert!(page_of(&info).ends_with(
            "MODE  OWNER  TOKEN  HOLDS  LEASE   LEFT  HELD  CLIENT  LABEL\n\
             read  alice     41      1  1m00s  100ms  5.4s       8  \"night run\"\n\
             read  \"b b\"     41      1  1m00s   2.0s  5.4s       8  \"night run\"\n"
        ));
    }

    #[test]
    fn counts_are_shown() {
        let semaphore = SemInfo { capacity: 2, available: -1, leased: 2, taken: 1, waiters: 0 };
        assert_eq!(held_by(&Info::Semaphore(semaphore)), "3 of 2 permits");
        let latch = LatchInfo { count: 1, initial: 2, left: None, waiters: 0 };
        assert_eq!(
            (held_by(&Info::Latch(latch)), left(&Info::Latch(latch))),
            ("1 of 2 to go".into(), "-".into())
        );
        assert!(page_of(&Info::Latch(latch)).contains("left       no end is set\n"));
    }
}
