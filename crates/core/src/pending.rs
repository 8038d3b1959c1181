//! Work that is left to later turns, and grants that are not known to have arrived: plain data.

pub(crate) mod flush;
pub(crate) mod former;
pub(crate) mod in_flight;
pub(crate) mod removed;
