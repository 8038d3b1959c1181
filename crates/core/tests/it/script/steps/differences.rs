//! What this core does otherwise than that of 7c31fa2, on purpose.

use super::rows::{PLACES_END, PLACES_STAY, REFUSED};

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

/// Marks the first tick after SWAPDB.
pub const SWAPPED: &str = "(databases were swapped)";

/// What a flush shows, without a mark.
fn unmarked(shown: &str) -> &str {
    let marks = [PLACES_END, PLACES_STAY];
    marks.iter().find_map(|mark| shown.strip_suffix(mark)).unwrap_or(shown)
}

/// The parts that `more` has and `fewer` lacks; `None` if `fewer` has others.
fn lacks(fewer: &[String], more: &[String]) -> Option<Vec<String>> {
    let mut rest = more.to_vec();
    for part in fewer {
        let at = rest.iter().position(|other| other == part)?;
        rest.remove(at);
    }
    Some(rest)
}

/// Whether `fewer` lacks ends of leases, and what follows from them, that `more` has; and nothing else.
fn lacks_ends(fewer: &str, more: &str) -> bool {
    let is_end = |part: &String| {
        [" expired ", "+expire", "+acquire", " granted ", " gets ", "#"]
            .iter()
            .any(|end| part.contains(end))
    };
    lacks(&parts(fewer), &parts(more))
        .is_some_and(|rest| rest.contains(&String::from("+expire")) && rest.iter().all(is_end))
}

/// Whether a row is a call that asks for something.
fn is_ask(row: &str) -> bool {
    ["ACQUIRE", "TAKE", "DRAIN"].iter().any(|verb| row.contains(verb))
}

/// What a row shows, piece by piece.
fn parts(shown: &str) -> Vec<String> {
    let shown = shown.replace("; ", " ;").replace(" +", " ;+").replace(" #", " ;#");
    let parts = shown.split(" ;").filter(|part| !part.is_empty());
    let mut parts: Vec<String> = parts.map(str::to_owned).collect();
    parts.sort_unstable();
    parts
}

/// Whether `new` is `old` with this answer in place of that one.
fn has_instead(old: &str, new: &str, that: &str, this: &str) -> bool {
    let mut all = parts(old);
    all.iter_mut().filter(|part| *part == that).for_each(|part| this.clone_into(part));
    all.sort_unstable();
    all == parts(new)
}

/// What a row shows, piece by piece, without the numbers of tokens.
fn parts_without_tokens(shown: &str) -> Vec<String> {
    let is_token =
        |word: &str| word.strip_prefix('t').is_some_and(|number| number.parse::<u64>().is_ok());
    let without = |part: &String| {
        let words = part.split(' ').map(|word| if is_token(word) { "t" } else { word });
        words.collect::<Vec<_>>().join(" ")
    };
    let mut parts: Vec<String> = parts(shown).iter().map(without).collect();
    parts.sort_unstable();
    parts
}

/// What a flush answers to waits.
const FLUSH_ANSWERS: [&str; 5] =
    [" gets MOVING", " gets deleted", " gets 1", " gets BROKEN", " gets WRONGTYPE"];

/// What a flush shows, piece by piece, with Null for each wait that it answers and that gets Null in `old`.
fn parts_with_nulls_of(old: &str, new: &str) -> Vec<String> {
    let old = parts(old);
    let with_null = |part: String| {
        let client = FLUSH_ANSWERS.iter().find_map(|answer| part.strip_suffix(answer));
        let null = client.map(|client| format!("{client} gets null"));
        null.filter(|null| old.contains(null)).unwrap_or(part)
    };
    parts(unmarked(new)).into_iter().map(with_null).collect()
}

/// The ANYACQUIRE calls that a row grants, with their keys: `c7 gets k t6`.
fn granted_any(shown: &str) -> Vec<(String, String)> {
    let granted = |part: &String| match part.split(' ').collect::<Vec<_>>()[..] {
        [client, "gets", key @ ("k" | "l" | "m" | "n" | "o"), _] => {
            Some((client.into(), key.into()))
        }
        _ => None,
    };
    parts(shown).iter().filter_map(granted).collect()
}

/// The tokens of the holds in a state, sorted, and the state without them.
fn tokens_in_state(shown: &str) -> (Vec<&str>, String) {
    // The first digits of the wall clock, as bytes.
    let begin = "[49, 55, 48, 48, 48, ";
    let mut pieces = shown.split(begin);
    let mut rest = pieces.next().unwrap_or_default().to_owned();
    let mut tokens = Vec::new();
    for piece in pieces {
        let (token, behind) = piece.split_once(']').unwrap_or((piece, ""));
        tokens.push(token);
        rest.push_str(behind);
    }
    tokens.sort_unstable();
    (tokens, rest)
}

/// What a row shows besides grants.
fn parts_without_grants(shown: &str) -> Vec<String> {
    let is_grant = |part: &String| {
        let answers = part.contains(" gets ") && !part.ends_with(" gets null");
        answers || part.starts_with("+acquire") || part.starts_with('#')
    };
    parts(shown).into_iter().filter(|part| !is_grant(part)).collect()
}

pub const DIFFERENCES: &[Difference] = &[
    Difference {
        why: "A copy of a RELEASE that found no hold gets SPENT: NOTHELD would say only that nothing is held now.",
        explains: |row, old, new| {
            row.contains("RELEASE") && has_instead(old, new, "NOTHELD", "SPENT")
        },
        is_rare: false,
        ends: false,
    },
    Difference {
        why: "A request whose place was taken over is told at once, by a message.",
        explains: |_, old, new| {
            let mut rest = parts(new);
            rest.retain(|part| !part.contains(": replaced "));
            new.contains(": replaced ") && rest == parts(old)
        },
        is_rare: false,
        ends: false,
    },
    Difference {
        why: "AWAIT of a latch that was lost before it opened gets BROKEN: its absence would look as if it had opened.",
        explains: |row, old, new| {
            row.contains("DLATCH.AWAIT") && has_instead(old, new, "1", "BROKEN")
        },
        is_rare: false,
        ends: false,
    },
    Difference {
        why: "A flush or swap that finds a wait whose time is over ends it, before the tick does.",
        explains: |row, old, new| {
            let ends = |shown: &str| {
                let null = |shown: String, answer: &&str| shown.replace(*answer, " gets null");
                FLUSH_ANSWERS.iter().fold(shown.to_owned(), null)
            };
            (row.contains("flush") || row.contains("swapdb"))
                && old.contains(" gets null")
                && ends(old) == ends(unmarked(new))
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The same of a place that outlives its call: the flush finds the call blocked, so the place stays and is \
              granted the lock, not the one behind it. If the time of that one is over, it waits for the tick. \
              Observers whose time is over get their answer from the flush, as above.",
        explains: |row, old, new| {
            let without_grants = |mut rest: Vec<String>| {
                rest.retain(|part| {
                    !part.starts_with("+acquire")
                        && !part.contains(": granted ")
                        && !part.contains(" gets t")
                        && !part.starts_with('#')
                });
                rest
            };
            row.contains("flush")
                && old.contains(" gets null")
                && old.matches(": granted ").count() < new.matches(": granted ").count()
                && lacks(
                    &without_grants(parts_with_nulls_of(old, new)),
                    &without_grants(parts(old)),
                )
                .is_some_and(|rest| rest.iter().all(|part| part.ends_with(" gets null")))
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The same, and nothing is granted yet.",
        explains: |_, old, new| new.strip_suffix(PLACES_STAY) == Some(old),
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "A flush ends places without a connection: nobody waits there.",
        explains: |_, old, new| new.strip_suffix(PLACES_END) == Some(old),
        is_rare: false,
        ends: true,
    },
    Difference {
        why: "SWAPDB, and the tick after it, open no key without waiters: a lease that is over then ends by its \
              deadline, which is up to half a millisecond later.",
        explains: |row, old, new| {
            (row.contains("swapdb") || row.ends_with(SWAPPED)) && lacks_ends(new, old)
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The tick after SWAPDB opens the former values of DFAIR and DSEM waiters: a lease that is over ends then, \
              up to half a millisecond before its rounded deadline.",
        explains: |row, old, new| row.ends_with(SWAPPED) && lacks_ends(old, new),
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "A call over a connection whose waiters were skipped serves dirty queues, of other keys, too: what is \
              over there ends then, before the tick.",
        explains: |row, old, new| is_ask(row) && lacks_ends(old, new),
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The same, seen later: the tick finds that no queue is dirty, so a wait that is over ends at its rounded \
              deadline, up to half a millisecond later.",
        explains: |row, old, new| {
            row.ends_with("tick")
                && lacks(&parts(new), &parts(old)).is_some_and(|rest| {
                    !rest.is_empty() && rest.iter().all(|part| part.ends_with(" gets null"))
                })
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The deadlines of keys with waiters are in a timing wheel of their own: a call that asks ends such a \
              lease up to half a millisecond later.",
        explains: |row, old, new| is_ask(row) && lacks_ends(new, old),
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "A call for several keys that SWAPDB ends gets the error of another one of them: queues are looked at in \
              another order.",
        explains: |row, old, new| {
            let same = |shown: &str| shown.replace(" gets WRONGTYPE", " gets MOVING");
            row.contains("swapdb") && parts(&same(old)) == parts(&same(new))
        },
        is_rare: true,
        ends: false,
    },
    Difference {
        why: "All calls that wait for a key that is gone in a cluster are told together: none of them gets another of \
              its keys in between.",
        explains: |_, old, new| {
            let granted = granted_any(new);
            let lost = granted_any(old).into_iter().filter(|one| !granted.contains(one));
            let mut lost = lost.map(|(client, _)| format!("{client} gets MOVING")).peekable();
            lost.peek().is_some()
                && lost.all(|told| new.contains(&told))
                && parts_without_grants(old) == parts_without_grants(new)
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "A place whose grace has ended closes no cycle, although the tick has not removed it yet.",
        explains: |row, old, new| {
            let waits = ["null +wait", "parked +wait", "+wait; null", "+wait; parked"];
            is_ask(row) && old == "DEADLOCK" && waits.contains(&new)
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "Observers of a hold are no grants after waiting, also where a small portion leaves some to the tick.",
        explains: |row, old, new| {
            let split = |shown: &str| {
                let (at_once, rest) = shown.split_once(", ")?;
                let (waited, rest) = rest.split_once(", ")?;
                Some((waited.parse::<u64>().ok()?, format!("{at_once} {rest}")))
            };
            let both = split(old).zip(split(new));
            row.ends_with("state") && both.is_some_and(|(old, new)| old.0 > new.0 && old.1 == new.1)
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The memory of requests knows lost latches, too.",
        explains: |row, old, new| {
            let count = |shown: &str| shown.parse::<u64>().unwrap_or(0);
            row.ends_with("requests") && count(old) < count(new)
        },
        is_rare: false,
        ends: false,
    },
    Difference {
        why: "Leases of several keys that end together end in another order, and so their next holders have other \
              tokens: a lease with waiters ends first.",
        explains: |_, old, new| {
            old.matches("+expire").count() + old.matches("+acquire").count() > 1
                && parts_without_tokens(old) == parts_without_tokens(new)
        },
        is_rare: false,
        ends: true,
    },
    Difference {
        why: "The same, where no answer and no message names the tokens: only the state shows them.",
        explains: |row, old, new| {
            let (old, new) = (tokens_in_state(old), tokens_in_state(new));
            row.ends_with("state") && old.0.len() > 1 && old == new
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The same of lock delays: one key is granted before, or after, a wait for another one is found to be \
              over.",
        explains: |row, old, new| {
            row.ends_with("tick")
                && old.contains(" gets null")
                && old.contains("+acquire")
                && parts(old) == parts(new)
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The same beside a flush: what it frees is handed on before leases, and lock delays, of other databases \
              end. Places of the flushed database may stay, as above.",
        explains: |row, old, new| {
            row.contains("flush")
                && (old.contains("+expire") || old.matches("+acquire").count() > 1)
                && parts_without_tokens(old) == parts_without_tokens(unmarked(new))
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The same, where one of the leases was an unclaimed grant: its owner counts as gone from then on, and \
              another lease has ended before that, so the owner is granted what that one held.",
        explains: |row, old, new| {
            let ended = |shown: &str| shown.matches("+expire").count();
            (row.contains("tick") || row.contains(" whole ") || is_ask(row))
                && ended(old) > 1
                && ended(old) == ended(new)
                && old.contains(": expired ")
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "An ANYACQUIRE whose locks become free in one tick gets another one of them: deadlines of one tick have \
              no promised order, and keys with waiters have their own timing wheel. A call that waits for the locks \
              that it leaves is granted them.",
        explains: |row, old, new| {
            let clients = |shown: &str| {
                granted_any(shown).into_iter().map(|(client, _)| client).collect::<Vec<_>>()
            };
            granted_any(old) != granted_any(new)
                && clients(old) == clients(new)
                // The call that ends the leases may find the key taken.
                && (is_ask(row) || parts_without_grants(old) == parts_without_grants(new))
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The tick refuses the youngest wait of a cycle that no call could see: SWAPDB and RENAME bring keys to \
              owners that wait for each other, and a promotion restores places of DFAIR.",
        explains: |row, old, new| {
            let is_refusal =
                |part: &String| part.contains(": deadlock ") || part.ends_with(" gets DEADLOCK");
            let without = |shown: &str| {
                let rest = parts(shown).into_iter().filter(|part| !is_refusal(part));
                rest.collect::<Vec<_>>()
            };
            ["tick", "failover", "promote"].iter().any(|event| row.contains(event))
                && parts(new).iter().any(is_refusal)
                && without(new) == without(old)
        },
        is_rare: true,
        ends: true,
    },
    Difference {
        why: "The same of a place without a channel and without a blocked call: nobody is told.",
        explains: |_, old, new| new.strip_suffix(REFUSED) == Some(old),
        is_rare: true,
        ends: true,
    },
];
