//! The connections, and their calls in progress.

use std::{
    collections::{BTreeMap, VecDeque},
    path::PathBuf,
    rc::Rc,
    time::{Duration, Instant},
};

use dlock_testing::{Dice, Reply as _, redis::Value};

use super::{
    call::Call,
    generate::{self, Scene, Seat},
    oracle::{ConnId, Oracle, Times, Violation},
    pipe::{Event, Pipe},
};

/// Allowed delay of a reply after the BLOCK time on a busy machine.
const MARGIN: Duration = Duration::from_secs(6);
/// Maximum time of a call without BLOCK, including pauses and restarts.
const AT_ONCE: Duration = Duration::from_secs(12);
/// Maximum pipeline of a busy connection.
const PIPELINE: usize = 32;
/// Number of DUMP payloads and requests kept for later.
const KEPT: usize = 60;

/// One connection and its state.
#[derive(Debug)]
pub struct Actor {
    /// Unique number of the connection; new after each reconnect.
    pub conn: ConnId,
    /// The connection.
    pub pipe: Pipe,
    /// Number of the server.
    pub node: usize,
    /// Knowledge of the connection.
    pub seat: Seat,
}

/// Memory of a closed connection.
#[derive(Debug)]
pub struct Memory {
    /// Its number.
    pub no: u16,
    /// Its database.
    pub db: u8,
    /// Its calls and their replies.
    pub events: VecDeque<Event>,
}

/// Addresses of the servers.
#[derive(Debug, Clone)]
pub struct Doors {
    /// The socket of each node.
    pub sockets: Vec<PathBuf>,
}

/// All connections.
#[derive(Debug)]
pub struct Crowd {
    /// The connections.
    pub actors: Vec<Actor>,
    /// Knowledge about holds.
    pub oracle: Oracle,
    /// Shared state.
    pub scene: Scene,
    /// Number of answered calls.
    pub calls: u64,
    /// Error replies by code.
    pub errors: BTreeMap<String, u64>,
    /// Number of closed connections.
    pub cuts: u64,
    /// Memories of permanently closed connections.
    pub past: Vec<Memory>,
    doors: Doors,
    next_conn: ConnId,
}

impl Crowd {
    /// Without connections.
    pub fn new(doors: Doors, scene: Scene) -> Crowd {
        Crowd {
            actors: Vec::new(),
            oracle: Oracle::default(),
            scene,
            calls: 0,
            errors: BTreeMap::new(),
            cuts: 0,
            past: Vec::new(),
            doors,
            next_conn: 0,
        }
    }

    /// Opens another connection.
    pub fn join(&mut self, node: usize, seat: Seat) -> Result<(), Violation> {
        let pipe = self.open(node, seat.db, VecDeque::new())?;
        self.next_conn += 1;
        self.actors.push(Actor { conn: self.next_conn, pipe, node, seat });
        Ok(())
    }

    /// Starts the next group of bursts, without the state of the last one.
    pub fn begin(&mut self, doors: Doors, scene: Scene) {
        self.actors.clear();
        self.past.clear();
        self.doors = doors;
        self.scene = scene;
    }

    fn open(&self, node: usize, db: u8, history: VecDeque<Event>) -> Result<Pipe, Violation> {
        Pipe::open(&self.doors.sockets[node], db, history)
            .map_err(|error| Violation::new(format!("server {node} takes no connection: {error}")))
    }

    /// Lets connections send calls.
    pub fn feed(&mut self, dice: &mut Dice) {
        for _ in 0..8 {
            let n = dice.index(self.actors.len());
            let actor = &mut self.actors[n];
            let room = if actor.seat.waits { 1 } else { PIPELINE };
            let room = room - actor.pipe.pending.len().min(room);
            if room == 0 {
                continue;
            }
            for _ in 0..=dice.index(room.min(12)) {
                self.send(n, dice);
            }
            self.actors[n].pipe.flush();
        }
    }

    fn send(&mut self, n: usize, dice: &mut Dice) {
        let actor = &mut self.actors[n];
        let call = generate::next(&mut self.scene, &mut actor.seat, dice);
        self.post(n, Rc::new(call));
    }

    /// Sends this call.
    pub fn post(&mut self, n: usize, call: Rc<Call>) {
        let now = Instant::now();
        let actor = &mut self.actors[n];
        self.oracle.sent(&call, actor.conn, now);
        if call.repeatable {
            keep(&mut self.scene.repeatable, (call.clone(), actor.seat.db));
        }
        actor.pipe.send(call, now);
    }

    /// Reads available replies.
    pub fn pump(&mut self) -> Result<(), Violation> {
        let (mut answers, mut asked) = (Vec::new(), Vec::new());
        for n in 0..self.actors.len() {
            let actor = &mut self.actors[n];
            let conn = actor.conn;
            actor.pipe.answers(&mut answers).map_err(Violation::new)?;
            for answer in answers.drain(..) {
                self.calls += 1;
                self.look_at(&answer.call, &answer.reply)?;
                if is_ask(&answer.reply) {
                    asked.push((self.actors[n].node, answer.call.clone()));
                }
                let times = Times { conn, sent: answer.sent, now: Instant::now() };
                self.oracle.answered(&answer.call.meaning, times, &answer.reply)?;
                self.oracle.released(&answer.call, times, &answer.reply)?;
                self.actors[n].seat.learn(&answer.call.meaning, &answer.reply);
            }
            if self.actors[n].pipe.is_closed {
                self.reconnect(n)?;
            }
        }
        for (node, call) in asked {
            self.ask_there(node, &call);
        }
        self.overdue()
    }

    /// Sends a call to the target of a migrating slot, as a client does after ASK.
    fn ask_there(&mut self, node: usize, call: &Call) {
        let may_send = |actor: &Actor| {
            if actor.seat.waits { actor.pipe.pending.is_empty() } else { call.is_brief() }
        };
        let elsewhere = |actor: &Actor| actor.node != node && may_send(actor);
        let Some(n) = self.actors.iter().position(elsewhere) else { return };
        let [frame] = &call.frames[..] else { return };
        let frames = vec![vec![b"ASKING".to_vec()], frame.clone()];
        self.post(n, Rc::new(Call { frames, ..call.clone() }));
    }

    fn look_at(&mut self, call: &Call, reply: &Value) -> Result<(), Violation> {
        match reply {
            Value::ServerError(_) => {
                let text = reply.error();
                if text.contains("internal error") || text.contains("panic") {
                    return Err(Violation::new(format!("{} was answered {text}", call.show())));
                }
                let code = text.split(' ').take(if text.starts_with("ERR") { 4 } else { 1 });
                let code = code.collect::<Vec<_>>().join(" ");
                *self.errors.entry(code).or_default() += 1;
            }
            Value::Int(1..) if call.frames[0][0] == b"DLOCK.TRUST" => {
                return Err(Violation::new("a server was diverged".to_owned()));
            }
            Value::BulkString(payload) if call.frames[0][0] == b"DUMP" => {
                keep(&mut self.scene.dumps, payload.clone());
            }
            _ => {}
        }
        Ok(())
    }

    /// The calls that should have been answered long ago.
    fn overdue(&self) -> Result<(), Violation> {
        let now = Instant::now();
        for actor in &self.actors {
            let Some(first) = actor.pipe.pending.front() else { continue };
            let waited = now - first.sent.max(actor.pipe.last_reply);
            let most = match first.call.block {
                None => AT_ONCE,
                Some(Duration::ZERO) => continue,
                Some(block) => block + MARGIN,
            };
            if waited > most {
                let text = format!("no answer after {waited:?} to: {}", first.call.show());
                let key = first.call.waits.as_ref().map(|waits| waits.keys[0]);
                return Err(Violation { key, text });
            }
        }
        Ok(())
    }

    /// The client closes a connection, and opens another.
    pub fn cut(&mut self, n: usize) -> Result<(), Violation> {
        self.cuts += 1;
        self.oracle.doomed(self.actors[n].conn);
        self.reconnect(n)
    }

    /// Closes the rest of a connection and opens another one.
    pub fn reconnect(&mut self, n: usize) -> Result<(), Violation> {
        self.oracle.doomed(self.actors[n].conn);
        self.next_conn += 1;
        let (node, db) = (self.actors[n].node, self.actors[n].seat.db);
        let history = std::mem::take(&mut self.actors[n].pipe.history);
        let pipe = self.open(node, db, history)?;
        let actor = &mut self.actors[n];
        actor.conn = self.next_conn;
        actor.pipe = pipe;
        Ok(())
    }

    /// Moves a connection to another server.
    pub fn move_to(&mut self, n: usize, node: usize) -> Result<(), Violation> {
        self.actors[n].node = node;
        self.reconnect(n)
    }

    /// Moves all connections to another server, once they have read all replies of the old one.
    pub fn move_all(&mut self, node: usize) -> Result<(), Violation> {
        self.pump()?;
        (0..self.actors.len()).try_for_each(|n| {
            if self.actors[n].node == node { Ok(()) } else { self.move_to(n, node) }
        })
    }

    /// Reads for some time, without sending.
    pub fn pump_for(&mut self, time: Duration) -> Result<(), Violation> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.pump()?;
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Reads until only blocked calls of waiting connections are left.
    pub fn calm_down(&mut self) -> Result<(), Violation> {
        let start = Instant::now();
        loop {
            self.pump()?;
            let is_calm = |actor: &Actor| match actor.pipe.pending.front() {
                None => true,
                Some(first) => actor.seat.waits && first.call.block.is_some(),
            };
            let is_old = start.elapsed() > Duration::from_millis(60);
            let Some(busy) = self.actors.iter().find(|actor| !is_calm(actor)) else {
                if is_old {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_micros(300));
                continue;
            };
            if start.elapsed() > AT_ONCE + MARGIN
                && let Some(first) = busy.pipe.pending.front()
            {
                let text =
                    format!("after {:?} still no answer to {}", start.elapsed(), first.call.show());
                return Err(Violation::new(text));
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

fn is_ask(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(_)) && reply.error().starts_with("ASK ")
}

fn keep<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() == KEPT {
        list.pop_front();
    }
    list.push_back(item);
}

impl Crowd {
    /// Sends ECHO over each connection: no reply was lost or duplicated.
    pub fn echo(&mut self) -> Result<(), Violation> {
        for n in 0..self.actors.len() {
            let word = format!("echo {n}");
            self.post(n, Rc::new(Call::plain(&["ECHO", &*word])));
        }
        let start = Instant::now();
        while self.actors.iter().any(|actor| !actor.pipe.pending.is_empty()) {
            self.pump()?;
            if start.elapsed() > AT_ONCE {
                return Err(Violation::new("ECHO is not answered".to_owned()));
            }
        }
        for (n, actor) in self.actors.iter().enumerate() {
            let last = actor.pipe.history.back().and_then(|event| event.reply.clone());
            if last != Some(Value::BulkString(format!("echo {n}").into_bytes())) {
                let text = format!(
                    "the replies of connection {} are out of step: {last:?}",
                    actor.pipe.client_id
                );
                return Err(Violation::new(text));
            }
        }
        Ok(())
    }

    /// Closes every connection.
    pub fn close(&mut self) {
        let memory = |actor: Actor| Memory {
            no: actor.seat.no,
            db: actor.seat.db,
            events: actor.pipe.history,
        };
        self.past = self.actors.drain(..).map(memory).collect();
        self.scene.repeatable.clear();
        self.scene.asked.clear();
    }
}
