//! One acquire, from the call to its outcome.

use std::borrow::Cow;

use super::names::{error_name, operation, quoted, target_kind};
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
        kind: target_kind(target),
        #[cfg(feature = "tracing")]
        span: span(target, key, server),
        began: Moment::now(),
        outcome: "cancelled".into(),
    };
    #[cfg(feature = "tracing")]
    let call = tracing::Instrument::instrument(call, report.span.clone());
    let acquired = call.await;
    report.outcome = match &acquired {
        Ok(Some(granted)) => {
            #[cfg(feature = "tracing")]
            report.span.record("dlock.token", token(granted));
            "granted".into()
        }
        Ok(None) => "not_granted".into(),
        Err(error) => {
            let name = error_name(error.kind());
            #[cfg(feature = "tracing")]
            {
                report.span.record("otel.status_code", "ERROR");
                report.span.record("otel.status_description", tracing::field::display(error));
                report.span.record("error.type", &name);
            }
            name.into()
        }
    };
    acquired
}

/// An acquire under way, which is reported when it is dropped: before the outcome is known, if its caller gave up.
struct Report {
    kind: &'static str,
    #[cfg(feature = "tracing")]
    span: tracing::Span,
    began: Moment,
    outcome: Cow<'static, str>,
}

impl Drop for Report {
    fn drop(&mut self) {
        let waited = Moment::now().since(self.began).as_secs_f64();
        #[cfg(feature = "tracing")]
        {
            self.span.record("dlock.outcome", &*self.outcome);
            self.span.record("dlock.wait_s", waited);
        }
        #[cfg(feature = "metrics")]
        {
            let labels = [("kind", self.kind.into()), ("outcome", self.outcome.clone())];
            metrics::counter!("dlock_client_acquires_total", &labels).increment(1);
            metrics::histogram!("dlock_client_wait_seconds", &labels).record(waited);
        }
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
