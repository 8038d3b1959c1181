//! Witnesses of what happens at the servers, over connections of their own that meet no fault: the server's messages
//! about ends of holds, and the commands of an operator.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use dlock_testing::{Client, Dice, Heard, Reply as _, redis::Value};

use super::book::{End, Ledger};

/// How long a server that is up may take to reply.
const REPLY: Duration = Duration::from_secs(5);

/// One command; None if the server is away, or has closed the connection.
fn ask(client: &mut Client, words: &[&str]) -> Option<Value> {
    let Heard::Reply(reply) = client.try_send(words).then(|| client.hear(REPLY))? else {
        return None;
    };
    Some(reply)
}

/// Listens to the messages of one server until it is dropped.
#[derive(Debug)]
pub struct Witness {
    /// While true, the server is a former primary that does not know it yet: what it says does not count.
    pub is_muted: Arc<AtomicBool>,
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Witness {
    pub fn new(socket: PathBuf, ledger: Arc<Ledger>) -> Witness {
        let is_muted = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = mpsc::channel();
        let muted = is_muted.clone();
        let thread = std::thread::spawn(move || {
            // A failover closes the connection.
            while stopped.recv_timeout(Duration::from_millis(2))
                == Err(mpsc::RecvTimeoutError::Timeout)
            {
                listen(&socket, &ledger, &muted, &stopped);
            }
        });
        Witness { is_muted, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let died = thread.join().is_err();
            assert!(!died || std::thread::panicking(), "a witness failed");
        }
    }
}

/// Listens until the connection is closed; returns at once if the server is away.
fn listen(
    socket: &Path,
    ledger: &Ledger,
    is_muted: &AtomicBool,
    stopped: &mpsc::Receiver<()>,
) -> Option<()> {
    let mut client = Client::connect(socket, REPLY).ok()?;
    ask(&mut client, &["PSUBSCRIBE", "dlock:notify:*"])?;
    while stopped.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
        match client.hear(Duration::from_millis(50)) {
            Heard::Reply(message) if !is_muted.load(Ordering::SeqCst) => {
                // ["pmessage", pattern, channel, text]
                let end = message.items().last().and_then(|text| end_of(&text.bytes(), ledger));
                if let Some(end) = end {
                    ledger.write_end(end);
                }
            }
            Heard::Reply(_) | Heard::Nothing => {}
            Heard::Closed => return None,
        }
    }
    None
}

/// The end of a hold that a message reports: `event db id owner-length owner reqid-length reqid key`.
fn end_of(text: &[u8], ledger: &Ledger) -> Option<End> {
    let word = |rest: &mut &[u8]| {
        let space = rest.iter().position(|&byte| byte == b' ')?;
        let word = String::from_utf8(rest[..space].to_vec()).ok();
        *rest = &rest[space + 1..];
        word
    };
    let mut rest = text;
    let how = word(&mut rest).filter(|how| !["granted", "offered"].contains(&&**how))?;
    word(&mut rest)?;
    let token = word(&mut rest)?.parse().ok()?;
    for _ in 0..2 {
        let len: usize = word(&mut rest)?.parse().ok()?;
        rest = rest.get(len + 1..)?;
    }
    let key = String::from_utf8(rest.to_vec()).ok()?;
    let is_forced = !["expired", "disconnected"].contains(&&*how);
    let now = ledger.now();
    // Of a forced end, the operator knows the moment before.
    Some(End { key, token, after: now, before: now, is_forced, how })
}

/// An operator that ends holds: BREAK and DEL of one key, and FLUSHALL. It reads the holders in the same transaction.
#[derive(Debug)]
pub struct Operator {
    keys: Vec<String>,
    ledger: Arc<Ledger>,
}

/// The socket of the present primary. A failover holds the lock of it.
pub type Primary = Arc<RwLock<PathBuf>>;

impl Operator {
    pub fn new(keys: Vec<String>, ledger: Arc<Ledger>) -> Operator {
        Operator { keys, ledger }
    }

    /// Ends some holds; None if the server is away. Waits until the replicas have it, so that no failover undoes it.
    pub fn strike(&self, primary: &Primary, replicas: u32, dice: &mut Dice) -> Option<()> {
        let socket = primary.read().unwrap_or_else(PoisonError::into_inner);
        let client = &mut Client::connect(&socket, REPLY).ok()?;
        let flush = dice.one_in(12);
        let one = dice.index(self.keys.len());
        let keys = if flush { &self.keys[..] } else { &self.keys[one..=one] };
        ask(client, &["MULTI"])?;
        for key in keys {
            ask(client, &[&format!("{}.INFO", family(key)), key])?;
        }
        let verb = match (flush, dice.one_in(2)) {
            (true, _) => "FLUSHALL".to_owned(),
            (false, true) => "DEL".to_owned(),
            (false, false) => format!("{}.BREAK", family(&keys[0])),
        };
        let words = [&*verb, &*keys[0]];
        ask(client, &words[..if flush { 1 } else { 2 }])?;
        let after = self.ledger.now();
        let infos = ask(client, &["EXEC"])?;
        let before = self.ledger.now();
        if replicas > 0 {
            let confirmed = ask(client, &["WAIT", &replicas.to_string(), "4000"])?;
            assert!(confirmed.int() >= i64::from(replicas), "the failover waits for its replica");
        }
        for (key, info) in keys.iter().zip(infos.items()) {
            if let Some(token) = token_of(&info) {
                let (key, how) = (key.clone(), verb.clone());
                self.ledger.write_end(End { key, token, after, before, is_forced: true, how });
            }
        }
        Some(())
    }
}

/// The token of the hold that INFO shows, if there is one.
fn token_of(info: &Value) -> Option<u64> {
    if info.is_null() || matches!(info, Value::ServerError(_)) {
        return None;
    }
    match info.pairs().into_iter().find(|(name, _)| name == "token")?.1 {
        // 0: none; a waiter has reserved the free lock.
        Value::Int(token) => u64::try_from(token).ok().filter(|token| *token > 0),
        _ => None,
    }
}

/// The family of a key, by its name.
pub fn family(key: &str) -> &'static str {
    if key.starts_with("fair") { "DFAIR" } else { "DLOCK" }
}
