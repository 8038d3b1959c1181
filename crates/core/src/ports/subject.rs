//! Whom and what messages about a hold are about.

use crate::base::ids::HoldId;
use crate::ports::effects::{Subject, SubjectId};
use crate::value::hold::{Hold, Notify};
use alloc::vec::Vec;
use core::ops::Range;

/// The id of a hold in messages.
fn subject_id(id: HoldId, token: u64) -> SubjectId {
    if token > 0 { SubjectId::Token(token) } else { SubjectId::Permit(id.to_be_bytes()) }
}

/// The subject of messages about a hold, and their channel; `None` if it sends none.
pub(crate) fn subject(id: HoldId, hold: &Hold) -> Option<Subject<'_>> {
    let extras = hold.extras.as_ref()?;
    let reqid = extras.notify_request.as_deref();
    Some(Subject {
        channel: hold.channel()?,
        is_sharded: matches!(extras.notify, Notify::Sharded(_)),
        id: subject_id(id, hold.token),
        owner: &hold.owner,
        reqid: reqid.unwrap_or_default(),
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

    fn take_part(&mut self) -> Option<Range<usize>> {
        let len = usize::from_le_bytes(self.take()?);
        let part = self.next..self.next + len;
        self.next += len;
        Some(part)
    }

    /// The next one.
    pub fn pop(&mut self) -> Option<Subject<'_>> {
        let [is_sharded] = self.take()?;
        let token = u64::from_le_bytes(self.take()?);
        let id = HoldId::from_be_bytes(self.take()?);
        let [channel, owner, reqid] = [self.take_part()?, self.take_part()?, self.take_part()?];
        Some(Subject {
            is_sharded: is_sharded != 0,
            id: subject_id(id, token),
            channel: self.bytes.get(channel)?.to_vec(),
            owner: self.bytes.get(owner)?,
            reqid: self.bytes.get(reqid)?,
        })
    }
}
