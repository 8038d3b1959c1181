//! What the client knows of one hold.

pub(crate) mod hold_state;
pub(crate) mod tracked;
