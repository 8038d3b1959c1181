//! Where to connect to, as a URL.

use redis::{ConnectionInfo, IntoConnectionInfo};

use crate::error::Error;

/// What a client connects to.
#[derive(Debug, Clone)]
pub(crate) enum Target {
    Single(Box<ConnectionInfo>),
    Sentinel { sentinels: Vec<ConnectionInfo>, name: String, node: Box<ConnectionInfo> },
    Cluster { nodes: Vec<ConnectionInfo> },
}

impl Target {
    /// The database whose keys are meant.
    pub(crate) fn db(&self) -> u32 {
        let node = match self {
            Self::Single(info) | Self::Sentinel { node: info, .. } => info,
            Self::Cluster { .. } => return 0,
        };
        u32::try_from(node.redis_settings().db()).unwrap_or(0)
    }

    /// `redis://`, `rediss://`, `unix://` as redis-rs reads them;
    /// `redis-sentinel://[user:password@]host:port,…/name[/db]` and `redis-cluster://[user:password@]host:port,…`,
    /// with `rediss-` for TLS.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        if let Some((scheme, rest)) = one_of(url, "sentinel") {
            let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
            let (name, db) = path.split_once('/').unwrap_or((path, ""));
            if name.is_empty() {
                return Err(Error::invalid(format!(
                    "{scheme}-sentinel:// needs the name of the primary: {scheme}-sentinel://host:26379/name"
                )));
            }
            let nodes = infos(scheme, hosts, db)?;
            let node = nodes.first().cloned().ok_or_else(no_host)?;
            // User and password are those of the servers: Sentinels are asked without.
            let bare = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
            let sentinels = infos("redis", bare, "")?;
            return Ok(Self::Sentinel { sentinels, name: name.to_owned(), node: Box::new(node) });
        }
        if let Some((scheme, rest)) = one_of(url, "cluster") {
            let hosts = rest.trim_end_matches('/');
            if hosts.contains('/') {
                return Err(Error::invalid("a cluster has no database number but 0"));
            }
            return Ok(Self::Cluster { nodes: infos(scheme, hosts, "")? });
        }
        Ok(Self::Single(Box::new(info(url)?)))
    }
}

/// `redis` or `rediss`, and what follows `://`.
fn one_of<'a>(url: &'a str, what: &str) -> Option<(&'static str, &'a str)> {
    let (scheme, rest) = url.split_once("://")?;
    match scheme.split_once('-')? {
        ("redis", kind) if kind == what => Some(("redis", rest)),
        ("rediss", kind) if kind == what => Some(("rediss", rest)),
        _ => None,
    }
}

fn infos(scheme: &str, hosts: &str, db: &str) -> Result<Vec<ConnectionInfo>, Error> {
    let (user, hosts) = hosts.rsplit_once('@').map_or(("", hosts), |(user, hosts)| (user, hosts));
    let at = if user.is_empty() { "" } else { "@" };
    let of = |host: &str| info(&format!("{scheme}://{user}{at}{host}/{db}"));
    let infos =
        hosts.split(',').filter(|host| !host.is_empty()).map(of).collect::<Result<Vec<_>, _>>()?;
    if infos.is_empty() { Err(no_host()) } else { Ok(infos) }
}

fn no_host() -> Error {
    Error::invalid("the URL names no host")
}

fn info(url: &str) -> Result<ConnectionInfo, Error> {
    // The URL may hold a password: it is not repeated in the text.
    url.into_connection_info().map_err(|error| Error::invalid(format!("bad URL: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentinel_url_names_hosts_primary_and_database() {
        let url = "redis-sentinel://u:p@one:26379,two:26380/main/3";
        let Ok(Target::Sentinel { sentinels, name, node }) = Target::parse(url) else {
            panic!("{url}")
        };
        assert_eq!(sentinels.len(), 2);
        assert_eq!(name, "main");
        assert_eq!(node.redis_settings().db(), 3);
        assert_eq!(node.redis_settings().username(), Some("u"));
        assert_eq!(sentinels[1].redis_settings().username(), None);
        assert_eq!(sentinels[1].addr().to_string(), "two:26380");
    }

    #[test]
    fn a_cluster_url_names_hosts() {
        let Ok(Target::Cluster { nodes }) = Target::parse("rediss-cluster://:p@a:1,b:2/") else {
            panic!("a cluster")
        };
        assert_eq!(nodes.len(), 2);
        assert_eq!(nodes[1].redis_settings().password(), Some("p"));
    }

    #[test]
    fn what_is_wrong_with_a_url_is_said_without_its_password() {
        for url in [
            "redis-sentinel://host",
            "redis-cluster:///",
            "redis-cluster://a/1",
            "http://a:secret@b",
        ] {
            let Err(error) = Target::parse(url) else { panic!("{url}") };
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
