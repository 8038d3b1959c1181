//! Where to connect to, as a URL.

#[cfg(feature = "sentinel")]
pub(crate) mod sentinel;

#[cfg(feature = "sentinel")]
use std::iter;
use std::sync::Arc;

use redis::{ConnectionInfo, IntoConnectionInfo};

#[cfg(feature = "sentinel")]
use self::sentinel::NamedPrimary;
use crate::base::dialer::Dial;
use crate::base::error::Error;
use crate::base::tls::has_tls;

/// What a client connects to.
#[derive(Debug, Clone)]
pub(crate) enum Endpoints {
    Single(Box<ConnectionInfo>),
    #[cfg(feature = "sentinel")]
    Sentinel(Box<NamedPrimary>),
    Cluster {
        nodes: Vec<ConnectionInfo>,
    },
    /// Whatever that leads to.
    Given(Arc<dyn Dial>),
}

impl Endpoints {
    /// The database whose keys are meant.
    pub(crate) fn db(&self) -> u32 {
        let node = match self {
            Self::Single(info) => info,
            #[cfg(feature = "sentinel")]
            Self::Sentinel(sentinels) => &sentinels.node,
            Self::Cluster { .. } | Self::Given(_) => return 0,
        };
        u32::try_from(node.redis_settings().db()).unwrap_or(0)
    }

    /// `redis://`, `rediss://`, `unix://` as redis-rs reads them;
    /// `redis-sentinel://[user:password@]host:port,…/name[/db][?parameter=value&…]` and
    /// `redis-cluster://[user:password@]host:port,…`, with `rediss-` for TLS.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        let (schemes, rest) = url.split_once("://").unwrap_or_default();
        match schemes.split_once('-') {
            #[cfg(feature = "sentinel")]
            Some((scheme @ ("redis" | "rediss"), "sentinel")) => {
                NamedPrimary::parse(scheme, rest).map(|named| Self::Sentinel(Box::new(named)))
            }
            Some((scheme @ ("redis" | "rediss"), "cluster")) if cfg!(feature = "cluster") => {
                cluster(scheme, rest)
            }
            Some(("redis" | "rediss", feature)) if ["sentinel", "cluster"].contains(&feature) => {
                let text = format!("{schemes}:// needs the feature `{feature}` of dlock-client");
                Err(Error::invalid(text))
            }
            _ => Ok(Self::Single(Box::new(info(url)?))),
        }
    }

    /// How the servers are spoken to, and the Sentinels: the first is a server.
    fn infos(&mut self) -> Vec<&mut ConnectionInfo> {
        match self {
            Self::Single(info) => vec![info],
            #[cfg(feature = "sentinel")]
            Self::Sentinel(named) => {
                let NamedPrimary { node, sentinels, .. } = &mut **named;
                iter::once(node).chain(sentinels).collect()
            }
            Self::Cluster { nodes } => nodes.iter_mut().collect(),
            Self::Given(_) => Vec::new(),
        }
    }

    /// Whether TLS is spoken anywhere.
    pub(crate) fn has_tls(&mut self) -> bool {
        self.infos().iter().any(|info| has_tls(info))
    }

    /// Sets these certificates wherever TLS is spoken. They are read here: what is wrong with them is the caller's
    /// business, and is not tried again.
    #[cfg(feature = "tls-rustls")]
    pub(crate) fn certify(&mut self, tls: &redis::TlsCertificates) -> Result<(), Error> {
        let infos = self.infos();
        if !infos.first().is_some_and(|server| has_tls(server)) {
            return Err(Error::invalid(
                "certificates are for TLS: rediss://, rediss-sentinel://, rediss-cluster://",
            ));
        }
        for info in infos.into_iter().filter(|info| has_tls(info)) {
            let client = redis::Client::build_with_tls(info.clone(), tls.clone())
                .map_err(|error| Error::invalid(format!("bad certificates: {error}")))?;
            *info = client.get_connection_info().clone();
        }
        #[cfg(feature = "sentinel")]
        if let Self::Sentinel(named) = self {
            named.tls = Some(tls.clone());
        }
        Ok(())
    }
}

/// Takes the parameter `replicas` out of a URL, which may be of any kind.
pub(crate) fn take_replicas(url: &str) -> Result<(String, Option<u32>), Error> {
    let (before, parameters) = url.rsplit_once('?').unwrap_or((url, ""));
    let is_it = |parameter: &&str| parameter.starts_with("replicas=");
    let (ours, others): (Vec<_>, Vec<_>) = parameters.split('&').partition(is_it);
    let count = match *ours {
        [] => return Ok((url.to_owned(), None)),
        [ours] => ours.trim_start_matches("replicas=").parse(),
        _ => return Err(Error::invalid("replicas is given twice in the URL")),
    };
    let count = count.map_err(|_| Error::invalid("replicas in the URL must be a number"))?;
    let mark = if others.is_empty() { "" } else { "?" };
    Ok((format!("{before}{mark}{}", others.join("&")), Some(count)))
}

/// What follows `redis-cluster://` or `rediss-cluster://`.
fn cluster(scheme: &str, rest: &str) -> Result<Endpoints, Error> {
    let hosts = rest.trim_end_matches('/');
    if hosts.contains('/') {
        return Err(Error::invalid("a cluster has no database number but 0"));
    }
    Ok(Endpoints::Cluster { nodes: infos(scheme, hosts, "")? })
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
    url.into_connection_info().map_err(|error| {
        let error = Error::invalid(format!("bad URL: {error}"));
        error.hint("it must be like redis://user:password@host:6379/0, with %40 for each @ in user and password")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(all(feature = "cluster", feature = "tls-rustls"))]
    #[test]
    fn a_cluster_url_names_hosts() {
        let Ok(Endpoints::Cluster { nodes }) = Endpoints::parse("rediss-cluster://:p@a:1,b:2/")
        else {
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
            "redis-sentinel://a/main?sentinel_username=u",
            "redis-sentinel://a/main?sentinel_password=secret%ff",
            "redis-sentinel://a/main?sentinel_tls=maybe",
            "redis-sentinel://a/main?password=secret",
            "redis-cluster://a/1",
            "http://a:secret@b",
        ] {
            let Err(error) = Endpoints::parse(url) else { panic!("{url}") };
            assert_eq!(error.kind(), crate::ErrorKind::Invalid, "{url}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }

    #[test]
    fn a_url_that_does_not_parse_shows_one_that_does() {
        for url in ["", "localhost:6379", "redis://a:6379x", "http://a"] {
            let Err(error) = Endpoints::parse(url) else { panic!("{url}") };
            assert!(error.to_string().contains("redis://user:password@host:6379/0"), "{error}");
        }
    }

    #[test]
    fn a_url_that_needs_a_feature_says_which() {
        for (url, feature, is_there) in [
            ("redis-cluster://host", "`cluster`", cfg!(feature = "cluster")),
            ("redis-sentinel://host/main", "`sentinel`", cfg!(feature = "sentinel")),
        ] {
            match Endpoints::parse(url) {
                Ok(_) => assert!(is_there, "{url}"),
                Err(error) => {
                    assert_eq!(error.kind(), crate::ErrorKind::Invalid);
                    assert!(!is_there && error.to_string().contains(feature), "{error}");
                }
            }
        }
    }
}
