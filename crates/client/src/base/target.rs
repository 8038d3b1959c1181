//! What an acquire takes, and of which keys.

use std::collections::HashSet;
use std::sync::Arc;

use dlock_wire::names::{KEYS_MAX, PERMITS_MAX};
use dlock_wire::reply::quote;

use crate::base::error::Error;
use crate::base::family::Family;

/// What an acquire takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Lock(Family),
    Permit {
        count: u32,
        limit: Option<u32>,
    },
    /// All of several locks.
    All,
    /// Any one of several locks.
    Any,
}

impl Target {
    pub(crate) fn is_several(self) -> bool {
        matches!(self, Self::All | Self::Any)
    }

    /// Of several locks, each is a DLOCK. Permits have none.
    pub(crate) fn family(self) -> Family {
        match self {
            Self::Lock(family) => family,
            Self::Permit { .. } | Self::All | Self::Any => Family::Lock,
        }
    }

    pub(crate) fn check(self) -> Result<(), Error> {
        let Self::Permit { count, limit } = self else { return Ok(()) };
        for (name, permits) in [("count", count), ("limit", limit.unwrap_or(1))] {
            if permits == 0 || permits > PERMITS_MAX {
                return Err(Error::invalid(format!("{name} must be 1 to {PERMITS_MAX}")));
            }
        }
        Ok(())
    }
}

/// The keys of an acquire.
#[derive(Clone)]
pub(crate) enum Keys {
    One(Arc<[u8]>),
    Several(Arc<[Vec<u8>]>),
}

impl Keys {
    pub(crate) fn one(key: &[u8]) -> Self {
        Self::One(key.into())
    }

    pub(crate) fn several<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Self {
        Self::Several(keys.into_iter().map(|key| key.as_ref().to_vec()).collect())
    }

    /// The key that tells the server.
    pub(crate) fn first(&self) -> &[u8] {
        match self {
            Self::One(key) => key,
            Self::Several(keys) => keys.first().map_or(&[], Vec::as_slice),
        }
    }

    /// All keys but the first.
    pub(crate) fn others(&self) -> impl Iterator<Item = &[u8]> {
        let several = match self {
            Self::One(_) => &[],
            Self::Several(keys) => &keys[..],
        };
        several.iter().skip(1).map(Vec::as_slice)
    }

    pub(crate) fn all(&self) -> Vec<&[u8]> {
        match self {
            Self::One(key) => vec![key],
            Self::Several(keys) => keys.iter().map(Vec::as_slice).collect(),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if let Self::Several(keys) = self {
            let most = usize::try_from(KEYS_MAX).unwrap_or(usize::MAX);
            if keys.is_empty() || keys.len() > most {
                return Err(Error::invalid(format!("1 to {most} keys can be locked together")));
            }
            let mut seen = HashSet::with_capacity(keys.len());
            if let Some(twice) = keys.iter().find(|key| !key.is_empty() && !seen.insert(&key[..])) {
                return Err(Error::invalid(format!("key {} given twice", quote(twice))));
            }
        }
        if self.first().is_empty() || self.others().any(<[u8]>::is_empty) {
            return Err(Error::invalid("key must not be empty"));
        }
        Ok(())
    }
}
