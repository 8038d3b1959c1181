//! The reference page, generated from the table so that it cannot contradict the server.

use alloc::string::String;
use core::fmt::{self, Write};

use crate::arg::{Arg, ArgKind, Bounds};
use crate::names;
use crate::table::{Access, COMMANDS, Command, Group};

/// The whole of `docs/commands.md`.
pub fn commands_md() -> String {
    let mut page = String::with_capacity(64 * 1024);
    // Writing to a String cannot fail.
    let _ = write_page(&mut page);
    page
}

/// The syntax line of a command, for example `DLOCK.WAITERS key [COUNT count]`.
pub fn syntax(command: &Command) -> String {
    let mut line = String::from(command.name);
    for arg in command.args {
        line.push(' ');
        // Writing to a String cannot fail.
        let _ = write_usage(&mut line, arg);
    }
    line
}

const GROUPS: [(Group, &str, &str); 8] = [
    (Group::Lock, "DLOCK: re-entrant lock", include_str!("reference/lock.md")),
    (Group::Fair, "DFAIR: lock with a durable queue", include_str!("reference/fair.md")),
    (Group::Rw, "DRW: read-write lock", include_str!("reference/rw.md")),
    (Group::Semaphore, "DSEM: semaphore", include_str!("reference/semaphore.md")),
    (Group::Latch, "DLATCH: count-down latch", include_str!("reference/latch.md")),
    (Group::Multi, "Several locks at once", include_str!("reference/multi.md")),
    (Group::Admin, "For operators", ""),
    (Group::Internal, "Internal", ""),
];

fn write_page(page: &mut String) -> fmt::Result {
    page.write_str("<!-- Generated from crates/wire by `DLOCK_BLESS=1 cargo test -p dlock-wire`. Do not edit. -->\n\n")?;
    page.write_str(include_str!("reference/opening.md"))?;
    write_overview(page)?;
    page.write_str(include_str!("reference/rules.md"))?;
    write_limits(page)?;
    for (group, title, opening) in GROUPS {
        write!(page, "\n## {title}\n")?;
        if !opening.is_empty() {
            write!(page, "\n{opening}")?;
        }
        for command in COMMANDS.iter().filter(|command| command.group == group) {
            write_command(page, command)?;
        }
    }
    Ok(())
}

fn write_overview(page: &mut String) -> fmt::Result {
    page.write_str("\n| command | what it does |\n|---|---|\n")?;
    for command in COMMANDS.iter().filter(|command| command.group != Group::Internal) {
        writeln!(
            page,
            "| [`{}`](#{}) | {} |",
            command.name,
            anchor(command.name),
            command.summary
        )?;
    }
    page.write_str("\n")
}

fn write_limits(page: &mut String) -> fmt::Result {
    let rows = [
        ("owner", format_args_bytes(1, names::OWNER_MAX)),
        ("REQID", format_args_bytes(1, names::REQID_MAX)),
        ("NOTIFY, SNOTIFY", format_args_bytes(1, names::CHANNEL_MAX)),
        ("LABEL", format_args_bytes(0, names::LABEL_MAX)),
        ("lease", String::from("1 ms to 365 days")),
        ("BLOCK", String::from("up to 365 days; 0 is forever")),
        ("QUEUE", String::from("1 ms to 1 day")),
        ("BIND", String::from("up to 365 days; 0 is at once")),
        ("fencing token", String::from("1 to 2^53 - 1")),
        ("permits of a semaphore", String::from("1 to 2^31 - 1")),
        ("count of a latch", String::from("1 to 2^31 - 1")),
        ("keys of one call", alloc::format!("1 to {}", names::KEYS_MAX)),
        ("request ids that count in a hold", String::from("at most 64; a latch: all")),
    ];
    page.write_str("\n### Limits\n\n| what | range |\n|---|---|\n")?;
    for (what, range) in rows {
        writeln!(page, "| {what} | {range} |")?;
    }
    Ok(())
}

fn format_args_bytes(min: usize, max: usize) -> String {
    alloc::format!("{min} to {max} bytes")
}

fn write_command(page: &mut String, command: &Command) -> fmt::Result {
    write!(page, "\n### {}\n\n{}\n\n", command.name, command.summary)?;
    write!(page, "```\n{}\n```\n\n{}\n", syntax(command), command.notes)?;
    if let Some(like) = command.like {
        writeln!(
            page,
            "\n**Arguments, reply and errors**: those of [`{like}`](#{}).",
            anchor(like)
        )?;
    } else {
        write_arguments(page, command.args)?;
        write_reply(page, command)?;
    }
    write!(page, "\n**Complexity**: {}\\\n", command.complexity)?;
    write!(page, "**ACL categories**:")?;
    for category in command.acl {
        write!(page, " `@{category}`")?;
    }
    write!(page, "\\\n**On replicas**: {}\\\n", on_replicas(command))?;
    writeln!(page, "**Since**: {}", command.since)?;
    if !command.example.is_empty() {
        write!(page, "\n**Example**\n\n```\n{}\n```\n", command.example)?;
    }
    Ok(())
}

fn write_reply(page: &mut String, command: &Command) -> fmt::Result {
    if command.reply.contains('\n') || !command.maps.is_empty() {
        write!(page, "\n**Reply**\n\n{}\n", command.reply)?;
    } else {
        write!(page, "\n**Reply**: {}\n", command.reply)?;
    }
    for (introduction, fields) in command.maps {
        if !introduction.is_empty() {
            write!(page, "\n{introduction}\n")?;
        }
        page.write_str("\n| field | meaning |\n|---|---|\n")?;
        for (name, meaning) in *fields {
            writeln!(page, "| `{name}` | {meaning} |")?;
        }
    }
    if !command.errors.is_empty() {
        page.write_str("\n**Errors**\n\n| code | when |\n|---|---|\n")?;
        for (code, when) in command.errors {
            writeln!(page, "| `{code}` | {when} |")?;
        }
    }
    Ok(())
}

fn on_replicas(command: &Command) -> &'static str {
    match (command.group, command.access) {
        (Group::Internal, _) => "replicas get it from the primary",
        (_, Access::Read) if command.acl.contains(&"blocking") => "works, but does not wait",
        (_, Access::Read) => "works",
        (_, Access::Write) => "refused with `READONLY`",
        (_, Access::Server) => "works; each server has its own",
        (_, Access::Connection) => "works, but no client waits there",
    }
}

fn write_arguments(page: &mut String, args: &[Arg]) -> fmt::Result {
    page.write_str("\n| argument | type | range | meaning |\n|---|---|---|---|\n")?;
    for arg in args {
        if arg.kind == ArgKind::OneOf {
            for part in arg.parts {
                let words = if part.kind == ArgKind::Block {
                    part.parts
                } else {
                    core::slice::from_ref(part)
                };
                for word in words {
                    write_argument(page, word, (!word.optional).then_some(arg.summary))?;
                }
            }
        } else {
            write_argument(page, arg, None)?;
        }
    }
    Ok(())
}

fn write_argument(page: &mut String, arg: &Arg, choice: Option<&str>) -> fmt::Result {
    page.write_str("| `")?;
    match (arg.token, arg.kind) {
        (Some(token), ArgKind::PureToken) => page.write_str(token)?,
        (Some(token), _) => write!(page, "{token} {}", arg.name)?,
        (None, _) => page.write_str(arg.name)?,
    }
    write!(page, "` | {} | ", arg.kind.as_str())?;
    match arg.bounds {
        Bounds::Uuid => page.write_str("a UUID, 36 characters")?,
        Bounds::Any if arg.kind == ArgKind::Key => page.write_str("1 byte or more")?,
        Bounds::Any => {}
        Bounds::Bytes { min, max } => write!(page, "{min} to {max} bytes")?,
        Bounds::Number { min, max, unit: "" } => write!(page, "{min} to {max}")?,
        Bounds::Number { min, max, unit } => write!(page, "{min} to {max} {unit}")?,
    }
    write!(page, " | {}", arg.summary)?;
    if let Some(choice) = choice {
        write!(page, " {choice}")?;
    }
    page.write_str(" |\n")
}

/// One argument in a syntax line.
fn write_usage(line: &mut String, arg: &Arg) -> fmt::Result {
    if arg.optional {
        line.push('[');
    } else if arg.kind == ArgKind::OneOf {
        line.push('<');
    }
    if let Some(token) = arg.token {
        line.push_str(token);
    }
    match arg.kind {
        ArgKind::PureToken => {}
        ArgKind::OneOf | ArgKind::Block => {
            let between = if arg.kind == ArgKind::OneOf { " | " } else { " " };
            for (nth, part) in arg.parts.iter().enumerate() {
                if nth > 0 {
                    line.push_str(between);
                }
                write_usage(line, part)?;
            }
        }
        ArgKind::Key | ArgKind::String | ArgKind::Integer => {
            if arg.token.is_some() {
                line.push(' ');
            }
            line.push_str(arg.name);
            if arg.multiple {
                write!(line, " [{} ...]", arg.name)?;
            }
        }
    }
    if arg.optional {
        line.push(']');
    } else if arg.kind == ArgKind::OneOf {
        line.push('>');
    }
    Ok(())
}

/// The anchor that GitHub generates for a heading with a command's name.
fn anchor(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|letter| letter.to_ascii_lowercase())
        .collect()
}
