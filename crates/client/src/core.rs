//! What all handles of a client share: the way to the servers, and how a request gets there for certain.
//!
//! A request whose answer does not come is sent again, over another connection or to another server, until its time
//! is over. That is safe because each of them either carries a request id or has no more effect the second time.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dlock_wire::request::Request;
use dlock_wire::table::{CommandId, LockVerb};
use redis::{Cmd, RedisError, TlsCertificates, Value};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};

use crate::channel::Draft;
use crate::clock::Moment;
use crate::config::Settings;
use crate::error::{Error, ErrorKind};
use crate::held::Lost;
use crate::link::Live;
use crate::registry::Registry;
use crate::route::{Routes, Server};
use crate::url::Target;

/// The first pause before a request is repeated; it doubles up to [`PAUSE_MAX`].
const PAUSE_MIN: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);
/// In a cluster, how long a node may be unreachable before the others are asked who has its slots now.
const NODE_PATIENCE: Duration = Duration::from_millis(500);
/// When the client closes, how long it waits for tasks to poll the calls that they wait for.
const POLLED_WITHIN: Duration = Duration::from_millis(100);

pub(crate) struct Core {
    pub(crate) settings: Arc<Settings>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) routes: Routes,
    /// Where what goes on in the background runs.
    pub(crate) runtime: Handle,
}

/// What the server answered to a request.
pub(crate) struct Answer {
    pub(crate) value: Value,
    /// An earlier copy of the request got no answer: the server may have carried that one out.
    pub(crate) repeated: bool,
}

/// One request, and until when it is tried.
#[derive(Clone, Copy)]
struct Call<'a> {
    key: &'a [u8],
    draft: &'a Draft<'a>,
    until: Instant,
}

/// Why one try did not do.
enum Failure {
    /// Nothing that another try would change.
    Final(Error),
    /// To be tried again: the server did not carry the request out.
    Passing(Error),
    /// To be tried again: the request was sent, and whether the server carried it out is unknown.
    Unanswered(Error),
    /// To be tried again at once: this server named another one.
    Elsewhere(Error),
}

impl Core {
    /// Connects, and begins to watch the holds to come. Inside a tokio runtime.
    pub(crate) async fn connect(
        target: Target,
        tls: Option<TlsCertificates>,
        settings: Settings,
    ) -> Result<Arc<Self>, Error> {
        let runtime = Handle::try_current()
            .map_err(|_| Error::invalid("connect has to be called inside a tokio runtime"))?;
        let settings = Arc::new(settings);
        let registry = Arc::new(Registry::new(target.db(), runtime.clone()));
        let routes = Routes::connect(target, tls, settings.clone(), registry.clone()).await?;
        let core = Arc::new(Self { settings, registry, routes, runtime });
        crate::watchdog::start(&core);
        Ok(core)
    }

    /// Takes nothing more, gives back what is there, and ends the connections. Once, whoever calls it how often.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<(), Error> {
        let gate = &self.registry.gate;
        if gate.begin_to_close() {
            self.runtime.spawn(self.clone().give_all_back());
        }
        gate.shut().await;
        match gate.refusal() {
            Some(error) if !gate.is_closed() => Err(error),
            _ if gate.has_failed() => Err(Error::unavailable(
                "closed before the server confirmed that everything was given back: the rest ends with its lease",
            )),
            _ => Ok(()),
        }
    }

    async fn give_all_back(self: Arc<Self>) {
        let limit = Instant::now() + self.settings.response_timeout;
        let registry = &self.registry;
        for ask in registry.acquires() {
            ask.take_back();
        }
        for held in registry.kept() {
            held.lose(Lost::Closed);
            held.give_back_later();
        }
        // What waits on connections of its own ends when its future is polled.
        let _ = timeout(POLLED_WITHIN, registry.gate.no_calls()).await;
        if timeout_at(limit, registry.gate.clean()).await.is_err() {
            registry.gate.failed();
        }
        registry.gate.close();
        self.routes.close();
    }

    /// The outcome of a call that waits; an error as soon as the client closes or its runtime ends.
    pub(crate) async fn admitted<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let _call = self.registry.gate.call();
        self.registry.gate.admit(pin!(call)).await
    }

    /// The end of a call that has none of its own.
    pub(crate) fn patience(&self) -> Instant {
        Instant::now() + self.settings.retry_for
    }

    /// Every primary.
    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        self.routes.servers()
    }

    /// Asks the server that has `key`, until there is an answer or the time is over.
    pub(crate) async fn call(
        &self,
        key: &[u8],
        id: CommandId,
        request: &Request<'_>,
        until: Instant,
    ) -> Result<Value, Error> {
        self.send(key, &command(id, request), until).await
    }

    /// As [`Core::call`], with the command already written, or with a draft of it.
    pub(crate) async fn send<'a>(
        &self,
        key: &[u8],
        request: impl Into<Draft<'a>>,
        until: Instant,
    ) -> Result<Value, Error> {
        self.exchange(key, request, until).await.map(|answer| answer.value)
    }

    /// As [`Core::send`], for requests whose answer means something else when an earlier copy got none. An error tells
    /// by [`Error::is_repeated`].
    pub(crate) async fn exchange<'a>(
        &self,
        key: &[u8],
        request: impl Into<Draft<'a>>,
        until: Instant,
    ) -> Result<Answer, Error> {
        let draft = &request.into();
        let call = Call { key, draft, until };
        let mut pause = PAUSE_MIN;
        let mut redirects = 0;
        let mut repeated = false;
        loop {
            if let Some(error) = self.registry.gate.refusal() {
                return Err(if repeated { error.after_another_try() } else { error });
            }
            let error = match self.try_once(call).await {
                Ok(value) => return Ok(Answer { value, repeated }),
                Err(Failure::Final(error)) if repeated => return Err(error.after_another_try()),
                Err(Failure::Final(error)) => return Err(error),
                // Two servers that name each other are not asked in a circle.
                Err(Failure::Elsewhere(_)) if redirects < 2 && Instant::now() < until => {
                    redirects += 1;
                    continue;
                }
                Err(Failure::Unanswered(error)) => {
                    repeated = true;
                    error
                }
                Err(Failure::Passing(error) | Failure::Elsewhere(error)) => error,
            };
            if Instant::now() + pause >= until {
                return Err(if repeated { error.after_another_try() } else { error });
            }
            tokio::time::sleep(pause.mul_f64(0.5 + crate::random::fraction())).await;
            pause = (pause * 2).min(PAUSE_MAX);
            redirects = 0;
        }
    }

    async fn try_once(&self, call: Call<'_>) -> Result<Value, Failure> {
        let until = call.until;
        let (server, mut live) = self.reach(call.key, until).await?;
        let channel = if call.draft.is_notified() {
            let channel = self.routes.channel(&server, &live, call.key, until).await;
            channel.map_err(Failure::Passing)?
        } else {
            None
        };
        let sent = Moment::now();
        let answer_by = until.min(Instant::now() + self.settings.response_timeout);
        let cmd = call.draft.command(self.registry.channels.or_plain(channel.as_deref()));
        match timeout_at(answer_by, live.send(&cmd)).await {
            Ok(reply) => match reply.and_then(Value::extract_error) {
                Ok(value) => {
                    server.link.answered(sent);
                    if let (Some(shard), true) = (live.shard(), channel.is_some()) {
                        shard.snotify_is_known();
                    }
                    Ok(value)
                }
                // Seldom: kept out of the size of every call.
                Err(error) if channel.is_some() && error.code() == Some("ERR") => {
                    Box::pin(self.without_shard(error, call, &server, live)).await
                }
                Err(error) => Box::pin(self.after(error, call, &server, &live)).await,
            },
            Err(_) if answer_by < until => {
                server.link.report_broken(live.generation);
                Err(Failure::Unanswered(Error::unavailable("no answer in time")))
            }
            // The caller's time is over; whether the connection is dead, this does not tell.
            Err(_) => Err(Failure::Final(Error::unavailable("no answer in time"))),
        }
    }

    /// The server answered `ERR` to a request with SNOTIFY. If it may not know that word, it gets NOTIFY instead.
    async fn without_shard(
        &self,
        error: RedisError,
        call: Call<'_>,
        server: &Arc<Server>,
        mut live: Live,
    ) -> Result<Value, Failure> {
        if !live.shard().is_some_and(|shard| shard.may_not_know_snotify()) {
            return self.after(error, call, server, &live).await;
        }
        let cmd = call.draft.command(self.registry.channels.or_plain(None));
        let answer_by = call.until.min(Instant::now() + self.settings.response_timeout);
        let Ok(reply) = timeout_at(answer_by, live.send(&cmd)).await else {
            return Err(Failure::Unanswered(Error::unavailable("no answer in time")));
        };
        let reply = reply.and_then(Value::extract_error);
        let code = reply.as_ref().map_or_else(RedisError::code, |_| Some("OK"));
        if let (Some(shard), true) = (live.shard(), code.is_some_and(|code| code != "ERR")) {
            shard.snotify_is_unknown();
        }
        match reply {
            Ok(value) => Ok(value),
            Err(error) => self.after(error, call, server, &live).await,
        }
    }

    /// The server that has the key, connected.
    async fn reach(&self, key: &[u8], until: Instant) -> Result<(Arc<Server>, Live), Failure> {
        let patience = if self.routes.is_cluster() {
            until.min(Instant::now() + NODE_PATIENCE)
        } else {
            until
        };
        let Some(server) = self.routes.server_of(key) else {
            Box::pin(self.routes.refresh(until)).await.map_err(Failure::Passing)?;
            return Err(Failure::Passing(Error::unavailable("no server has the slot of the key")));
        };
        match server.link.live(patience).await {
            Ok(live) => Ok((server, live)),
            Err(error) => {
                // A node that is gone may have been replaced; a refusal stays one.
                let _ = Box::pin(self.routes.refresh(until)).await;
                Err(match error.kind() {
                    ErrorKind::Unavailable => Failure::Passing(error),
                    _ => Failure::Final(error),
                })
            }
        }
    }

    /// What an error of one try means for the next one.
    async fn after(
        &self,
        error: RedisError,
        call: Call<'_>,
        server: &Arc<Server>,
        live: &Live,
    ) -> Result<Value, Failure> {
        let (until, generation) = (call.until, live.generation);
        let Some(code) = error.code().map(str::to_owned) else {
            server.link.report_broken(generation);
            let error = Error::from(error);
            return Err(match error.kind() {
                ErrorKind::Unavailable => Failure::Unanswered(error),
                _ => Failure::Final(error),
            });
        };
        let redirect = redirect(&error);
        let error = Error::from(error);
        match (code.as_str(), redirect) {
            ("MOVED", Some((host, port))) => {
                let Some(to) = self.routes.redirected(&host, port, server) else {
                    return Err(Failure::Final(error.of_a_cluster()));
                };
                self.routes.moved(call.key, &to);
                Err(Failure::Elsewhere(error))
            }
            ("ASK", Some((host, port))) => {
                let Some(to) = self.routes.redirected(&host, port, server) else {
                    return Err(Failure::Final(error.of_a_cluster()));
                };
                self.ask(&to, call).await
            }
            ("READONLY", _) => {
                // It was made a replica: Sentinels or the cluster know who is primary now.
                server.link.report_read_only(generation);
                server.pool.clear();
                let _ = self.routes.refresh(until).await;
                Err(Failure::Passing(error))
            }
            ("CLUSTERDOWN" | "MASTERDOWN", _) => {
                let _ = self.routes.refresh(until).await;
                Err(Failure::Passing(error))
            }
            ("LOADING" | "TRYAGAIN" | "BUSY" | "MOVING", _) => Err(Failure::Passing(error)),
            _ => Err(Failure::Final(error)),
        }
    }

    /// Asks the target of a slot that is on its way there.
    async fn ask(&self, to: &Server, call: Call<'_>) -> Result<Value, Failure> {
        let until = call.until;
        let patience = until.min(Instant::now() + NODE_PATIENCE);
        let mut live = to.link.live(patience).await.map_err(Failure::Passing)?;
        let mut both = redis::pipe();
        // For a slot that it does not have yet, it is not asked to take a subscription.
        let channel = live.settled_channel();
        let cmd = call.draft.command(self.registry.channels.or_plain(channel.as_deref()));
        both.cmd("ASKING").add_command(cmd.into_owned());
        let answer_by = until.min(Instant::now() + self.settings.response_timeout);
        let replies = timeout_at(answer_by, live.send_all(&both, 2)).await;
        let reply = match replies {
            Ok(Ok(mut replies)) => replies.pop().unwrap_or(Value::Nil).extract_error(),
            Ok(Err(error)) => Err(error),
            Err(_) => return Err(Failure::Unanswered(Error::unavailable("no answer in time"))),
        };
        reply.map_err(|error| match error.code() {
            Some("MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MOVING") => {
                Failure::Passing(error.into())
            }
            None => Failure::Unanswered(error.into()),
            Some(_) => Failure::Final(error.into()),
        })
    }
}

/// Host and port of MOVED and ASK; an empty host is that of the server that said so.
pub(crate) fn redirect(error: &RedisError) -> Option<(String, u16)> {
    // What redis-rs calls a node is its address and a slot.
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some((host.trim_matches(['[', ']']).to_owned(), port.parse().ok()?))
}

/// The request as redis-rs sends it.
pub(crate) fn command(id: CommandId, request: &Request<'_>) -> Cmd {
    let mut cmd = redis::cmd(id.name());
    request.each_arg(|arg| {
        cmd.arg(arg);
    });
    cmd
}

/// DLOCK or DFAIR.
pub(crate) fn lock_command(fair: bool, verb: LockVerb) -> CommandId {
    if fair { CommandId::Fair(verb) } else { CommandId::Lock(verb) }
}

#[cfg(test)]
mod tests {
    use super::redirect;

    #[test]
    fn a_redirection_names_host_and_port() {
        let of = |detail: &str| {
            let error = redis::make_extension_error("MOVED".to_owned(), Some(detail.to_owned()));
            let parsed = redis::parse_redis_value(format!("-MOVED {detail}\r\n").as_bytes());
            let parsed = parsed.and_then(redis::Value::extract_error).err().unwrap_or(error);
            redirect(&parsed)
        };
        assert_eq!(of("7629 127.0.0.1:7001"), Some(("127.0.0.1".to_owned(), 7001)));
        assert_eq!(of("7629 :7001"), Some((String::new(), 7001)));
        assert_eq!(of("7629 ::1:7001"), Some(("::1".to_owned(), 7001)));
    }
}
