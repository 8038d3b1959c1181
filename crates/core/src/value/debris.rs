//! Memory that is freed piece by piece.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

/// Parts of a removed table. To free a million of them takes too long for one step.
#[derive(Default)]
pub(crate) struct Debris(Vec<Box<dyn Iterator<Item = ()> + Send>>);

impl Debris {
    /// Adds parts to be freed.
    pub(crate) fn add<T: 'static>(&mut self, parts: impl Iterator<Item = T> + Send + 'static) {
        self.0.push(Box::new(parts.map(drop)));
    }

    /// Frees up to `most` parts; `false` when none is left.
    pub(crate) fn free(&mut self, most: usize) -> bool {
        let Some(parts) = self.0.last_mut() else { return false };
        if parts.by_ref().take(most).count() < most {
            self.0.pop();
        }
        !self.0.is_empty()
    }
}

impl fmt::Debug for Debris {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Debris").field(&self.0.len()).finish()
    }
}
