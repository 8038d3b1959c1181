//! What this core does otherwise than that of c65f043b, on purpose.

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

/// The ids of a hold's requests, as this core writes them; `None` if these bytes are something else.
fn rewritten(ids: &[u8]) -> Option<Vec<u8>> {
    let (mut ids, mut at) = (ids.to_vec(), 0);
    while at < ids.len() {
        let head = ids[at];
        ids[at] = head.checked_sub(0x80)?;
        at += 2 + usize::from(head & 0x3F) + if head & 0x40 > 0 { 4 } else { 0 };
    }
    (at > 0 && at == ids.len()).then_some(ids)
}

/// A state in which all ids are rewritten.
fn state_with_ids_rewritten(shown: &str) -> String {
    let part = |part: &str| {
        let numbers = part.split_once(']').and_then(|(numbers, rest)| {
            let bytes: Result<Vec<u8>, _> = numbers.split(", ").map(str::parse).collect();
            Some(format!("{:?}{rest}", rewritten(&bytes.ok()?)?))
        });
        numbers.unwrap_or_else(|| format!("[{part}"))
    };
    let mut parts = shown.split('[');
    let first = parts.next().unwrap_or_default().to_owned();
    first + &parts.map(part).collect::<String>()
}

pub const DIFFERENCES: &[Difference] = &[Difference {
    why: "The ids of a hold's requests lack a bit that told them from ids of earlier builds.",
    explains: |row, old, new| row.ends_with("state") && state_with_ids_rewritten(old) == new,
    is_rare: false,
    ends: false,
}];
