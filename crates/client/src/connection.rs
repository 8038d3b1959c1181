//! Requests to servers: which server has a key, the connections to it, and how often a request is sent.

pub(crate) mod dedicated;
pub(crate) mod exchange;
pub(crate) mod link;
pub(crate) mod route;
