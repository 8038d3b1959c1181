//! Errors: what they name, and the values that they carry.

use super::*;

fn from_server(code: &str, detail: &str) -> Error {
    Error::from_redis(redis::make_extension_error(code.to_owned(), Some(detail.to_owned())))
}

#[test]
fn key_and_server_are_named_once() {
    let plain = from_server("NOTHELD", "no such hold");
    let both = plain.clone().of_key(b"k").at("h:1");
    assert_eq!(both.to_string(), "NOTHELD no such hold (key \"k\", server h:1)");
    assert_eq!(both.text(), "NOTHELD no such hold");
    assert_eq!((both.key(), both.server()), (Some(&b"k"[..]), Some("h:1")));
    assert_eq!(plain.clone().of_key(b"k").to_string(), "NOTHELD no such hold (key \"k\")");
    assert_eq!(plain.clone().at("h:1").to_string(), "NOTHELD no such hold (server h:1)");
    assert_eq!(plain.of_key(b"").to_string(), "NOTHELD no such hold");
    // What the first layer noted stays, and nothing is said twice.
    assert_eq!(both.clone().of_key(b"l").at("h:2").to_string(), both.to_string());
    let two = Error::lost(Lost::Broken).of_keys(vec![b"k".to_vec(), b"l".to_vec()]).of_key(b"m");
    assert_eq!(two.to_string(), "an operator broke the hold (keys \"k\", \"l\")");
    assert_eq!((two.key(), two.keys().count()), (Some(&b"k"[..]), 2));
    let many = Error::lost(Lost::Broken).of_keys(vec![b"k".to_vec(); 10]).at("h:1");
    assert!(many.to_string().ends_with("\"k\", and 2 more, server h:1)"), "{many}");
    let named = Error::unavailable("no answer for \"k\" from h:1").of_key(b"k").at("h:1");
    assert_eq!(named.to_string(), named.text());
}

#[test]
fn the_code_decides_and_the_text_is_kept() {
    let error = from_server("DEADLOCK", "\"a\" waits for \"k\"");
    assert_eq!(error.kind(), ErrorKind::Deadlock);
    assert_eq!(error.to_string(), "DEADLOCK \"a\" waits for \"k\"");
    assert_eq!(from_server("NOPERM", "no").kind(), ErrorKind::Refused);
    assert_eq!(from_server("OOM", "no memory").kind(), ErrorKind::Server);
    assert_eq!(from_server("SPENT", "it has ended").kind(), ErrorKind::Spent);
    assert_eq!(from_server("MOVING", "ask again").kind(), ErrorKind::Unavailable);
    assert_eq!(from_server("NEVERHEARD", "of it").kind(), ErrorKind::Server);
    let lost = ErrorKind::Lost { reason: Lost::Broken, finished: true };
    assert_eq!(from_server("LOST", "broken by an operator").kind(), lost);
    assert_eq!(from_server("UNKNOWN", "no such request").kind(), ErrorKind::ReleaseUnknown);
    let quarantine = from_server("QUARANTINE", "1500 it has just started");
    assert_eq!(quarantine.time_left().as_millis(), 1500);
    // Only the codes of a closed list are final.
    let passes = |code| from_server(code, "text").passes();
    assert!(["QUARANTINE", "UNBLOCKED", "OOM", "NEVERHEARD", "READONLY"].map(passes) == [true; 5]);
    assert!(["STOPPED", "SPENT", "LIMIT", "ERR", "NOPERM"].map(passes) == [false; 5]);
    // What an English text says decides nothing.
    for text in ["unknown command 'DLOCK.ACQUIRE'", "lease must be an integer", "no such semaphore"]
    {
        assert_eq!(from_server("ERR", text).kind(), ErrorKind::Invalid);
    }
}

/// It is no answer: the request is sent again.
#[test]
fn a_broken_reply_passes() {
    let broken = redis::parse_redis_value(b"?\r\n").expect_err("no reply");
    let error = Error::from_redis(broken);
    assert!(error.passes() && error.is_unanswered(), "{error:?}");
    assert_eq!(error.to_string(), "the reply is broken");
}
