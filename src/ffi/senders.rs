//! The users that may have sent a RESTORE: the server does not tell a key type which user it was.

use std::ptr::NonNull;

use redis_module::raw;

use super::codes::{int, ok};
use super::ctx::module_ctx;
use super::name::OwnedName;

/// The users that may restore a key.
pub struct Senders(Vec<NonNull<raw::RedisModuleUser>>);

impl Senders {
    /// All enabled users that the server would let restore `key`, directly or by MIGRATE from another server. `None`
    /// if the server does not tell.
    pub fn of_restore(key: &[u8]) -> Option<Self> {
        let ctx = module_ctx()?;
        // SAFETY: valid context, a C string, as the format says.
        let reply = unsafe {
            api!(RedisModule_Call(ctx.as_ptr(), c"ACL".as_ptr(), c"Ec".as_ptr(), c"USERS".as_ptr()))
        };
        let reply = Reply(NonNull::new(reply)?);
        // Made once, not for each user.
        let [restore, asking, key, ttl, payload] =
            [b"RESTORE", &b"RESTORE-ASKING"[..], key, b"0", b""].map(OwnedName::new);
        let calls = [&restore, &asking]
            .map(|command| [command, &key, &ttl, &payload].map(|word| word.name().as_ptr()));
        let mut senders = Self(Vec::new());
        let count = reply.len();
        if count == 0 {
            // There is always at least one user.
            return None;
        }
        for at in 0..count {
            let name = OwnedName::new(&reply.text(at)?);
            // SAFETY: a live string.
            let user = unsafe { api!(RedisModule_GetModuleUserFromUserName(name.name().as_ptr())) };
            // Null: the user is disabled.
            let Some(user) = NonNull::new(user) else { continue };
            senders.0.push(user);
            let may = calls.iter().any(|call| {
                let mut argv = *call;
                // SAFETY: a live user, and an array of that many live strings.
                ok(unsafe {
                    api!(RedisModule_ACLCheckCommandPermissions(
                        user.as_ptr(),
                        argv.as_mut_ptr(),
                        4,
                    ))
                })
            });
            if !may && let Some(user) = senders.0.pop() {
                free(user);
            }
        }
        Some(senders)
    }

    /// Number of these users.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether each of them may publish on `channel`.
    pub fn may_all_publish(&self, channel: &[u8]) -> bool {
        let channel = OwnedName::new(channel);
        self.0.iter().all(|user| {
            // SAFETY: a live user, a live string.
            ok(unsafe {
                api!(RedisModule_ACLCheckChannelPermissions(
                    user.as_ptr(),
                    channel.name().as_ptr(),
                    int(raw::REDISMODULE_CMD_CHANNEL_PUBLISH),
                ))
            })
        })
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.0.drain(..).for_each(free);
    }
}

fn free(user: NonNull<raw::RedisModuleUser>) {
    // SAFETY: a user of `RM_GetModuleUserFromUserName`, which is freed once, here.
    unsafe { api!(RedisModule_FreeModuleUser(user.as_ptr())) };
}

/// A reply of the server, freed when this goes.
struct Reply(NonNull<raw::RedisModuleCallReply>);

impl Reply {
    fn len(&self) -> usize {
        // SAFETY: a live reply. Of an error it is the length of the text; such a reply has no elements.
        unsafe { api!(RedisModule_CallReplyLength(self.0.as_ptr())) }
    }

    fn text(&self, at: usize) -> Option<Vec<u8>> {
        let mut length = 0;
        // SAFETY: a live reply; its element and the text of that live as long. Null for what is no array.
        unsafe {
            let element = api!(RedisModule_CallReplyArrayElement(self.0.as_ptr(), at));
            if element.is_null() {
                return None;
            }
            let start = api!(RedisModule_CallReplyStringPtr(element, &raw mut length));
            if start.is_null() {
                return None;
            }
            Some(std::slice::from_raw_parts(start.cast::<u8>(), length).to_vec())
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        // SAFETY: a live reply, freed once.
        unsafe { api!(RedisModule_FreeCallReply(self.0.as_ptr())) };
    }
}
