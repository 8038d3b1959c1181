//! Deadlock detection over all families: cycles of waiting owners, through any kind of lock and call.

mod closed;
mod history;
mod open;

use crate::support::{Blocked, Dice, Reply, Server};

/// How an owner keeps a lock from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    Lock,
    Fair,
    Read,
    Write,
    /// Together with another lock.
    Several,
    /// Not held by it: it is first in the queue, and an owner that waits for nothing holds the lock.
    LockPlace,
    FairPlace,
    WritePlace,
}

/// How an owner requests a lock of another owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Lock,
    Fair,
    Read,
    Write,
    /// With free locks before and after it in the list.
    Several,
}

use Hold::{FairPlace, LockPlace, Several, WritePlace};

impl Hold {
    const ALL: [Hold; 8] = [
        Hold::Lock,
        Hold::Fair,
        Hold::Read,
        Hold::Write,
        Several,
        LockPlace,
        FairPlace,
        WritePlace,
    ];

    /// The ways to wait for it.
    fn waits(self) -> &'static [Wait] {
        match self {
            Hold::Lock | Several | LockPlace => &[Wait::Lock, Wait::Several],
            Hold::Fair | FairPlace => &[Wait::Fair],
            // A reader waits for a writer that holds the lock or is in front of it.
            Hold::Write | WritePlace => &[Wait::Read, Wait::Write],
            Hold::Read => &[Wait::Write],
        }
    }

    /// Makes `owner` hold `key` in this form.
    #[track_caller]
    fn take(self, server: &Server, key: &str, owner: &str) {
        let by_other = |call: &str, place: &str| {
            server
                .ask(&call.replace("KEY", key).replace("OWNER", &format!("holder-of-{key}")))
                .int();
            let call = place.replace("KEY", key).replace("OWNER", owner);
            assert!(server.ask(&call).is_null(), "{call}");
        };
        match self {
            Hold::Lock => drop(server.ask(&format!("DLOCK.ACQUIRE {key} {owner}")).int()),
            Hold::Fair => drop(server.ask(&format!("DFAIR.ACQUIRE {key} {owner}")).int()),
            Hold::Read => drop(server.ask(&format!("DRW.ACQUIRE {key} {owner} READ")).int()),
            Hold::Write => drop(server.ask(&format!("DRW.ACQUIRE {key} {owner} WRITE")).int()),
            Several => {
                drop(server.ask(&format!("DLOCK.MACQUIRE 2 {key}:and {key} {owner}")).items());
            }
            LockPlace => {
                by_other("DLOCK.ACQUIRE KEY OWNER", "DLOCK.ACQUIRE KEY OWNER QUEUE 600000");
            }
            FairPlace => {
                by_other("DFAIR.ACQUIRE KEY OWNER", "DFAIR.ACQUIRE KEY OWNER QUEUE 600000");
            }
            WritePlace => {
                by_other("DRW.ACQUIRE KEY OWNER READ", "DRW.ACQUIRE KEY OWNER WRITE QUEUE 600000");
            }
        }
    }

    /// Whether the owner only waits in a queue.
    fn is_place(self) -> bool {
        matches!(self, LockPlace | FairPlace | WritePlace)
    }
}

impl Wait {
    /// The call of `owner` for `key`, without options.
    fn call(self, key: &str, owner: &str) -> String {
        match self {
            Wait::Lock => format!("DLOCK.ACQUIRE {key} {owner}"),
            Wait::Fair => format!("DFAIR.ACQUIRE {key} {owner}"),
            Wait::Read => format!("DRW.ACQUIRE {key} {owner} READ"),
            Wait::Write => format!("DRW.ACQUIRE {key} {owner} WRITE"),
            Wait::Several => {
                format!("DLOCK.MACQUIRE 3 {key}:before:{owner} {key} {key}:after:{owner} {owner}")
            }
        }
    }

    /// Whether the call accepts QUEUE.
    fn may_queue(self) -> bool {
        self != Wait::Several
    }
}

/// A wait, with or without a blocked call.
#[derive(Debug)]
enum Waiting {
    Blocked(Blocked),
    Queued,
}

impl Waiting {
    /// The wait still exists and was not granted.
    #[track_caller]
    fn assert_goes_on(&mut self) {
        if let Waiting::Blocked(call) = self {
            call.assert_no_reply();
        }
    }
}

/// Starts a wait, with a blocked call or, if possible and by chance, with QUEUE.
#[track_caller]
fn wait(server: &Server, dice: &mut Dice, how: Wait, key: &str, owner: &str) -> Waiting {
    let call = how.call(key, owner);
    if how.may_queue() && dice.below(2) == 0 {
        assert!(server.ask(&format!("{call} QUEUE 600000")).is_null(), "{call}");
        return Waiting::Queued;
    }
    let call = format!("{call} BLOCK 0");
    Waiting::Blocked(server.wait(&call))
}

fn one<T: Copy>(dice: &mut Dice, of: &[T]) -> T {
    of[usize::try_from(dice.below(of.len() as u64)).expect("an index")]
}
