//! New permit ids: random UUIDs (version 4).
//!
//! Every DSEM.ACQUIRE draws one, granted or not, so random bytes are fetched from the kernel for many ids at once: a
//! request for each would add half a microsecond to the call.

use dlock_wire::permit::PermitId;

use crate::ffi::{self, MainCell};

const ID: usize = size_of::<PermitId>();

/// Ids per request: the most bytes that the kernel always returns in full.
const DRAWN: usize = 256 / ID;

struct Pool {
    bytes: [PermitId; DRAWN],
    left: usize,
}

static POOL: MainCell<Pool> = MainCell::new(Pool { bytes: [[0; ID]; DRAWN], left: 0 });

/// A new, unique id. Only on the main thread.
pub fn next() -> Result<PermitId, String> {
    let drawn = POOL.try_with(|pool| {
        if pool.left == 0 {
            ffi::random(pool.bytes.as_flattened_mut())?;
            pool.left = DRAWN;
        }
        pool.left -= 1;
        let bytes = pool.bytes.get(pool.left).copied().unwrap_or_default();
        Ok(uuid::Builder::from_random_bytes(bytes).into_uuid().into_bytes())
    });
    drawn.unwrap_or_else(|| Err("permit ids are made on the main thread".into()))
}
