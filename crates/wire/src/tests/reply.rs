//! Error codes and quoting.

use alloc::vec::Vec;

use crate::names;
use crate::reply::{ErrorCode, holder, info, latch_info, permit, quote, rw_info, sem_info, waiter};
use crate::table::{CommandId, LatchVerb, LockVerb, RwVerb, SemVerb};

#[test]
fn codes_are_read_from_texts() {
    for code in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_text(code.as_str()), Some(code));
        assert_eq!(ErrorCode::from_text(&alloc::format!("{code} some text")), Some(code));
        assert_eq!(ErrorCode::from_text(&alloc::format!("{code}X some text")), None);
    }
    for text in ["", " ", "notheld", "OOM command not allowed", "NOPERM", "some text"] {
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
fn the_page_names_the_fields_of_the_maps() {
    let fields = |id: CommandId| {
        let rows =
            id.command().expect("a row").reply.lines().filter_map(|line| line.strip_prefix("| `"));
        rows.filter_map(|row| row.split('`').next()).collect::<Vec<_>>()
    };
    assert_eq!(fields(CommandId::Lock(LockVerb::Info)), info::FIELDS);
    assert_eq!(fields(CommandId::Lock(LockVerb::Waiters)), waiter::FIELDS);
    let rw = [&rw_info::FIELDS[..], &holder::FIELDS].concat();
    assert_eq!(fields(CommandId::Rw(RwVerb::Info)), rw);
    assert_eq!(fields(CommandId::Sem(SemVerb::Info)), sem_info::FIELDS);
    assert_eq!(fields(CommandId::Sem(SemVerb::Permits)), permit::FIELDS);
    assert_eq!(fields(CommandId::Latch(LatchVerb::Info)), latch_info::FIELDS);
}

#[test]
fn key_types_are_nine_letters_and_differ() {
    let types =
        [names::TYPE_LOCK, names::TYPE_FAIR, names::TYPE_RW, names::TYPE_SEM, names::TYPE_LATCH];
    for (at, name) in types.iter().enumerate() {
        assert_eq!(name.len(), 9, "{name}");
        assert!(!types[..at].contains(name), "{name}");
    }
}
