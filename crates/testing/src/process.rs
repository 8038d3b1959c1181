//! Child processes that end with the test, however it ends.

use std::{
    io,
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus},
    sync::{Mutex, OnceLock, mpsc},
    thread,
};

/// A child process and its forks, killed when this is dropped or when the test process ends.
#[derive(Debug)]
pub struct Guarded(Child);

impl Guarded {
    /// Starts `command` as the leader of a new process group.
    pub fn spawn(mut command: Command) -> io::Result<Guarded> {
        command.process_group(0);
        let parent = i32::try_from(std::process::id()).expect("a process id");
        // SAFETY: the closure runs between fork and exec; it calls only prctl and getppid, which are async-signal-safe,
        // and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                    return Err(io::Error::last_os_error());
                }
                // The parent may have ended before prctl took effect.
                if libc::getppid() != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            });
        }
        spawner(command).map(Guarded)
    }

    /// Its exit status, or `None` while it runs.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("waiting for a child of ours")
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// SIGKILL to it and to its forks; returns when it is gone.
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.0.wait();
    }

    /// SIGSTOP to it and to its forks.
    pub fn freeze(&mut self) {
        self.signal(libc::SIGSTOP);
    }

    /// SIGCONT to it and to its forks.
    pub fn thaw(&mut self) {
        self.signal(libc::SIGCONT);
    }

    fn signal(&mut self, signal: libc::c_int) {
        let group = i32::try_from(self.0.id()).expect("a process id");
        // SAFETY: a plain system call. The child has not been waited for, or was its group's leader: the number is
        // still that of the group that `spawn` made, or of none.
        unsafe { libc::kill(-group, signal) };
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Spawns on one thread that lives as long as the process: the kernel sends the parent-death signal when the *thread*
/// that forked ends, and each test has a thread that ends with it.
fn spawner(command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static JOBS: OnceLock<Mutex<mpsc::Sender<Job>>> = OnceLock::new();
    let jobs = JOBS.get_or_init(|| {
        let (sender, jobs) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("spawner".to_owned())
            .spawn(move || {
                for (mut command, done) in jobs {
                    let _ = done.send(command.spawn());
                }
            })
            .expect("a thread");
        Mutex::new(sender)
    });
    let (done, child) = mpsc::channel();
    jobs.lock().expect("the spawner").send((command, done)).expect("the spawner runs");
    child.recv().expect("the spawner answers")
}

/// Lets this process and its children open as many files as the system allows, once: 10,000 waiters need 10,000 sockets
/// on both sides.
pub fn raise_file_limit() {
    static ONCE: OnceLock<()> = OnceLock::new();
    ONCE.get_or_init(|| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: both calls read or write only `limit`, which lives on this stack.
        unsafe {
            if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
            }
        }
    });
}
