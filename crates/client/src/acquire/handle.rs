//! What a handle of locks or permits acquires, and how.

use std::fmt;
use std::sync::Arc;

use dlock_wire::reply::quote;

use crate::base::options::Options;
use crate::base::target::{Keys, Target};
use crate::registry::core::Core;

/// What a handle acquires, and how.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
    pub(crate) target: Target,
    pub(crate) keys: Keys,
    pub(crate) options: Options,
}

impl Handle {
    pub(crate) fn new(core: &Arc<Core>, target: Target, keys: Keys) -> Self {
        Self { core: core.clone(), target, keys, options: Options::default() }
    }

    /// What `Debug` shows of the handle of that name.
    pub(crate) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys.all();
        let shown: Vec<_> = keys.iter().take(8).map(|key| quote(key)).collect();
        f.debug_struct(name)
            .field("keys", &shown)
            .field("of", &keys.len())
            .field("target", &self.target)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
