//! The two clocks.

/// Microseconds of `CLOCK_MONOTONIC`: the clock of leases, waits and the alarm.
#[inline]
pub fn monotonic_us() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// Microseconds of the wall clock since 1970. For tokens only; it may jump.
#[inline]
pub fn wall_us() -> u64 {
    read(libc::CLOCK_REALTIME)
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer. The call cannot fail for these two clocks.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    seconds * 1_000_000 + nanos / 1_000
}

/// Fills `bytes` from the kernel's random number generator.
pub fn random(bytes: &mut [u8]) -> Result<(), String> {
    // SAFETY: a buffer with its length; requests of up to 256 bytes are never cut short.
    let filled = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if usize::try_from(filled) == Ok(bytes.len()) {
        Ok(())
    } else {
        Err("the kernel gives no random numbers".to_owned())
    }
}
