//! The server describes the commands, and controls access to them, as the table says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on stops here and says why"
)]

use std::collections::BTreeSet;

use dlock_wire::table::{Access, Arg, ArgKind, Bounds, COMMANDS, Command, KeyFlag, Keys};
use redis::Value;

use crate::support::{Kind, Reply, Server};

/// The words of a reply, in no order.
fn words(reply: &Value) -> BTreeSet<String> {
    reply.items().iter().map(|word| word.text().to_lowercase()).collect()
}

fn owned<'a>(words: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    words.into_iter().map(str::to_owned).collect()
}

/// A call with as few arguments as the command takes.
pub fn shortest(command: &Command, key: &str) -> Vec<String> {
    fn word(arg: &Arg, key: &str) -> String {
        match (arg.kind, arg.bounds) {
            (ArgKind::Key, _) => key.to_owned(),
            (ArgKind::Integer, _) => "1".to_owned(),
            (ArgKind::OneOf | ArgKind::Block, _) => word(&arg.parts[0], key),
            (ArgKind::PureToken, _) => arg.token.unwrap().to_owned(),
            (_, Bounds::Uuid) => "0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70".to_owned(),
            _ => "o".to_owned(),
        }
    }
    let required = command.args.iter().filter(|arg| !arg.optional).map(|arg| word(arg, key));
    [command.name.to_owned()].into_iter().chain(required).collect()
}

fn key_flags(command: &Command) -> BTreeSet<String> {
    owned(command.key_flags.iter().map(|flag| match flag {
        KeyFlag::Ro => "ro",
        KeyFlag::Rw => "rw",
        KeyFlag::Access => "access",
        KeyFlag::Insert => "insert",
        KeyFlag::Update => "update",
        KeyFlag::Delete => "delete",
    }))
}

#[test]
fn command_info_says_what_the_table_says() {
    let server = Server::start();
    let listed = words(&server.cmd(&["COMMAND", "LIST", "FILTERBY", "MODULE", "dlock"]));
    let named: BTreeSet<String> = COMMANDS.iter().map(|row| row.name.to_lowercase()).collect();
    assert_eq!(listed, named);
    for command in COMMANDS {
        let name = command.name;
        let info = server.cmd(&["COMMAND", "INFO", name]).items()[0].items();
        assert_eq!(info[1].int(), i64::from(command.arity), "{name}");
        let mut flags = owned(command.flags.split(' ').map(|flag| match flag {
            "deny-oom" => "denyoom",
            "deny-script" => "noscript",
            "allow-loading" => "loading",
            "allow-stale" => "stale",
            same => same,
        }));
        flags.insert("module".to_owned());
        if command.keys == Keys::Counted {
            flags.insert("movablekeys".to_owned());
        }
        assert_eq!(words(&info[2]), flags, "{name}");
        // Of counted keys the first, which routes the call in a cluster.
        let (key, step) = match command.keys {
            Keys::First => (1, 1),
            Keys::Counted => (2, 1),
            Keys::None => (0, 0),
        };
        assert_eq!([&info[3], &info[4], &info[5]].map(Reply::int), [key, key, step], "{name}");
        let mut categories = owned(command.acl.iter().copied());
        if !Kind::of_binary().has_module_acl_categories() {
            categories.clear();
        }
        let shown =
            words(&info[6]).iter().map(|word| word.trim_start_matches('@').to_owned()).collect();
        assert_eq!(categories, shown, "{name}");
        let specs = info[8].items();
        let (mut found, mut flags) = (Vec::new(), Vec::new());
        for spec in specs {
            found.push(spec.field("begin_search").field("spec").field("index").int());
            flags.push(words(&spec.field("flags")));
        }
        match command.keys {
            Keys::None => assert!(found.is_empty(), "{name}"),
            Keys::First => {
                assert_eq!((found, flags), (vec![1], vec![key_flags(command)]), "{name}");
            }
            Keys::Counted => {
                // The first key alone is for routing; it does not count where keys are listed or checked.
                let mut routes = key_flags(command);
                routes.insert("not_key".to_owned());
                assert_eq!(
                    (found, flags),
                    (vec![2, 1], vec![routes, key_flags(command)]),
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn command_docs_say_what_the_table_says() {
    fn check(shown: &[Value], args: &[Arg], key_spec: i64, of: &str) {
        assert_eq!(shown.len(), args.len(), "{of}");
        for (shown, arg) in shown.iter().zip(args) {
            let of = format!("{of} {}", arg.name);
            assert_eq!(shown.field("name").text(), arg.name, "{of}");
            assert_eq!(shown.field("type").text(), arg.kind.as_str(), "{of}");
            let find = |field: &str| shown.pairs().into_iter().find(|(name, _)| name == field);
            assert_eq!(find("token").map(|(_, token)| token.text()).as_deref(), arg.token, "{of}");
            assert_eq!(find("summary").map(|(_, text)| text.text()).as_deref(), Some(arg.summary));
            let mut flags = owned(arg.optional.then_some("optional"));
            flags.extend(owned(arg.multiple.then_some("multiple")));
            let shown_flags = find("flags").map(|(_, flags)| words(&flags)).unwrap_or_default();
            assert_eq!(shown_flags, flags, "{of}");
            let index = find("key_spec_index").map(|(_, index)| index.int());
            assert_eq!(index, (arg.kind == ArgKind::Key).then_some(key_spec), "{of}");
            let parts = find("arguments").map(|(_, parts)| parts.items()).unwrap_or_default();
            check(&parts, arg.parts, key_spec, &of);
        }
    }
    let server = Server::start();
    let mut client = server.client3();
    for command in COMMANDS {
        let name = command.name;
        let docs = client.cmd(&["COMMAND", "DOCS", name]).field(name);
        for (field, text) in [
            ("summary", command.summary),
            ("since", command.since),
            ("complexity", command.complexity),
            ("group", "module"),
            ("module", "dlock"),
        ] {
            assert_eq!(docs.field(field).text(), text, "{name}");
        }
        let key_spec = i64::from(command.keys == Keys::Counted);
        // The server has no such field for a command without arguments.
        if !command.args.is_empty() {
            check(&docs.field("arguments").items(), command.args, key_spec, name);
        }
    }
}

#[test]
fn the_server_finds_the_keys() {
    let server = Server::start();
    for command in COMMANDS {
        let call = shortest(command, "the key");
        let ask = |what: &str| {
            let mut all = vec!["COMMAND".to_owned(), what.to_owned()];
            all.extend(call.iter().cloned());
            server.cmd(&all)
        };
        // GETKEYS wants at least one argument after the name.
        if command.keys == Keys::None && command.args.is_empty() {
            continue;
        }
        if command.keys == Keys::None {
            assert_eq!(ask("GETKEYS").error(), "ERR The command has no key arguments");
            continue;
        }
        assert_eq!(ask("GETKEYS").show(), "[\"the key\"]", "{call:?}");
        let found = ask("GETKEYSANDFLAGS").items();
        assert_eq!(found.len(), 1, "{call:?}");
        let one = found[0].items();
        assert_eq!((one[0].text().as_str(), words(&one[1])), ("the key", key_flags(command)));
    }
}

/// A connection of a user with these rules and no others.
pub fn user(server: &Server, rules: &[&str]) -> crate::support::Client {
    let all = [&["ACL", "SETUSER", "u", "reset", "on", "nopass"], rules].concat();
    server.cmd(&all).ok();
    let mut client = server.client();
    client.cmd(&["AUTH", "u", "x"]).ok();
    client
}

fn is_denied(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(_)) && reply.error().starts_with("NOPERM")
}

#[test]
fn acl_categories_allow_and_deny() {
    let server = Server::start();
    let with_categories = Kind::of_binary().has_module_acl_categories();
    for category in ["read", "write", "fast", "slow", "blocking", "admin", "dangerous"] {
        let mut client = user(&server, &["~*", "&*", &format!("+@{category}")]);
        for command in COMMANDS {
            let may = with_categories && command.acl.contains(&category);
            let reply = client.cmd(&shortest(command, "k"));
            assert_eq!(is_denied(&reply), !may, "+@{category}: {} {}", command.name, reply.show());
        }
        server.cmd(&["FLUSHALL"]).ok();
    }
    // By name access works on every server.
    for command in COMMANDS {
        let mut client = user(&server, &["~*", "&*", &format!("+{}", command.name.to_lowercase())]);
        for other in COMMANDS {
            let reply = client.cmd(&shortest(other, "k"));
            assert_eq!(is_denied(&reply), other.name != command.name, "{}", other.name);
        }
        server.cmd(&["FLUSHALL"]).ok();
    }
    server.left_over_check();
}

#[test]
fn acl_key_patterns_bind() {
    let server = Server::start();
    for (pattern, may_read, may_write) in
        [("~a:*", true, true), ("%R~a:*", true, false), ("%W~a:*", false, true)]
    {
        let mut client = user(&server, &[pattern, "&*", "+@all"]);
        for command in COMMANDS.iter().filter(|command| command.keys != Keys::None) {
            // As for the server's own commands, reading means to show a part of the value, so BREAK only writes.
            let reads = command.key_flags.contains(&KeyFlag::Access);
            let writes = command.access == Access::Write;
            let may = (may_read || !reads) && (may_write || !writes);
            let inside = client.cmd(&shortest(command, "a:1"));
            assert_eq!(is_denied(&inside), !may, "{pattern} {}", command.name);
            let outside = client.cmd(&shortest(command, "b:1"));
            assert!(is_denied(&outside), "{pattern} {}", command.name);
        }
        server.cmd(&["FLUSHALL"]).ok();
    }
    server.left_over_check();
}

#[test]
fn notify_needs_the_right_to_publish() {
    let server = Server::start();
    let mut client = user(&server, &["~*", "+@all", "resetchannels", "&mine:*"]);
    let error = client.cmd(&["DLOCK.ACQUIRE", "k", "o", "NOTIFY", "other"]).error();
    assert!(error.starts_with("NOPERM "), "{error}");
    assert_eq!(server.keys(), 0);
    client.cmd(&["DLOCK.ACQUIRE", "k", "o", "NOTIFY", "mine:1"]).int();
    // The module, not the user, chose the implied channel of QUEUE.
    assert!(client.cmd(&["DLOCK.ACQUIRE", "k", "p", "QUEUE", "60000"]).is_null());
    client.cmd(&["DLOCK.RELEASE", "k", "p"]).ok();
    client.cmd(&["DLOCK.RELEASE", "k", "o"]).ok();
    server.left_over_check();
}
