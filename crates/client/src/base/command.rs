//! Requests as redis-rs sends them.

use dlock_wire::request::Request;
use redis::{Cmd, RedisError};

/// The address in MOVED and ASK; an empty host is that of the server that sent it.
pub(crate) fn redirect(error: &RedisError) -> Option<NodeAddress> {
    // What redis-rs calls a node is its address and a slot.
    let (address, _slot) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    Some(NodeAddress { host: host.trim_matches(['[', ']']).to_owned(), port: port.parse().ok()? })
}

/// Where a node of a cluster is, as another one names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// The request as redis-rs sends it.
pub fn command<'a>(request: impl Into<Request<'a>>) -> Cmd {
    let request = request.into();
    // An acquire with all that this client sends fits: growing step by step costs more than the rest.
    let mut cmd = Cmd::with_capacity(16, 256);
    cmd.arg(request.id().name());
    request.each_arg(|arg| {
        cmd.arg(arg);
    });
    cmd
}

#[cfg(test)]
mod tests {
    use super::redirect;

    #[test]
    fn a_redirection_names_host_and_port() {
        let of = |detail: &str| {
            let error = redis::make_extension_error("MOVED".to_owned(), Some(detail.to_owned()));
            let parsed = redis::parse_redis_value(format!("-MOVED {detail}\r\n").as_bytes());
            let parsed = parsed.and_then(redis::Value::extract_error).err().unwrap_or(error);
            redirect(&parsed).map(|to| (to.host, to.port))
        };
        assert_eq!(of("7629 127.0.0.1:7001"), Some(("127.0.0.1".to_owned(), 7001)));
        assert_eq!(of("7629 :7001"), Some((String::new(), 7001)));
        assert_eq!(of("7629 ::1:7001"), Some(("::1".to_owned(), 7001)));
    }
}
