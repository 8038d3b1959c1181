//! The table of commands says what the parser does: no more, no less.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use std::collections::BTreeSet;

use crate::cursor::Opt;
use crate::request::{Fault, parse};
use crate::table::{Access, Arg, ArgKind, Bounds, COMMANDS, Command, Group, KeyFlag, Keys};

type Words = Vec<Vec<u8>>;

/// The shortest value that an argument takes.
fn value(arg: &Arg) -> Vec<u8> {
    match arg.bounds {
        Bounds::Number { min, .. } => min.to_string().into_bytes(),
        Bounds::Bytes { min, .. } => vec![b'v'; min],
        Bounds::Any => b"v".to_vec(),
    }
}

/// An argument with `value`, as it is written in a call.
fn written(arg: &Arg, value: Vec<u8>) -> Words {
    match (arg.token, arg.kind) {
        (Some(token), ArgKind::PureToken) => vec![token.into()],
        (Some(token), _) => vec![token.into(), value],
        (None, _) => vec![value],
    }
}

fn required(command: &Command) -> Vec<&'static Arg> {
    command.args.iter().filter(|arg| !arg.optional).collect()
}

/// Each optional argument, with every part of a choice on its own.
fn optional(command: &Command) -> Vec<&'static Arg> {
    let options = command.args.iter().filter(|arg| arg.optional);
    options
        .flat_map(
            |arg| {
                if arg.kind == ArgKind::OneOf { arg.parts } else { core::slice::from_ref(arg) }
            },
        )
        .collect()
}

fn smallest_call(command: &Command) -> Words {
    required(command).iter().flat_map(|arg| written(arg, value(arg))).collect()
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

        words.pop();
        let args: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let fault = parse(command.id, &args).map_err(|error| error.fault);
        assert_eq!(fault, Err(Fault::WrongArity), "{} {words:?}", command.name);
    }
}

#[test]
fn arity_counts_the_required_arguments() {
    for command in COMMANDS {
        let count = i32::try_from(1 + smallest_call(command).len()).expect("few");
        let arity = if optional(command).is_empty() { count } else { -count };
        assert_eq!(command.arity, arity, "{}", command.name);
    }
}

#[test]
fn documented_options_are_accepted_alone_and_together() {
    for command in COMMANDS {
        let mut together = smallest_call(command);
        for arg in optional(command) {
            let mut alone = smallest_call(command);
            alone.extend(written(arg, value(arg)));
            assert!(understood(command, &alone), "{} {alone:?}", command.name);
            // Of the two ways to give a lease only one may be in a call.
            if arg.token != Some("EX") {
                together.extend(written(arg, value(arg)));
            }
        }
        assert!(understood(command, &together), "{} {together:?}", command.name);
    }
}

#[test]
fn options_are_accepted_where_they_are_documented_and_nowhere_else() {
    let mut documented_somewhere = BTreeSet::new();
    for command in COMMANDS {
        let documented: BTreeSet<_> =
            optional(command).iter().filter_map(|arg| arg.token).collect();
        for option in Opt::ALL {
            let mut words = smallest_call(command);
            words.push(option.word().to_ascii_lowercase().into_bytes());
            let known = understood(command, &words)
                || error(command, &words) == format!("{} needs a value", option.word());
            assert_eq!(
                known,
                documented.contains(option.word()),
                "{} {}",
                command.name,
                option.word()
            );
        }
        documented_somewhere.extend(documented);
    }
    let known: BTreeSet<_> = Opt::ALL.map(Opt::word).into_iter().collect();
    assert_eq!(documented_somewhere, known);
}

#[test]
fn documented_ranges_end_where_the_parser_says() {
    for command in COMMANDS {
        let mut prefix = Words::new();
        for arg in required(command) {
            check_bounds(
                command,
                &prefix,
                arg,
                &smallest_call(command)[prefix.len() + 1..].to_owned(),
            );
            prefix.extend(written(arg, value(arg)));
        }
        for arg in optional(command) {
            check_bounds(command, &prefix, arg, &Words::new());
        }
    }
}

/// `arg` between `before` and `after`, at both ends of its range and one step beyond.
fn check_bounds(command: &Command, before: &Words, arg: &Arg, after: &Words) {
    let tries: Vec<(Vec<u8>, bool)> = match arg.bounds {
        Bounds::Any => return,
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
        let words = [before.clone(), written(arg, value), after.clone()].concat();
        assert_eq!(understood(command, &words), good, "{} {words:?}", command.name);
        if !good {
            let text = error(command, &words);
            let name = arg.token.unwrap_or(arg.name);
            assert!(text.starts_with(&format!("{name} must be ")), "{text}");
        }
    }
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

        let keyed = command.args.first().is_some_and(|arg| arg.kind == ArgKind::Key);
        assert_eq!(command.keys == Keys::First, keyed, "{name}");
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
    assert_eq!(with("blocking"), ["DLOCK.ACQUIRE"]);
    assert_eq!(with("dangerous"), ["DLOCK.BREAK", "DLOCK.UNBLOCK", "DLOCK.APPLY"]);
}
