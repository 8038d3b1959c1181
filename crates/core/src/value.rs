//! The durable half: the value of a key, plain owned data.

pub(crate) mod debris;
pub mod fair;
pub mod hold;
pub mod holds;
pub mod latch;
pub mod lock;
pub mod resource;
pub mod rw;
pub mod semaphore;
pub mod spent;
pub mod wait_request;

/// The sum of `sizes`, extrapolated from the first `samples` of them.
pub(crate) fn sampled(sizes: impl ExactSizeIterator<Item = usize>, samples: usize) -> usize {
    let (len, looked_at) = (sizes.len(), sizes.len().min(samples));
    let sum: usize = sizes.take(looked_at).sum();
    sum * len / looked_at.max(1)
}
