//! The server and its version.

use std::ffi::CStr;
use std::sync::OnceLock;

use super::ctx::Ctx;
use crate::tried::{Server, is_tried};

/// The server that loaded the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Host {
    /// The product.
    pub server: Server,
    /// The server's version: major, minor, patch.
    pub version: (u32, u32, u32),
    /// The tests have run on this version.
    pub is_tried: bool,
    /// It runs in cluster mode; constant for the life of the process.
    pub is_cluster: bool,
    /// CLIENT UNBLOCK works for a module's blocked call. Before Redis 7.4 a race with a grant loses the reply (7.0)
    /// or aborts the server (7.2).
    pub client_unblock_is_sound: bool,
}

static HOST: OnceLock<Host> = OnceLock::new();

/// The server that loaded the module; `None` only before that.
#[inline]
pub fn host() -> Option<&'static Host> {
    HOST.get()
}

/// Whether the server runs in cluster mode.
#[inline]
pub fn is_cluster() -> bool {
    host().is_some_and(|host| host.is_cluster)
}

/// Detects the server. Called once, while the module loads.
pub(super) fn detect(ctx: Ctx<'_>) -> Host {
    let mut name = String::new();
    let mut valkey_version = String::new();
    let mut redis_version = String::new();
    // SAFETY: valid context and C strings; the data is freed after the last use of its texts.
    unsafe {
        let data = api!(RedisModule_GetServerInfo(ctx.as_ptr(), c"server".as_ptr()));
        for (field, into) in [
            (c"server_name", &mut name),
            (c"valkey_version", &mut valkey_version),
            (c"redis_version", &mut redis_version),
        ] {
            let text = api!(RedisModule_ServerInfoGetFieldC(data, field.as_ptr()));
            if !text.is_null() {
                *into = CStr::from_ptr(text).to_string_lossy().into_owned();
            }
        }
        api!(RedisModule_FreeServerInfo(ctx.as_ptr(), data));
    }
    let valkey = name == "valkey" || !valkey_version.is_empty();
    let (server, version) = if valkey {
        (Server::Valkey, version_of(&valkey_version))
    } else {
        (Server::Redis, version_of(&redis_version))
    };
    let host = Host {
        server,
        version,
        is_tried: is_tried(server, version.0, version.1),
        is_cluster: ctx.flags().cluster(),
        client_unblock_is_sound: match server {
            Server::Redis => version >= (7, 4, 0),
            Server::Valkey => version >= (8, 0, 0),
        },
    };
    *HOST.get_or_init(|| host)
}

fn version_of(text: &str) -> (u32, u32, u32) {
    let mut parts = text.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    (next(), next(), next())
}
