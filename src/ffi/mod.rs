//! All unsafe code: every call into the server and every call from it.
//!
//! Nothing here decides anything about locks. Calls into the server appear as safe functions and types. Calls from
//! the server pass one guard ([`guard`]) and go to safe functions of the shell.
//!
//! What the shell provides, all safe, all on the main thread unless said otherwise:
//!
//! | function | called |
//! |---|---|
//! | `dispatch::start(ctx)` | once, at the end of loading; an `Err` text refuses the load |
//! | `dispatch::command(ctx, id, args)` | for every command of the table |
//! | `parking::reply(ctx, &Delivery)` | a woken call is to be answered |
//! | `parking::settled(&Delivery, disconnected)` | after that, or instead of it |
//! | `parking::disconnected(call)` | a blocked call lost its connection or was unblocked with an error |
//! | `parking::unblocked(call)` | CLIENT UNBLOCK ended a blocked call; it has been answered Null |
//! | `persist::{save, load, log_refusal, rewrite, digest, memory, aux_save, aux_load}` | by the key types; `save`, `rewrite` and `aux_save` also in forked children |
//! | `persist::has_rest()` | at the end of an AOF rewrite, in the forked child |
//! | `persist::{file_begins, sync_begins, sync_aside, load_ends}`, `shell::data_replaced()` | in the middle of a load |
//! | `keyspace::unlinked(db, name, &Value)` | a value of ours leaves its name |
//! | `inbox::{last_unlinked_in, follow}`, `Fact::ValueMoved` | RENAME or MOVE has brought a value to a key |
//! | `tick::after_sleep(ctx)`, `tick::before_sleep()` | each turn of the event loop |
//! | `tick::replica_attached()` | a replica is online |
//! | `inbox::push(Notice)` | everything else that happens to the server |
//! | `info::write(&mut InfoWriter, crash)` | INFO |
//! | `config::SETTINGS` | the table of settings, atomics behind it (any thread may read) |

macro_rules! api {
    ($name:ident ( $($arg:expr),* $(,)? )) => {
        match redis_module::raw::$name {
            Some(function) => function($($arg),*),
            None => $crate::ffi::missing(stringify!($name)),
        }
    };
}

mod alarm;
mod args;
mod ask;
mod blocked;
mod clock;
mod codes;
mod command;
mod config;
mod ctx;
mod datatype;
mod events;
mod guard;
mod host;
mod info;
mod key;
mod load;
mod main_thread;
mod name;
mod owed;
mod page_ends;
mod rewrite;
mod rights;
mod senders;

/// The value of a key of ours.
pub use dlock_core::value::resource::Resource as Value;

pub use alarm::Alarm;
pub use args::Args;
pub use ask::Verdict;
pub use blocked::{Blocked, CallId};
pub use clock::{monotonic_us, random, wall_us};
pub use ctx::{Ctx, Level, avoid_replica_traffic, client_alive, log};
pub use datatype::{Origin, Strings, TypeIndex};
pub use events::follow_moves;
pub use guard::panics;
pub use host::{host, is_cluster};
pub use info::InfoWriter;
pub use key::{Content, KeyHandle, Mode};
pub use main_thread::MainCell;
pub use name::{Name, OwnedName};
pub use page_ends::avoid as avoid_page_ends;
pub use rewrite::records_written;
pub use rights::may_still;
pub use senders::Senders;

#[global_allocator]
static ALLOCATOR: redis_module::alloc::RedisAlloc = redis_module::alloc::RedisAlloc;

/// Ends the current entry point: a server function is missing that loading has required.
#[cold]
fn missing(name: &'static str) -> ! {
    broken(name)
}

/// Ends the current entry point: an invariant of this module is violated. The guard catches the panic.
#[cold]
#[expect(clippy::panic, reason = "the guard turns it into an error reply and a log line")]
fn broken(what: &'static str) -> ! {
    std::panic::panic_any(what)
}

/// A C string of `text`; zero bytes become spaces, which no text of ours means.
fn c_string(text: &str) -> std::ffi::CString {
    let bytes: Vec<u8> = text.bytes().map(|byte| if byte == 0 { b' ' } else { byte }).collect();
    std::ffi::CString::new(bytes).unwrap_or_default()
}
