//! Keeps the server's short strings away from the ends of pages.
//!
//! For each record the server looks up the name of our command. It compares the name with a separator byte by byte
//! (`sdssplitlen`), for which the C library uses masked loads of 32 bytes. Such a load may reach into the next page.
//! If that page has never been touched, the processor runs the load in microcode: 0.3 µs instead of 3 ns for each
//! byte. That made a pair of ACQUIRE and RELEASE take twice as long (AMD EPYC with AVX-512, glibc 2.36). The
//! allocator reuses the same few addresses, so an affected server stays slow. This module keeps such addresses
//! allocated.

use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The allocation size of the name, with the server's header and its terminator.
const SIZE: usize = 16;

/// Bytes that one of those loads reads.
const REACH: usize = 32;

/// The smallest page size of any system.
const PAGE: usize = 4096;

/// Addresses checked per round: more than one command allocates in that size class before it sends its record.
const DEPTH: usize = 12;

/// Most addresses kept.
const MOST: usize = 64;

/// Time between two rounds, in microseconds.
const EVERY_US: u64 = 100_000;

static KEPT: AtomicUsize = AtomicUsize::new(0);
static NEXT_US: AtomicU64 = AtomicU64::new(0);

/// Checks the addresses that the allocator would return next, and keeps those at the end of a page. Called once per
/// turn of the loop; works ten times a second.
pub fn avoid(now_us: u64) {
    if now_us < NEXT_US.load(Ordering::Relaxed) || KEPT.load(Ordering::Relaxed) >= MOST {
        return;
    }
    NEXT_US.store(now_us + EVERY_US, Ordering::Relaxed);
    let mut places = [ptr::null_mut(); DEPTH];
    for place in &mut places {
        // SAFETY: takes a size; null says that there is no memory.
        *place = unsafe { api!(RedisModule_Alloc(SIZE)) };
    }
    // Freed in reverse, so that the allocator returns them in the same order as before.
    for place in places.into_iter().rev().filter(|place| !place.is_null()) {
        if place.addr() % PAGE + SIZE + REACH > PAGE {
            KEPT.fetch_add(1, Ordering::Relaxed);
        } else {
            // SAFETY: allocated above, not shared, freed once.
            unsafe { api!(RedisModule_Free(place)) };
        }
    }
}
