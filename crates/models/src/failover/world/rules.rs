//! The rules of a search.

/// A rule that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// 1: a new primary writes nothing before `n` replicas follow it.
    MinReplicas,
    /// 2: until then, leases and quarantine stand still.
    StandStill,
    /// 2: a quarantine at a promotion or a restart.
    QuarantineOfPrimary,
    /// 3: a quarantine when a replica comes online.
    QuarantineOfReplica,
    /// 4: `n` replicas have the grant.
    GrantConfirmed,
    /// 4: the server is not in quarantine when a new grant counts.
    GrantOutsideQuarantine,
    /// 4: the same for a grant to an owner that the server knows as the holder.
    ReentryOutsideQuarantine,
    /// 4: nor was it when such a request was sent.
    ReentrySentOutsideQuarantine,
    /// 5: `n` replicas have the renewal.
    RenewalConfirmed,
    /// 5: no quarantine began since the renewal was sent.
    NoQuarantineSince,
}

/// What a replica does with the stream of its primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// It applies it later, in order. A full copy is made first and comes online later.
    Lags,
    /// It acknowledges at once, and has any data when it is promoted. This allows all that `Lags` does, with fewer
    /// states, but its histories are not those of real servers.
    AnyData,
}

#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub servers: usize,
    /// `n`
    pub confirm: u8,
    pub lease: u8,
    pub quarantine: u8,
    pub stream: Stream,
    /// Replicas of replicas.
    pub chains: bool,
    pub without: &'static [Rule],
}

impl Rules {
    pub fn has(&self, rule: Rule) -> bool {
        !self.without.contains(&rule)
    }
}
