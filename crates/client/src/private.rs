//! Calls that block their connection, each on one of its own.

use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::ErrorCode;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};

use crate::acquire::Patience;
use crate::channel::Draft;
use crate::core::Core;
use crate::error::{Error, ErrorKind};
use crate::link::Shard;
use crate::route::Server;

/// However short a wait is: connecting is given so long.
const LEAST: Duration = Duration::from_millis(250);
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How long one call blocks that would lose its place by asking again.
pub(crate) const LONG: Duration = Duration::from_hours(24);
/// How long one call blocks that loses nothing by asking again.
pub(crate) const SHORT: Duration = Duration::from_mins(1);

/// A private connection to the server that has a key, for one call.
///
/// Dropping it in the middle of a call closes the connection, and with it ends what the server does for that call.
pub(crate) struct Private {
    core: Arc<Core>,
    server: Arc<Server>,
    connection: MultiplexedConnection,
    /// Of the shared connection to the same server: when that is replaced, this one may be dead without knowing.
    generation: u64,
    /// That of the shared connection, over which messages come.
    shard: Option<Arc<Shard>>,
    channel: Option<Arc<[u8]>>,
}

/// A place in the limit of private connections to one server. Whoever waits keeps it from call to call, so that it is
/// not told in the middle that there is none left.
#[derive(Default)]
pub(crate) struct Seat(Option<(Arc<Server>, OwnedSemaphorePermit)>);

impl Seat {
    fn at(&mut self, core: &Core, server: &Arc<Server>) -> Result<(), Error> {
        if self.0.as_ref().is_some_and(|(at, _)| Arc::ptr_eq(at, server)) {
            return Ok(());
        }
        let Ok(place) = server.blockable.clone().try_acquire_owned() else {
            let most = core.settings.private_connections;
            return Err(Error::new(
                ErrorKind::Busy,
                format!("all {most} private connections to {} are in use", server.name),
            ));
        };
        self.0 = Some((server.clone(), place));
        Ok(())
    }
}

/// Keeps count of failures in a row, so that a call ends with an error and does not try for ever.
pub(crate) struct Tries {
    patience: Patience,
    give_up: Option<Instant>,
    pause: Duration,
    /// An earlier try failed, and nobody knows what it did.
    failed: bool,
}

impl Tries {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, give_up: None, pause: PAUSE_MIN, failed: false }
    }

    /// The server answered.
    pub(crate) fn answered(&mut self) {
        self.give_up = None;
        self.pause = PAUSE_MIN;
    }

    /// Ok: the call is to be tried again, after a pause that has passed.
    pub(crate) async fn after(&mut self, error: Error, core: &Core) -> Result<(), Error> {
        let passing = error.kind() == ErrorKind::Unavailable;
        let give_up = *self.give_up.get_or_insert_with(|| match self.patience {
            Patience::Until(end) => end.min(core.patience()),
            Patience::None | Patience::Forever => core.patience(),
        });
        if !passing || Instant::now() + self.pause >= give_up {
            return Err(if self.failed { error.after_another_try() } else { error });
        }
        self.failed = true;
        tokio::time::sleep(self.pause.mul_f64(0.5 + crate::random::fraction())).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let _ = core.routes.refresh(give_up).await;
        Ok(())
    }
}

impl Private {
    /// One for these requests to the server that has `key`. Error Busy: the limit of the client is reached.
    pub(crate) async fn open(
        core: &Arc<Core>,
        key: &[u8],
        patience: Patience,
        seat: &mut Seat,
        drafts: &[Draft<'_>],
    ) -> Result<Self, Error> {
        let until = patience.end_within(core.settings.connect_timeout);
        let until = until.max(Instant::now() + LEAST);
        let Some(server) = core.routes.server_of(key) else {
            core.routes.refresh(until).await?;
            return Err(Error::unavailable("no server has the slot of the key"));
        };
        seat.at(core, &server)?;
        let live = server.link.live(until).await?;
        let connection = server.pool.take(&live, until).await?;
        let channel = if drafts.iter().any(Draft::is_notified) {
            core.routes.channel(&server, &live, key, until).await?
        } else {
            None
        };
        let (generation, shard) = (live.generation, live.shard().cloned());
        Ok(Self { core: core.clone(), server, connection, generation, shard, channel })
    }

    /// Sends these in one go. A reply that takes longer than `block_ms` (None: as long as it likes) and the time for
    /// an answer is an error, and so is a server that was lost meanwhile.
    pub(crate) async fn ask(
        mut self,
        drafts: &[Draft<'_>],
        block_ms: Option<u64>,
    ) -> Result<Vec<Value>, Error> {
        let mut replies = self.send(drafts, block_ms).await?;
        if let (Some(shard), true) = (self.shard.clone(), self.channel.is_some()) {
            let is_refused = |replies: &[Value]| {
                replies.first().is_some_and(|reply| is_error(reply, ErrorCode::Err))
            };
            if !is_refused(&replies) {
                shard.snotify_is_known();
            } else if shard.may_not_know_snotify() {
                // It may be that the server does not know SNOTIFY.
                self.channel = None;
                replies = self.send(drafts, block_ms).await?;
                if !is_refused(&replies) {
                    shard.snotify_is_unknown();
                }
            }
        }
        match redirect(&replies) {
            Some(_) if !self.core.routes.is_cluster() => match one(Ok(replies)) {
                Err(error) => Err(error.of_a_cluster()),
                Ok(reply) => Err(Error::protocol(&reply)),
            },
            Some((true, host, port)) => self.ask_there(&host, port, drafts, block_ms).await,
            // MOVED: the next try learns who has which slots.
            Some((false, ..)) => Ok(replies),
            None => {
                if replies.iter().any(|reply| is_error(reply, ErrorCode::Unblocked))
                    && !self.is_alive().await
                {
                    self.server.pool.clear();
                    return Err(Error::unavailable("the server became a replica"));
                }
                if replies.iter().any(|reply| is_error(reply, ErrorCode::ReadOnly)) {
                    self.server.link.report_read_only(self.generation);
                    self.server.pool.clear();
                } else {
                    self.server.pool.give_back(self.generation, self.connection);
                }
                Ok(replies)
            }
        }
    }

    async fn send(
        &mut self,
        drafts: &[Draft<'_>],
        block_ms: Option<u64>,
    ) -> Result<Vec<Value>, Error> {
        let channel = self.core.registry.channels.or_plain(self.channel.as_deref());
        let mut pipeline = redis::pipe();
        for draft in drafts {
            pipeline.add_command(draft.command(channel).into_owned());
        }
        let answer = self.connection.send_packed_commands(&pipeline, 0, drafts.len());
        let answer = answered(&self.core, &self.server, self.generation, block_ms, answer).await;
        // What became of this connection became of those at rest, too.
        answer.inspect_err(|_| self.server.pool.clear())
    }

    /// Whether the connection is still open. A server that becomes a replica says `UNBLOCKED` as an operator does, and then
    /// closes the connection.
    async fn is_alive(&mut self) -> bool {
        let ping = redis::cmd("PING");
        let answer = self.connection.send_packed_command(&ping);
        matches!(timeout(self.core.settings.response_timeout, answer).await, Ok(Ok(_)))
    }

    /// The slot is on its way: asks where it goes to.
    async fn ask_there(
        &self,
        host: &str,
        port: u16,
        drafts: &[Draft<'_>],
        block_ms: Option<u64>,
    ) -> Result<Vec<Value>, Error> {
        let Some(to) = self.core.routes.redirected(host, port, &self.server) else {
            return Err(Error::unavailable(
                "the slot of the key is on its way to an unknown server",
            ));
        };
        let until = Instant::now() + self.core.settings.connect_timeout;
        let live = to.link.live(until).await?;
        let mut connection = to.pool.take(&live, until).await?;
        let mut asking = redis::pipe();
        asking.cmd("ASKING");
        let channel = live.settled_channel();
        for draft in drafts {
            let cmd = draft.command(self.core.registry.channels.or_plain(channel.as_deref()));
            asking.add_command(cmd.into_owned());
        }
        let answer = connection.send_packed_commands(&asking, 0, drafts.len() + 1);
        let mut replies = answered(&self.core, &to, live.generation, block_ms, answer).await?;
        replies.remove(0);
        to.pool.give_back(live.generation, connection);
        Ok(replies)
    }
}

/// The answer of a private connection. An error if it takes longer than it may block and the time for an answer, or if
/// the shared connection to the same server is lost: then this one may be dead without knowing.
async fn answered(
    core: &Core,
    server: &Server,
    generation: u64,
    block_ms: Option<u64>,
    answer: impl Future<Output = redis::RedisResult<Vec<Value>>>,
) -> Result<Vec<Value>, Error> {
    let limit = async {
        match block_ms {
            Some(ms) => {
                let most = core.settings.response_timeout;
                tokio::time::sleep(Duration::from_millis(ms).saturating_add(most)).await;
            }
            None => std::future::pending().await,
        }
    };
    let _blocked = core.registry.blocked();
    tokio::select! {
        replies = answer => Ok(replies?),
        () = limit => Err(Error::unavailable("no answer in time")),
        () = server.link.left(generation) => {
            Err(Error::unavailable("the connection to the server is lost"))
        }
    }
}

/// Whether it is ASK (or MOVED), and where to.
fn redirect(replies: &[Value]) -> Option<(bool, String, u16)> {
    let Value::ServerError(error) = replies.first()? else { return None };
    let error = redis::RedisError::from(error.clone());
    let (host, port) = crate::core::redirect(&error)?;
    Some((error.code() == Some("ASK"), host, port))
}

fn is_error(reply: &Value, code: ErrorCode) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == code.as_str())
}

/// The only reply.
pub(crate) fn one(replies: Result<Vec<Value>, Error>) -> Result<Value, Error> {
    let reply = replies?.into_iter().next().unwrap_or(Value::Nil);
    Ok(reply.extract_error()?)
}

/// The first reply, and what came of the second.
pub(crate) fn two(
    replies: Result<Vec<Value>, Error>,
) -> Result<(Value, Result<Value, Error>), Error> {
    let mut replies = replies?.into_iter();
    let first = replies.next().unwrap_or(Value::Nil).extract_error()?;
    let second = replies.next().unwrap_or(Value::Nil).extract_error().map_err(Error::from);
    Ok((first, second))
}

/// Asks over private connections until there is an answer that is not Nil, or the patience is over (then it is Nil).
/// `request` makes the command from the milliseconds that it may block, `slice_of` of them at most.
pub(crate) async fn blocking<'a>(
    core: &Arc<Core>,
    key: &[u8],
    patience: Patience,
    slice_of: Duration,
    request: impl Fn(u64) -> Draft<'a>,
) -> Result<Value, Error> {
    let mut tries = Tries::new(patience);
    let mut seat = Seat::default();
    loop {
        let slice = patience.block_ms(slice_of);
        let began = Instant::now();
        let drafts = [request(slice)];
        let (server, answer) = match Private::open(core, key, patience, &mut seat, &drafts).await {
            Ok(private) => {
                let server = (private.server.clone(), private.generation);
                (Some(server), one(private.ask(&drafts, Some(slice)).await))
            }
            Err(error) => (None, Err(error)),
        };
        match answer {
            Ok(Value::Nil) if !patience.is_over() => {
                if began.elapsed() >= Duration::from_millis(slice) {
                    tries.answered();
                    continue;
                }
                // It did not wait: a replica, on which reading commands do not.
                if let Some((server, generation)) = server {
                    server.link.report_read_only(generation);
                }
                let error = Error::unavailable("the server does not wait: it is a replica");
                tries.after(error, core).await?;
            }
            Ok(reply) => return Ok(reply),
            Err(error) => tries.after(error, core).await?,
        }
    }
}
