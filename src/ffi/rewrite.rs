//! An AOF rewrite ends only when what it lacks is in the AOF.
//!
//! Without an RDB preamble a rewrite stores keys only. The module writes the rest as records into the incremental file
//! that the server opened before the fork ([`Notice::Forked`]), but not while clients are paused. If the process ended
//! meanwhile, and after the child had finished its file, both files would lack it. So the child waits at its end; until
//! then the old files count. If that takes too long the rewrite fails, and the server begins it again later.
//!
//! [`Notice::Forked`]: crate::inbox::Notice::Forked

use redis_module::raw;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Time after the records in which the server writes them to the disk with `appendfsync everysec`, on a busy disk.
const TO_DISK: Duration = Duration::from_secs(3);

/// Longest time to wait for the records: the server makes no other fork meanwhile, and copies memory that changes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Number of forks since the start, as this process saw them; a child has the number of before its fork.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// In memory that children share: the number of the last fork after which the records were written.
static TOLD: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// The process that loaded the module: the parent of children.
static PARENT: AtomicI32 = AtomicI32::new(0);

/// In a child that rewrites the AOF.
static REWRITES: AtomicBool = AtomicBool::new(false);

/// In a child: the file has what is not in keys.
static COMPLETE: AtomicBool = AtomicBool::new(false);

/// Makes the shared memory.
pub(super) fn create() -> Result<(), String> {
    let (size, access) = (size_of::<AtomicU64>(), libc::PROT_READ | libc::PROT_WRITE);
    let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping of no file, at no fixed address.
    let page = unsafe { libc::mmap(ptr::null_mut(), size, access, kind, -1, 0) };
    if page == libc::MAP_FAILED {
        return Err(format!("cannot share memory: {}", std::io::Error::last_os_error()));
    }
    TOLD.store(page.cast(), Relaxed);
    // SAFETY: has no preconditions.
    PARENT.store(unsafe { libc::getpid() }, Relaxed);
    Ok(())
}

fn told() -> Option<&'static AtomicU64> {
    // SAFETY: null, or memory of zeros that is aligned to a page and mapped for the life of the process.
    unsafe { TOLD.load(Relaxed).as_ref() }
}

/// The server has forked.
pub(super) fn forked() {
    FORKS.fetch_add(1, Relaxed);
}

/// The records for all forks so far are in the AOF.
pub fn records_written() {
    if let Some(told) = told() {
        told.store(FORKS.load(Relaxed), Relaxed);
    }
}

/// What is not in keys is in the file that is being written.
pub(super) fn is_complete() {
    COMPLETE.store(true, Relaxed);
}

/// A step in the saving of a file. At the end of a rewrite that lacks something, waits until the parent has written it
/// or is gone.
pub(super) fn saving(step: u64) {
    match step {
        // Only a child reports this.
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_AOF_START => {
            REWRITES.store(true, Relaxed);
            COMPLETE.store(false, Relaxed);
        }
        raw::REDISMODULE_SUBEVENT_PERSISTENCE_ENDED
            if REWRITES.load(Relaxed) && !COMPLETE.load(Relaxed) && crate::persist::has_rest() =>
        {
            wait();
        }
        _ => {}
    }
}

fn wait() {
    let this = FORKS.load(Relaxed) + 1;
    // SAFETY: has no preconditions.
    let is_orphan = || unsafe { libc::getppid() } != PARENT.load(Relaxed);
    let is_told = || told().is_none_or(|told| told.load(Relaxed) >= this);
    let begun = Instant::now();
    while !is_told() {
        if is_orphan() || begun.elapsed() > PATIENCE {
            // The rewrite has failed: the old files count.
            // SAFETY: has no preconditions; a forked child ends without the exit handlers of its parent.
            unsafe { libc::_exit(1) };
        }
        sleep(Duration::from_millis(1));
    }
    sleep(TO_DISK);
}
