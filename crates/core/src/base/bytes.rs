//! Short byte strings without an allocation.

use alloc::boxed::Box;
use core::cmp::Ordering;
use core::fmt;
use core::ops::Deref;

/// A byte string that keeps up to `N` bytes (at most 255) in place and longer ones on the heap.
///
/// Owners and key names are the bulk of what a held lock costs in memory; most are short.
#[derive(Clone)]
pub struct Short<const N: usize>(Repr<N>);

#[derive(Clone)]
enum Repr<const N: usize> {
    Inline { len: u8, bytes: [u8; N] },
    Heap(Box<[u8]>),
}

/// An owner: a textual UUID (36 bytes) fits in place, and the whole takes 40 bytes.
pub type Owner = Short<38>;

/// The name of a key: 22 bytes fit in place, and the whole takes 24 bytes.
pub type Name = Short<22>;

impl<const N: usize> Short<N> {
    /// The bytes themselves.
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { len, bytes } => &bytes[..usize::from(*len)],
            Repr::Heap(heap) => heap,
        }
    }

    /// Bytes on the heap, for the memory account of a key.
    pub fn heap_size(&self) -> usize {
        match &self.0 {
            Repr::Inline { .. } => 0,
            Repr::Heap(heap) => heap.len(),
        }
    }
}

impl<const N: usize> From<&[u8]> for Short<N> {
    fn from(source: &[u8]) -> Self {
        match u8::try_from(source.len()) {
            Ok(len) if source.len() <= N => {
                let mut bytes = [0; N];
                bytes[..source.len()].copy_from_slice(source);
                Self(Repr::Inline { len, bytes })
            }
            _ => Self(Repr::Heap(source.into())),
        }
    }
}

impl<const N: usize> Deref for Short<N> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl<const N: usize> PartialEq for Short<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<const N: usize> Eq for Short<N> {}

impl<const N: usize> PartialOrd for Short<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> Ord for Short<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

impl<const N: usize> fmt::Debug for Short<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&dlock_wire::reply::quote(self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_the_memory_account_assumes() {
        assert_eq!(size_of::<Owner>(), 40);
        assert_eq!(size_of::<Option<Owner>>(), 40);
        assert_eq!(size_of::<Name>(), 24);
    }

    #[test]
    fn bytes_come_back_on_both_sides_of_the_limit() {
        for len in 0..64 {
            let bytes = alloc::vec![b'x'; len];
            let short = Short::<22>::from(bytes.as_slice());
            assert_eq!(short.as_slice(), bytes);
            assert_eq!(short.heap_size(), if len <= 22 { 0 } else { len });
        }
    }
}
