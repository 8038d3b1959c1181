//! One acquire, from the call to its outcome.

use super::names::{error_name, target_kind};
use crate::acquire::Handle;
use crate::clock::Moment;
use crate::error::Error;
use crate::hold::Hold;
#[cfg(feature = "quorum")]
use crate::quorum::{QuorumGuard, QuorumLock};

/// What is said of an acquire before its outcome is known.
pub(crate) trait Acquire {
    fn kind(&self) -> &'static str;

    #[cfg(feature = "tracing")]
    fn operation(&self) -> &'static str;

    /// The key; of several, the first.
    #[cfg(feature = "tracing")]
    fn key(&self) -> &[u8];

    /// The server that is asked. None: not known, or several.
    #[cfg(feature = "tracing")]
    fn server(&self) -> Option<String>;
}

/// What an acquire returns.
pub(crate) trait Granted {
    /// The hold is the caller's, in whose span it begins.
    fn open(&self);

    /// The fencing token; 0: it has none.
    #[cfg(feature = "tracing")]
    fn token(&self) -> u64;
}

impl Acquire for Handle {
    fn kind(&self) -> &'static str {
        target_kind(self.target)
    }

    #[cfg(feature = "tracing")]
    fn operation(&self) -> &'static str {
        super::names::operation(self.target)
    }

    #[cfg(feature = "tracing")]
    fn key(&self) -> &[u8] {
        self.keys.first()
    }

    #[cfg(feature = "tracing")]
    fn server(&self) -> Option<String> {
        self.core.routes.server_of(self.keys.first()).map(|server| server.name.clone())
    }
}

impl Granted for Hold {
    fn open(&self) {
        self.tracked.report.open(&self.tracked);
    }

    #[cfg(feature = "tracing")]
    fn token(&self) -> u64 {
        Self::token(self)
    }
}

#[cfg(feature = "quorum")]
impl Acquire for QuorumLock {
    fn kind(&self) -> &'static str {
        "quorum"
    }

    #[cfg(feature = "tracing")]
    fn operation(&self) -> &'static str {
        super::names::operation(crate::acquire::Target::Lock(crate::family::Family::Lock))
    }

    #[cfg(feature = "tracing")]
    fn key(&self) -> &[u8] {
        Self::key(self)
    }

    #[cfg(feature = "tracing")]
    fn server(&self) -> Option<String> {
        None
    }
}

#[cfg(feature = "quorum")]
impl Granted for QuorumGuard {
    // Its hold is not reported: each server has a part of it.
    fn open(&self) {}

    #[cfg(feature = "tracing")]
    fn token(&self) -> u64 {
        (**self).token()
    }
}

/// Reports what becomes of an acquire.
pub(crate) async fn acquiring<T: Granted>(
    acquire: &impl Acquire,
    call: impl Future<Output = Result<Option<T>, Error>>,
) -> Result<Option<T>, Error> {
    let mut report = Report::begin(acquire);
    #[cfg(feature = "tracing")]
    let call = tracing::Instrument::instrument(call, report.span.clone());
    let outcome = call.await;
    match &outcome {
        Ok(Some(granted)) => {
            #[cfg(feature = "tracing")]
            report.span.record("dlock.token", granted.token());
            report.end("granted");
            granted.open();
        }
        Ok(None) => report.end("not_granted"),
        Err(error) => {
            #[cfg(feature = "tracing")]
            report.failed(error);
            report.end(error_name(error.kind()));
        }
    }
    outcome
}

/// An acquire under way. Dropped before its outcome is known, its caller gave up.
struct Report {
    #[cfg(feature = "metrics")]
    kind: &'static str,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
    began: Moment,
    has_ended: bool,
}

impl Report {
    fn begin(acquire: &impl Acquire) -> Self {
        Self {
            #[cfg(feature = "metrics")]
            kind: acquire.kind(),
            #[cfg(feature = "tracing")]
            span: span(acquire),
            began: Moment::now(),
            has_ended: false,
        }
    }

    #[cfg(feature = "tracing")]
    fn failed(&self, error: &Error) {
        self.span.record("otel.status_code", "ERROR");
        self.span.record("otel.status_description", tracing::field::display(error));
        self.span.record("error.type", error_name(error.kind()));
    }

    fn end(&mut self, outcome: &'static str) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let waited = Moment::now().since(self.began);
        #[cfg(feature = "tracing")]
        {
            self.span.record("dlock.outcome", outcome);
            self.span.record("dlock.wait_s", waited.as_secs_f64());
        }
        #[cfg(feature = "metrics")]
        {
            let labels = [("kind", self.kind), ("outcome", outcome)];
            metrics::counter!("dlock_client_acquires_total", &labels).increment(1);
            metrics::histogram!("dlock_client_wait_seconds", &labels).record(waited.as_secs_f64());
        }
    }
}

impl Drop for Report {
    fn drop(&mut self) {
        self.end("cancelled");
    }
}

#[cfg(feature = "tracing")]
fn span(acquire: &impl Acquire) -> tracing::Span {
    use tracing::field::Empty;

    let span = tracing::info_span!(
        "dlock.acquire",
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        db.system.name = "redis",
        db.operation.name = acquire.operation(),
        server.address = Empty,
        "error.type" = Empty,
        dlock.kind = acquire.kind(),
        dlock.key = super::names::quoted(acquire.key()),
        dlock.token = Empty,
        dlock.outcome = Empty,
        dlock.wait_s = Empty,
    );
    if !span.is_disabled()
        && let Some(server) = acquire.server()
    {
        span.record("server.address", server);
    }
    span
}
