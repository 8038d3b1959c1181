//! What a run of the machine gets and gives: the keys, the time, the caller, and the output.

pub(crate) mod answers;
pub mod effects;
pub mod lost;
pub mod store;
pub(crate) mod subject;
pub mod turn;
