//! Registration of the command table, and the entry point of every command.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use dlock_wire::table::{Arg, ArgKind, COMMANDS, Command, CommandId, KeyFlag, Keys};
use redis_module::raw;

use super::args::Args;
use super::ask::probe_arrives;
use super::codes::{OK, int, ok};
use super::ctx::{Ctx, Level, log};
use super::guard;

type Entry = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

macro_rules! entries {
    ($($row:literal)*) => { [$(entry::<$row>),*] };
}

/// One entry point per row of the table, so that a command is known without its name (`rename-command` changes that).
static ENTRIES: [Entry; 64] = entries! {
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
};

unsafe extern "C" fn entry<const ROW: usize>(
    ctx: *mut raw::RedisModuleCtx,
    argv: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> c_int {
    // SAFETY: the server's context and arguments are valid during this call, on the main thread.
    let (ctx, arguments) = unsafe { (Ctx::from_raw(ctx), Args::from_raw(argv, count)) };
    if let (Some(ctx), Some(command)) = (ctx, COMMANDS.get(ROW)) {
        guard::answer(command.name, ctx, || {
            if command.id == CommandId::Apply && probe_arrives() {
                ctx.reply_ok();
            } else {
                crate::dispatch::command(ctx, command.id, &arguments);
            }
        });
    }
    OK
}

/// Registers every row of the table. Only while the module is loading.
pub(super) fn register(ctx: Ctx<'_>) -> Result<(), String> {
    if COMMANDS.len() > ENTRIES.len() {
        return Err("more commands than entries".to_owned());
    }
    for (command, entry) in COMMANDS.iter().zip(ENTRIES) {
        create(ctx, command, entry)
            .and_then(|()| describe(ctx, command))
            .map_err(|error| format!("{error} {}", command.name))?;
    }
    Ok(())
}

fn create(ctx: Ctx<'_>, command: &Command, entry: Entry) -> Result<(), String> {
    let name = super::c_string(command.name);
    let flags = super::c_string(command.flags);
    // The key for cluster routing: of counted keys, the first. [`crate::cluster::refusal`] checks the others. The
    // flag `getkeys-api` is not used: with it, the server would ask for the keys in its I/O threads. There it
    // corrupts its own state and aborts (Redis 8.2 with `io-threads`).
    let key = match command.keys {
        Keys::First => 1,
        Keys::Counted => 2,
        Keys::None => 0,
    };
    let step = c_int::from(key > 0);
    // SAFETY: valid context, C strings that the server copies, an entry with the signature of the server.
    let created = unsafe {
        api!(RedisModule_CreateCommand(
            ctx.as_ptr(),
            name.as_ptr(),
            Some(entry),
            flags.as_ptr(),
            key,
            key,
            step,
        ))
    };
    if ok(created) { Ok(()) } else { Err("the server refuses to make the command".to_owned()) }
}

fn describe(ctx: Ctx<'_>, command: &Command) -> Result<(), String> {
    let name = super::c_string(command.name);
    // SAFETY: valid context, C string.
    let raw_command = unsafe { api!(RedisModule_GetCommand(ctx.as_ptr(), name.as_ptr())) };
    if raw_command.is_null() {
        return Err("the server does not know the command".to_owned());
    }
    let mut texts = Texts::default();
    let mut key_specs = key_specs(command);
    let mut arrays = Vec::new();
    let last_spec = c_int::from(command.keys == Keys::Counted);
    let args = arguments(command.args, last_spec, &mut texts, &mut arrays);
    let info = raw::RedisModuleCommandInfo {
        version: &raw const VERSION,
        summary: texts.keep(command.summary),
        complexity: texts.keep(command.complexity),
        since: texts.keep(command.since),
        history: ptr::null_mut(),
        tips: ptr::null(),
        arity: command.arity,
        key_specs: key_specs.as_mut_ptr(),
        args,
    };
    // SAFETY: a live command; `info` points to texts and to arrays with their end marks that live until the end of
    // this function; the server copies them all.
    if !ok(unsafe { api!(RedisModule_SetCommandInfo(raw_command, &raw const info)) }) {
        return Err("the server refuses the description of".to_owned());
    }
    categorize(raw_command, command);
    Ok(())
}

/// Adds the command to its ACL categories, where modules can (Redis 7.2, Valkey). Elsewhere users allow or deny it by
/// name.
fn categorize(raw_command: *mut raw::RedisModuleCommand, command: &Command) {
    // SAFETY: read on the main thread; loading set it.
    let Some(set) = (unsafe { raw::RedisModule_SetCommandACLCategories }) else {
        return;
    };
    if command.acl.is_empty() {
        return;
    }
    let categories = super::c_string(&command.acl.join(" "));
    // SAFETY: a live command, a C string.
    if !ok(unsafe { set(raw_command, categories.as_ptr()) }) {
        log(
            Level::Notice,
            &format!(
                "{}: this server does not know all of the ACL categories {}",
                command.name,
                command.acl.join(" ")
            ),
        );
    }
}

/// The version of the structures below, which the server requires.
static VERSION: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// C strings that outlive the pointers to them.
#[derive(Default)]
struct Texts(Vec<CString>);

impl Texts {
    /// A pointer that is valid as long as `self`.
    fn keep(&mut self, text: &str) -> *const c_char {
        let text = super::c_string(text);
        let start = text.as_ptr();
        self.0.push(text);
        start
    }
}

/// The arguments as an array with an end mark, kept in `arrays`; null if there are none.
fn arguments(
    args: &[Arg],
    last_spec: c_int,
    texts: &mut Texts,
    arrays: &mut Vec<Vec<raw::RedisModuleCommandArg>>,
) -> *mut raw::RedisModuleCommandArg {
    if args.is_empty() {
        return ptr::null_mut();
    }
    let mut array: Vec<_> = args
        .iter()
        .map(|arg| raw::RedisModuleCommandArg {
            name: texts.keep(arg.name),
            type_: kind(arg.kind),
            // All keys of a command are in its last spec.
            key_spec_index: if arg.kind == ArgKind::Key { last_spec } else { -1 },
            token: arg.token.map_or(ptr::null(), |token| texts.keep(token)),
            summary: texts.keep(arg.summary),
            since: ptr::null(),
            flags: arg_flags(arg),
            deprecated_since: ptr::null(),
            subargs: arguments(arg.parts, last_spec, texts, arrays),
            display_text: ptr::null(),
        })
        .collect();
    array.push(END_OF_ARGS);
    // The elements keep their address when the vector that owns them moves.
    let start = array.as_mut_ptr();
    arrays.push(array);
    start
}

const END_OF_ARGS: raw::RedisModuleCommandArg = raw::RedisModuleCommandArg {
    name: ptr::null(),
    type_: 0,
    key_spec_index: 0,
    token: ptr::null(),
    summary: ptr::null(),
    since: ptr::null(),
    flags: 0,
    deprecated_since: ptr::null(),
    subargs: ptr::null_mut(),
    display_text: ptr::null(),
};

fn kind(kind: ArgKind) -> raw::RedisModuleCommandArgType {
    match kind {
        ArgKind::Key => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
        ArgKind::String => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
        ArgKind::Integer => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
        ArgKind::PureToken => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
        ArgKind::OneOf => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
        ArgKind::Block => raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
    }
}

fn arg_flags(arg: &Arg) -> c_int {
    let mut flags = raw::REDISMODULE_CMD_ARG_NONE;
    if arg.optional {
        flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL;
    }
    if arg.multiple {
        flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE;
    }
    int(flags)
}

fn key_flags(command: &Command) -> u32 {
    command.key_flags.iter().fold(0, |flags, flag| flags | key_flag(*flag))
}

/// The key specs with their end mark.
fn key_specs(command: &Command) -> Vec<raw::RedisModuleCommandKeySpec> {
    let flags = u64::from(key_flags(command));
    let mut specs = Vec::new();
    match command.keys {
        Keys::None => {}
        Keys::First => specs.push(one_key(1, flags)),
        Keys::Counted => {
            // The server derives the key for cluster routing from this spec. It is left out where keys are listed or
            // checked.
            specs.push(one_key(2, flags | u64::from(raw::REDISMODULE_CMD_KEY_NOT_KEY)));
            specs.push(counted_keys(flags));
        }
    }
    specs.push(END_OF_SPECS);
    specs
}

/// The argument at `pos` is a key; 0 is the name of the command.
fn one_key(pos: c_int, flags: u64) -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        flags,
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos },
        },
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: 0,
                keystep: 1,
                limit: 0,
            },
        },
        ..END_OF_SPECS
    }
}

/// The first argument is the number of the keys that follow it.
fn counted_keys(flags: u64) -> raw::RedisModuleCommandKeySpec {
    raw::RedisModuleCommandKeySpec {
        flags,
        begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
        },
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_KEYNUM,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            keynum: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_2 {
                keynumidx: 0,
                firstkey: 1,
                keystep: 1,
            },
        },
        ..END_OF_SPECS
    }
}

const END_OF_SPECS: raw::RedisModuleCommandKeySpec = raw::RedisModuleCommandKeySpec {
    notes: ptr::null(),
    flags: 0,
    begin_search_type: raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID,
    bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
        index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 0 },
    },
    find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_OMITTED,
    fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
        range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
            lastkey: 0,
            keystep: 0,
            limit: 0,
        },
    },
};

fn key_flag(flag: KeyFlag) -> u32 {
    match flag {
        KeyFlag::Ro => raw::REDISMODULE_CMD_KEY_RO,
        KeyFlag::Rw => raw::REDISMODULE_CMD_KEY_RW,
        KeyFlag::Access => raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyFlag::Insert => raw::REDISMODULE_CMD_KEY_INSERT,
        KeyFlag::Update => raw::REDISMODULE_CMD_KEY_UPDATE,
        KeyFlag::Delete => raw::REDISMODULE_CMD_KEY_DELETE,
    }
}
