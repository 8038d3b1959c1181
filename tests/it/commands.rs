//! What servers say about the commands, and who may run them, is what the table says.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on stops here and says why"
)]

use std::{
    collections::BTreeSet,
    io::Write as _,
    process::{Command as Process, Stdio},
};

use dlock_wire::table::{Access, Arg, ArgKind, COMMANDS, Command, KeyFlag, Keys};
use redis::Value;

use crate::{
    args,
    support::{Blocked, Kind, Reply, Server},
};

/// The words of a reply, in no order.
fn words(reply: &Value) -> BTreeSet<String> {
    reply.items().iter().map(|word| word.text().to_lowercase()).collect()
}

fn owned<'a>(words: impl IntoIterator<Item = &'a str>) -> BTreeSet<String> {
    words.into_iter().map(str::to_owned).collect()
}

/// A call with as few arguments as the command takes.
fn shortest(command: &Command, key: &str) -> Vec<String> {
    let word = |arg: &Arg| match arg.kind {
        ArgKind::Key => key.to_owned(),
        ArgKind::Integer => "1".to_owned(),
        _ => "o".to_owned(),
    };
    let required = command.args.iter().filter(|arg| !arg.optional).map(word);
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
            same => same,
        }));
        flags.insert("module".to_owned());
        assert_eq!(words(&info[2]), flags, "{name}");
        let keys = i64::from(command.keys == Keys::First);
        assert_eq!([&info[3], &info[4], &info[5]].map(Reply::int), [keys; 3], "{name}");
        let mut categories = owned(command.acl.iter().copied());
        if !Kind::of_binary().has_module_acl_categories() {
            categories.clear();
        }
        let shown =
            words(&info[6]).iter().map(|word| word.trim_start_matches('@').to_owned()).collect();
        assert_eq!(categories, shown, "{name}");
        let specs = info[8].items();
        assert_eq!(specs.len(), usize::from(command.keys != Keys::None), "{name}");
        for spec in specs {
            assert_eq!(words(&spec.field("flags")), key_flags(command), "{name}");
            assert_eq!(spec.field("begin_search").field("spec").field("index").int(), 1, "{name}");
        }
    }
}

#[test]
fn command_docs_say_what_the_table_says() {
    fn check(shown: &[Value], args: &[Arg], of: &str) {
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
            let key_spec = find("key_spec_index").map(|(_, index)| index.int());
            assert_eq!(key_spec, (arg.kind == ArgKind::Key).then_some(0), "{of}");
            let parts = find("arguments").map(|(_, parts)| parts.items()).unwrap_or_default();
            check(&parts, arg.parts, &of);
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
        check(&docs.field("arguments").items(), command.args, name);
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
fn user(server: &Server, rules: &[&str]) -> crate::support::Client {
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
    for category in ["read", "write", "fast", "slow", "blocking", "dangerous"] {
        let mut client = user(&server, &["~*", "&*", &format!("+@{category}")]);
        for command in COMMANDS {
            let may = with_categories && command.acl.contains(&category);
            let reply = client.cmd(&shortest(command, "k"));
            assert_eq!(is_denied(&reply), !may, "+@{category}: {} {}", command.name, reply.show());
        }
        server.cmd(&["FLUSHALL"]).ok();
    }
    // By name it works on every server.
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
            // As for the server's own commands: to read is to show something of the value, so BREAK only writes.
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
    // The channel that QUEUE implies is named by the module, not by the user.
    assert!(client.cmd(&["DLOCK.ACQUIRE", "k", "p", "QUEUE", "60000"]).is_null());
    client.cmd(&["DLOCK.CANCEL", "k", "p"]).ok();
    client.cmd(&["DLOCK.RELEASE", "k", "o"]).ok();
    server.left_over_check();
}

/// Fields of replies whose values differ from run to run.
const VARYING: [&str; 5] =
    ["\"ttl-ms\"", "\"held-ms\"", "\"client-id\"", "\"waiting-ms\"", "\"remaining-ms\""];

/// The token that stands in the examples; others are told by their distance from it.
const EXAMPLE_TOKEN: i64 = 1_767_225_600_123_456;

/// `text` with the tokens of the examples replaced by those of this run.
fn with_tokens(text: &str, token: i64) -> String {
    let mut out = text.to_owned();
    for shown in text.split(|letter: char| !letter.is_ascii_digit()).filter(|word| word.len() == 16)
    {
        let real = token + shown.parse::<i64>().unwrap() - EXAMPLE_TOKEN;
        out = out.replace(shown, &real.to_string());
    }
    out
}

/// Whether the example's line is what redis-cli printed, times and texts of errors aside.
fn is_like(shown: &str, real: &str) -> bool {
    if let Some(code) = shown.strip_suffix('…') {
        return real.starts_with(code) && real.len() > code.len();
    }
    let seconds = |line: &str| line.strip_prefix('(')?.strip_suffix("s)")?.parse::<f64>().ok();
    if let (Some(shown), Some(real)) = (seconds(shown), seconds(real)) {
        return (shown..shown + 5.0).contains(&real);
    }
    let field = |line: &str| {
        let (name, value) = line.split_once(" => (integer) ")?;
        VARYING
            .iter()
            .any(|field| name.ends_with(field))
            .then(|| (name.to_owned(), value.parse::<i64>().is_ok()))
    };
    shown == real || field(shown).is_some_and(|shown| Some(shown) == field(real))
}

/// What redis-cli prints for these lines.
fn redis_cli(server: &Server, lines: &[String]) -> Vec<String> {
    let mut cli = Process::new("redis-cli")
        .args(["-3", "--no-raw", "-s"])
        .arg(server.dir().join("s"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("cannot run redis-cli: {error} (try `make deps`)"));
    let mut stdin = cli.stdin.take().expect("a pipe");
    stdin.write_all((lines.join("\n") + "\n").as_bytes()).expect("redis-cli reads");
    drop(stdin);
    let output = cli.wait_with_output().expect("redis-cli ends");
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

/// What has to be there before an example makes sense: the token of the holder, and the waiter.
fn prepare(server: &Server, name: &str) -> (Option<i64>, Option<Blocked>) {
    let is_waited_for = ["INFO", "WAITERS", "POSITION", "CANCEL", "UNBLOCK"];
    let verb = name.strip_prefix("DLOCK.").expect("a command of dlock");
    if verb == "ACQUIRE" {
        return (None, None);
    }
    let token = server.cmd(&["DLOCK.ACQUIRE", "orders:7", "worker-1", "PX", "30000"]).int();
    let waiter = is_waited_for
        .contains(&verb)
        .then(|| server.block(&["DLOCK.ACQUIRE", "orders:7", "worker-2", "BLOCK", "5000"]));
    (Some(token), waiter)
}

#[test]
fn the_examples_of_the_reference_page_are_real() {
    let server = Server::start();
    for command in COMMANDS.iter().filter(|command| !command.example.is_empty()) {
        let (mut token, waiter) = prepare(&server, command.name);
        // Each call on its own, so that its output is known; a session keeps nothing between calls that would matter here.
        let mut lines = command.example.lines().peekable();
        while let Some(line) = lines.next() {
            let call = line.strip_prefix("> ").expect("a prompt");
            assert!(call.starts_with(command.name), "{call} in the example of {}", command.name);
            let mut shown = Vec::new();
            while let Some(line) = lines.next_if(|line| !line.starts_with("> ")) {
                shown.push(line.to_owned());
            }
            let mut call = with_tokens(call, token.unwrap_or(EXAMPLE_TOKEN));
            if let Some(waiter) = &waiter {
                call = call.replace("UNBLOCK 12", &format!("UNBLOCK {}", waiter.id()));
            }
            let real = redis_cli(&server, &[call.clone()]);
            if token.is_none() {
                token = real[0].strip_prefix("(integer) ").and_then(|token| token.parse().ok());
            }
            let shown: Vec<String> =
                shown.iter().map(|line| with_tokens(line, token.expect("a token"))).collect();
            let same = shown.len() == real.len()
                && shown.iter().zip(&real).all(|(shown, real)| is_like(shown, real));
            assert!(same, "> {call}\nis shown with {shown:#?}\nbut prints {real:#?}");
        }
        server.cmd(&["FLUSHALL"]).ok();
        drop(waiter);
        server.cmd(&args!["DLOCK.BREAK", "orders:7"]).ok();
        server.left_over_check();
    }
}
