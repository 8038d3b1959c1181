//! Where to connect to, as a URL.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};

use crate::error::Error;

/// What a client connects to.
#[derive(Debug, Clone)]
pub(crate) enum Endpoints {
    Single(Box<ConnectionInfo>),
    Sentinel {
        sentinels: Vec<ConnectionInfo>,
        name: String,
        node: Box<ConnectionInfo>,
    },
    Cluster {
        nodes: Vec<ConnectionInfo>,
    },
    #[cfg(feature = "testing")]
    Fake(crate::testing::FakeServer),
}

impl Endpoints {
    /// The database whose keys are meant.
    pub(crate) fn db(&self) -> u32 {
        let node = match self {
            Self::Single(info) | Self::Sentinel { node: info, .. } => info,
            Self::Cluster { .. } => return 0,
            #[cfg(feature = "testing")]
            Self::Fake(_) => return 0,
        };
        u32::try_from(node.redis_settings().db()).unwrap_or(0)
    }

    /// `redis://`, `rediss://`, `unix://` as redis-rs reads them;
    /// `redis-sentinel://[user:password@]host:port,…/name[/db][?parameter=value&…]` and
    /// `redis-cluster://[user:password@]host:port,…`, with `rediss-` for TLS.
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        if let Some((scheme, rest)) = one_of(url, "sentinel") {
            let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
            let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
            let (name, db) = path.split_once('/').unwrap_or((path, ""));
            if name.is_empty() {
                return Err(Error::invalid(format!(
                    "{scheme}-sentinel:// needs the name of the primary: {scheme}-sentinel://host:26379/name"
                )));
            }
            let nodes = infos(scheme, hosts, db)?;
            let node = nodes.first().cloned().ok_or_else(no_host)?;
            let asked = SentinelQuery::parse(scheme, query)?;
            // User and password in front of the hosts are those of the servers.
            let bare = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
            let sentinels = infos(asked.scheme, bare, "")?;
            let mut endpoints =
                Self::Sentinel { sentinels, name: name.to_owned(), node: Box::new(node) };
            if let Some(password) = asked.password {
                endpoints.set_sentinel_credentials(&asked.user, &password);
            }
            return Ok(endpoints);
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

    /// User and password for the Sentinels, if there are some; without a user, the default one.
    pub(crate) fn set_sentinel_credentials(&mut self, user: &str, password: &str) {
        let Self::Sentinel { sentinels, .. } = self else { return };
        for sentinel in sentinels {
            let settings = sentinel.redis_settings().clone();
            let user = if user.is_empty() { "default" } else { user };
            let settings = settings.set_username(user).set_password(password);
            *sentinel = sentinel.clone().set_redis_settings(settings);
        }
    }

    /// The same with these certificates wherever TLS is spoken.
    pub(crate) fn with_certificates(self, tls: &TlsCertificates) -> Result<Self, Error> {
        let all = |infos: Vec<ConnectionInfo>| {
            infos.into_iter().map(|info| certified(info, tls)).collect::<Result<Vec<_>, _>>()
        };
        Ok(match self {
            Self::Single(info) => Self::Single(Box::new(certified(*info, tls)?)),
            Self::Cluster { nodes } => Self::Cluster { nodes: all(nodes)? },
            Self::Sentinel { sentinels, name, node } => {
                let of_sentinel =
                    |info| if has_tls(&info) { certified(info, tls) } else { Ok(info) };
                let sentinels = sentinels.into_iter().map(of_sentinel).collect::<Result<_, _>>()?;
                Self::Sentinel { sentinels, name, node: Box::new(certified(*node, tls)?) }
            }
            #[cfg(feature = "testing")]
            Self::Fake(_) => return Err(Error::invalid("the fake server does not speak TLS")),
        })
    }
}

/// How Sentinels are asked, as the query of a URL says.
struct SentinelQuery {
    scheme: &'static str,
    user: String,
    password: Option<String>,
}

impl SentinelQuery {
    fn parse(scheme: &'static str, query: &str) -> Result<Self, Error> {
        let mut asked = Self { scheme, user: String::new(), password: None };
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match (name, value) {
                ("sentinel_username", user) => asked.user = decoded(user)?,
                ("sentinel_password", password) => asked.password = Some(decoded(password)?),
                ("sentinel_tls", "yes") => asked.scheme = "rediss",
                ("sentinel_tls", "no") => asked.scheme = "redis",
                ("sentinel_tls", _) => return Err(Error::invalid("sentinel_tls is yes or no")),
                _ => {
                    return Err(Error::invalid(format!(
                        "the URL has an unknown parameter: {name} (sentinel_username, \
                         sentinel_password and sentinel_tls are known)"
                    )));
                }
            }
        }
        if asked.password.is_none() && !asked.user.is_empty() {
            return Err(Error::invalid("sentinel_username without sentinel_password"));
        }
        Ok(asked)
    }
}

/// With `%40` for `@` and so on, as in front of the hosts.
fn decoded(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| Error::invalid("bad URL: it is not UTF-8"))
}

fn has_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

/// The same with these certificates, which are read here: what is wrong with them is the caller's business, and is not
/// tried again.
fn certified(info: ConnectionInfo, tls: &TlsCertificates) -> Result<ConnectionInfo, Error> {
    if !has_tls(&info) {
        return Err(Error::invalid(
            "certificates are for TLS: rediss://, rediss-sentinel://, rediss-cluster://",
        ));
    }
    let chain = tls.client_tls.as_ref().map(|client| &client.client_cert);
    for (what, pem) in [("authority", tls.root_cert.as_ref()), ("client", chain)] {
        // An empty one would only show as a server that is not trusted.
        if pem.is_some_and(|pem| !pem.windows(BEGIN.len()).any(|text| text == BEGIN)) {
            return Err(Error::invalid(format!("the {what}'s certificate is not in PEM format")));
        }
    }
    let client = redis::Client::build_with_tls(info, tls.clone())
        .map_err(|error| Error::invalid(format!("bad certificates: {error}")))?;
    Ok(client.get_connection_info().clone())
}

/// How a certificate begins in PEM.
const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";

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
        let Ok(Endpoints::Sentinel { sentinels, name, node }) = Endpoints::parse(url) else {
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
    fn sentinels_have_users_passwords_and_tls_of_their_own() {
        let sentinels = |url: &str| {
            let Ok(Endpoints::Sentinel { sentinels, node, .. }) = Endpoints::parse(url) else {
                panic!("{url}")
            };
            let asked = sentinels[0].redis_settings().clone();
            let text = |text: Option<&str>| text.unwrap_or("-").to_owned();
            assert_eq!(node.redis_settings().password(), Some("p"), "{url}");
            let tls = (has_tls(&sentinels[0]), has_tls(&node));
            (text(asked.username()), text(asked.password()), tls)
        };
        let of = |user: &str, password: &str, tls| (user.to_owned(), password.to_owned(), tls);
        let plain = (false, false);
        for (url, expected) in [
            ("redis-sentinel://:p@a/main", of("-", "-", plain)),
            ("redis-sentinel://:p@a/main?sentinel_password=q", of("default", "q", plain)),
            (
                "redis-sentinel://:p@a/main/1?sentinel_username=u&sentinel_password=%26%c3%a4+%25",
                of("u", "&ä+%", plain),
            ),
            ("rediss-sentinel://:p@a/main", of("-", "-", (true, true))),
            ("rediss-sentinel://:p@a/main?sentinel_tls=no", of("-", "-", (false, true))),
            ("redis-sentinel://:p@a/main?sentinel_tls=yes", of("-", "-", (true, false))),
        ] {
            assert_eq!(sentinels(url), expected, "{url}");
        }
    }

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
}
