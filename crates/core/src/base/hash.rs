//! Hashes of names and owners.

use core::hash::BuildHasher;
use siphasher::sip::SipHasher13;

/// Keys of the hash function, random per process: names and owners come from clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HashKeys(pub u64, pub u64);

impl BuildHasher for HashKeys {
    type Hasher = SipHasher13;

    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}
