//! The example of docs/format.md.

use super::{NOW, encoded};
use dlock_core::base::time::LeaseInstant;
use dlock_core::record;
use dlock_core::value::lock::Lock;
use dlock_core::value::resource::Body;
use std::fs;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");

/// The bytes of the code block after the comment that names this file.
fn example(page: &str) -> Vec<u8> {
    let (_, rest) = page.split_once("tests/it/codec/page.rs decodes it").expect("the comment");
    let block = rest.split("```").nth(1).expect("a code block");
    let byte = |word| u8::from_str_radix(word, 16).expect("two hexadecimal digits");
    block.split_ascii_whitespace().map(byte).collect()
}

#[test]
fn the_example_of_the_page_is_what_it_says() {
    let page = fs::read_to_string(PAGE).expect("docs/format.md");
    let dump = example(&page);
    let (frame, rest) = dump.split_at(12);
    assert_eq!(frame, b"\x07\x81\x76\x5a\x1c\x93\xe9\xad\xc4\x01\x05\x33");
    let (payload, end) = rest.split_at(0x33);
    assert_eq!((end.len(), &end[..3]), (1 + 2 + 8, &b"\0\x0a\0"[..]));

    let lock = record::decode(payload, NOW).expect("a payload");
    let Body::Lock(Lock::Held(hold)) = &lock.body else { panic!("a held lock: {lock:?}") };
    assert_eq!(hold.owner[..], *b"alice");
    assert_eq!((hold.token, hold.count, hold.lease_ms), (1_795_871_927_035_398, 1, 60_000));
    assert_eq!(hold.deadline, LeaseInstant(0) + 59_597);
    assert_eq!(NOW - hold.since, 404);
    let extras = hold.extras.as_deref().expect("extras");
    assert!(extras.requests.iter().eq([b"r1"]));
    assert_eq!(hold.label(), b"deliveries");
    assert_eq!(hold.binding().map(|binding| binding.ms), Some(2_000));
    assert!(hold.channel().is_none() && hold.unclaimed().is_none());
    assert_eq!(encoded(&lock), payload, "written again, it has the same bytes");
}

/// The rows of the page's last table, put together, are the example.
#[test]
fn the_table_of_the_page_covers_every_byte() {
    let page = fs::read_to_string(PAGE).expect("docs/format.md");
    let (_, rows) = page.rsplit_once("| bytes | meaning |").expect("the table");
    let cells = rows.lines().filter_map(|row| row.strip_prefix("| `")?.split('`').next());
    let digits: String = cells.flat_map(str::chars).filter(|digit| *digit != ' ').collect();
    let pairs = digits.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).expect("digits"));
    let bytes: Vec<u8> = pairs.map(|pair| u8::from_str_radix(pair, 16).expect("digits")).collect();
    assert_eq!(bytes, example(&page));
}
