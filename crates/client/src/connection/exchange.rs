//! A request, sent until it is answered.
//!
//! A request whose answer does not come is sent again, over another connection or to another server, until its time
//! is over. That is safe because each of them either carries a request id or has no more effect the second time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dlock_wire::request::Request;
use redis::{RedisError, RedisResult, Value};
use tokio::time::{Instant, timeout_at};

use crate::base::back_off::BackOff;
use crate::base::clock::Moment;
use crate::base::command::{Draft, command, redirect};
use crate::base::error::{Error, ErrorKind};
use crate::base::replicas::{Confirmed, Replicas};
use crate::connection::link::live::Live;
use crate::connection::route::{Routes, Server};

/// Before a request is repeated.
const PAUSES: BackOff = BackOff::new(Duration::from_millis(2), Duration::from_millis(200));
/// In a cluster: time for which a node may be unreachable before the client asks the others for the new node of its
/// slots.
const NODE_WITHIN: Duration = Duration::from_millis(500);

/// When a copy of a request was sent, and over which shared connection.
#[derive(Debug, Clone, Copy)]
struct Sent {
    at: Moment,
    generation: u64,
}

impl Sent {
    fn now_over(live: &Live) -> Self {
        Self { at: Moment::now(), generation: live.generation }
    }
}

/// What the server answered to a request.
pub(crate) struct Reply {
    pub(crate) value: Value,
    /// When the copy was sent that was answered.
    pub(crate) sent: Moment,
    /// When the first copy was sent that the server may have carried out.
    pub(crate) first: Moment,
    /// Over which shared connection it was answered.
    pub(crate) generation: u64,
    /// An earlier copy of the request got no answer: the server may have carried that one out.
    pub(crate) repeated: bool,
}

/// One request, and until when it is tried.
#[derive(Clone, Copy)]
struct Exchange<'a> {
    key: &'a [u8],
    draft: &'a Draft<'a>,
    until: Instant,
}

/// Why one try failed.
enum TryFailure {
    /// Another try would fail, too.
    Final(Error),
    /// Try again: the server did not carry the request out.
    Passing(Error),
    /// Try again: the request was sent, and whether the server carried it out is unknown.
    Unanswered(Error),
    /// Try again at once: this server named another one.
    Elsewhere(Error),
}

impl TryFailure {
    /// The server answered so. After a quarantine the caller decides: there are places to wait.
    fn of(error: Error) -> Self {
        if error.passes() && error.kind() != ErrorKind::Quarantine {
            Self::Passing(error)
        } else {
            Self::Final(error)
        }
    }
}

impl Routes {
    /// Asks the server that has `key`, for as long as requests without a timeout are tried.
    pub(crate) async fn call<'a>(
        &self,
        key: &[u8],
        request: impl Into<Request<'a>>,
    ) -> Result<Value, Error> {
        self.send(key, &command(request), self.ctx.retry_until()).await
    }

    /// Asks the server that has `key`, until there is an answer or the time is over.
    pub(crate) async fn send<'a>(
        &self,
        key: &[u8],
        request: impl Into<Draft<'a>>,
        until: Instant,
    ) -> Result<Value, Error> {
        self.exchange(key, request, until).await.map(|answer| answer.value)
    }

    /// As [`Routes::send`], and when that was sent.
    pub(crate) async fn exchange<'a>(
        &self,
        key: &[u8],
        request: impl Into<Draft<'a>>,
        until: Instant,
    ) -> Result<Reply, Error> {
        let draft = &request.into();
        let done = self.until_answered(Exchange { key, draft, until }).await;
        done.map_err(|error| self.located(error, key))
    }

    /// The error with the key, and the server that has it.
    pub(crate) fn located(&self, error: Error, key: &[u8]) -> Error {
        let error = error.of_key(key);
        let server = error.server().is_none().then(|| self.server_of(key)).flatten();
        match server {
            // Where Sentinels name the server, the connection has its address.
            Some(server) => error.at(&server.link.address().unwrap_or_else(|| server.name.clone())),
            None => error,
        }
    }

    async fn until_answered(&self, call: Exchange<'_>) -> Result<Reply, Error> {
        let until = call.until;
        let mut pauses = PAUSES;
        let mut redirects = 0;
        // When the first copy was sent that may have been carried out.
        let mut first: Option<Moment> = None;
        // The last answer: what is to be told if the time ends before the next one.
        let mut answer: Option<Error> = None;
        loop {
            let repeated = first.is_some();
            if let Some(error) = self.ctx.gate.refusal() {
                return Err(error.repeated(repeated));
            }
            let mut last = None;
            let tried = self.try_once(call, &mut last).await;
            let error = match tried {
                Ok((value, Sent { at: sent, generation })) => {
                    let first = first.unwrap_or(sent);
                    return Ok(Reply { value, sent, first, generation, repeated });
                }
                Err(TryFailure::Final(error)) => {
                    let error = answer.filter(|_| error.is_unanswered()).unwrap_or(error);
                    return Err(error.repeated(repeated));
                }
                // Two servers that name each other are not asked in a circle.
                Err(TryFailure::Elsewhere(_)) if redirects < 2 && Instant::now() < until => {
                    redirects += 1;
                    continue;
                }
                Err(TryFailure::Unanswered(error)) => {
                    first = first.or(last.map(|sent| sent.at));
                    error
                }
                Err(TryFailure::Passing(error) | TryFailure::Elsewhere(error)) => error,
            };
            if error.is_passing_reply() {
                answer = Some(error.clone());
            }
            if Instant::now() + pauses.next() >= until {
                return Err(error.repeated(first.is_some()));
            }
            pauses.pause().await;
            redirects = 0;
        }
    }

    /// The answer, and to which copy. `last` is the one that was sent, if one was.
    async fn try_once(
        &self,
        call: Exchange<'_>,
        last: &mut Option<Sent>,
    ) -> Result<(Value, Sent), TryFailure> {
        let until = call.until;
        let (server, mut live) = self.reach(call.key, until).await?;
        let channel = if call.draft.is_notified() {
            let channel = self.channel(&server, &live, call.key, until).await;
            channel.map_err(TryFailure::Passing)?
        } else {
            None
        };
        let sent = *last.insert(Sent::now_over(&live));
        let answer_by = until.min(Instant::now() + self.ctx.settings.response_timeout);
        let answer = timeout_at(answer_by, pin!(self.answer(call.draft, &mut live, channel))).await;
        match answer {
            Ok(Ok(value)) => {
                live.pulse.answered(sent.at);
                Ok((value, sent))
            }
            Ok(Err(error)) => Box::pin(self.after(error, call, &server, &live, last)).await,
            Err(_) if answer_by < until => {
                server.link.report_broken(live.generation);
                Err(TryFailure::Unanswered(Error::unavailable("no answer in time")))
            }
            // The caller's time is over; whether the connection is dead, this does not tell.
            Err(_) => Err(TryFailure::Final(Error::unavailable("no answer in time"))),
        }
    }

    /// The answer over that connection. A server that says `ERR` to SNOTIFY may not know that word: it gets NOTIFY
    /// instead.
    async fn answer(
        &self,
        draft: &Draft<'_>,
        live: &mut Live,
        channel: Option<Arc<[u8]>>,
    ) -> RedisResult<Value> {
        let cmd = draft.command(self.ctx.channels.or_plain(channel.as_deref()));
        let reply = live.send(&cmd).await.and_then(Value::extract_error);
        let (Some(shard), Some(_)) = (live.shard.clone(), channel) else { return reply };
        let is_refused = |reply: &RedisError| reply.code() == Some("ERR");
        match &reply {
            Ok(_) => shard.snotify_is_known(),
            Err(error) if is_refused(error) && shard.may_not_know_snotify() => {
                let cmd = draft.command(self.ctx.channels.or_plain(None));
                // Seldom: kept out of the size of every call.
                let reply = Box::pin(live.send(&cmd)).await.and_then(Value::extract_error);
                let no_answer = |error: &RedisError| error.code().is_none();
                if !reply.as_ref().is_err_and(|error| is_refused(error) || no_answer(error)) {
                    shard.snotify_is_unknown();
                }
                return reply;
            }
            Err(_) => {}
        }
        reply
    }

    /// The server that has the key, connected.
    async fn reach(&self, key: &[u8], until: Instant) -> Result<(Arc<Server>, Live), TryFailure> {
        let connect_by =
            if self.is_cluster() { until.min(Instant::now() + NODE_WITHIN) } else { until };
        let Some(server) = self.server_of(key) else {
            Box::pin(self.refresh(until)).await.map_err(TryFailure::Passing)?;
            return Err(TryFailure::Passing(Error::unavailable(
                "no server has the slot of the key",
            )));
        };
        match server.link.live(connect_by).await {
            Ok(live) => Ok((server, live)),
            Err(error) => {
                // A node that is gone may have been replaced; a refusal stays one.
                let _ = Box::pin(self.refresh(until)).await;
                Err(if error.ends_opening() {
                    TryFailure::Final(error)
                } else {
                    TryFailure::Passing(error)
                })
            }
        }
    }

    /// What an error of one try means for the next one.
    async fn after(
        &self,
        error: RedisError,
        call: Exchange<'_>,
        server: &Arc<Server>,
        live: &Live,
        last: &mut Option<Sent>,
    ) -> Result<(Value, Sent), TryFailure> {
        let (until, generation) = (call.until, live.generation);
        let Some(code) = error.code().map(str::to_owned) else {
            server.link.report_broken(generation);
            let error = Error::from_redis(error);
            return Err(match error.kind() {
                ErrorKind::Unavailable => TryFailure::Unanswered(error),
                _ => TryFailure::Final(error),
            });
        };
        let redirect = redirect(&error);
        let error = Error::from_redis(error);
        match (code.as_str(), redirect) {
            ("MOVED" | "ASK", Some(to)) => {
                let Some(to) = self.redirected(&to, server) else {
                    return Err(TryFailure::Final(error.of_a_cluster()));
                };
                if code == "ASK" {
                    return self.ask(&to, call, last).await;
                }
                self.moved(call.key, &to);
                Err(TryFailure::Elsewhere(error))
            }
            ("READONLY", _) => {
                // It was made a replica: Sentinels or the cluster know the new primary.
                server.link.report_read_only(generation);
                server.pool.clear();
                let _ = self.refresh(until).await;
                Err(TryFailure::Passing(error))
            }
            ("CLUSTERDOWN" | "MASTERDOWN", _) => {
                let _ = self.refresh(until).await;
                Err(TryFailure::Passing(error))
            }
            _ => Err(TryFailure::of(error)),
        }
    }

    /// Asks the target of a slot that is on its way there.
    async fn ask(
        &self,
        to: &Server,
        call: Exchange<'_>,
        last: &mut Option<Sent>,
    ) -> Result<(Value, Sent), TryFailure> {
        let until = call.until;
        let connect_by = until.min(Instant::now() + NODE_WITHIN);
        let mut live = to.link.live(connect_by).await.map_err(TryFailure::Passing)?;
        let sent = *last.insert(Sent::now_over(&live));
        let mut both = redis::pipe();
        // For a slot that it does not have yet, it is not asked to take a subscription.
        let channel = live.settled_channel();
        let cmd = call.draft.command(self.ctx.channels.or_plain(channel.as_deref()));
        both.cmd("ASKING").add_command(cmd.into_owned());
        let answer_by = until.min(Instant::now() + self.ctx.settings.response_timeout);
        let replies = timeout_at(answer_by, live.send_all(&both, 2)).await;
        let reply = match replies {
            Ok(Ok(mut replies)) => replies.pop().unwrap_or(Value::Nil).extract_error(),
            Ok(Err(error)) => Err(error),
            Err(_) => return Err(TryFailure::Unanswered(Error::unavailable("no answer in time"))),
        };
        match reply {
            Ok(value) => Ok((value, sent)),
            Err(error) if error.code().is_none() => {
                Err(TryFailure::Unanswered(Error::from_redis(error)))
            }
            Err(error) => Err(TryFailure::of(Error::from_redis(error))),
        }
    }

    /// Waits until replicas have what was written over shared connection `generation`, to the server that has `key`.
    ///
    /// # Errors
    ///
    /// `Replicas`: fewer have it in time. `Unavailable`: another connection took its place, or it does not answer.
    pub(crate) async fn confirm(
        &self,
        key: &[u8],
        generation: u64,
        replicas: Replicas,
    ) -> Result<Confirmed, Error> {
        let server = self.server_of(key).filter(|server| server.link.generation() == generation);
        let gone = || Error::unavailable("the connection to the server is lost");
        let server = server.ok_or_else(gone)?;
        let mut live = server.link.live(Instant::now() + replicas.timeout).await?;
        if live.generation != generation {
            return Err(gone());
        }
        let confirmed = live.confirm(replicas).await;
        if let Err(error) = &confirmed
            && error.kind() == ErrorKind::Unavailable
        {
            server.link.report_broken(generation);
        }
        confirmed
    }
}
