//! One hold, from its grant to its end.

use std::sync::{Mutex, PoisonError};

use super::names::{hold_kind, lost_name};
use crate::base::clock::Moment;
use crate::base::hold_ref::HoldRef;
use crate::base::lost::Lost;

/// What is reported about a hold. That of an acquire which is given up never opens, and reports nothing.
#[derive(Default)]
pub(crate) struct HoldReport {
    phase: Mutex<Phase>,
}

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
    #[cfg(feature = "metrics")]
    kind: &'static str,
    began: Moment,
}

impl HoldReport {
    /// The hold is its caller's, in whose span it begins.
    pub(crate) fn open(&self, hold: &HoldRef) {
        let open = Open::new(hold);
        let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        if let Phase::Ended(lost) = *phase {
            drop(phase);
            open.end(hold, lost);
        } else {
            *phase = Phase::Open(open);
        }
    }

    /// The hold was lost, or its release begins.
    pub(crate) fn end(&self, hold: &HoldRef, lost: Option<Lost>) {
        let before = {
            let mut phase = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *phase, Phase::Ended(lost))
        };
        if let Phase::Open(open) = before {
            open.end(hold, lost);
        }
    }

    /// The work, inside the span of the hold.
    #[cfg(feature = "tracing")]
    pub(crate) fn instrument<F: Future>(&self, work: F) -> tracing::instrument::Instrumented<F> {
        tracing::Instrument::instrument(work, self.span())
    }

    /// The work.
    #[cfg(not(feature = "tracing"))]
    #[allow(clippy::unused_self)]
    pub(crate) fn instrument<F: Future>(&self, work: F) -> F {
        work
    }

    /// Runs `report` inside the span of the hold.
    #[cfg(feature = "tracing")]
    pub(super) fn in_span(&self, report: impl FnOnce()) {
        self.span().in_scope(report);
    }

    #[cfg(feature = "tracing")]
    fn span(&self) -> tracing::Span {
        match &*self.phase.lock().unwrap_or_else(PoisonError::into_inner) {
            Phase::Open(open) => open.span.clone(),
            Phase::New | Phase::Ended(_) => tracing::Span::none(),
        }
    }
}

impl Open {
    fn new(hold: &HoldRef) -> Self {
        let kind = hold_kind(hold);
        #[cfg(feature = "metrics")]
        metrics::gauge!("dlock_client_holds", "kind" => kind).increment(1.0);
        Self {
            #[cfg(feature = "tracing")]
            span: span(hold, kind),
            #[cfg(feature = "metrics")]
            kind,
            began: Moment::now(),
        }
    }

    fn end(self, hold: &HoldRef, lost: Option<Lost>) {
        let time = Moment::now().since(self.began);
        #[cfg(feature = "tracing")]
        {
            self.span.record("dlock.outcome", lost.map_or("released", |_| "lost"));
            self.span.record("dlock.hold_s", time.as_secs_f64());
            if let Some(lost) = lost {
                self.span.record("otel.status_code", "ERROR");
                self.span.record("error.type", lost_name(lost));
                self.span.in_scope(|| {
                    tracing::warn!(
                        dlock.key = super::names::quoted(hold.key()),
                        dlock.token = hold.token(),
                        reason = lost_name(lost),
                        "hold lost: {lost}"
                    );
                });
            }
        }
        #[cfg(feature = "metrics")]
        {
            let kind = self.kind;
            metrics::gauge!("dlock_client_holds", "kind" => kind).decrement(1.0);
            metrics::histogram!("dlock_client_hold_seconds", "kind" => kind)
                .record(time.as_secs_f64());
            if let Some(lost) = lost {
                let labels = [("kind", kind), ("reason", lost_name(lost))];
                metrics::counter!("dlock_client_losses_total", &labels).increment(1);
            }
        }
    }
}

#[cfg(feature = "tracing")]
fn span(hold: &HoldRef, kind: &str) -> tracing::Span {
    use tracing::field::Empty;

    tracing::info_span!(
        "dlock.hold",
        otel.status_code = Empty,
        db.system.name = "redis",
        "error.type" = Empty,
        dlock.kind = kind,
        dlock.key = super::names::quoted(hold.key()),
        dlock.owner = super::names::quoted(&hold.owner),
        dlock.token = hold.token(),
        dlock.outcome = Empty,
        dlock.hold_s = Empty,
    )
}
