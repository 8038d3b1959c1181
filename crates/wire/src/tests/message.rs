//! Messages of the notification channels.

use super::Random;
use crate::message::{Event, Message};
use crate::names::default_channel;

#[test]
fn messages_as_they_are_published() {
    let hold = Message::Hold {
        event: Event::Granted,
        db: 0,
        id: b"1767225600123456",
        owner: b"worker 2",
        reqid: b"req 1",
        key: b"a key",
    };
    assert_eq!(hold.write(), b"granted 0 1767225600123456 8 worker 2 5 req 1 a key");
    let Message::Hold { event, db, id, owner, key, .. } = hold else { return };
    let without = Message::Hold { event, db, id, owner, reqid: b"", key };
    assert_eq!(without.write(), b"granted 0 1767225600123456 8 worker 2 0  a key");
    assert_eq!(Message::Flushed { db: 15 }.write(), b"flushed 15");
    assert_eq!(default_channel(b"worker 2"), b"dlock:notify:worker 2");
}

#[test]
fn published_messages_parse_to_themselves() {
    for seed in 0..20_000 {
        let mut random = Random(seed);
        let (owner, key) = (random.bytes(1, 256), random.bytes(1, 40));
        let reqid = random.bytes(0, 64);
        let event = Event::ALL[random.index(Event::ALL.len())];
        let db = u32::try_from(random.within(0, u64::from(u32::MAX))).expect("fits");
        let message =
            Message::Hold { event, db, id: b"7", owner: &owner, reqid: &reqid, key: &key };
        assert_eq!(Message::parse(&message.write()), Some(message), "seed {seed}");
        let flushed = Message::Flushed { db };
        assert_eq!(Message::parse(&flushed.write()), Some(flushed), "seed {seed}");
    }
}

#[test]
fn other_texts_are_not_messages() {
    let texts: &[&[u8]] = &[
        b"",
        b"granted",
        b"granted 0 7 3",
        b"granted 0 7 3 own",
        b"granted 0 7 3 own key",
        b"granted 0 7 3 own 0 key",
        b"granted 0 7 3 own 3 key",
        b"granted 0 7 4 own 0  key",
        b"granted 0 7 9999999999 own 0  key",
        b"granted 0 7 3 own 9999999999 r key",
        b"granted x 7 3 own 0  key",
        b"granted -1 7 3 own 0  key",
        b"GRANTED 0 7 3 own 0  key",
        b"moved 0 7 3 own 0  key",
        b"flushed",
        b"flushed ",
        b"flushed x",
        b"flushed 0 1",
    ];
    for text in texts {
        assert_eq!(Message::parse(text), None, "{}", text.escape_ascii());
    }
}
