//! The keys with most waiters.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use dlock_admin::{Admin, Entry, Kind};
use tokio::time::{Instant, timeout_at};

use super::encode::{Sample, Value};
use crate::look;
use crate::text;

/// Longest name that is shown whole, in bytes: a label is sent and stored with every scrape.
const NAME_MAX: usize = 128;

/// Keys with waiters, the longest queue first.
#[derive(Debug, Clone, Default)]
pub struct Busiest {
    keys: Vec<(Entry, u64)>,
    /// Whether no other key has waiters.
    is_complete: bool,
}

impl Busiest {
    /// Without waiters there is nothing to look for.
    pub fn none() -> Self {
        Self { keys: Vec::new(), is_complete: true }
    }

    /// Inspects all keys, until it has found this number of waiters, or as far as there is time.
    pub async fn find(admin: &Admin, most: usize, waiters: u64, until: Instant) -> Self {
        // SCAN may show a key twice.
        let mut found = BTreeMap::new();
        let walked = timeout_at(until, walk(admin, waiters, &mut found)).await;
        let all: u64 = found.values().sum();
        let mut keys: Vec<_> = found.into_iter().collect();
        // The order among equals is that of their names: the same at the next scrape.
        keys.sort_by_key(|(_, waiters)| Reverse(*waiters));
        keys.truncate(most);
        // More than there are: a MACQUIRE waits for several keys, so some may be missing.
        Self { keys, is_complete: walked == Ok(true) || all == waiters }
    }

    /// One sample for each key.
    pub fn samples(&self, to: &mut Vec<Sample>) {
        let mut shown = HashSet::new();
        for (Entry { key, kind }, waiters) in &self.keys {
            let name = name(key);
            // The same series twice would spoil the scrape.
            if !shown.insert((name.clone(), *kind)) {
                continue;
            }
            let labels = vec![("key", name), ("family", family(*kind).to_owned())];
            let value = Value::Number(*waiters);
            to.push(Sample { family: "dlock_key_waiters", labels, value });
        }
        let complete = Value::Number(u64::from(self.is_complete));
        let family = "dlock_key_waiters_complete";
        to.push(Sample { family, labels: Vec::new(), value: complete });
    }
}

/// Adds keys with waiters. Returns whether all keys were inspected.
async fn walk(admin: &Admin, waiters: u64, found: &mut BTreeMap<Entry, u64>) -> bool {
    let mut is_whole = true;
    let mut walk = admin.walk(b"*");
    loop {
        let page = match walk.next_page().await {
            Ok(Some(page)) => page,
            Ok(None) => return is_whole,
            Err(_) => {
                is_whole = false;
                continue;
            }
        };
        match look::infos(admin, page).await {
            Ok((seen, hidden)) => {
                is_whole &= hidden == 0;
                let waiting = seen.into_iter().map(|seen| (seen.entry, seen.info.waiters()));
                found.extend(waiting.filter(|(_, waiters)| *waiters > 0));
            }
            Err(_) => is_whole = false,
        }
        if found.values().sum::<u64>() >= waiters {
            return false;
        }
    }
}

/// The names that INFO has for families of latencies.
fn family(kind: Kind) -> &'static str {
    match kind {
        Kind::Lock => "lock",
        Kind::Fair => "fair",
        Kind::ReadWrite => "rw",
        Kind::Semaphore => "sem",
        Kind::Latch => "latch",
        other => other.name(),
    }
}

/// A key as a label: UTF-8 without control characters, and not too long. The rest of a long one becomes a fingerprint,
/// so that two keys with the same beginning remain two.
fn name(key: &[u8]) -> String {
    let shown = match std::str::from_utf8(key) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => text::quoted(key),
    };
    if shown.len() <= NAME_MAX {
        return shown;
    }
    let end = (0..=NAME_MAX).rev().find(|end| shown.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…{:016x}", &shown[..end], fingerprint(key))
}

/// FNV-1a. It does not depend on the process, so a restart continues the same series.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_and_short() {
        assert_eq!(name(b"orders:7"), "orders:7");
        assert_eq!(name("größe".as_bytes()), "größe");
        assert_eq!(name(b"a\nb"), r#""a\nb""#);
        assert_eq!(name(b"\xff"), r#""\xff""#);
        let long = name("é".repeat(1_000).as_bytes());
        assert!(long.starts_with("ééé") && long.len() < NAME_MAX + 20, "{long}");
    }

    #[test]
    fn long_names_with_one_beginning_remain_two() {
        let [one, two] = [b'1', b'2'].map(|last| {
            let mut key = vec![b'x'; 300];
            key.push(last);
            name(&key)
        });
        assert_ne!(one, two);
        assert_eq!(fingerprint(b"a"), 0xaf63_dc4c_8601_ec8c);
    }

    #[test]
    fn a_series_appears_once() {
        let entry = Entry { key: b"\xff".to_vec(), kind: Kind::Lock };
        let look_alike = Entry { key: br#""\xff""#.to_vec(), kind: Kind::Lock };
        let busiest = Busiest { keys: vec![(entry, 3), (look_alike, 2)], is_complete: true };
        let mut samples = Vec::new();
        busiest.samples(&mut samples);
        let keys = samples.iter().filter(|sample| sample.family == "dlock_key_waiters");
        assert_eq!(keys.count(), 1);
    }
}
