//! Calls that block their connection, each on one of its own.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::acquire::Patience;
use crate::core::Core;
use crate::error::{Error, ErrorKind};
use crate::route::Server;

const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// How long one call blocks that is ready to wait for ever.
const SLICE: Duration = Duration::from_hours(24);

/// A private connection to the server that has a key, for one call.
///
/// Dropping it in the middle of a call closes the connection, and with it ends what the server does for that call.
pub(crate) struct Private {
    core: Arc<Core>,
    server: Arc<Server>,
    connection: MultiplexedConnection,
    /// Of the shared connection to the same server: when that is replaced, this one may be dead without knowing.
    generation: u64,
    _place: OwnedSemaphorePermit,
}

/// Keeps count of failures in a row, so that a call ends with an error and does not try for ever.
pub(crate) struct Tries {
    patience: Patience,
    give_up: Option<Instant>,
    pause: Duration,
}

impl Tries {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, give_up: None, pause: PAUSE_MIN }
    }

    /// The server answered.
    pub(crate) fn answered(&mut self) {
        self.give_up = None;
        self.pause = PAUSE_MIN;
    }

    /// Ok: the call is to be tried again, after a pause that has passed.
    pub(crate) async fn after(&mut self, error: Error, core: &Core) -> Result<(), Error> {
        let passing = match error.kind() {
            ErrorKind::Unavailable => true,
            // In a cluster also this: the slot moves away.
            ErrorKind::Unblocked => !error.text().contains("an operator"),
            _ => false,
        };
        let give_up = *self.give_up.get_or_insert_with(|| match self.patience {
            Patience::Until(end) => end.min(core.patience()),
            Patience::None | Patience::Forever => core.patience(),
        });
        if !passing || Instant::now() + self.pause >= give_up {
            return Err(error);
        }
        tokio::time::sleep(self.pause.mul_f64(0.5 + crate::random::fraction())).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let _ = core.routes.refresh(give_up).await;
        Ok(())
    }
}

impl Private {
    /// One to the server that has `key`. Error Busy: the limit of the client is reached.
    pub(crate) async fn open(
        core: &Arc<Core>,
        key: &[u8],
        patience: Patience,
    ) -> Result<Self, Error> {
        let until = patience.end_within(core.settings.connect_timeout);
        let Some(server) = core.routes.server_of(key) else {
            core.routes.refresh(until).await?;
            return Err(Error::unavailable("no server has the slot of the key"));
        };
        let Ok(place) = server.blockable.clone().try_acquire_owned() else {
            let most = core.settings.private_connections;
            return Err(Error::new(
                ErrorKind::Busy,
                format!("all {most} private connections to {} are in use", server.name),
            ));
        };
        let live = server.link.live(until).await?;
        let connection = server.pool.take(&live).await?;
        Ok(Self {
            core: core.clone(),
            server,
            connection,
            generation: live.generation,
            _place: place,
        })
    }

    /// Sends these in one go. A reply that takes longer than `block_ms` (None: as long as it likes) and the time for
    /// an answer is an error, and so is a server that was lost meanwhile.
    pub(crate) async fn ask(
        mut self,
        commands: &[Cmd],
        block_ms: Option<u64>,
    ) -> Result<Vec<Value>, Error> {
        let limit = async {
            match block_ms {
                Some(ms) => {
                    let time = Duration::from_millis(ms)
                        .saturating_add(self.core.settings.response_timeout);
                    tokio::time::sleep(time).await;
                }
                None => std::future::pending().await,
            }
        };
        let mut pipeline = redis::pipe();
        for command in commands {
            pipeline.add_command(command.clone());
        }
        let answer = tokio::select! {
            replies = self.connection.send_packed_commands(&pipeline, 0, commands.len()) => {
                replies.map_err(Error::from)
            }
            () = limit => Err(Error::unavailable("no answer in time")),
            () = self.server.link.replaced(self.generation) => {
                Err(Error::unavailable("the connection to the server is lost"))
            }
        };
        let replies = match answer {
            Ok(replies) => replies,
            Err(error) => {
                // What became of this one became of those at rest, too.
                self.server.pool.clear();
                return Err(error);
            }
        };
        match redirect(&replies) {
            Some((true, host, port)) => {
                self.ask_there(&host, port, &pipeline, commands.len()).await
            }
            // MOVED: the next try learns who has which slots.
            Some((false, ..)) => Ok(replies),
            None => {
                if replies.iter().any(is_read_only) {
                    self.server.link.report_broken(self.generation);
                    self.server.pool.clear();
                } else {
                    self.server.pool.give_back(self.connection);
                }
                Ok(replies)
            }
        }
    }

    /// The slot is on its way: asks where it goes to.
    async fn ask_there(
        &self,
        host: &str,
        port: u16,
        pipeline: &redis::Pipeline,
        count: usize,
    ) -> Result<Vec<Value>, Error> {
        let Some(to) = self.core.routes.redirected(host, port, &self.server) else {
            return Err(Error::unavailable(
                "the slot of the key is on its way to an unknown server",
            ));
        };
        let live = to.link.live(self.core.patience()).await?;
        let mut connection = to.pool.take(&live).await?;
        let mut asking = redis::pipe();
        asking.cmd("ASKING");
        for command in pipeline.cmd_iter() {
            asking.add_command(command.clone());
        }
        let mut replies = connection.send_packed_commands(&asking, 0, count + 1).await?;
        replies.remove(0);
        to.pool.give_back(connection);
        Ok(replies)
    }
}

/// Whether it is ASK (or MOVED), and where to.
fn redirect(replies: &[Value]) -> Option<(bool, String, u16)> {
    let Value::ServerError(error) = replies.first()? else { return None };
    let error = redis::RedisError::from(error.clone());
    let (host, port) = crate::core::redirect(&error)?;
    Some((error.code() == Some("ASK"), host, port))
}

fn is_read_only(reply: &Value) -> bool {
    matches!(reply, Value::ServerError(error) if error.code() == "READONLY")
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
/// `request` makes the command from the milliseconds that it may block.
pub(crate) async fn blocking(
    core: &Arc<Core>,
    key: &[u8],
    patience: Patience,
    request: impl Fn(u64) -> Cmd,
) -> Result<Value, Error> {
    let mut tries = Tries::new(patience);
    loop {
        let slice = patience.block_ms(SLICE);
        let answer = match Private::open(core, key, patience).await {
            Ok(private) => one(private.ask(&[request(slice)], Some(slice)).await),
            Err(error) => Err(error),
        };
        match answer {
            Ok(Value::Nil) if !patience.is_over() => tries.answered(),
            Ok(reply) => return Ok(reply),
            Err(error) => tries.after(error, core).await?,
        }
    }
}
