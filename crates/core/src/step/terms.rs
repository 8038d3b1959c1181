//! What a call asks for, and the terms of the hold that it gets.

use crate::base::shares::User;
use crate::base::time::Millis;
use crate::tables::queues::waiter::Waiter;
use crate::tables::settings::Settings;
use crate::value::hold::Notify;
use crate::value::wait_request::{Demand, WaitRequest};
use dlock_wire::request::{Acquire, Channel};

/// What a caller or a waiter asks for, in one form: the caller's arguments with the defaults of the server, and the
/// stored arguments of a waiter.
#[derive(Debug, Clone)]
pub(crate) struct Terms<'a> {
    pub owner: &'a [u8],
    /// Its connection.
    pub client: u64,
    pub demand: Demand,
    pub lease_ms: Millis,
    pub queue_ms: Option<Millis>,
    pub bind_ms: Option<Millis>,
    /// `None` keeps the label of a hold that exists.
    pub label: Option<&'a [u8]>,
    pub notify: Notify,
    pub reqid: Option<&'a [u8]>,
    /// Another hold of the same owner is an error.
    pub no_reentry: bool,
}

impl Terms<'_> {
    /// What a waiter keeps of them, besides its owner and its connection.
    pub fn to_wait_request(&self) -> WaitRequest {
        WaitRequest {
            demand: self.demand,
            lease_ms: self.lease_ms,
            queue_ms: self.queue_ms,
            notify: self.notify.clone(),
            request: self.reqid.map(Into::into),
            bind_ms: self.bind_ms,
            label: self.label.unwrap_or_default().into(),
            user: User::UNKNOWN,
        }
    }
}

impl Settings {
    /// The terms of a call of `client`.
    pub(crate) fn terms<'a>(&self, call: &Acquire<'a>, demand: Demand, client: u64) -> Terms<'a> {
        Terms {
            owner: call.owner,
            client,
            demand,
            lease_ms: call.lease_ms.unwrap_or(self.default_lease_ms),
            queue_ms: call.queue_ms,
            bind_ms: call.bind_ms,
            label: call.label,
            notify: match (call.notify, call.queue_ms) {
                (Some(Channel::Plain(name)), _) => Notify::Channel(name.into()),
                (Some(Channel::Sharded(name)), _) => Notify::Sharded(name.into()),
                (None, Some(_)) => Notify::Owner,
                (None, None) => Notify::Silent,
            },
            reqid: call.reqid,
            no_reentry: call.no_reentry,
        }
    }
}

impl Waiter {
    /// The terms that it waits with.
    pub(crate) fn terms(&self) -> Terms<'_> {
        let ask = &self.ask;
        Terms {
            owner: &self.owner,
            client: self.client,
            demand: ask.demand,
            lease_ms: ask.lease_ms,
            queue_ms: ask.queue_ms,
            bind_ms: ask.bind_ms,
            label: Some(&ask.label),
            notify: ask.notify.clone(),
            reqid: ask.request.as_deref(),
            no_reentry: false,
        }
    }
}
