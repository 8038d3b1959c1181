//! What operators do to a slot, and the moment at which its node loses it.

use std::{
    io::Write as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use dlock_testing::{Dice, LIMIT, Nodes, Reply as _, Server};
use redis::Value;

use crate::{SLOT, TAG};

/// The channel of marks: each is published on the node that loses the slot.
pub const MARKS: &str = "marks";

/// What `--cluster fix` asks for if a key is on two nodes.
const REPLACE: &str = "--cluster-replace";

/// A kind of episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `redis-cli --cluster reshard`.
    Reshard,
    /// DELSLOTS everywhere, ADDSLOTS at another node: the keys stay behind.
    Repair,
    /// SETSLOT NODE at another node, without or in the middle of a migration: the former owner deletes its keys.
    Force,
    /// `redis-cli --cluster fix` of a migration that was interrupted, or of a slot without a node.
    Fix,
    /// FORGET of the node that has the slot, which another node takes over.
    Forget,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Reshard, Kind::Repair, Kind::Force, Kind::Fix, Kind::Forget];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Reshard => "reshard",
            Kind::Repair => "repair",
            Kind::Force => "force",
            Kind::Fix => "fix",
            Kind::Forget => "forget",
        }
    }
}

/// When the source did not serve the slot. The source's clock makes its tokens, too.
#[derive(Debug, Default)]
pub struct Loss {
    /// Published right after the loss.
    pub mark: String,
    /// The wall clock in microseconds right after the loss.
    from: i64,
    /// Right before the source got the slot back, if it did; the mark is `served`.
    to: Option<i64>,
    /// Keys stay behind or are deleted.
    pub loses_keys: bool,
}

impl Loss {
    /// Whether a token was made in this time.
    pub fn covers(&self, token: i64) -> bool {
        token > self.from && self.to.is_none_or(|to| token < to)
    }
}

/// One fault.
#[derive(Debug)]
pub struct Fault<'a> {
    pub nodes: &'a Nodes,
    pub kind: Kind,
    pub source: usize,
    pub target: usize,
    pub dice: Dice,
}

impl Fault<'_> {
    fn source(&self) -> &Server {
        &self.nodes.all()[self.source]
    }

    fn target(&self) -> &Server {
        &self.nodes.all()[self.target]
    }

    /// All nodes but the source.
    fn others(&self) -> impl Iterator<Item = &Server> {
        let source = self.source().port();
        self.nodes.all().iter().filter(move |node| node.port() != source)
    }

    /// Does it; returns when the source has lost the slot.
    pub fn strike(&mut self) -> Loss {
        match self.kind {
            Kind::Reshard => self.reshard(),
            Kind::Repair => {
                let loss = self.drop_slot();
                thread::sleep(self.dice.millis(300));
                self.target().cmd(&["CLUSTER", "ADDSLOTS", SLOT]).ok();
                self.target().cmd(&["CLUSTER", "BUMPEPOCH"]).ok();
                Loss { loses_keys: true, ..loss }
            }
            Kind::Force => {
                if self.dice.one_in(2) {
                    self.begin_move();
                }
                let id = self.target().node_id();
                for node in self.others() {
                    node.cmd(&["CLUSTER", "SETSLOT", SLOT, "NODE", &id]).ok();
                }
                self.target().cmd(&["CLUSTER", "BUMPEPOCH"]).ok();
                Loss { loses_keys: true, ..self.until_lost() }
            }
            Kind::Fix if self.dice.one_in(2) => {
                self.begin_move();
                thread::sleep(self.dice.millis(400));
                self.assert_apart();
                let fix = finish(self.cli("fix", &[]), REPLACE);
                if fix.contains(REPLACE) {
                    finish(self.cli("fix", &[REPLACE]), "");
                }
                // It may make the target the owner while the source has keys and imports them: both serve the slot.
                let loses_keys = fix.contains("No single clear owner");
                Loss { loses_keys, ..self.until_lost() }
            }
            Kind::Fix => {
                let mut loss = self.drop_slot();
                thread::sleep(Duration::from_millis(700) + self.dice.millis(700));
                loss.to = Some(self.mark(&["PING"], "served").1);
                finish(self.cli("fix", &[]), "");
                loss
            }
            Kind::Forget => {
                let id = self.source().node_id();
                for node in self.others() {
                    node.cmd(&["CLUSTER", "FORGET", &id]).ok();
                }
                thread::sleep(self.dice.millis(300));
                self.target().cmd(&["CLUSTER", "ADDSLOTS", SLOT]).ok();
                self.target().cmd(&["CLUSTER", "BUMPEPOCH"]).ok();
                Loss { loses_keys: true, ..self.until_lost() }
            }
        }
    }

    /// Makes the cluster whole again: all nodes know each other and agree on the slot.
    pub fn tidy_up(&self) {
        if self.kind == Kind::Forget {
            // Newer servers let no forgotten node back for a minute; a node that was reset has a new id.
            self.source().cmd(&["FLUSHALL"]).ok();
            self.source().cmd(&["CLUSTER", "RESET", "HARD"]).ok();
            self.others().for_each(|node| node.meet(self.source()));
        }
        for node in self.nodes.all() {
            node.cmd(&["CLUSTER", "SETSLOT", SLOT, "STABLE"]).ok();
            node.cmd(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).ok();
        }
        self.nodes.wait_whole();
        self.nodes.wait_settled();
    }

    fn reshard(&self) -> Loss {
        let (from, to) = (self.source().node_id(), self.target().node_id());
        let options = ["--cluster-from", &from, "--cluster-to", &to, "--cluster-slots", "1"];
        let reshard = self.cli("reshard", &options);
        let loss = self.until_lost();
        finish(reshard, "");
        loss
    }

    /// The first part of a migration: some keys have moved.
    fn begin_move(&self) {
        self.source().begin_slot_move(0, self.target());
        let port = self.target().port().to_string();
        for key in self.source().cmd(&["CLUSTER", "GETKEYSINSLOT", SLOT, "3"]).items() {
            self.source().cmd(&["MIGRATE", "127.0.0.1", &port, &key.text(), "0", "20000"]).ok();
        }
    }

    /// No key is on both nodes. The target comes first: while a slot migrates, no key comes to be at the source.
    fn assert_apart(&self) {
        let [there, here] = [self.target(), self.source()]
            .map(|node| node.cmd(&["CLUSTER", "GETKEYSINSLOT", SLOT, "100"]).items());
        assert!(there.iter().all(|key| !here.contains(key)), "twins: {here:?} {there:?}");
    }

    /// DELSLOTS everywhere, first at the source.
    fn drop_slot(&self) -> Loss {
        let (_, from) = self.mark(&["CLUSTER", "DELSLOTS", SLOT], "lost");
        for node in self.others() {
            node.cmd(&["CLUSTER", "DELSLOTS", SLOT]);
        }
        Loss { mark: "lost".to_owned(), from, ..Loss::default() }
    }

    /// Waits until the source refuses calls for the slot, also those for a slot that it imports.
    fn until_lost(&self) -> Loss {
        let start = Instant::now();
        for n in 0.. {
            let mark = n.to_string();
            let (reply, from) = self.mark(&["GET", TAG], &mark);
            let is_error = matches!(reply, Value::ServerError(_));
            if is_error
                && ["MOVED ", "CLUSTERDOWN Hash"].iter().any(|code| reply.error().starts_with(code))
            {
                return Loss { mark, from, ..Loss::default() };
            }
            assert!(start.elapsed() < LIMIT, "{:?}: the slot stays: {}", self.kind, reply.show());
            thread::sleep(Duration::from_millis(1));
        }
        unreachable!("the loop has no end")
    }

    /// Makes a call to the source, and then publishes a mark there, in one write; with the time between the two.
    fn mark(&self, call: &[&str], mark: &str) -> (Value, i64) {
        let calls = [vec!["ASKING"], call.to_vec(), vec!["TIME"], vec!["PUBLISH", MARKS, mark]];
        let replies = &self.source().client().pipeline(&calls)[1..];
        let time: Vec<i64> =
            replies[1].items().iter().map(|part| part.text().parse().expect("a number")).collect();
        (replies[0].clone(), time[0] * 1_000_000 + time[1])
    }

    /// Starts `redis-cli --cluster`, which asks any node but the source.
    fn cli(&self, verb: &str, options: &[&str]) -> Child {
        let address = format!("127.0.0.1:{}", self.target().port());
        let mut child = Command::new("redis-cli")
            .args(["--cluster", verb, &address, "--cluster-yes"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("redis-cli is on the PATH");
        // It asks before it gives a node to a slot.
        child.stdin.take().expect("a pipe").write_all(b"yes\nyes\n").expect("a pipe");
        child
    }
}

/// Waits for `redis-cli`; it must succeed, or ask for this option. Returns what it wrote.
fn finish(child: Child, option: &str) -> String {
    let output = child.wait_with_output().expect("its output");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let asks = !option.is_empty() && text.contains(option);
    assert!(output.status.success() || asks, "redis-cli: {}: {text}", output.status);
    text
}
