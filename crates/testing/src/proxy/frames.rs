//! Counts whole requests and replies, and applies rules to them.

use std::{sync::atomic::Ordering, time::Instant};

use super::{Connection, Cut, Fault, Seen, State, Unanswered, Way, wire::Wire};
use crate::resp;

/// Of all recorded frames the oldest half goes.
const MOST_FRAMES: usize = 40_000;

impl State {
    /// Moves whole frames from the partial bytes to the queue.
    pub(super) fn sort(&mut self, connection: &mut Connection, way: Way) -> Option<Cut> {
        let bytes = std::mem::take(&mut connection.lanes[way as usize].partial);
        if way == Way::ToServer && !bytes.starts_with(b"*") {
            connection.opaque = true;
        }
        if connection.opaque {
            self.enqueue(connection, way, bytes);
            return None;
        }
        let (mut end, mut out) = (0, Vec::with_capacity(bytes.len()));
        let mut cut = None;
        while cut.is_none()
            && let Some(len) = resp::frame_len(&bytes[end..])
        {
            let mut frame = &bytes[end..end + len];
            let (passes, fault) = match way {
                Way::ToServer => self.request(connection, frame),
                Way::ToClient => self.reply(connection, &mut frame),
            };
            if self.seen.is_some() {
                let (connection, frame) = (connection.number, frame.to_vec());
                if self.wire.len() == MOST_FRAMES {
                    self.wire.drain(..MOST_FRAMES / 2);
                }
                self.wire.push(Wire {
                    connection,
                    at: Instant::now(),
                    way,
                    is_lost: !passes,
                    frame,
                });
            }
            if passes {
                match (&self.hidden_word, way) {
                    (Some(word), Way::ToServer) => out.extend(without_word(frame, word)),
                    _ => out.extend_from_slice(frame),
                }
            }
            end += len;
            cut = fault;
        }
        connection.lanes[way as usize].partial = bytes[end..].to_vec();
        if !out.is_empty() {
            self.enqueue(connection, way, out);
        }
        cut
    }

    /// Counts a request; returns whether it passes, and how to cut the connection.
    fn request(&mut self, connection: &mut Connection, frame: &[u8]) -> (bool, Option<Cut>) {
        let command = resp::decode_command(frame);
        let Some(name) = command.first() else { return (true, None) };
        let name = String::from_utf8_lossy(name).to_ascii_uppercase();
        let rule = self.rules.iter_mut().find(|rule| rule.left > 0 && (rule.matcher)(&command));
        let fault = rule.map(|rule| {
            rule.left -= 1;
            (rule.fault, rule.fired.clone())
        });
        let replies = match name.as_str() {
            // Their replies are messages, one per channel.
            "SUBSCRIBE" | "UNSUBSCRIBE" | "PSUBSCRIBE" | "PUNSUBSCRIBE" | "SSUBSCRIBE"
            | "SUNSUBSCRIBE" => {
                if connection.resp3 {
                    0
                } else {
                    command.len().max(2) - 1
                }
            }
            _ => 1,
        };
        if name == "HELLO" {
            connection.resp3 = command.get(1).is_some_and(|version| version == b"3");
        }
        let traffic = &mut self.traffic[connection.number];
        traffic.round_trips += u64::from(connection.unanswered.is_empty());
        *traffic.requests.entry(name).or_default() += 1;
        if let Some(seen) = &mut self.seen {
            seen.push(Seen { connection: connection.number, at: Instant::now(), command });
        }
        if let Some((Fault::LoseRequest, fired)) = fault {
            fired.fetch_add(1, Ordering::SeqCst);
            return (false, Some(Cut::Reset));
        }
        for n in 0..replies {
            let fault = if n == 0 { fault.clone() } else { None };
            connection.unanswered.push_back(Unanswered { fault });
        }
        (true, None)
    }

    /// Counts a reply, and replaces it; returns whether it passes, and how to cut the connection.
    fn reply(&mut self, connection: &mut Connection, frame: &mut &[u8]) -> (bool, Option<Cut>) {
        let is_message = frame.get(1..).is_some_and(|frame| {
            frame.starts_with(b"3\r\n$7\r\nmessage\r\n")
                || frame.starts_with(b"3\r\n$8\r\nsmessage\r\n")
        });
        if frame.starts_with(b">") {
            self.traffic[connection.number].pushes += 1;
        }
        if frame.starts_with(b">") || (is_message && !connection.resp3) {
            return (!(is_message && self.swallows_messages), None);
        }
        // A reply without a request: the server explains why it closes the connection.
        let Some(Unanswered { fault: Some((fault, fired)) }) = connection.unanswered.pop_front()
        else {
            return (true, None);
        };
        fired.fetch_add(1, Ordering::SeqCst);
        match fault {
            Fault::LoseRequest | Fault::LoseReply => (false, Some(Cut::Reset)),
            Fault::HalfOpen => (false, Some(Cut::HalfOpen)),
            Fault::StallReply => {
                connection.stalled[Way::ToClient as usize] = true;
                (true, None)
            }
            Fault::Answer(reply) => {
                *frame = reply;
                (true, None)
            }
        }
    }
}

/// The request with this word replaced by an unknown word of the same length.
fn without_word(frame: &[u8], word: &str) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let wanted = format!("\r\n{word}\r\n").into_bytes();
    for at in 0..frame.len().saturating_sub(wanted.len()) {
        if frame[at..at + wanted.len()].eq_ignore_ascii_case(&wanted) {
            frame[at + 2..at + 2 + word.len()].fill(b'?');
        }
    }
    frame
}
