//! What calls and events share: the door to a key, and what has to be done before or after it on other keys.

pub(crate) mod activity;
pub(crate) mod call;
pub(crate) mod drain;
pub(crate) mod due;
pub(crate) mod enter;
pub(crate) mod flush;
pub(crate) mod groups;
pub(crate) mod keyspace;
pub(crate) mod lost;
pub(crate) mod removed;
