//! Error codes and quoting.

use crate::reply::{ErrorCode, Kind, quote};

#[test]
fn codes_are_read_from_texts() {
    for code in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_text(code.as_str()), Some(code));
        assert_eq!(ErrorCode::from_text(&alloc::format!("{code} some text")), Some(code));
        assert_eq!(ErrorCode::from_text(&alloc::format!("{code}X some text")), None);
    }
    for text in ["", " ", "notheld", "OOM command not allowed", "some text"] {
        assert_eq!(ErrorCode::from_text(text), None, "{text:?}");
    }
}

#[test]
#[rustfmt::skip]
fn bytes_are_quoted_as_redis_cli_quotes() {
    let table: &[(&[u8], &str)] = &[
        (b"", r#""""#),
        (b"orders:7", r#""orders:7""#),
        (b"two words", r#""two words""#),
        (b"say \"hi\"", r#""say \"hi\"""#),
        (b"it's", r#""it's""#),
        (b"back\\slash", r#""back\\slash""#),
        (b"\n\r\t\x07\x08", r#""\n\r\t\a\b""#),
        (b"\0\x1b\x7f\x80\xff", r#""\x00\x1b\x7f\x80\xff""#),
        ("é".as_bytes(), r#""\xc3\xa9""#),
        (b"%s %n", r#""%s %n""#),
    ];
    for (bytes, text) in table {
        assert_eq!(quote(bytes), *text);
    }
}

#[test]
fn long_bytes_are_cut() {
    let x = "x".repeat(64);
    assert_eq!(quote(&[b'x'; 64]), alloc::format!("\"{x}\""));
    assert_eq!(quote(&[b'x'; 65]), alloc::format!("\"{x}\"..."));
    assert_eq!(quote(&[0; 1000]), alloc::format!("\"{}\"...", "\\x00".repeat(64)));
}

#[test]
fn key_types_are_nine_letters_and_differ() {
    let types = Kind::ALL.map(Kind::key_type);
    for (at, name) in types.iter().enumerate() {
        assert_eq!(name.len(), 9, "{name}");
        assert!(!types[..at].contains(name), "{name}");
    }
}
