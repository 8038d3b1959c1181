//! Small parts that know no lock.

pub mod buckets;
pub mod bytes;
pub mod hash;
pub mod ids;
pub mod key;
pub mod kind;
pub mod shares;
pub mod slab;
pub mod time;
pub mod token;
pub mod wheel;
