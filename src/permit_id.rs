//! New permit ids: random UUIDs (version 4).
//!
//! They are drawn for every DSEM.ACQUIRE, granted or not, so random bytes are fetched from the
//! kernel for many ids at once: asking for each would cost half a microsecond of the call.

use dlock_wire::permit::PermitId;

use crate::ffi::{self, MainCell};

const ID: usize = size_of::<PermitId>();

/// As many ids as one request to the kernel answers whole.
const DRAWN: usize = 256 / ID;

struct Pool {
    bytes: [PermitId; DRAWN],
    left: usize,
}

static POOL: MainCell<Pool> = MainCell::new(Pool { bytes: [[0; ID]; DRAWN], left: 0 });

/// An id that no permit has had. Only on the main thread.
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
