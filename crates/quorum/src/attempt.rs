//! The quorum algorithm without a clock and without I/O.
//!
//! An [`Attempt`] is one try to lock one key on several independent servers, and, if that succeeds, the lock until it
//! is released or lost. Times come in as the time since the first ACQUIRE was sent, answers as [`Answer`]; what is to
//! be sent goes out as [`QuorumCall`]s. So the same code is driven by the client and, through every order of events, by
//! the model test.
//!
//! 1. All servers are asked at once. A server that has not answered in time counts as one that refused.
//! 2. When a majority has granted, T is the largest of the granted tokens, and the servers that granted a smaller
//!    one are told to raise it: FENCE T. A server is part of the lock if it gave T itself, or answered FENCE with T:
//!    then the hold was in force, and whatever this server grants later has a larger token.
//! 3. The lock is held when a majority is part of it and some of the lease is left, counted from before the first
//!    ACQUIRE was sent to after the last FENCE was answered, less what clocks may drift.
//!
//! Why tokens grow: two majorities share a server. If A had the lock before B, that server granted to B after the
//! hold of A ended there, and A's T was its hold's token before, so it gave B a larger one; B's T is at least that.
//! This wants servers that forget no token: data kept across restarts, or none granted after a restart
//! (`dlock.restart-quarantine-ms`) until all leases from before have ended and the server's clock has passed all
//! clocks at the time of the restart.
//!
//! **An answer to FENCE above T** is not counted, and the hold is released. Only this attempt knows its owner, and it
//! raises to T alone: the server lost the granted hold, and a repeated ACQUIRE made another one.

use std::time::Duration;

/// What the clocks of client and server may run apart whatever the lease is: the servers count in milliseconds.
const DRIFT: Duration = Duration::from_millis(2);

/// How long servers that are a little slower than the majority are waited for in any case.
const SETTLE: Duration = Duration::from_millis(2);

/// How long things last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    /// The lease that every server is asked for.
    pub(crate) lease: Duration,
    /// How long one server may take for one answer.
    pub(crate) timeout: Duration,
}

impl Terms {
    /// When a lease ends for the client that was asked for at `since`: before it ends on any server.
    fn end_of_lease(self, since: Duration) -> Duration {
        (since + self.lease).saturating_sub(self.lease / 100 + DRIFT)
    }
}

/// What one server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QuorumRequest {
    /// ACQUIRE, not waiting.
    Acquire,
    /// FENCE with this token.
    Fence(u64),
    /// RENEW of the hold with this token. Answers count for their own round only.
    Renew { token: u64, round: u32 },
    /// RELEASE of what was or may have been granted too late, whatever the token. Its answer changes nothing.
    Release,
    /// RELEASE of a part of the lock that was held: its answer says whether the hold stood, and changes nothing here.
    End,
}

/// One thing to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct QuorumCall {
    /// Which server: its place in the list.
    pub(crate) server: usize,
    pub(crate) request: QuorumRequest,
}

/// What came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    /// A hold is in force and has this token.
    Token(u64),
    /// No hold of this owner (with this token): Null, `NOTHELD`, `QUARANTINE`.
    No,
    /// It may have been done or not: no answer, a lost connection, an error of another kind.
    Unknown,
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Failure {
    /// Others hold too many of the servers.
    Contended,
    /// Too many servers did not answer.
    Unreachable,
    /// The lease was used up, or some of a majority was lost, before all tokens were equal.
    TooLate,
}

/// Where an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Standing {
    Pending,
    /// The lock is held until then, unless it is renewed, released or lost before.
    Held {
        token: u64,
        until: Duration,
    },
    /// It was never held. `granted` servers had granted it.
    Failed {
        why: Failure,
        granted: usize,
    },
    /// It was held; its time ran out before a majority confirmed the renewal.
    Expired,
    /// It was held; a majority can no longer be part of it.
    Refused,
    Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Member {
    /// Asked, has not answered.
    Asked,
    /// Granted with this token.
    Granted(u64),
    /// Told to raise its token to T.
    Raising,
    /// Told to raise its token to T; whether it did is unknown. A RENEW will tell.
    Unsure,
    /// Part of the lock; confirmed the renewal of this round.
    Part { round: u32 },
    /// Did not grant: held by another, or it grants nothing now.
    Refused,
    /// Not part of it: silent, too late, or lost its hold. If a grant is possible, it was released.
    Out,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    /// `settle`: when a majority that has granted stops waiting for the others.
    Asking {
        settle: Option<Duration>,
    },
    /// FENCE was sent; answers are waited for until then.
    Raising {
        token: u64,
        until: Duration,
    },
    /// `since`: when the renewals of this round were sent.
    Held {
        token: u64,
        until: Duration,
        round: u32,
        since: Duration,
    },
    Over(Standing),
}

/// One try to lock a key on several servers, and the lock that comes of it. See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Attempt {
    terms: Terms,
    members: Vec<Member>,
    stage: Stage,
}

impl Attempt {
    /// Sends an ACQUIRE to each server. Now is time zero.
    pub(crate) fn start(servers: usize, terms: Terms) -> (Self, Vec<QuorumCall>) {
        let attempt = Self {
            terms,
            members: vec![Member::Asked; servers],
            stage: Stage::Asking { settle: None },
        };
        let acquire = |server| QuorumCall { server, request: QuorumRequest::Acquire };
        (attempt, (0..servers).map(acquire).collect())
    }

    /// How many servers make a majority.
    pub(crate) fn majority(&self) -> usize {
        self.members.len() / 2 + 1
    }

    pub(crate) fn standing(&self) -> Standing {
        match self.stage {
            Stage::Asking { .. } | Stage::Raising { .. } => Standing::Pending,
            Stage::Held { token, until, .. } => Standing::Held { token, until },
            Stage::Over(standing) => standing,
        }
    }

    /// When [`tick`](Self::tick) is due, if nothing is answered before.
    pub(crate) fn next_tick(&self) -> Option<Duration> {
        let timeout = self.terms.timeout;
        match self.stage {
            Stage::Asking { settle } => Some(settle.map_or(timeout, |settle| settle.min(timeout))),
            Stage::Raising { until, .. } | Stage::Held { until, .. } => Some(until),
            Stage::Over(_) => self.members.contains(&Member::Asked).then_some(timeout),
        }
    }

    /// Whether it failed, was lost or was released. Later grants are still released.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over(_))
    }

    /// A server answered `call`, or did not and never will ([`Answer::Unknown`]).
    pub(crate) fn answered(
        &mut self,
        now: Duration,
        call: QuorumCall,
        answer: Answer,
    ) -> Vec<QuorumCall> {
        let mut calls = Vec::new();
        let Some(&member) = self.members.get(call.server) else { return calls };
        let next = match call.request {
            QuorumRequest::Acquire => self.after_acquire(member, call.server, answer, &mut calls),
            QuorumRequest::Fence(token) => {
                after_fence(member, token, call.server, answer, &mut calls)
            }
            QuorumRequest::Renew { round, .. } => self.after_renew(member, round, answer),
            QuorumRequest::Release | QuorumRequest::End => member,
        };
        self.members[call.server] = next;
        self.go_on(now, &mut calls);
        calls
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Duration) -> Vec<QuorumCall> {
        let mut calls = Vec::new();
        match self.stage {
            Stage::Asking { .. } | Stage::Over(_) if now >= self.terms.timeout => {
                self.wait_no_longer(&mut calls);
            }
            Stage::Raising { until, .. } if now >= until => {
                for member in &mut self.members {
                    if *member == Member::Raising {
                        *member = Member::Unsure;
                    }
                }
            }
            _ => {}
        }
        self.go_on(now, &mut calls);
        calls
    }

    /// Asks every server that may be part of the lock for the whole lease again. Nothing if the lock is not held.
    pub(crate) fn renew(&mut self, now: Duration) -> Vec<QuorumCall> {
        let mut calls = Vec::new();
        self.go_on(now, &mut calls);
        if let Stage::Held { token, round, since, .. } = &mut self.stage {
            *round += 1;
            *since = now;
            let request = QuorumRequest::Renew { token: *token, round: *round };
            let members = self.members.iter().enumerate();
            let parts = members.filter(|(_, member)| may_be_part(member));
            calls.extend(parts.map(|(server, _)| QuorumCall { server, request }));
        }
        calls
    }

    /// Releases the lock, or gives the attempt up.
    pub(crate) fn release(&mut self) -> Vec<QuorumCall> {
        let mut calls = Vec::new();
        self.end(Standing::Released, &mut calls);
        calls
    }

    fn after_acquire(
        &self,
        member: Member,
        server: usize,
        answer: Answer,
        calls: &mut Vec<QuorumCall>,
    ) -> Member {
        let pending = member == Member::Asked && !self.is_over();
        match answer {
            Answer::Token(token) if pending => return Member::Granted(token),
            // Too late: there is an unwanted hold, or may be one again since the RELEASE that was sent.
            Answer::Token(_) => calls.push(QuorumCall { server, request: QuorumRequest::Release }),
            Answer::Unknown if member == Member::Asked => {
                calls.push(QuorumCall { server, request: QuorumRequest::Release });
            }
            Answer::No if member == Member::Asked => return Member::Refused,
            Answer::Unknown | Answer::No => {}
        }
        if member == Member::Asked { Member::Out } else { member }
    }

    fn after_renew(&self, member: Member, answered: u32, answer: Answer) -> Member {
        match (self.stage, answer) {
            (Stage::Held { round, .. }, Answer::Token(_))
                if answered == round && may_be_part(&member) =>
            {
                Member::Part { round }
            }
            // A hold that is gone does not come back with the same token, in any round.
            (Stage::Held { .. }, Answer::No) => Member::Out,
            _ => member,
        }
    }

    /// Takes the steps that the answers so far allow.
    fn go_on(&mut self, now: Duration, calls: &mut Vec<QuorumCall>) {
        if let Stage::Asking { settle } = self.stage {
            self.count_grants(now, settle, calls);
        }
        if let Stage::Raising { token, .. } = self.stage {
            self.count_raised(now, token, calls);
        }
        if let Stage::Held { token, until, round, since } = self.stage {
            // What has expired stays so, also if a renewal turns out to have come in time: others may have been told.
            if now >= until {
                return self.end(Standing::Expired, calls);
            }
            if self.count(may_be_part) < self.majority() {
                return self.end(Standing::Refused, calls);
            }
            let confirmed =
                self.count(|member| matches!(member, Member::Part { round: r } if *r == round));
            if confirmed >= self.majority() {
                let until = until.max(self.terms.end_of_lease(since));
                self.stage = Stage::Held { token, until, round, since };
            }
        }
    }

    fn count_grants(
        &mut self,
        now: Duration,
        settle: Option<Duration>,
        calls: &mut Vec<QuorumCall>,
    ) {
        let granted = self.count(|member| matches!(member, Member::Granted(_)));
        let asked = self.count(|member| *member == Member::Asked);
        if granted + asked < self.majority() || now >= self.terms.end_of_lease(Duration::ZERO) {
            return self.fail(now, calls);
        }
        if granted < self.majority() {
            return;
        }
        // Tokens of servers that answer a moment later are mostly larger: a server that is not waited for is left out.
        let settle = settle.unwrap_or(now * 2 + SETTLE);
        self.stage = Stage::Asking { settle: Some(settle) };
        if asked == 0 || now >= settle {
            self.wait_no_longer(calls);
            self.raise(now, calls);
        }
    }

    fn raise(&mut self, now: Duration, calls: &mut Vec<QuorumCall>) {
        let tokens = self.members.iter().filter_map(|member| match member {
            Member::Granted(token) => Some(*token),
            _ => None,
        });
        let Some(largest) = tokens.max() else { return };
        self.stage = Stage::Raising { token: largest, until: now + self.terms.timeout };
        for (server, member) in self.members.iter_mut().enumerate() {
            match *member {
                Member::Granted(token) if token == largest => *member = Member::Part { round: 0 },
                Member::Granted(_) => {
                    *member = Member::Raising;
                    calls.push(QuorumCall { server, request: QuorumRequest::Fence(largest) });
                }
                _ => {}
            }
        }
    }

    fn count_raised(&mut self, now: Duration, token: u64, calls: &mut Vec<QuorumCall>) {
        let part = self.count(|member| matches!(member, Member::Part { .. }));
        let raising = self.count(|member| *member == Member::Raising);
        let until = self.terms.end_of_lease(Duration::ZERO);
        if part + raising < self.majority() || now >= until {
            self.fail(now, calls);
        } else if part >= self.majority() {
            self.stage = Stage::Held { token, until, round: 0, since: Duration::ZERO };
        }
    }

    fn wait_no_longer(&mut self, calls: &mut Vec<QuorumCall>) {
        for (server, member) in self.members.iter_mut().enumerate() {
            if *member == Member::Asked {
                *member = Member::Out;
                calls.push(QuorumCall { server, request: QuorumRequest::Release });
            }
        }
    }

    fn fail(&mut self, now: Duration, calls: &mut Vec<QuorumCall>) {
        let silent = self.count(|member| *member == Member::Out);
        let why = match self.stage {
            _ if now >= self.terms.end_of_lease(Duration::ZERO) => Failure::TooLate,
            Stage::Asking { .. } if silent > self.members.len() - self.majority() => {
                Failure::Unreachable
            }
            Stage::Asking { .. } => Failure::Contended,
            _ => Failure::TooLate,
        };
        let granted =
            self.count(|member| matches!(member, Member::Granted(_) | Member::Part { .. }));
        self.end(Standing::Failed { why, granted }, calls);
    }

    /// Releases what was or may have been granted. A server that has not answered gets its RELEASE after its answer or
    /// its timeout.
    fn end(&mut self, standing: Standing, calls: &mut Vec<QuorumCall>) {
        if self.is_over() {
            return;
        }
        let held = matches!(self.stage, Stage::Held { .. });
        let request = if held { QuorumRequest::End } else { QuorumRequest::Release };
        self.stage = Stage::Over(standing);
        for (server, member) in self.members.iter_mut().enumerate() {
            match member {
                Member::Asked => {}
                Member::Refused | Member::Out => *member = Member::Out,
                Member::Granted(_) | Member::Raising | Member::Unsure | Member::Part { .. } => {
                    *member = Member::Out;
                    calls.push(QuorumCall { server, request });
                }
            }
        }
    }

    fn count(&self, which: impl Fn(&Member) -> bool) -> usize {
        self.members.iter().filter(|member| which(member)).count()
    }
}

fn may_be_part(member: &Member) -> bool {
    matches!(member, Member::Part { .. } | Member::Raising | Member::Unsure)
}

fn after_fence(
    member: Member,
    token: u64,
    server: usize,
    answer: Answer,
    calls: &mut Vec<QuorumCall>,
) -> Member {
    match answer {
        _ if !matches!(member, Member::Raising | Member::Unsure) => member,
        Answer::Token(raised) if raised == token => Member::Part { round: 0 },
        // Another hold than the one that was granted: see the module.
        Answer::Token(_) => {
            calls.push(QuorumCall { server, request: QuorumRequest::Release });
            Member::Out
        }
        Answer::No => Member::Out,
        Answer::Unknown => Member::Unsure,
    }
}
