//! What clients do: they hear, let the algorithm take a step, and send what it says.

use std::{fmt::Write, time::Duration};

use super::{ANSWERED, Broken, Kind, Log, Mistake, Reply, Rules, TICK, World, name};
use crate::attempt::{Answer, Attempt, QuorumCall, QuorumRequest, Standing};

impl World {
    /// `None` if the client goes on waiting afterwards: then it may as well hear it later.
    pub(super) fn hear(
        &mut self,
        t: u8,
        heard: u8,
        cut: u8,
        wake: bool,
        rules: &Rules,
        log: &mut Log,
    ) -> Option<Result<(), Broken>> {
        let (mut acted, mut fine) = (false, Ok(()));
        for s in (0..3u8).filter(|s| (heard | cut) & (1 << s) != 0) {
            for (n, kind) in ANSWERED.into_iter().enumerate() {
                let a = &mut self.tries[usize::from(t)];
                let line = &mut a.lines[usize::from(s)];
                let reply = match kind {
                    Kind::Acquire => &mut line.acquired,
                    Kind::Fence => &mut line.fenced,
                    _ => &mut line.renewed,
                };
                let answer = match *reply {
                    _ if line.waits[n].is_none() => continue,
                    _ if cut & (1 << s) != 0 => Answer::Unknown,
                    Reply::None => continue,
                    Reply::No => Answer::No,
                    Reply::Token(token) => Answer::Token(token.into()),
                };
                *reply = Reply::None;
                let Some(round) = line.waits[n].take() else { continue };
                let request = match kind {
                    Kind::Acquire => QuorumRequest::Acquire,
                    Kind::Fence => QuorumRequest::Fence(a.token),
                    _ => QuorumRequest::Renew { token: a.token, round: round.into() },
                };
                say!(log, self, "{} hears from s{s} of {kind:?}: {answer:?}", name(t, rules));
                let (did, is_fine) = self.answered(t, s, request, answer, rules, log);
                acted |= did;
                fine = fine.and(is_fine);
            }
        }
        self.cuts -= u8::from(cut != 0);
        if wake {
            say!(log, self, "{} looks at its timer", name(t, rules));
            let (did, is_fine) = self.drive(t, rules, log, Attempt::tick);
            acted |= did;
            fine = fine.and(is_fine);
        }
        acted.then_some(fine)
    }

    pub(super) fn answered(
        &mut self,
        t: u8,
        s: u8,
        request: QuorumRequest,
        answer: Answer,
        rules: &Rules,
        log: &mut Log,
    ) -> (bool, Result<(), Broken>) {
        let call = QuorumCall { server: s.into(), request };
        let a = &mut self.tries[usize::from(t)];
        let first = a.lines.iter().filter(|line| line.waits[0].is_none()).count() == 1;
        if rules.mistake == Some(Mistake::LeaseFromFirstAnswer)
            && request == QuorumRequest::Acquire
            && first
        {
            a.begun = self.now;
        }
        let old = rules.mistake == Some(Mistake::OldValidity)
            && matches!(request, QuorumRequest::Fence(_));
        let then = TICK * u32::from(a.sent.unwrap_or(a.begun) - a.begun);
        self.drive(t, rules, log, |attempt, now| {
            attempt.answered(if old { then } else { now }, call, answer)
        })
    }

    /// Lets the algorithm take a step and sends what it says. Also says whether anything came of it.
    pub(super) fn drive(
        &mut self,
        t: u8,
        rules: &Rules,
        log: &mut Log,
        step: impl FnOnce(&mut Attempt, Duration) -> Vec<QuorumCall>,
    ) -> (bool, Result<(), Broken>) {
        let now = self.since(&self.tries[usize::from(t)]);
        let a = &mut self.tries[usize::from(t)];
        let Some(attempt) = &mut a.attempt else { return (false, Ok(())) };
        let before = attempt.standing();
        let calls = step(attempt, now);
        let after = attempt.standing();
        if let Standing::Held { until, token } = after {
            a.token = token;
            if before != after {
                let ticks = until.as_millis().div_ceil(TICK.as_millis());
                let late = a.sent.filter(|_| counts_from_now(before, rules));
                let late = late.map_or(0, |sent| self.now - sent);
                a.believes = Some(a.begun + u16::try_from(ticks).unwrap() + late);
            }
        } else {
            a.believes = None;
        }
        if before != after {
            say!(log, self, "{}: {after:?}", name(t, rules));
        }
        let acted = before != after || !calls.is_empty();
        let mut fine = Ok(());
        if before == Standing::Pending
            && let Standing::Held { token, .. } = after
        {
            if token <= self.top {
                say!(log, self, "but {} was returned before", self.top);
                fine = Err(Broken::TokenNotLarger);
            }
            self.top = self.top.max(token);
        }
        (acted, fine.and(self.send(t, calls, rules, log)))
    }

    pub(super) fn send(
        &mut self,
        t: u8,
        calls: Vec<QuorumCall>,
        rules: &Rules,
        log: &mut Log,
    ) -> Result<(), Broken> {
        let mut trusted = Vec::new();
        let a = &mut self.tries[usize::from(t)];
        for call in calls {
            let line = &mut a.lines[call.server];
            match call.request {
                QuorumRequest::Acquire => {
                    line.acquire = true;
                    line.waits[0] = Some(0);
                }
                QuorumRequest::Release | QuorumRequest::End => line.release = true,
                QuorumRequest::Renew { round, .. } => {
                    let round = Some(u8::try_from(round).unwrap());
                    line.renew = round;
                    line.renewed = Reply::None;
                    line.waits[2] = round;
                    a.sent = Some(self.now);
                }
                QuorumRequest::Fence(token) => {
                    a.token = token;
                    a.sent = Some(self.now);
                    line.fence = rules.mistake != Some(Mistake::NoWriteBack);
                    line.waits[1] = Some(0);
                    if matches!(
                        rules.mistake,
                        Some(Mistake::NoWriteBack | Mistake::TrustsUnacknowledged)
                    ) {
                        line.waits[1] = None;
                        trusted.push((call, Answer::Token(token)));
                    }
                }
            }
        }
        let mut fine = Ok(());
        for (call, answer) in trusted {
            let answered =
                |attempt: &mut Attempt, now: Duration| attempt.answered(now, call, answer);
            fine = fine.and(self.drive(t, rules, log, answered).1);
        }
        fine
    }
}

/// Whether an attempt makes the mistake to count its lease from now.
fn counts_from_now(before: Standing, rules: &Rules) -> bool {
    match rules.mistake {
        Some(Mistake::OldValidity) => before == Standing::Pending,
        Some(Mistake::LeaseFromRenewed) => matches!(before, Standing::Held { .. }),
        _ => false,
    }
}
