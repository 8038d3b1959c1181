//! The replication of calls for several locks: one transaction for each.

use super::tokens;
use crate::{
    args,
    records::{decode, words as in_words},
    support::{Client, ReplicaTap, Reply, SOON, Server, wait_until, words},
};

/// The lock, the owner and the token that a command of the stream grants.
pub fn grant(command: &[Vec<u8>]) -> Option<(String, String, u64)> {
    let [name, key, payload] = command else { return None };
    let (resource, is_granted) = (name == b"DLOCK.APPLY").then(|| decode(payload))?;
    let text = in_words(&resource);
    let (owner, rest) = text.split_once(" token ").filter(|_| is_granted)?;
    let token = rest.split(' ').next()?.parse().ok()?;
    Some((String::from_utf8_lossy(key).into_owned(), owner.to_owned(), token))
}

/// A short form of a command of the stream: `k1 granted to a`, `k1 a holds 2`, `k1 free`, or unchanged.
fn short(command: &[Vec<u8>]) -> String {
    let [name, key, payload] = command else { return raw(command) };
    if name != b"DLOCK.APPLY" {
        return raw(command);
    }
    let (resource, is_granted) = decode(payload);
    let (key, text) = (key.escape_ascii(), in_words(&resource));
    match text.split_once(" token ") {
        Some((owner, _)) if is_granted => format!("{key} granted to {owner}"),
        Some((owner, rest)) => {
            let holds = rest.split(' ').nth(2).expect("a count");
            format!("{key} {owner} holds {holds}")
        }
        None => format!("{key} {text}"),
    }
}

fn raw(command: &[Vec<u8>]) -> String {
    let words: Vec<_> = command.iter().map(|word| word.escape_ascii().to_string()).collect();
    words.join(" ")
}

struct Scene {
    server: Server,
    client: Client,
    tap: ReplicaTap,
}

impl Scene {
    #[track_caller]
    fn ask(&mut self, call: &str) -> redis::Value {
        self.client.cmd(&words(call))
    }

    /// Fails the test unless exactly this was replicated since the last call; commands between `MULTI` and `EXEC` in
    /// any order. A lock that is free only within a transaction is never shown as free.
    #[track_caller]
    fn expect(&mut self, wanted: &[&str]) {
        let mut sent: Vec<String> =
            self.tap.commands(&self.server).iter().map(|command| short(command)).collect();
        let mut at = 0;
        while let Some(begin) = sent[at..].iter().position(|line| line == "MULTI") {
            let begin = at + begin + 1;
            let end = sent[begin..].iter().position(|line| line == "EXEC");
            let end = begin + end.expect("the end of the transaction");
            let mut inside: Vec<String> = sent.drain(begin..end).collect();
            let granted: Vec<String> = inside
                .iter()
                .filter_map(|line| Some(line.split_once(" granted ")?.0.to_owned()))
                .collect();
            inside.retain(|line| {
                !line.strip_suffix(" free").is_some_and(|key| granted.iter().any(|one| one == key))
            });
            inside.sort();
            at = begin + inside.len();
            sent.splice(begin..begin, inside);
        }
        assert_eq!(sent, wanted);
    }
}

#[test]
fn each_step_is_one_transaction() {
    let server = Server::start();
    let (client, tap) = (server.client(), ReplicaTap::attach(&server));
    let mut at = Scene { server, client, tap };
    tokens(&at.ask("DLOCK.MACQUIRE 3 k3 k1 k2 a"));
    at.expect(&["MULTI", "k1 granted to a", "k2 granted to a", "k3 granted to a", "EXEC"]);
    // A partial re-entry.
    tokens(&at.ask("DLOCK.MACQUIRE 2 k1 k4 a REQID r"));
    at.expect(&["MULTI", "k1 a holds 2", "k4 granted to a", "EXEC"]);
    // A repeat is sent again, for WAIT.
    tokens(&at.ask("DLOCK.MACQUIRE 2 k1 k4 a REQID r"));
    at.expect(&["MULTI", "k1 a holds 2", "k4 a holds 1", "EXEC"]);
    assert_eq!(at.ask("DLOCK.MRENEW 2 k1 k2 a PX 50000").int(), 2);
    at.expect(&["MULTI", "k1 a holds 2", "k2 a holds 1", "EXEC"]);
    assert_eq!(at.ask("DLOCK.MRELEASE 4 k1 k2 other k4 a").int(), 3);
    at.expect(&["MULTI", "k1 a holds 1", "k2 free", "k4 free", "EXEC"]);
    // One lock needs no transaction.
    assert_eq!(at.ask("DLOCK.MRELEASE 2 k1 other a").int(), 1);
    at.expect(&["k1 free"]);
    tokens(&at.ask("DLOCK.MACQUIRE 1 k1 a"));
    at.expect(&["k1 granted to a"]);
    at.ask("DLOCK.ANYACQUIRE 3 k1 k2 k4 a").items();
    at.expect(&["k1 a holds 2"]);
    at.ask("DLOCK.ANYACQUIRE 1 k2 b").items();
    at.expect(&["k2 granted to b"]);
    // k1: a twice, k2: b, k3: a. Calls without a change replicate nothing.
    for call in [
        "DLOCK.MACQUIRE 2 k5 k2 a",
        "DLOCK.MACQUIRE 2 k5 k2 a BLOCK 1",
        "DLOCK.ANYACQUIRE 2 k1 k3 b BLOCK 1",
        "DLOCK.MRELEASE 3 k2 k5 other a",
        "DLOCK.MRENEW 2 k1 k2 a PX 10",
        "DLOCK.MACQUIRE 2 k5 k5 a",
    ] {
        at.ask(call);
        at.expect(&[]);
    }
    at.ask("FLUSHALL").ok();
    at.server.left_over_check();
}

#[test]
fn a_hand_off_of_several_locks_is_one_transaction() {
    let server = Server::start();
    let (client, tap) = (server.client(), ReplicaTap::attach(&server));
    let mut at = Scene { server, client, tap };
    tokens(&at.ask("DLOCK.MACQUIRE 2 k1 k2 h"));
    let block = |at: &Scene, call: &str| at.server.wait(call);
    let mut m = block(&at, "DLOCK.MACQUIRE 3 k1 f k2 m BLOCK 0");
    let mut n = block(&at, "DLOCK.MACQUIRE 2 k2 g n PX 1000 BLOCK 0");
    let mut x = block(&at, "DLOCK.ACQUIRE f x BLOCK 0");
    at.expect(&["MULTI", "k1 granted to h", "k2 granted to h", "EXEC"]);
    at.ask("DLOCK.RELEASE k1 h").int();
    at.expect(&["k1 free"]);
    at.ask("DLOCK.RELEASE k2 h").int();
    tokens(&m.expect_reply(SOON));
    at.expect(&["MULTI", "f granted to m", "k1 granted to m", "k2 granted to m", "EXEC"]);
    at.ask("DLOCK.MRELEASE 3 k1 f k2 m").int();
    tokens(&n.expect_reply(SOON));
    x.expect_reply(SOON).int();
    at.expect(&["MULTI", "f granted to x", "g granted to n", "k1 free", "k2 granted to n", "EXEC"]);
    // By the end of a lease, without a command.
    let mut last = block(&at, "DLOCK.MACQUIRE 2 k2 g last BLOCK 0");
    at.ask("DLOCK.RELEASE k2 n").int();
    at.expect(&["k2 free"]);
    tokens(&last.expect_reply(SOON));
    at.expect(&["MULTI", "g granted to last", "k2 granted to last", "EXEC"]);
    // By DEL, which is a separate command.
    let mut heir = block(&at, "DLOCK.MACQUIRE 2 g f2 heir BLOCK 0");
    at.ask("DEL g").int();
    tokens(&heir.expect_reply(SOON));
    at.expect(&["DEL g", "MULTI", "f2 granted to heir", "g granted to heir", "EXEC"]);
    // To a connection that closes before the reply can be sent: granted and taken back.
    let gone = block(&at, "DLOCK.MACQUIRE 2 g f2 lost BLOCK 0");
    at.client.pipeline(&[
        args!["DLOCK.MRELEASE", 2, "g", "f2", "heir"],
        args!["CLIENT", "KILL", "ID", gone.id()],
    ]);
    wait_until("both to be free", || at.server.cmd(&["EXISTS", "g", "f2"]).int() == 0);
    at.expect(&[
        "MULTI",
        "f2 granted to lost",
        "g granted to lost",
        "EXEC",
        "MULTI",
        "f2 free",
        "g free",
        "EXEC",
    ]);
    at.ask("FLUSHALL").ok();
    at.server.left_over_check();
}

/// In a transaction of the client, and in a script, everything is part of that transaction.
#[test]
fn it_is_part_of_the_clients_transaction() {
    let server = Server::start();
    let (client, tap) = (server.client(), ReplicaTap::attach(&server));
    let mut at = Scene { server, client, tap };
    at.client.pipeline(&[
        args!["MULTI"],
        args!["SET", "text", "x"],
        args!["DLOCK.MACQUIRE", 2, "k1", "k2", "a"],
        args!["EXEC"],
    ]);
    at.expect(&["MULTI", "SET text x", "k1 granted to a", "k2 granted to a", "EXEC"]);
    let script = "redis.call('DLOCK.MRELEASE', 2, 'k1', 'k2', 'a') redis.call('DEL', 'text')";
    at.client.cmd(&args!["EVAL", script, 3, "k1", "k2", "text"]).ok();
    at.expect(&["MULTI", "DEL text", "k1 free", "k2 free", "EXEC"]);
    at.server.left_over_check();
}
