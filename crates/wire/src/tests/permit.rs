//! Permit ids and their text.

use super::Random;
use crate::permit::{PermitId, parse, text};

#[test]
fn permit_ids_parse_in_any_case() {
    for seed in 0..10_000 {
        let mut random = Random(seed);
        let id: PermitId = core::array::from_fn(|_| random.next().to_le_bytes()[0]);
        let text = text(&id);
        assert_eq!(parse(&text), Some(id), "seed {seed}");
        assert_eq!(parse(&text.to_ascii_uppercase()), Some(id), "seed {seed}");
    }
}

#[test]
fn every_wrong_byte_is_seen() {
    let good = text(&[0xa5; 16]);
    assert_eq!(&good, b"a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5");
    for at in 0..good.len() {
        for wrong in [b'g', b'G', b'/', b':', b'@', b'`', b' ', b'{', 0, 0xff] {
            let mut bad = good;
            bad[at] = wrong;
            assert_eq!(parse(&bad), None, "{}", bad.escape_ascii());
        }
        let mut bad = good;
        bad[at] = if good[at] == b'-' { b'0' } else { b'-' };
        assert_eq!(parse(&bad), None, "{}", bad.escape_ascii());
        assert_eq!(parse(&good[..at]), None);
    }
    assert_eq!(parse(b"a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5a"), None);
    assert_eq!(parse(b"{a5a5a5a5-a5a5-a5a5-a5a5-a5a5a5a5a5a5}"), None);
    assert_eq!(parse(b"a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5"), None);
    assert_eq!(parse(b"a5a5a5a5a-5a5-a5a5-a5a5-a5a5a5a5a5a5"), None);
}
