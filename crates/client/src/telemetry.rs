//! What the client reports to `tracing` and to `metrics`: with neither feature, nothing, at no cost.

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
mod off;
#[cfg(any(feature = "tracing", feature = "metrics"))]
mod on;

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
pub(crate) use self::off::*;
#[cfg(any(feature = "tracing", feature = "metrics"))]
pub(crate) use self::on::*;
