//! The replication stream, command by command: one record for each change, none for anything else.

use std::time::Instant;

use redis::Value;

use crate::{
    args,
    records::{decode, remaining_ms, words},
    support::{Blocked, Client, LIMIT, ReplicaTap, Reply, SOON, Server, wait_until},
};

/// A primary with a tap on its stream.
struct Scene {
    server: Server,
    client: Client,
    tap: ReplicaTap,
    /// Remaining time of the last replicated hold, in milliseconds.
    remaining_ms: u64,
}

impl Scene {
    fn start() -> Scene {
        let server = Server::start();
        let (client, tap) = (server.client(), ReplicaTap::attach(&server));
        Scene { server, client, tap, remaining_ms: 0 }
    }

    /// The integer that a call is answered.
    #[track_caller]
    fn int(&mut self, call: &str) -> i64 {
        self.cmd(call).int()
    }

    #[track_caller]
    fn cmd(&mut self, call: &str) -> Value {
        let words: Vec<&str> = call.split(' ').collect();
        self.client.cmd(&words)
    }

    #[track_caller]
    fn block(&self, call: &str) -> Blocked {
        self.server.wait(call)
    }

    /// The stream since the last call. Of each record: the key, its state, and whether that is a new grant.
    #[track_caller]
    fn sent(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for command in self.tap.commands(&self.server) {
            let [name, key, payload] = &command[..] else {
                lines.push(in_words(&command));
                continue;
            };
            if name != b"DLOCK.APPLY" {
                lines.push(in_words(&command));
                continue;
            }
            let (lock, is_granted) = decode(payload);
            self.remaining_ms = remaining_ms(&lock);
            if let Some(hold) = lock.lock().hold() {
                // Relative, and never above the promised time.
                assert!(
                    (1..=hold.lease_ms).contains(&self.remaining_ms),
                    "{} ms",
                    self.remaining_ms
                );
            }
            let granted = if is_granted { "granted to " } else { "" };
            lines.push(format!("{}: {granted}{}", key.escape_ascii(), words(&lock)));
        }
        lines
    }

    /// Fails the test unless exactly this was replicated.
    #[track_caller]
    fn expect<S: AsRef<str>>(&mut self, lines: &[S]) {
        let lines: Vec<&str> = lines.iter().map(AsRef::as_ref).collect();
        assert_eq!(self.sent(), lines);
    }

    /// As [`Scene::expect`], for timed events: waits for them.
    #[track_caller]
    fn expect_soon<S: AsRef<str>>(&mut self, lines: &[S]) {
        let start = Instant::now();
        let mut sent = self.sent();
        while sent.len() < lines.len() && start.elapsed() < LIMIT {
            std::thread::sleep(std::time::Duration::from_millis(1));
            sent.extend(self.sent());
        }
        assert_eq!(sent, lines.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
    }

    #[track_caller]
    fn end(mut self) {
        self.expect(&[""; 0]);
        drop(self.client);
        self.server.left_over_check();
    }
}

fn in_words(command: &[Vec<u8>]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.escape_ascii().to_string()).collect();
    words.join(" ")
}

#[test]
fn each_change_of_a_hold_is_one_command() {
    let mut at = Scene::start();
    let t = at.int("DLOCK.ACQUIRE k a PX 30000 NOTIFY news");
    at.expect(&[format!("k: granted to a token {t} holds 1 lease 30000 messages to news")]);
    at.int("DLOCK.ACQUIRE k a PX 60000 LABEL why");
    let news = "label \"why\" messages to news";
    at.expect(&[format!("k: a token {t} holds 2 lease 60000 {news}")]);
    assert!(at.remaining_ms > 30_000);
    at.int("DLOCK.ACQUIRE k a PX 10 NOTIFY other");
    at.expect(&[format!("k: a token {t} holds 3 lease 60000 {news}")]);
    assert!(at.remaining_ms > 30_000);
    at.int("DLOCK.RELEASE k a");
    at.expect(&[format!("k: a token {t} holds 2 lease 60000 {news}")]);
    at.int("DLOCK.RENEW k a PX 5000");
    at.expect(&[format!("k: a token {t} holds 2 lease 60000 {news}")]);
    assert!(at.remaining_ms > 30_000);
    at.int("DLOCK.RENEW k a PX 90000");
    at.expect(&[format!("k: a token {t} holds 2 lease 90000 {news}")]);
    at.int(&format!("DLOCK.FENCE k a {}", t + 5));
    at.expect(&[format!("k: a token {} holds 2 lease 90000 {news}", t + 5)]);
    at.int("DLOCK.RELEASE k a ALL");
    at.expect(&["k: free"]);

    at.int("DLOCK.ACQUIRE k a");
    at.int("DLOCK.BREAK k");
    assert_eq!(at.sent()[1..], ["k: free"]);
    at.cmd("CONFIG SET dlock.lock-delay-ms 2000").ok();
    at.int("DLOCK.ACQUIRE k a");
    at.int("DLOCK.BREAK k");
    assert_eq!(at.sent()[1..], ["k: closed for 2000"]);
    at.expect_soon(&["k: free"]);
    at.cmd("CONFIG SET dlock.lock-delay-ms 0").ok();
    let t = at.int("DLOCK.ACQUIRE k a PX 40");
    at.expect_soon(&[format!("k: granted to a token {t} holds 1 lease 40"), "k: free".to_owned()]);
    at.end();
}

#[test]
fn a_repeated_call_is_sent_again_and_changes_nothing() {
    let mut at = Scene::start();
    let t = at.int("DLOCK.ACQUIRE k a REQID r1");
    let once = format!("a token {t} holds 1 lease 30000 ids [r1]");
    at.expect(&[format!("k: granted to {once}")]);
    at.int("DLOCK.ACQUIRE k a REQID r1");
    at.expect(&[format!("k: {once}")]);
    at.int("DLOCK.ACQUIRE k a REQID r2");
    let twice = format!("k: a token {t} holds 2 lease 30000 ids [r1 r2]");
    at.expect(&[&twice]);
    at.int("DLOCK.ACQUIRE k a REQID r1");
    at.expect(&[&twice]);
    assert_eq!(at.int("DLOCK.RELEASE k a REQID r1"), 1);
    let less = format!("k: a token {t} holds 1 lease 30000 ids [r2]");
    at.expect(&[&less]);
    assert_eq!(at.int("DLOCK.RELEASE k a REQID r1"), 1);
    at.expect(&[&less]);
    assert_eq!(at.int("DLOCK.RELEASE k a REQID r2"), 0);
    at.expect(&["k: free"]);
    // Even after its hold has ended.
    assert_eq!(at.int("DLOCK.RELEASE k a REQID r2"), 0);
    at.expect(&["k: free"]);
    at.cmd("DLOCK.ACQUIRE k a REQID r1").error();
    at.expect(&[""; 0]);
    at.end();
}

#[test]
fn a_hand_off_is_one_command() {
    let mut at = Scene::start();
    let holder = |owner: &str, token: i64| {
        format!("k: granted to {owner} token {token} holds 1 lease 30000")
    };
    at.int("DLOCK.ACQUIRE k a");
    at.sent();
    // By release.
    let mut b = at.block("DLOCK.ACQUIRE k b BLOCK 0");
    let mut c = at.block("DLOCK.ACQUIRE k c BLOCK 0 PX 40 REQID r LABEL text NOTIFY news");
    let mut d = at.block("DLOCK.ACQUIRE k d BLOCK 0");
    let mut e = at.block("DLOCK.ACQUIRE k e BLOCK 0");
    let mut f = at.block("DLOCK.ACQUIRE k f BLOCK 0");
    at.expect(&[""; 0]);
    at.int("DLOCK.RELEASE k a");
    let t = b.expect_reply(SOON).int();
    at.expect(&[holder("b", t)]);
    // With all options of the waiter; and by the end of a lease.
    at.int("DLOCK.RELEASE k b");
    let (t, next) = (c.expect_reply(SOON).int(), d.expect_reply(SOON).int());
    let full = format!(
        "k: granted to c token {t} holds 1 lease 40 ids [r] label \"text\" messages to news"
    );
    at.expect(&[full, holder("d", next)]);
    // By BREAK.
    at.int("DLOCK.BREAK k");
    let t = e.expect_reply(SOON).int();
    at.expect(&[holder("e", t)]);
    // By DEL, which is a separate command.
    at.int("DEL k");
    let t = f.expect_reply(SOON).int();
    at.expect(&["DEL k".to_owned(), holder("f", t)]);
    // To a connection that closes before the reply can be sent: granted and taken back.
    let g = at.block("DLOCK.ACQUIRE k g BLOCK 0");
    let kill = args!["CLIENT", "KILL", "ID", g.id()];
    at.client.pipeline(&[args!["DLOCK.RELEASE", "k", "f"], kill]);
    let t = at.server.info_number("dlock", "last_token");
    at.expect_soon(&[holder("g", t), "k: free".to_owned()]);
    at.end();
}

#[test]
fn a_place_sends_nothing_until_its_grant_is_made() {
    let mut at = Scene::start();
    let mut b = at.server.client();
    let queue = ["DLOCK.ACQUIRE", "k", "b", "QUEUE", "7000", "PX", "5000"];
    at.int("DLOCK.ACQUIRE k a");
    at.sent();
    assert!(b.cmd(&queue).is_null());
    at.expect(&[""; 0]);
    at.int("DLOCK.RELEASE k a");
    let t = at.server.info_number("dlock", "last_token");
    let hold = |lease: &str| format!("b token {t} holds 1 lease {lease} messages to its owner");
    at.expect(&[format!("k: granted to {} unclaimed", hold("7000"))]);
    assert!(at.remaining_ms <= 7_000);
    // The next copy takes it over, and extends it.
    b.cmd(&["DLOCK.ACQUIRE", "k", "b", "PX", "9000"]).int();
    at.expect(&[format!("k: {}", hold("9000"))]);
    assert!(at.remaining_ms > 7_000);
    at.int("DLOCK.RELEASE k b");
    at.expect(&["k: free"]);
    // A place that is given up, a grant that is returned, and one that expires.
    at.int("DLOCK.ACQUIRE k a");
    b.cmd(&queue);
    assert!(at.cmd("DLOCK.RELEASE k b").is_null());
    b.cmd(&queue);
    at.int("DLOCK.RELEASE k a");
    assert_eq!(at.int("DLOCK.RELEASE k b"), 0);
    assert_eq!(at.sent()[2..], ["k: free"]);
    at.int("DLOCK.ACQUIRE k a");
    b.cmd(&["DLOCK.ACQUIRE", "k", "b", "QUEUE", "40", "PX", "1"]);
    at.sent();
    at.int("DLOCK.RELEASE k a");
    let t = at.server.info_number("dlock", "last_token");
    at.expect_soon(&[
        format!("k: granted to b token {t} holds 1 lease 40 messages to its owner unclaimed"),
        "k: free".to_owned(),
    ]);
    drop(b);
    at.end();
}

#[test]
fn a_disconnect_replicates_its_changes() {
    let mut at = Scene::start();
    let (mut one, mut two) = (at.server.client(), at.server.client());
    let now = one.cmd(&["DLOCK.ACQUIRE", "now", "a", "BIND", "0"]).int();
    at.expect(&[format!("now: granted to a token {now} holds 1 lease 30000 tied 0")]);
    let later = two.cmd(&["DLOCK.ACQUIRE", "later", "a", "BIND", "20000"]).int();
    let tied = format!("a token {later} holds 1 lease 30000 tied 20000");
    at.expect(&[format!("later: granted to {tied}")]);
    let tied = format!("later: {tied}");
    assert!(at.remaining_ms > 20_000);
    // The binding moves to another connection: the replica only gets the record.
    at.int("DLOCK.RENEW later a BIND 20000");
    two = at.server.client();
    two.cmd(&["DLOCK.RENEW", "later", "a", "BIND", "20000"]).int();
    at.expect(&[&tied, &tied]);
    drop(one);
    at.expect_soon(&["now: free"]);
    drop(two);
    at.expect_soon(&[&tied]);
    assert!(at.remaining_ms <= 20_000, "{} ms", at.remaining_ms);
    at.int("DLOCK.RELEASE later a");
    at.expect(&["later: free"]);
    at.end();
}

#[test]
fn calls_without_a_change_replicate_nothing() {
    let mut at = Scene::start();
    at.cmd("SET text x").ok();
    let t = at.int("DLOCK.ACQUIRE k a REQID r");
    at.sent();
    let waiter = at.block("DLOCK.ACQUIRE k w BLOCK 0");
    for call in [
        "DLOCK.ACQUIRE k b",
        "DLOCK.ACQUIRE k b REQID r",
        "DLOCK.ACQUIRE k b BLOCK 1",
        "DLOCK.ACQUIRE k b QUEUE 1000 BLOCK 1",
        "DLOCK.ACQUIRE k a NOREENTRY",
        "DLOCK.ACQUIRE k a PX 0",
        "DLOCK.ACQUIRE text a",
        "DLOCK.RELEASE k b",
        "DLOCK.RELEASE k a TOKEN 1",
        "DLOCK.RELEASE nothing a",
        "DLOCK.RENEW k b",
        "DLOCK.FENCE k b 1",
        "DLOCK.FENCE k a 9007199254740991",
        "DLOCK.BREAK nothing",
        "DLOCK.BREAK text",
        "DLOCK.RELEASE k b",
        "DLOCK.UNBLOCK 999999",
        "DLOCK.INFO k",
        "DLOCK.WAITERS k",
        "DLOCK.POSITION k w",
        "DLOCK.CHECK k 1",
        "DLOCK.APPLY k payload",
    ] {
        at.cmd(call);
        assert_eq!(at.sent(), [""; 0], "{call}");
    }
    at.int(&format!("DLOCK.CHECK k {t}"));
    at.int(&format!("DLOCK.UNBLOCK {}", waiter.id()));
    let killed = at.block("DLOCK.ACQUIRE k w BLOCK 0");
    at.cmd(&format!("CLIENT KILL ID {}", killed.id())).ok();
    at.server.wait_blocked(0);
    at.expect(&[""; 0]);
    at.int("DLOCK.RELEASE k a");
    at.int("DEL text");
    at.expect(&["k: free", "DEL text"]);
    at.end();
}

#[test]
fn transactions_and_scripts_stay_together_and_databases_apart() {
    let mut at = Scene::start();
    let calls = [
        args!["MULTI"],
        args!["DLOCK.ACQUIRE", "k", "a"],
        args!["DLOCK.ACQUIRE", "k", "b"],
        args!["DLOCK.ACQUIRE", "l", "a"],
        args!["EXEC"],
    ];
    let tokens = at.client.pipeline(&calls)[4].items();
    at.expect(&[
        "MULTI".to_owned(),
        format!("k: granted to a token {} holds 1 lease 30000", tokens[0].int()),
        format!("l: granted to a token {} holds 1 lease 30000", tokens[2].int()),
        "EXEC".to_owned(),
    ]);
    let script = "redis.call('DLOCK.CHECK', KEYS[1], ARGV[1]); redis.call('DLOCK.RELEASE', KEYS[1], 'a'); \
                  return redis.call('DLOCK.RELEASE', KEYS[2], 'a')";
    at.client.cmd(&args!["EVAL", script, 2, "k", "l", tokens[0].int()]).int();
    at.expect(&["MULTI", "k: free", "l: free", "EXEC"]);

    // A lease ends in another database than the last used one.
    at.cmd("SELECT 7").ok();
    at.int("DLOCK.ACQUIRE k a PX 2000");
    at.cmd("SELECT 0").ok();
    at.cmd("SET text x").ok();
    wait_until("the end of the lease", || at.server.keys() == 1);
    at.cmd("DEL text").ok();
    let (mut db, mut seen) = (String::new(), Vec::new());
    for command in at.tap.all_commands(&at.server) {
        match &command[0][..] {
            b"SELECT" => db = in_words(&command[1..]),
            b"PING" | b"REPLCONF" => {}
            name => seen.push(format!("{} in {db}", name.escape_ascii())),
        }
    }
    assert_eq!(seen, ["DLOCK.APPLY in 7", "SET in 0", "DLOCK.APPLY in 7", "DEL in 0"]);
    at.end();
}
