//! Calls that block their connection, each on a dedicated one.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dlock_wire::reply::ErrorCode;
use redis::aio::MultiplexedConnection;
use redis::{RedisError, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::base::back_off::BackOff;
use crate::base::command::{Draft, redirect};
use crate::base::deadline::Deadline;
use crate::base::error::{Error, ErrorKind};
use crate::connection::link::shard::Shard;
use crate::connection::route::{Routes, Server};

/// However short a wait is: connecting may take this long.
const CONNECT_WITHIN: Duration = Duration::from_millis(250);
/// Before a call is repeated.
const PAUSES: BackOff = BackOff::new(Duration::from_millis(5), Duration::from_millis(200));
/// How long one call blocks that would lose its position by being repeated.
pub(crate) const LONG_BLOCK: Duration = Duration::from_secs(24 * 60 * 60);
/// How long one call blocks that loses nothing by being repeated.
pub(crate) const SHORT_BLOCK: Duration = Duration::from_secs(60);

/// A blocked call about one key, repeated until the server answers it. Repeated failures end it.
pub(crate) struct BlockedCalls<'a> {
    routes: &'a Routes,
    key: &'a [u8],
    deadline: Deadline,
    permit: ConnectionPermit,
    pauses: BackOff,
    /// When to stop trying, since the first failure in a row.
    give_up: Option<Instant>,
    /// An earlier try failed, and whether the server carried it out is unknown.
    has_failed: bool,
}

impl<'a> BlockedCalls<'a> {
    pub(crate) fn new(routes: &'a Routes, key: &'a [u8], deadline: Deadline) -> Self {
        let permit = ConnectionPermit::default();
        Self { routes, key, deadline, permit, pauses: PAUSES, give_up: None, has_failed: false }
    }

    /// The server answered.
    pub(crate) fn answered(&mut self) {
        self.give_up = None;
        self.pauses.reset();
    }

    /// Ok: the call is to be tried again; the pause before that is over.
    pub(crate) async fn after(&mut self, error: Error) -> Result<(), Error> {
        let passing = error.passes();
        let give_up = *self.give_up.get_or_insert_with(|| {
            let until = self.routes.ctx.retry_until();
            if let Deadline::At(end) = self.deadline { end.min(until) } else { until }
        });
        if !passing || Instant::now() + self.pauses.next() >= give_up {
            let error = error.repeated(self.has_failed);
            return Err(self.routes.located(error, self.key));
        }
        self.has_failed = true;
        self.pauses.pause().await;
        let _ = self.routes.refresh(give_up).await;
        Ok(())
    }

    /// A connection to the server of the key, for these requests. Error Busy: the limit of the client is reached.
    pub(crate) async fn open(&mut self, drafts: &[Draft<'_>]) -> Result<Dedicated<'a>, Error> {
        let routes = self.routes;
        let until = self.deadline.within(routes.ctx.settings.connect_timeout);
        let until = until.max(Instant::now() + CONNECT_WITHIN);
        let Some(server) = routes.server_of(self.key) else {
            routes.refresh(until).await?;
            return Err(Error::unavailable("no server has the slot of the key"));
        };
        self.permit.take(routes.ctx.settings.dedicated_connections, &server)?;
        let live = server.link.live(until).await?;
        let connection = server.pool.take(&live, until).await?;
        let channel = if drafts.iter().any(Draft::is_notified) {
            routes.channel(&server, &live, self.key, until).await?
        } else {
            None
        };
        let (generation, shard) = (live.generation, live.shard.clone());
        Ok(Dedicated { routes, server, connection, generation, shard, channel })
    }

    /// Repeats `request` until the reply is not Nil, or the deadline is over (then it is Nil). `request` gets the
    /// milliseconds that it may block, at most `longest`.
    pub(crate) async fn run<'d>(
        mut self,
        longest: Duration,
        request: impl Fn(u64) -> Draft<'d>,
    ) -> Result<Value, Error> {
        loop {
            let block_ms = self.deadline.block_ms(longest);
            let began = Instant::now();
            let drafts = [request(block_ms)];
            let mut used = None;
            let reply = match self.open(&drafts).await {
                Ok(connection) => {
                    used = Some((connection.server.clone(), connection.generation));
                    first(connection.call(&drafts, block_ms).await)
                }
                Err(error) => Err(error),
            };
            match reply {
                Ok(Value::Nil) if !self.deadline.is_over() => {
                    if began.elapsed() >= Duration::from_millis(block_ms) {
                        self.answered();
                        continue;
                    }
                    // It did not wait: a replica, on which reading commands do not.
                    if let Some((server, generation)) = used {
                        server.link.report_read_only(generation);
                    }
                    let error = Error::unavailable("the server does not wait: it is a replica");
                    self.after(error).await?;
                }
                Ok(reply) => return Ok(reply),
                Err(error) => self.after(error).await?,
            }
        }
    }
}

/// A permit of the limit of dedicated connections to one server. A waiting task keeps it from call to call, so that it
/// is not refused in the middle.
#[derive(Default)]
struct ConnectionPermit(Option<(Arc<Server>, OwnedSemaphorePermit)>);

impl ConnectionPermit {
    fn take(&mut self, limit: usize, server: &Arc<Server>) -> Result<(), Error> {
        if self.0.as_ref().is_some_and(|(at, _)| Arc::ptr_eq(at, server)) {
            return Ok(());
        }
        let Ok(permit) = server.dedicated.clone().try_acquire_owned() else {
            let text = format!("all {limit} dedicated connections to {} are in use", server.name);
            return Err(Error::new(ErrorKind::Busy, text));
        };
        self.0 = Some((server.clone(), permit));
        Ok(())
    }
}

/// A dedicated connection to the server that has a key, for one call.
///
/// Dropping it in the middle of a call closes the connection, and with it ends what the server does for that call.
pub(crate) struct Dedicated<'a> {
    routes: &'a Routes,
    server: Arc<Server>,
    connection: MultiplexedConnection,
    /// Of the shared connection to the same server: when that is replaced, this one may be dead without knowing.
    generation: u64,
    /// That of the shared connection, over which messages come.
    shard: Option<Arc<Shard>>,
    channel: Option<Arc<[u8]>>,
}

impl Dedicated<'_> {
    /// Sends these in one go. A reply that takes longer than `block_ms` and the time for an answer is an error, and so
    /// is a server that was lost meanwhile.
    pub(crate) async fn call(
        mut self,
        drafts: &[Draft<'_>],
        block_ms: u64,
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
        if let Some(Value::ServerError(error)) = replies.first()
            && let error = RedisError::from(error.clone())
            && let Some(to) = redirect(&error)
        {
            if error.code() == Some("MOVED") && self.routes.is_cluster() {
                // The next try learns the nodes of the slots.
                return Ok(replies);
            }
            return match self.routes.redirected(&to, &self.server) {
                Some(to) => self.call_there(&to, drafts, block_ms).await,
                None => Err(Error::from_redis(error).of_a_cluster()),
            };
        }
        if replies.iter().any(|reply| is_error(reply, ErrorCode::ReadOnly)) {
            self.server.link.report_read_only(self.generation);
            self.server.pool.clear();
        } else if replies.iter().any(|reply| is_error(reply, ErrorCode::Unblocked)) {
            // Perhaps of a server that becomes a replica, and closes its connections.
            self.server.pool.clear();
        } else {
            self.server.pool.put_back(self.generation, self.connection);
        }
        Ok(replies)
    }

    async fn send(&mut self, drafts: &[Draft<'_>], block_ms: u64) -> Result<Vec<Value>, Error> {
        let channel = self.routes.ctx.channels.or_plain(self.channel.as_deref());
        let mut pipeline = redis::pipe();
        for draft in drafts {
            pipeline.add_command(draft.command(channel).into_owned());
        }
        let answer = pin!(self.connection.send_packed_commands(&pipeline, 0, drafts.len()));
        let answer = answered(self.routes, &self.server, self.generation, block_ms, answer).await;
        // What became of this connection became of those at rest, too.
        answer.inspect_err(|_| self.server.pool.clear())
    }

    /// The slot is on its way: asks where it goes to.
    async fn call_there(
        &self,
        to: &Server,
        drafts: &[Draft<'_>],
        block_ms: u64,
    ) -> Result<Vec<Value>, Error> {
        let until = Instant::now() + self.routes.ctx.settings.connect_timeout;
        let live = to.link.live(until).await?;
        let mut connection = to.pool.take(&live, until).await?;
        let mut asking = redis::pipe();
        asking.cmd("ASKING");
        let channel = live.settled_channel();
        for draft in drafts {
            let cmd = draft.command(self.routes.ctx.channels.or_plain(channel.as_deref()));
            asking.add_command(cmd.into_owned());
        }
        let answer = connection.send_packed_commands(&asking, 0, drafts.len() + 1);
        let mut replies = answered(self.routes, to, live.generation, block_ms, answer).await?;
        replies.remove(0);
        to.pool.put_back(live.generation, connection);
        Ok(replies)
    }
}

/// The answer of a dedicated connection. An error if it takes longer than it may block and the time for an answer, or
/// if the shared connection to the same server is lost: then this one may be dead without knowing.
async fn answered(
    routes: &Routes,
    server: &Server,
    generation: u64,
    block_ms: u64,
    answer: impl Future<Output = redis::RedisResult<Vec<Value>>>,
) -> Result<Vec<Value>, Error> {
    let limit =
        Duration::from_millis(block_ms).saturating_add(routes.ctx.settings.response_timeout);
    let _blocked = routes.ctx.begin_blocked();
    tokio::select! {
        replies = answer => replies.map_err(Error::from_redis),
        () = tokio::time::sleep(limit) => Err(Error::unavailable("no answer in time")),
        () = server.link.left(generation) => {
            Err(Error::unavailable("the connection to the server is lost"))
        }
    }
}

fn is_error(reply: &Value, code: ErrorCode) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == code.as_str())
}

/// The only reply.
fn first(replies: Result<Vec<Value>, Error>) -> Result<Value, Error> {
    let reply = replies?.into_iter().next().unwrap_or(Value::Nil);
    reply.extract_error().map_err(Error::from_redis)
}
