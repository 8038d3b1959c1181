//! Whom and what messages about a hold are about.

use crate::effects::Subject;
use crate::ids::HoldId;
use crate::state::hold::{Hold, Notify};
use alloc::string::String;

/// The id of a hold in messages: the fencing token, or the permit id.
pub(crate) fn id_text(id: HoldId, hold: &Hold) -> String {
    if hold.token > 0 {
        return alloc::format!("{}", hold.token);
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
        id: id_text(id, hold),
        owner: hold.owner.to_vec(),
        reqid: reqid.unwrap_or_default().to_vec(),
    })
}
