//! Patterns of scenes: `*` stands for any text, ` or ` separates alternatives.

/// Whether the whole text matches.
pub fn matches(pattern: &str, text: &str) -> bool {
    pattern.split(" or ").any(|one| matches_one(one.as_bytes(), text.as_bytes()))
}

fn matches_one(pattern: &[u8], text: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|from| matches_one(rest, &text[from..])),
        Some((first, rest)) => {
            text.split_first().is_some_and(|(byte, text)| first == byte && matches_one(rest, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, is_match) in [
            ("granted *", "granted 17", true),
            ("granted *", "granted", false),
            ("*holds=1 *", "owner=a holds=1 ttl-ms=5", true),
            ("lost", "lost now", false),
            ("released or was-lost", "was-lost", true),
            ("released or was-lost", "unknown", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
        }
    }
}
