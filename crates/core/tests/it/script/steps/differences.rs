//! What this core does otherwise than that of e558fde4, on purpose.

/// An intended difference.
pub struct Difference {
    /// What differs, and why that is right.
    pub why: &'static str,
    /// Whether a row shows it: the row, what that core shows and what this one shows.
    pub explains: fn(row: &str, old: &str, new: &str) -> bool,
    /// Only a run of a million histories is sure to show it.
    pub is_rare: bool,
    /// From here on the two are in different states, and the rest of the history says nothing.
    pub ends: bool,
}

/// What a row shows, without its events and tokens, in an order of its own: some rows are sorted by their texts.
fn parts(shown: &str) -> Vec<&str> {
    let parts =
        shown.split("; ").map(|part| part.split(['+', '#']).next().unwrap_or_default().trim());
    let mut parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    parts.sort_unstable();
    parts
}

/// Whether a row shows all that it showed, but that more blocked calls end with Null, some of them instead of a grant.
fn ends_waits_besides(old: &str, new: &str) -> bool {
    let is_end = |part: &&&str| part.ends_with(" gets null");
    let (old, new) = (parts(old), parts(new));
    let ends = [&old, &new].map(|parts| parts.iter().filter(is_end).count());
    let is_kept = |part: &&str| {
        let ended = part.split_once(" gets t").map(|(client, _)| [client, " gets null"].concat());
        new.contains(part) || ended.is_some_and(|ended| new.contains(&&*ended))
    };
    ends[0] < ends[1] && old.iter().all(is_kept)
}

pub const DIFFERENCES: &[Difference] = &[
    Difference {
        why: "The grant to a place of DFAIR without a connection is an offer, and its message says so.",
        explains: |_, old, new| parts(&old.replace(": granted ", ": offered ")) == parts(new),
        is_rare: false,
        ends: false,
    },
    Difference {
        why: "A RELEASE without an id, of an owner that holds nothing but waits, ends the wait.",
        explains: |row, old, new| {
            let is_release = row.contains(".RELEASE ") && !row.contains("TOKEN");
            is_release && parts(old).contains(&"NOTHELD") && parts(new).contains(&"null")
        },
        is_rare: false,
        ends: true,
    },
    Difference {
        why: "RELEASE … ALL also ends the wait of its owner, which a MACQUIRE can have beside a hold.",
        explains: |row, old, new| row.ends_with(" ALL") && ends_waits_besides(old, new),
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "DLOCK.UNBLOCK … ERROR ends a blocked call with STOPPED. UNBLOCKED is a demotion.",
        explains: |row, old, new| {
            row.ends_with(" ERROR") && parts(&old.replace(" UNBLOCKED", " STOPPED")) == parts(new)
        },
        is_rare: false,
        ends: false,
    },
];
