//! Patterns of keys, as SCAN matches them.

/// Whether `text` matches `pattern`: `*`, `?`, `[abc]`, `[^a-z]` and `\` in front of any of these.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((&first, rest)) = pattern.split_first() else { return text.is_empty() };
    if first == b'*' {
        return (0..=text.len()).any(|skipped| matches(rest, text.get(skipped..).unwrap_or(&[])));
    }
    let Some((&byte, text)) = text.split_first() else { return false };
    match (first, rest.split_first()) {
        (b'?', _) => matches(rest, text),
        (b'[', _) => {
            let (is_in, rest) = class(rest, byte);
            is_in && matches(rest, text)
        }
        (b'\\', Some((&quoted, rest))) => quoted == byte && matches(rest, text),
        _ => first == byte && matches(rest, text),
    }
}

/// Whether a class, without its `[`, has `byte`; and the pattern after it.
fn class(pattern: &[u8], byte: u8) -> (bool, &[u8]) {
    let (is_negated, mut rest) = match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let mut is_in = false;
    loop {
        rest = match rest {
            [] => return (is_in != is_negated, rest),
            [b']', after @ ..] => return (is_in != is_negated, after),
            [b'\\', one, after @ ..] => {
                is_in |= *one == byte;
                after
            }
            [from, b'-', to, after @ ..] => {
                is_in |= (*from.min(to)..=*from.max(to)).contains(&byte);
                after
            }
            [one, after @ ..] => {
                is_in |= *one == byte;
                after
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_those_of_scan() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "a", false),
            ("lic*", "licences", true),
            ("*c?s", "licences", true),
            ("*c?s", "licenses", false),
            ("a[bc]d", "acd", true),
            ("a[^bc]d", "acd", false),
            ("a[b-d]*", "aczz", true),
            ("a[d-b]", "ac", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("[\\]]", "]", true),
        ] {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }
}
