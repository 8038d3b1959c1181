//! Keeps the server's short strings away from the ends of pages.
//!
//! For each record the server looks up the name of our command, and compares it with a separator byte by byte
//! (`sdssplitlen`). The C library does that with masked loads of 32 bytes. Where such a load reaches into the next page, and
//! that has never been touched, the processor carries it out in microcode: 0.3 µs instead of 3 ns for each byte, so that a
//! pair of ACQUIRE and RELEASE took twice as long (AMD EPYC with AVX-512, glibc 2.36). The allocator hands out the same few
//! places again and again, so a server that is unlucky stays so. This takes such places out of its hands.

use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The size class of the name, with the server's header and its end mark.
const SIZE: usize = 16;

/// What one of those loads reads at most.
const REACH: usize = 32;

/// The smallest page of any system.
const PAGE: usize = 4096;

/// How many places are looked at: more than one command takes from that size class before it tells its record.
const DEPTH: usize = 12;

/// How many are kept at most.
const MOST: usize = 64;

/// Time between two looks, in microseconds.
const EVERY_US: u64 = 100_000;

static KEPT: AtomicUsize = AtomicUsize::new(0);
static NEXT_US: AtomicU64 = AtomicU64::new(0);

/// Looks at the places that the allocator would hand out next, and keeps those at the end of a page. Once per turn of the
/// loop; does something ten times a second.
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
    // Backwards, so that they are handed out in the same order as before.
    for place in places.into_iter().rev().filter(|place| !place.is_null()) {
        if place.addr() % PAGE + SIZE + REACH > PAGE {
            KEPT.fetch_add(1, Ordering::Relaxed);
        } else {
            // SAFETY: allocated above, given to nobody, freed once.
            unsafe { api!(RedisModule_Free(place)) };
        }
    }
}
