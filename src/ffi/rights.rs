//! What the ACL lets users do.

use std::ffi::c_int;
use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;

use dlock_core::base::shares::User;
use redis_module::raw;

use super::codes::{int, ok};
use super::ctx::{Ctx, module_ctx};
use super::name::{Name, OwnedName};

/// An ACL user.
struct Account(NonNull<raw::RedisModuleUser>);

impl Account {
    /// The user with this name, if the ACL has one.
    fn named(name: Name<'_>) -> Option<Self> {
        // SAFETY: a live string.
        NonNull::new(unsafe { api!(RedisModule_GetModuleUserFromUserName(name.as_ptr())) })
            .map(Self)
    }

    /// Notes in ACL LOG that the user may not use `what`.
    fn log(&self, ctx: Ctx<'_>, what: &OwnedName, reason: raw::RedisModuleACLLogEntryReason) {
        // SAFETY: valid context, a live user, a live string, which the server copies.
        unsafe {
            api!(RedisModule_ACLAddLogEntry(
                ctx.as_ptr(),
                self.0.as_ptr(),
                what.name().as_ptr(),
                reason
            ));
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // SAFETY: made by the server for this value, freed once.
        unsafe { api!(RedisModule_FreeModuleUser(self.0.as_ptr())) };
    }
}

/// The API `ACLCheckPermissions`: the user, the words of a call and their number, its database, and a place for the
/// reason of a refusal.
type CheckPermissions = unsafe extern "C" fn(
    *mut raw::RedisModuleUser,
    *mut *mut raw::RedisModuleString,
    c_int,
    c_int,
    *mut raw::RedisModuleACLLogEntryReason,
) -> c_int;

/// [`CheckPermissions`], if the server has it: Valkey from 9.1 on, where rules can name databases. There the older
/// `ACLCheckCommandPermissions` refuses each user with such a rule.
fn check_permissions() -> Option<CheckPermissions> {
    static FOUND: OnceLock<Option<CheckPermissions>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let mut found = None::<CheckPermissions>;
        let name = c"RedisModule_ACLCheckPermissions".as_ptr();
        // SAFETY: a C string, and room for a pointer to the function of that name, which is of this type.
        unsafe { api!(RedisModule_GetApi(name, (&raw mut found).cast())) };
        found
    })
}

/// Whether the ACL user of `client`, whose call has waited, may still make that call in `database`. A refusal is in ACL
/// LOG. True if the server knows no such user: it is another module's, or deleted, and then its connections are closed.
pub fn may_still(client: u64, database: u32, call: &[OwnedName]) -> bool {
    let Some(ctx) = module_ctx() else { return true };
    // SAFETY: valid context; the server refuses an unknown id.
    let name = unsafe {
        OwnedName::from_raw(api!(RedisModule_GetClientUserNameById(ctx.as_ptr(), client)))
    };
    let Some(account) = name.and_then(|name| Account::named(name.name())) else { return true };
    let mut argv: Vec<_> = call.iter().map(|word| word.name().as_ptr()).collect();
    let number = |number| c_int::try_from(number).unwrap_or(c_int::MAX);
    let (count, database) = (number(argv.len()), number(database as usize));
    let (user, argv) = (account.0.as_ptr(), argv.as_mut_ptr());
    let mut reason = raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CMD;
    // SAFETY: a live user, an array of that many live strings, and room for a reason.
    let answer = unsafe {
        match check_permissions() {
            Some(check) => check(user, argv, count, database, &raw mut reason),
            None => api!(RedisModule_ACLCheckCommandPermissions(user, argv, count)),
        }
    };
    // Another error is none of the user's: the server knows the command under another name.
    let may = ok(answer) || io::Error::last_os_error().kind() != io::ErrorKind::PermissionDenied;
    if !may && let Some(command) = call.first() {
        account.log(ctx, command, reason);
    }
    may
}

impl Ctx<'_> {
    /// The caller's ACL user; unknown for a script of a replica and a call of another module.
    pub fn user(self) -> User {
        self.user_name().map_or(User::UNKNOWN, |name| User::named(name.name().bytes()))
    }

    /// Whether the caller's ACL user may publish on `channel`; a refusal is in ACL LOG. True if the caller has no user
    /// (a script of a replica, a call of another module).
    pub fn may_publish(self, channel: &[u8]) -> bool {
        let Some(account) = self.account() else { return true };
        let channel = OwnedName::new(channel);
        let rights = int(raw::REDISMODULE_CMD_CHANNEL_PUBLISH);
        // SAFETY: a live user, a live string.
        let may = ok(unsafe {
            api!(RedisModule_ACLCheckChannelPermissions(
                account.0.as_ptr(),
                channel.name().as_ptr(),
                rights
            ))
        });
        if !may {
            let reason = raw::RedisModuleACLLogEntryReason_REDISMODULE_ACL_LOG_CHANNEL;
            account.log(self, &channel, reason);
        }
        may
    }

    /// Whether the caller's ACL user may read `key`. True if the caller has no user.
    pub fn may_read(self, key: &[u8]) -> bool {
        let Some(account) = self.account() else { return true };
        let key = OwnedName::new(key);
        let rights = int(raw::REDISMODULE_CMD_KEY_ACCESS);
        // SAFETY: a live user, a live string.
        ok(unsafe {
            api!(RedisModule_ACLCheckKeyPermissions(
                account.0.as_ptr(),
                key.name().as_ptr(),
                rights
            ))
        })
    }

    /// The caller's ACL user, if it has one that is switched on.
    fn account(self) -> Option<Account> {
        self.user_name().and_then(|name| Account::named(name.name()))
    }

    /// The name of the caller's ACL user, if it has one.
    fn user_name(self) -> Option<OwnedName> {
        // SAFETY: valid context; the server gives a string of its own.
        unsafe { OwnedName::from_raw(api!(RedisModule_GetCurrentUserName(self.as_ptr()))) }
    }
}
