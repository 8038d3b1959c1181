//! What all handles of a client share.

use std::sync::Arc;

use crate::context::Context;
use crate::flight::Flights;
use crate::registry::Registry;
use crate::route::Routes;

pub(crate) struct Core {
    pub(crate) ctx: Arc<Context>,
    pub(crate) registry: Arc<Registry>,
    pub(crate) routes: Arc<Routes>,
    pub(crate) flights: Flights,
}
