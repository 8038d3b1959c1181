//! One acquire, from the call to its outcome.

use super::names::{error_name, target_kind};
#[cfg(feature = "tracing")]
use super::names::{operation, quoted};
use crate::base::clock::Moment;
use crate::base::error::Error;
use crate::base::target::Target;

/// Reports what becomes of an acquire of `target` (None: a quorum lock).
///
/// `key` is the first of several keys. `server` names the server that is asked; None: not known, or several. `token`
/// gives the fencing token of what was granted; 0: it has none.
pub(crate) async fn acquiring<T>(
    target: Option<Target>,
    key: &[u8],
    server: impl FnOnce() -> Option<String>,
    token: impl FnOnce(&T) -> u64,
    call: impl Future<Output = Result<Option<T>, Error>>,
) -> Result<Option<T>, Error> {
    let mut report = Report {
        #[cfg(feature = "metrics")]
        kind: target_kind(target),
        #[cfg(feature = "tracing")]
        span: span(target, key, server),
        began: Moment::now(),
        has_ended: false,
    };
    #[cfg(feature = "tracing")]
    let call = tracing::Instrument::instrument(call, report.span.clone());
    let outcome = call.await;
    match &outcome {
        Ok(Some(granted)) => {
            #[cfg(feature = "tracing")]
            report.span.record("dlock.token", token(granted));
            report.end("granted");
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
fn span(
    target: Option<Target>,
    key: &[u8],
    server: impl FnOnce() -> Option<String>,
) -> tracing::Span {
    use tracing::field::Empty;

    let span = tracing::info_span!(
        "dlock.acquire",
        otel.kind = "client",
        otel.status_code = Empty,
        otel.status_description = Empty,
        db.system.name = "redis",
        db.operation.name = operation(target),
        server.address = Empty,
        "error.type" = Empty,
        dlock.kind = target_kind(target),
        dlock.key = quoted(key),
        dlock.token = Empty,
        dlock.outcome = Empty,
        dlock.wait_s = Empty,
    );
    if !span.is_disabled()
        && let Some(server) = server()
    {
        span.record("server.address", server);
    }
    span
}
