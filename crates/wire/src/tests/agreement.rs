//! The table of commands describes exactly what the parser accepts.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use std::collections::BTreeSet;

use crate::parse;
use crate::request::Fault;
use crate::table::{Access, Arg, ArgKind, Bounds, COMMANDS, Command, Group, KeyFlag, Keys};

type Words = Vec<Vec<u8>>;

/// A permit id.
const UUID: &[u8] = b"0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70";

/// The smallest valid value of an argument.
fn value(arg: &Arg) -> Vec<u8> {
    match arg.bounds {
        Bounds::Uuid => UUID.to_vec(),
        Bounds::Number { min, .. } => min.to_string().into_bytes(),
        Bounds::Bytes { min, .. } => vec![b'v'; min],
        Bounds::Any => b"v".to_vec(),
    }
}

/// An argument with `value`, as a call contains it; of a choice the first part.
fn written(arg: &Arg, value: Vec<u8>) -> Words {
    match (arg.token, arg.kind) {
        (None, ArgKind::OneOf) => smallest(&arg.parts[0]),
        (None, ArgKind::Block) => {
            arg.parts.iter().filter(|part| !part.optional).flat_map(smallest).collect()
        }
        (Some(token), ArgKind::PureToken) => vec![token.into()],
        (Some(token), _) => vec![token.into(), value],
        (None, _) => vec![value],
    }
}

fn smallest(arg: &Arg) -> Words {
    written(arg, value(arg))
}

/// The argument, or every part of a choice separately.
fn parts(arg: &'static Arg) -> &'static [Arg] {
    if arg.kind == ArgKind::OneOf { arg.parts } else { core::slice::from_ref(arg) }
}

fn required(command: &Command) -> Vec<&'static Arg> {
    command.args.iter().filter(|arg| !arg.optional).collect()
}

/// Each optional argument, with every part of a choice separately.
fn optional(command: &Command) -> Vec<&'static Arg> {
    command.args.iter().filter(|arg| arg.optional).flat_map(parts).collect()
}

fn smallest_call(command: &Command) -> Words {
    required(command).into_iter().flat_map(smallest).collect()
}

/// The smallest call with all arguments that come before the options.
fn positional_call(command: &Command) -> Words {
    let is_positional = |arg: &&Arg| !arg.optional || (arg.token.is_none() && arg.parts.is_empty());
    command.args.iter().filter(is_positional).flat_map(smallest).collect()
}

fn understood(command: &Command, words: &Words) -> bool {
    let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    parse(command.id, &args).is_ok()
}

fn error(command: &Command, words: &Words) -> String {
    let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    parse(command.id, &args).expect_err("a malformed call").to_string()
}

#[test]
fn required_arguments_are_required_and_suffice() {
    for command in COMMANDS {
        let mut words = smallest_call(command);
        assert!(understood(command, &words), "{} {words:?}", command.name);

        if words.pop().is_none() {
            continue;
        }
        let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let fault = parse(command.id, &args).map_err(|error| error.fault);
        assert_eq!(fault, Err(Fault::WrongArity), "{} {words:?}", command.name);
    }
}

#[test]
fn arity_counts_the_required_arguments() {
    for command in COMMANDS {
        let count = i32::try_from(1 + smallest_call(command).len()).expect("few");
        let has_block = |arg: &Arg| arg.parts.iter().any(|part| part.kind == ArgKind::Block);
        let is_fixed = optional(command).is_empty() && !command.args.iter().any(has_block);
        let arity = if is_fixed { count } else { -count };
        assert_eq!(command.arity, arity, "{}", command.name);
    }
}

fn shown(words: &Words) -> String {
    words.iter().map(|word| String::from_utf8_lossy(word)).collect::<Vec<_>>().join(" ")
}

#[test]
fn documented_options_are_accepted_alone_and_together() {
    for command in COMMANDS {
        let mut together = smallest_call(command);
        for arg in optional(command) {
            let mut alone = smallest_call(command);
            alone.extend(written(arg, value(arg)));
            assert!(understood(command, &alone), "{} {}", command.name, shown(&alone));
        }
        // One part of each choice.
        let options = command.args.iter().filter(|arg| arg.optional);
        together.extend(options.flat_map(|arg| smallest(&parts(arg)[0])));
        assert!(understood(command, &together), "{} {}", command.name, shown(&together));
    }
}

#[test]
fn options_are_accepted_where_they_are_documented_and_nowhere_else() {
    let words = |command| optional(command).into_iter().filter_map(|arg| arg.token);
    let everywhere: BTreeSet<_> = COMMANDS.iter().flat_map(words).collect();
    for command in COMMANDS {
        let documented: BTreeSet<_> = words(command).collect();
        for option in &everywhere {
            let mut call = positional_call(command);
            call.push(option.to_ascii_lowercase().into_bytes());
            let known = understood(command, &call)
                || error(command, &call) == format!("{option} needs a value");
            assert_eq!(known, documented.contains(option), "{} {option}", command.name);
        }
    }
}

#[test]
fn documented_ranges_end_where_the_parser_says() {
    for command in COMMANDS {
        let mut prefix = Words::new();
        for arg in required(command) {
            let rest = smallest_call(command)[prefix.len() + smallest(arg).len()..].to_owned();
            for part in parts(arg) {
                check_bounds(command, &prefix, part, &rest);
            }
            prefix.extend(smallest(arg));
        }
        for arg in optional(command) {
            check_bounds(command, &prefix, arg, &Words::new());
        }
    }
}

/// Tests `arg` between `before` and `after`, at both ends of its range and one step beyond.
fn check_bounds(command: &Command, before: &Words, arg: &Arg, after: &Words) {
    let tries: Vec<(Vec<u8>, bool)> = match arg.bounds {
        Bounds::Any => return,
        Bounds::Uuid => vec![
            (UUID.to_vec(), true),
            (UUID.to_ascii_uppercase(), true),
            (UUID[1..].to_vec(), false),
            ([UUID, b"0"].concat(), false),
            (vec![b'v'; 36], false),
            (vec![], false),
        ],
        Bounds::Bytes { min, max } => {
            let mut tries = vec![(min, true), (max, true), (max + 1, false)];
            tries.extend(min.checked_sub(1).map(|len| (len, false)));
            tries.into_iter().map(|(len, good)| (vec![b'v'; len], good)).collect()
        }
        Bounds::Number { min, max, .. } => [
            (i128::from(min) - 1, false),
            (i128::from(min), true),
            (i128::from(max), true),
            (i128::from(max) + 1, false),
        ]
        .map(|(number, good)| (number.to_string().into_bytes(), good))
        .to_vec(),
    };
    for (value, good) in tries {
        let after = if arg.name == "numkeys" { keys_and_owner(&value) } else { after.clone() };
        let words = [before.clone(), written(arg, value), after].concat();
        assert_eq!(
            understood(command, &words),
            good,
            "{} {:?}",
            command.name,
            &words[..words.len().min(20)]
        );
        if !good {
            let text = error(command, &words);
            let name = arg.token.unwrap_or(arg.name);
            assert!(text.starts_with(&format!("{name} must be ")), "{text}");
        }
    }
}

/// The given number of keys, if it is a number of keys, and an owner.
fn keys_and_owner(count: &[u8]) -> Words {
    let count = str::from_utf8(count).ok().and_then(|text| text.parse().ok()).unwrap_or(1_u32);
    let keys = (0..count.max(1)).map(|key| format!("key:{key}").into_bytes());
    keys.chain([b"v".to_vec()]).collect()
}

#[test]
fn rows_do_not_contradict_themselves() {
    let mut names = BTreeSet::new();
    for command in COMMANDS {
        let name = command.name;
        assert!(names.insert(name), "{name} twice");
        assert_eq!(command.id.name(), name);
        assert_eq!(name, name.to_ascii_uppercase());
        for text in
            [command.summary, command.complexity, command.since, command.reply, command.notes]
        {
            assert!(!text.is_empty(), "{name} says too little");
        }
        assert!(command.summary.ends_with('.'), "{name}");

        let writes = command.access == Access::Write;
        let flags: BTreeSet<_> = command.flags.split(' ').collect();
        assert_eq!(flags.contains("write"), writes, "{name}");
        assert_eq!(flags.contains("readonly"), command.access == Access::Read, "{name}");
        for category in ["read", "write", "blocking", "fast"] {
            let flag = if category == "read" { "readonly" } else { category };
            assert_eq!(command.acl.contains(&category), flags.contains(flag), "{name} @{category}");
        }
        assert_ne!(command.acl.contains(&"fast"), command.acl.contains(&"slow"), "{name}");

        let is_key = |at: usize| command.args.get(at).is_some_and(|arg| arg.kind == ArgKind::Key);
        assert_eq!(command.keys == Keys::First, is_key(0), "{name}");
        assert_eq!(command.keys == Keys::Counted, is_key(1), "{name}");
        assert!(!is_key(1) || command.args[0].name == "numkeys" && command.args[1].multiple);
        let keyed = command.keys != Keys::None;
        assert_eq!(command.key_flags.is_empty(), command.keys == Keys::None, "{name}");
        if keyed {
            assert_eq!(command.key_flags.contains(&KeyFlag::Rw), writes, "{name}");
            assert_eq!(command.key_flags.contains(&KeyFlag::Ro), !writes, "{name}");
        }
        assert_eq!(command.example.is_empty(), command.group == Group::Internal, "{name}");
        command.args.iter().for_each(|arg| check_argument(name, arg));
    }
}

fn check_argument(command: &str, arg: &Arg) {
    let has_parts = matches!(arg.kind, ArgKind::OneOf | ArgKind::Block);
    assert_eq!(has_parts, !arg.parts.is_empty(), "{command} {}", arg.name);
    assert!(arg.kind != ArgKind::PureToken || arg.token.is_some(), "{command} {}", arg.name);
    assert_eq!(
        arg.kind == ArgKind::Integer,
        matches!(arg.bounds, Bounds::Number { .. }),
        "{command} {}",
        arg.name
    );
    assert!(arg.summary.ends_with(['.', ')']), "{command} {}", arg.name);
    arg.parts.iter().for_each(|part| check_argument(command, part));
}

#[test]
fn blocking_and_dangerous_commands_are_marked() {
    let with = |category: &str| -> Vec<&str> {
        COMMANDS
            .iter()
            .filter(|command| command.acl.contains(&category))
            .map(|command| command.name)
            .collect()
    };
    assert_eq!(
        with("blocking"),
        [
            "DLOCK.ACQUIRE",
            "DLOCK.AWAIT",
            "DFAIR.ACQUIRE",
            "DFAIR.AWAIT",
            "DRW.ACQUIRE",
            "DSEM.ACQUIRE",
            "DSEM.TAKE",
            "DLATCH.AWAIT",
            "DLOCK.MACQUIRE",
            "DLOCK.ANYACQUIRE",
        ]
    );
    assert_eq!(
        with("dangerous"),
        [
            "DLOCK.BREAK",
            "DFAIR.BREAK",
            "DRW.BREAK",
            "DSEM.BREAK",
            "DLOCK.UNBLOCK",
            "DLOCK.TRUST",
            "DLOCK.LOG",
            "DLOCK.APPLY",
        ]
    );
}

#[test]
fn rows_like_another_share_arguments_reply_and_errors() {
    for command in COMMANDS {
        let Some(like) = command.like else { continue };
        let model = COMMANDS.iter().find(|row| row.name == like).expect("a row");
        assert_eq!(model.like, None, "{}: {like} points on", command.name);
        assert_eq!(
            (command.reply, command.errors, command.arity, command.acl, command.flags),
            (model.reply, model.errors, model.arity, model.acl, model.flags),
            "{}",
            command.name
        );
        let shape = |row: &Command| row.args.iter().map(|arg| (arg.name, arg.token)).collect();
        let (shared, own): (Vec<_>, Vec<_>) = (shape(model), shape(command));
        assert_eq!(shared, own, "{}", command.name);
    }
}

#[test]
fn examples_are_calls_of_their_own_command() {
    for command in COMMANDS {
        let calls = command.example.lines().filter_map(|line| line.strip_prefix("> "));
        for line in calls.clone() {
            let mut words = line.split(' ');
            let name = words.next().expect("a name");
            let row = COMMANDS.iter().find(|row| row.name == name).expect("a command");
            let args: Vec<&[u8]> = words.map(str::as_bytes).collect();
            assert!(parse(row.id, &args).is_ok(), "{line}");
        }
        let own = calls.clone().filter(|line| line.split(' ').next() == Some(command.name));
        assert_eq!(own.count() > 0, command.group != Group::Internal, "{}", command.name);
    }
}
