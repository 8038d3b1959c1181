//! What this core does otherwise than that of 68654212, on purpose.

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

/// What a row shows without tokens, and without the keys that are a part of the grant of one of several.
fn without_tokens(shown: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_token = |word: &&str| word.strip_prefix(['t', '#']).is_some_and(is_number);
    let is_kept = |word: &&str| !is_token(word) && word.len() > 1;
    shown.split([' ', ';']).filter(is_kept).collect::<Vec<_>>().join(" ")
}

/// What a row shows, with no digits.
fn without_digits(shown: &str) -> String {
    shown.chars().filter(|one| !one.is_ascii_digit()).collect()
}

/// What a row shows, in an order of its own.
fn sorted(shown: &str, separators: &[char]) -> Vec<String> {
    let parts = shown.split(separators).map(str::trim).filter(|part| !part.is_empty());
    let mut parts: Vec<String> = parts.map(str::to_owned).collect();
    parts.sort_unstable();
    parts
}

pub const DIFFERENCES: &[Difference] = &[
    Difference {
        why: "The kinds of work of one turn take turns: what falls due together ends in another order.",
        explains: |row, old, new| {
            let is_same = sorted(old, &[' ', ';']) == sorted(new, &[' ', ';']);
            is_same && !row.contains("DLOCK.LOG") && old.matches("+acquire").count() < 2
        },
        is_rare: false,
        ends: false,
    },
    Difference {
        why: "In that order grants get their tokens, and a call for one of several gets its key.",
        explains: |row, old, new| {
            let [old, new] = [old, new].map(|shown| sorted(&without_tokens(shown), &[' ']));
            !row.contains("DLOCK.LOG") && old == new && old.iter().any(|part| part == "+acquire")
        },
        is_rare: false,
        ends: true,
    },
    Difference {
        why: "A token that no reply told is another: its grant came in another order.",
        explains: |_, old, new| without_digits(old) == without_digits(new),
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "A cycle is told before the leases in it end, if both are due.",
        explains: |_, old, new| new.contains(" gets DEADLOCK") && !old.contains(" gets DEADLOCK"),
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "A swap of databases in which leases are due: another one ends first.",
        explains: |row, old, new| {
            let parts =
                |shown: &str| sorted(&shown.replace("gets deleted", "gets expired"), &[';']);
            let (mut left, new) = (parts(old), parts(new));
            let is_there = new.into_iter().all(|part| {
                let at = left.iter().position(|one| *one == part);
                at.map(|at| left.swap_remove(at)).is_some()
            });
            row.contains("swapdb") && is_there && left.iter().all(|part| part == "+expire")
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The log lists in that order: its ten newest entries, and their counts of waiters, are others.",
        explains: |row, old, new| {
            let entries = |shown: &str| shown.matches(" held ").count();
            row.ends_with("DLOCK.LOG GET") && entries(old) == entries(new)
        },
        is_rare: false,
        ends: false,
    },
];
