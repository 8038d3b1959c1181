//! One hold, from its grant to its end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::names::{hold_kind, lost_name, quoted};
use crate::base::clock::Moment;
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;

/// What is reported about a hold. That of an acquire which is given up never opens, and reports nothing.
#[derive(Default)]
pub(crate) struct HoldReport(Mutex<Phase>);

#[derive(Default)]
enum Phase {
    #[default]
    New,
    Open(Open),
    /// The hold has ended, perhaps before this opened.
    Ended(Option<Lost>),
}

struct Open {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
    began: Moment,
}

impl HoldReport {
    /// The hold is its caller's, in whose span it begins.
    pub(crate) fn open(&self, hold: &HoldRef) {
        #[cfg(feature = "metrics")]
        metrics::gauge!("dlock_client_holds", "kind" => hold_kind(hold)).increment(1.0);
        let open = Open {
            #[cfg(feature = "tracing")]
            span: span(hold),
            began: Moment::now(),
        };
        let mut phase = self.phase();
        if let Phase::Ended(lost) = *phase {
            drop(phase);
            open.end(hold, lost);
        } else {
            *phase = Phase::Open(open);
        }
    }

    /// The hold was lost, or its release begins.
    pub(crate) fn end(&self, hold: &HoldRef, lost: Option<Lost>) {
        let before = std::mem::replace(&mut *self.phase(), Phase::Ended(lost));
        if let Phase::Open(open) = before {
            open.end(hold, lost);
        }
    }

    /// The work, inside the span of the hold.
    pub(crate) fn instrument<F: Future>(&self, work: F) -> impl Future<Output = F::Output> {
        #[cfg(feature = "tracing")]
        let work = tracing::Instrument::instrument(work, self.span());
        work
    }

    #[cfg(feature = "tracing")]
    pub(super) fn span(&self) -> tracing::Span {
        match &*self.phase() {
            Phase::Open(open) => open.span.clone(),
            Phase::New | Phase::Ended(_) => tracing::Span::none(),
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn end(self, hold: &HoldRef, lost: Option<Lost>) {
        let time = Moment::now().since(self.began).as_secs_f64();
        #[cfg(feature = "tracing")]
        {
            self.span.record("dlock.outcome", lost.map_or("released", |_| "lost"));
            self.span.record("dlock.hold_s", time);
            if let Some(lost) = lost {
                self.span.record("otel.status_code", "ERROR");
                self.span.record("error.type", lost_name(lost));
                self.span.in_scope(|| {
                    tracing::warn!(
                        dlock.key = quoted(hold.key()),
                        dlock.token = hold.token(),
                        reason = lost_name(lost),
                        "hold lost: {lost}"
                    );
                });
            }
        }
        #[cfg(feature = "metrics")]
        {
            let kind = hold_kind(hold);
            metrics::gauge!("dlock_client_holds", "kind" => kind).decrement(1.0);
            metrics::histogram!("dlock_client_hold_seconds", "kind" => kind).record(time);
            if let Some(lost) = lost {
                let labels = [("kind", kind.into()), ("reason", lost_name(lost))];
                metrics::counter!("dlock_client_losses_total", &labels).increment(1);
            }
        }
    }
}

#[cfg(feature = "tracing")]
fn span(hold: &HoldRef) -> tracing::Span {
    use tracing::field::Empty;

    tracing::info_span!(
        "dlock.hold",
        otel.status_code = Empty,
        db.system.name = "redis",
        "error.type" = Empty,
        dlock.kind = hold_kind(hold),
        dlock.key = quoted(hold.key()),
        dlock.owner = quoted(&hold.owner),
        dlock.token = hold.token(),
        dlock.outcome = Empty,
        dlock.hold_s = Empty,
    )
}
