//! What the client reports to `tracing` and to `metrics`: with neither feature, nothing, at no cost.

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
mod off;
#[cfg(any(feature = "tracing", feature = "metrics"))]
mod on;

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
pub(crate) use self::off::*;
#[cfg(any(feature = "tracing", feature = "metrics"))]
pub(crate) use self::on::*;

/// Why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// A request over it failed or was not answered, or the other end closed it.
    Broken,
    /// The Sentinels name another primary.
    Replaced,
}
