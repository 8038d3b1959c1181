//! Questions to the server before the module acts by itself: may it write, is the key here, is the cluster up?
//!
//! The module API has no function for these. So the server is made to check a call, and its refusal is read.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering};

use redis_module::raw;

use super::args::Args;
use super::ctx::{APPLY, Ctx};

/// The server's verdict on a write by the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A client's write to that key would be accepted.
    Accepts,
    /// It would be refused: `READONLY`, `NOREPLICAS`, `MISCONF`, `MASTERDOWN`, `CLUSTERDOWN`, or another code.
    Refused(&'static str),
    /// The key belongs to a slot that this server does not serve.
    NotOurSlot,
}

/// State of a question of [`Ctx::accepts_writes`].
static PROBE: AtomicU8 = AtomicU8::new(PROBE_NONE);
const PROBE_NONE: u8 = 0;
const PROBE_ASKED: u8 = 1;
const PROBE_REACHED: u8 = 2;

impl Ctx<'_> {
    /// Asks the server whether it would now accept a client's write to `key` in the selected database. Changes
    /// nothing. Does not cover a pause: see [`super::avoid_replica_traffic`].
    pub fn accepts_writes(self, key: &[u8]) -> Verdict {
        PROBE.store(PROBE_ASKED, Ordering::Relaxed);
        // SAFETY: valid context; two buffers with their lengths, as the format says. "S" applies the checks that
        // scripts get, "E" returns errors as replies.
        let reply = unsafe {
            api!(RedisModule_Call(
                self.as_ptr(),
                APPLY.as_ptr(),
                c"SEbb".as_ptr(),
                key.as_ptr(),
                key.len(),
                ptr::null::<u8>(),
                0_usize,
            ))
        };
        let reached = PROBE.swap(PROBE_NONE, Ordering::Relaxed) == PROBE_REACHED;
        let Some(reply) = NonNull::new(reply) else {
            return Verdict::Refused("ERR");
        };
        // SAFETY: a live reply, not used after this.
        let text = unsafe { text_and_free(reply) };
        if reached { Verdict::Accepts } else { verdict_of(&String::from_utf8_lossy(&text)) }
    }

    /// Whether the slot of `key`, which exists and which this node does not serve, is being imported. Asks with a
    /// command that the server admits to such a slot, and that does nothing to a key that exists.
    pub fn imports(self, key: &[u8]) -> bool {
        // SAFETY: valid context; a buffer with its length and two C strings, as the format says.
        let reply = unsafe {
            api!(RedisModule_Call(
                self.as_ptr(),
                c"RESTORE-ASKING".as_ptr(),
                c"Ebcc".as_ptr(),
                key.as_ptr(),
                key.len(),
                c"0".as_ptr(),
                c"".as_ptr(),
            ))
        };
        // SAFETY: a live reply, not used after this.
        NonNull::new(reply).is_some_and(|reply| unsafe { !is_about_slots(&text_and_free(reply)) })
    }

    /// Whether this node may serve a call for `count` keys together, the arguments from index `first` on. False if
    /// their slot is moving and one of them is missing. Only in a cluster.
    pub fn serves_all(self, args: &Args<'_>, first: usize, count: usize) -> bool {
        let keys = args.strings(first, count);
        if keys.is_null() {
            return true;
        }
        // SAFETY: valid context; an array of that many live strings, as the format says.
        let reply = unsafe {
            api!(RedisModule_Call(self.as_ptr(), c"EXISTS".as_ptr(), c"Ev".as_ptr(), keys, count,))
        };
        let Some(reply) = NonNull::new(reply) else {
            return true;
        };
        // SAFETY: a live reply, not used after this. An integer has no text.
        let text = unsafe { text_and_free(reply) };
        verdict_of(&String::from_utf8_lossy(&text)) != Verdict::NotOurSlot
    }

    /// Whether the cluster is up, as this server sees it. Assumed to be up while the server's verdicts are unreliable
    /// ([`Ctx::knows_its_slots`]).
    pub fn cluster_is_up(self) -> bool {
        let info = self.cluster_info();
        info.starts_with(b"cluster_state:ok") || is_about_slots(&info)
    }

    /// False while the server treats every call of a module as one for several slots, even one without keys. Valkey
    /// 9.1.2 does so for long: it keeps such a verdict with the client that it lends to modules.
    pub fn knows_its_slots(self) -> bool {
        !is_about_slots(&self.cluster_info())
    }

    /// CLUSTER INFO, a command without keys.
    fn cluster_info(self) -> Vec<u8> {
        // SAFETY: valid context, a C string, as the format says.
        let reply = unsafe {
            api!(RedisModule_Call(
                self.as_ptr(),
                c"CLUSTER".as_ptr(),
                c"Ec".as_ptr(),
                c"INFO".as_ptr(),
            ))
        };
        // SAFETY: a live reply, not used after this.
        NonNull::new(reply).map_or_else(Vec::new, |reply| unsafe { text_and_free(reply) })
    }
}

/// The text of a string or an error; empty for anything else.
///
/// # Safety
/// `reply` is live, and is not used after this.
unsafe fn text_and_free(reply: NonNull<raw::RedisModuleCallReply>) -> Vec<u8> {
    let mut length = 0;
    // SAFETY: the text lives as long as the reply, which is freed at the end, once.
    unsafe {
        let start = api!(RedisModule_CallReplyStringPtr(reply.as_ptr(), &raw mut length));
        let text = if start.is_null() {
            Vec::new()
        } else {
            std::slice::from_raw_parts(start.cast::<u8>(), length).to_vec()
        };
        api!(RedisModule_FreeCallReply(reply.as_ptr()));
        text
    }
}

fn is_about_slots(text: &[u8]) -> bool {
    verdict_of(&String::from_utf8_lossy(text)) == Verdict::NotOurSlot
}

/// Parses the server's refusal.
fn verdict_of(text: &str) -> Verdict {
    const CODES: [&str; 7] =
        ["READONLY", "NOREPLICAS", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "OOM", "LOADING"];
    let text = text.strip_prefix('-').unwrap_or(text);
    if let Some(code) = CODES.iter().find(|code| text.starts_with(**code)) {
        return Verdict::Refused(code);
    }
    if text.contains("non local key") || text.starts_with("MOVED") || text.starts_with("ASK") {
        Verdict::NotOurSlot
    } else if text.contains("cluster is down") {
        Verdict::Refused("CLUSTERDOWN")
    } else {
        Verdict::Refused("ERR")
    }
}

/// True if the running `DLOCK.APPLY` is the question of [`Ctx::accepts_writes`]: the server has admitted it.
#[inline]
pub(super) fn probe_arrives() -> bool {
    PROBE.compare_exchange(PROBE_ASKED, PROBE_REACHED, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}
