//! Server events, turned into notices, and the two hooks of each turn of the event loop.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use dlock_core::base::key::{Key, Swap};
use dlock_core::machine::Fact;
use redis_module::raw;

use crate::inbox::{self, Address, Load, Notice};
use crate::shell;

use super::codes::{OK, ok};
use super::ctx::{Ctx, Level, log};
use super::key::{Content, KeyHandle, Mode};
use super::name::Name;
use super::{datatype, guard, rewrite};

/// The events subscribed to. Their numbers are the same in Redis and Valkey (those above 17 are not).
const EVENTS: [u64; 10] = [
    raw::REDISMODULE_EVENT_EVENTLOOP,
    raw::REDISMODULE_EVENT_CLIENT_CHANGE,
    raw::REDISMODULE_EVENT_FLUSHDB,
    raw::REDISMODULE_EVENT_SWAPDB,
    raw::REDISMODULE_EVENT_LOADING,
    raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD,
    raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED,
    raw::REDISMODULE_EVENT_FORK_CHILD,
    raw::REDISMODULE_EVENT_PERSISTENCE,
    raw::REDISMODULE_EVENT_REPLICA_CHANGE,
];

/// A value of ours was unlinked since the last RENAME or MOVE was processed. RENAME and MOVE unlink before they
/// notify, so without this mark they cannot have moved one.
static UNLINKED: AtomicBool = AtomicBool::new(false);

/// Whether the module is subscribed to generic events.
static FOLLOWING: AtomicBool = AtomicBool::new(false);

/// Whether the log has said that this server evicts locks.
static WARNED: AtomicBool = AtomicBool::new(false);

const EVICTS: &str = "the server evicted a key of dlock to free memory: what it held is free for others, though its \
    holder may still work. Set maxmemory-policy to noeviction, or to a volatile policy, which spares locks. INFO and \
    DLOCK.LOG count evictions; only the first one is logged here";

/// Subscribes to RENAME, MOVE and eviction events, in time for a running one that has just unlinked a value of ours.
///
/// The server reports them only together with every DEL and EXPIRE of all clients, at some 0.2 µs each. So the module
/// subscribes only when a server command (RENAME, DEL and similar) first unlinks one of its values. Servers that use
/// locks only as locks pay nothing.
pub fn follow_moves() {
    UNLINKED.store(true, Ordering::Relaxed);
    if FOLLOWING.swap(true, Ordering::Relaxed) {
        return;
    }
    // SAFETY: a context that lives as long as the module, and a callback with the signature of the server. The list of
    // subscribers may grow at any time.
    let subscribed = super::ctx::module_ctx().is_some_and(|ctx| unsafe {
        ok(api!(RedisModule_SubscribeToKeyspaceEvents(
            ctx.as_ptr(),
            raw::REDISMODULE_NOTIFY_GENERIC | raw::REDISMODULE_NOTIFY_EVICTED,
            Some(keyspace_event),
        )))
    });
    if !subscribed {
        FOLLOWING.store(false, Ordering::Relaxed);
    }
}

/// Subscribes to the server's events. Only while the module is loading.
pub(super) fn subscribe(ctx: Ctx<'_>) -> Result<(), String> {
    for id in EVENTS {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: valid context, and a callback with the signature of the server.
        let subscribed = unsafe {
            api!(RedisModule_SubscribeToServerEvent(ctx.as_ptr(), event, Some(server_event)))
        };
        if !ok(subscribed) {
            return Err(format!("the server has no event number {id}"));
        }
    }
    Ok(())
}

unsafe extern "C" fn server_event(
    ctx: *mut raw::RedisModuleCtx,
    event: raw::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    guard::call("a server event", (), || {
        if event.id == raw::REDISMODULE_EVENT_EVENTLOOP {
            if subevent == raw::REDISMODULE_SUBEVENT_EVENTLOOP_AFTER_SLEEP {
                // SAFETY: the server's context, valid during this call, on the main thread.
                if let Some(ctx) = unsafe { Ctx::from_raw(ctx) } {
                    crate::tick::after_sleep(ctx);
                }
            } else {
                crate::tick::before_sleep();
            }
            return;
        }
        if (event.id, subevent)
            == (
                raw::REDISMODULE_EVENT_REPLICA_CHANGE,
                raw::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE,
            )
        {
            // At once: a WAIT can be answered in this turn of the loop, and its caller then asks for the quarantine.
            return crate::tick::replica_attached();
        }
        if event.id == raw::REDISMODULE_EVENT_PERSISTENCE {
            return rewrite::saving(subevent);
        }
        // SAFETY: the server passes the data that belongs to the event, or null.
        if let Some(notice) = unsafe { notice(event.id, subevent, data) } {
            inbox::push(notice);
        }
    });
}

/// # Safety
/// `data` is null or points to what the server documents for the event.
unsafe fn notice(event: u64, subevent: u64, data: *mut c_void) -> Option<Notice> {
    match (event, subevent) {
        (
            raw::REDISMODULE_EVENT_CLIENT_CHANGE,
            raw::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED,
        ) => {
            // SAFETY: by the contract, client information.
            let client = unsafe { data.cast::<raw::RedisModuleClientInfo>().as_ref() }?;
            Some(Notice::ClientGone(client.id))
        }
        (raw::REDISMODULE_EVENT_FLUSHDB, raw::REDISMODULE_SUBEVENT_FLUSHDB_END) => {
            // SAFETY: by the contract, flush information. -1 is every database.
            let flush = unsafe { data.cast::<raw::RedisModuleFlushInfo>().as_ref() }?;
            Some(Notice::flushed(u32::try_from(flush.dbnum).ok()))
        }
        (raw::REDISMODULE_EVENT_SWAPDB, _) => {
            // SAFETY: by the contract, the two numbers.
            let swap = unsafe { data.cast::<raw::RedisModuleSwapDbInfo>().as_ref() }?;
            let a = u32::try_from(swap.dbnum_first).ok()?;
            let b = u32::try_from(swap.dbnum_second).ok()?;
            Some(Notice::swapped(Swap { a, b }))
        }
        (raw::REDISMODULE_EVENT_LOADING, step) => {
            match step {
                raw::REDISMODULE_SUBEVENT_LOADING_RDB_START => crate::persist::file_begins(true),
                raw::REDISMODULE_SUBEVENT_LOADING_AOF_START => crate::persist::file_begins(false),
                _ if datatype::loads_aside() => {}
                raw::REDISMODULE_SUBEVENT_LOADING_REPL_START => crate::persist::sync_begins(),
                raw::REDISMODULE_SUBEVENT_LOADING_ENDED => crate::persist::load_ends(true),
                _ => crate::persist::load_ends(false),
            }
            Some(Notice::Loading)
        }
        (raw::REDISMODULE_EVENT_REPL_ASYNC_LOAD, step) => {
            let load = match step {
                raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_STARTED => Load::Started,
                raw::REDISMODULE_SUBEVENT_REPL_ASYNC_LOAD_COMPLETED => Load::Ended,
                _ => Load::Failed,
            };
            datatype::note_load_aside(load == Load::Started);
            crate::persist::sync_aside(load);
            if load == Load::Ended {
                crate::shell::data_replaced();
            }
            Some(Notice::AsyncLoading(load))
        }
        (raw::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, role) => Some(Notice::Role {
            primary: role == raw::REDISMODULE_EVENT_REPLROLECHANGED_NOW_MASTER,
        }),
        (raw::REDISMODULE_EVENT_FORK_CHILD, raw::REDISMODULE_SUBEVENT_FORK_CHILD_BORN) => {
            rewrite::forked();
            Some(Notice::Forked)
        }
        _ => None,
    }
}

/// Notes for the value that has just been brought to `key` that it was not removed. Returns its database; `None` if no
/// value of ours was moved. RENAME stays in its database. MOVE does not, and the database of its event is not always
/// the right one: Valkey 9 reports a wrong one inside MULTI.
fn follow_to(event: Option<Ctx<'_>>, key: Name<'_>, is_rename: bool) -> Option<u32> {
    let (ctx, from) = (super::ctx::module_ctx()?, inbox::last_unlinked_in()?);
    let is_in = |db| {
        let is_here = ctx.with_db(db, |ctx| {
            let mut handle = KeyHandle::open(ctx, key, Mode::Peek);
            let Content::Here(_, value) = handle.content() else { return false };
            let has_moved = inbox::follow(Address::of(value));
            if has_moved {
                // At once: what is done to either key next is not about this value. The notice does it once more.
                let key = Key { db, name: key.bytes() };
                let _ = shell::with(|shell| shell.machine.learn(Fact::ValueMoved(value, key)));
            }
            has_moved
        });
        is_here.unwrap_or(false)
    };
    if is_rename {
        is_in(from);
        return Some(from);
    }
    let told = event.map(Ctx::db);
    let sizes = (0..).map_while(|db| Some((db, ctx.db_size(db)?)));
    let used = sizes.filter(|&(_, size)| size > 0).map(|(db, _)| db);
    told.into_iter().chain(used).filter(|&db| db != from).find(|&db| is_in(db)).or(told)
}

/// Called for every eviction and every generic event of the server (DEL, EXPIRE, …): one comparison unless a value of
/// ours was unlinked.
unsafe extern "C" fn keyspace_event(
    ctx: *mut raw::RedisModuleCtx,
    _class: c_int,
    event: *const c_char,
    key: *mut raw::RedisModuleString,
) -> c_int {
    if !UNLINKED.load(Ordering::Relaxed) {
        return OK;
    }
    guard::call("a keyspace event", (), || {
        // SAFETY: context, C string and key are valid during this call, on the main thread.
        let (ctx, event, key) =
            unsafe { (Ctx::from_raw(ctx), CStr::from_ptr(event), Name::from_raw(key)) };
        if event == c"evicted" {
            if key.is_some_and(|key| inbox::evict(key.bytes()))
                && !WARNED.swap(true, Ordering::Relaxed)
            {
                log(Level::Warning, EVICTS);
            }
            return;
        }
        if event != c"rename_to" && event != c"move_to" {
            return;
        }
        UNLINKED.store(false, Ordering::Relaxed);
        if let Some(key) = key
            && let Some(db) = follow_to(ctx, key, event == c"rename_to")
        {
            inbox::push(Notice::Moved { db, name: key.bytes().into() });
        }
    });
    OK
}
