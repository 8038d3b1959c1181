//! What all handles of a client share.

use std::sync::Arc;

use crate::base::context::Context;
use crate::base::flight::Flights;
use crate::connection::route::Routes;
use crate::registry::Registry;

pub(crate) struct Core {
    pub(crate) ctx: Arc<Context>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) flights: Flights,
}
