//! Processor time of another process.

use std::time::Duration;

/// The processor time (user and system, all threads) that a process has used.
#[derive(Debug, Clone, Copy)]
pub struct CpuMeter(libc::clockid_t);

impl CpuMeter {
    /// The meter of the process with this id.
    pub fn of(pid: u32) -> CpuMeter {
        let pid = libc::pid_t::try_from(pid).expect("a process id");
        let mut clock = 0;
        // SAFETY: writes only `clock`, which lives on this stack.
        let status = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
        assert_eq!(status, 0, "the process is there and may be looked at");
        CpuMeter(clock)
    }

    /// Microseconds used during `work`.
    pub fn used_during(self, work: impl FnOnce()) -> f64 {
        let before = self.read();
        work();
        self.read().saturating_sub(before).as_secs_f64() * 1e6
    }

    /// The time used so far. Finer than `/proc`, which counts in ticks of 10 ms.
    pub fn read(self) -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes only `time`, which lives on this stack.
        let status = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        assert_eq!(status, 0, "the process still runs");
        Duration::new(
            u64::try_from(time.tv_sec).expect("not negative"),
            u32::try_from(time.tv_nsec).expect("below a second"),
        )
    }
}
