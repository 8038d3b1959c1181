//! The alarm clock: a monotonic timer that only wakes the event loop. The tick does the due work, because the server
//! also serves this descriptor in the middle of long scripts.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use redis_module::raw;

use super::guard;

static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);

/// The time the timer is set to; 0 when it is not set or has rung.
static SET: AtomicU64 = AtomicU64::new(0);

/// The module's one alarm. Must not be set in forked children: they share it with the server.
pub struct Alarm;

impl Alarm {
    /// Wakes the loop at `at_us`, an instant of the monotonic clock; one in the past wakes it at once. Replaces the
    /// previous alarm. Costs nothing if that was the same.
    pub fn set(at_us: u64) {
        // A zero time would disarm the timer.
        let at_us = at_us.max(1);
        if SET.load(Ordering::Relaxed) == at_us {
            return;
        }
        SET.store(at_us, Ordering::Relaxed);
        arm(libc::timespec {
            tv_sec: i64::try_from(at_us / 1_000_000).unwrap_or(i64::MAX),
            tv_nsec: libc::c_long::try_from(at_us % 1_000_000 * 1_000).unwrap_or(0),
        });
    }

    /// Wakes the loop at once. Replaces the previous alarm.
    pub fn ring() {
        Self::set(1);
    }

    /// Cancels the alarm.
    pub fn disarm() {
        if SET.load(Ordering::Relaxed) == 0 {
            return;
        }
        SET.store(0, Ordering::Relaxed);
        arm(libc::timespec { tv_sec: 0, tv_nsec: 0 });
    }
}

fn arm(at: libc::timespec) {
    let setting =
        libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
    // SAFETY: `setting` is valid for the call. Before `create` the descriptor is -1 and the call fails.
    unsafe {
        libc::timerfd_settime(
            DESCRIPTOR.load(Ordering::Relaxed),
            libc::TFD_TIMER_ABSTIME,
            &raw const setting,
            ptr::null_mut(),
        );
    }
}

/// Creates the timer and adds it to the server's event loop.
pub(super) fn create() -> Result<(), String> {
    // SAFETY: no arguments that could be invalid.
    let descriptor = unsafe {
        libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC)
    };
    if descriptor < 0 {
        let error = std::io::Error::last_os_error();
        return Err(format!("cannot create the alarm: {error}"));
    }
    // SAFETY: the descriptor is open and stays so for the life of the process; the callback takes no user data.
    let added = unsafe {
        api!(RedisModule_EventLoopAdd(
            descriptor,
            super::codes::int(raw::REDISMODULE_EVENTLOOP_READABLE),
            Some(ringing),
            ptr::null_mut(),
        ))
    };
    if !super::codes::ok(added) {
        // SAFETY: opened above and not shared.
        unsafe { libc::close(descriptor) };
        return Err("the event loop refuses the alarm".to_owned());
    }
    DESCRIPTOR.store(descriptor, Ordering::Relaxed);
    Ok(())
}

unsafe extern "C" fn ringing(descriptor: c_int, _data: *mut c_void, _mask: c_int) {
    guard::call("the alarm", (), || {
        SET.store(0, Ordering::Relaxed);
        let mut expirations = 0_u64;
        // SAFETY: reads at most eight bytes into a place of that size; the descriptor does not block.
        unsafe {
            libc::read(descriptor, (&raw mut expirations).cast(), size_of::<u64>());
        }
    });
}
