//! Whom and what messages about a hold are about.

use crate::base::ids::HoldId;
use crate::ports::effects::Subject;
use crate::value::hold::{Hold, Notify};
use alloc::string::String;
use alloc::vec::Vec;

/// The id of a hold in messages: the fencing token, or the permit id.
fn id_text(id: HoldId, token: u64) -> String {
    if token > 0 {
        return alloc::format!("{token}");
    }
    let text = dlock_wire::permit::text(&id.to_be_bytes());
    // These are always hexadecimal digits and dashes.
    core::str::from_utf8(&text).unwrap_or_default().into()
}

/// The subject of messages about a hold, and their channel; `None` if it sends none.
pub(crate) fn subject(id: HoldId, hold: &Hold) -> Option<Subject> {
    let extras = hold.extras.as_ref()?;
    let reqid = extras.notify_request.as_deref();
    Some(Subject {
        channel: hold.channel()?,
        is_sharded: matches!(extras.notify, Notify::Sharded(_)),
        id: id_text(id, hold.token),
        owner: hold.owner.to_vec(),
        reqid: reqid.unwrap_or_default().to_vec(),
    })
}

/// The subjects of messages about many holds, in one piece of memory.
#[derive(Debug, Default)]
pub(crate) struct Subjects {
    bytes: Vec<u8>,
    /// Where the next one begins.
    next: usize,
}

impl Subjects {
    /// Adds the subject of a hold, if it sends messages.
    pub fn push(&mut self, id: HoldId, hold: &Hold) {
        let Some(extras) = &hold.extras else { return };
        let Some(channel) = hold.channel() else { return };
        self.bytes.push(u8::from(matches!(extras.notify, Notify::Sharded(_))));
        self.bytes.extend_from_slice(&hold.token.to_le_bytes());
        self.bytes.extend_from_slice(&id.to_be_bytes());
        let reqid = extras.notify_request.as_deref().unwrap_or_default();
        for part in [&channel[..], &hold.owner, reqid] {
            self.bytes.extend_from_slice(&part.len().to_le_bytes());
            self.bytes.extend_from_slice(part);
        }
    }

    /// Whether all of them were taken.
    pub fn is_empty(&self) -> bool {
        self.next == self.bytes.len()
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.bytes.get(self.next..)?.first_chunk()?;
        self.next += N;
        Some(*bytes)
    }

    fn take_part(&mut self) -> Option<Vec<u8>> {
        let len = usize::from_le_bytes(self.take()?);
        let part = self.bytes.get(self.next..self.next + len)?.to_vec();
        self.next += len;
        Some(part)
    }
}

impl Iterator for Subjects {
    type Item = Subject;

    fn next(&mut self) -> Option<Subject> {
        let [is_sharded] = self.take()?;
        let token = u64::from_le_bytes(self.take()?);
        let id = HoldId::from_be_bytes(self.take()?);
        Some(Subject {
            is_sharded: is_sharded != 0,
            id: id_text(id, token),
            channel: self.take_part()?,
            owner: self.take_part()?,
            reqid: self.take_part()?,
        })
    }
}
