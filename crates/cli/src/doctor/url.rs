//! The servers that a URL names, and connections to them and to others of the same set-up.

use dlock_client::redis::aio::MultiplexedConnection;
use dlock_client::redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
    RedisResult, TlsCertificates,
};

use super::PATIENCE;

/// What a URL names.
#[derive(Debug, Default)]
pub struct Target {
    /// The server, or nodes of a cluster. With Sentinels: user, password and TLS of the servers.
    pub nodes: Vec<ConnectionInfo>,
    pub sentinels: Vec<ConnectionInfo>,
    /// What Sentinels call the primary.
    pub name: String,
    pub is_cluster: bool,
    /// How many replicas confirm the grants of a client with this URL.
    pub replicas: Option<u64>,
}

impl Target {
    /// Reads a URL that the client accepts: the client has better messages about others.
    pub fn parse(url: &str) -> RedisResult<Self> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let get = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(of, value)| *of == name && !value.is_empty()).map(|(_, value)| value)
        };
        let mut target = Self {
            is_cluster: scheme.ends_with("-cluster"),
            replicas: get("replicas").and_then(|number| number.parse().ok()),
            ..Self::default()
        };
        let Some((scheme, kind)) = scheme.split_once('-') else {
            target.nodes.push(url.into_connection_info()?);
            return Ok(target);
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (user, hosts) = hosts.split_at(hosts.rfind('@').map_or(0, |at| at + 1));
        let infos = |scheme: &str, user: &str| {
            let hosts = hosts.split(',').filter(|host| !host.is_empty());
            let info = |host| format!("{scheme}://{user}{host}/").into_connection_info();
            hosts.map(info).collect::<RedisResult<Vec<_>>>()
        };
        target.nodes = infos(scheme, user)?;
        if kind == "sentinel" {
            let tls = get("sentinel_tls");
            let scheme = tls.map_or(scheme, |tls| if tls == "yes" { "rediss" } else { "redis" });
            let user = get("sentinel_password").map(|password| {
                // These have a meaning before a host, and none in a query.
                let password = password.replace('/', "%2F").replace('?', "%3F").replace('#', "%23");
                format!("{}:{password}@", get("sentinel_username").unwrap_or("default"))
            });
            target.sentinels = infos(scheme, &user.unwrap_or_default())?;
            path.split('/').next().unwrap_or_default().clone_into(&mut target.name);
        }
        Ok(target)
    }
}

/// The same user, password and TLS at another address.
pub fn at(node: &ConnectionInfo, host: &str, port: u16) -> ConnectionInfo {
    let host = host.to_owned();
    node.clone().set_addr(match node.addr() {
        ConnectionAddr::TcpTls { insecure, .. } => {
            ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: None }
        }
        _ => ConnectionAddr::Tcp(host, port),
    })
}

/// Connects, with these certificates where TLS is spoken.
pub async fn open(
    info: &ConnectionInfo,
    tls: Option<&TlsCertificates>,
) -> RedisResult<MultiplexedConnection> {
    let has_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
    let client = match tls.filter(|_| has_tls) {
        Some(tls) => Client::build_with_tls(info.clone(), tls.clone())?,
        None => Client::open(info.clone())?,
    };
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
    client.get_multiplexed_async_connection_with_config(&config).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(info: &ConnectionInfo) -> String {
        let settings = info.redis_settings();
        let tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        let of = |text: Option<&str>| text.unwrap_or("-").to_owned();
        format!("{} {} {} {tls}", of(settings.username()), of(settings.password()), info.addr())
    }

    #[test]
    fn a_url_names_a_server_or_a_cluster() {
        for (url, nodes, is_cluster) in [
            ("rediss://u:p@h/2", &["u p h:6379 true"][..], false),
            ("unix:///run/s?user=u&pass=p", &["u p /run/s false"], false),
            ("redis-cluster://:p%40@a:1,b:2/", &["- p@ a:1 false", "- p@ b:2 false"], true),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(target.nodes.iter().map(text).collect::<Vec<_>>(), nodes, "{url}");
            assert_eq!((target.is_cluster, target.sentinels.len()), (is_cluster, 0), "{url}");
        }
    }

    #[test]
    fn sentinels_have_users_passwords_and_tls_of_their_own() {
        for (url, sentinel, node) in [
            ("redis-sentinel://u:p@a:1,b:2/main/3", "- - a:1 false", "u p a:1 false"),
            (
                "redis-sentinel://a:1/main?sentinel_password=x%2by",
                "default x+y a:1 false",
                "- - a:1 false",
            ),
            (
                "rediss-sentinel://:p@a:1/main?sentinel_tls=no&sentinel_username=s&sentinel_password=a/b?c#d@e",
                "s a/b?c#d@e a:1 false",
                "- p a:1 true",
            ),
            ("redis-sentinel://a:1/main?sentinel_tls=yes", "- - a:1 true", "- - a:1 false"),
        ] {
            let target = Target::parse(url).unwrap();
            assert_eq!(target.name, "main", "{url}");
            assert_eq!(text(&target.sentinels[0]), sentinel, "{url}");
            assert_eq!(text(&target.nodes[0]), node, "{url}");
        }
    }

    #[test]
    fn a_url_names_how_many_replicas_confirm() {
        for (url, replicas) in [
            ("redis://h", None),
            ("redis://h/1?replicas=2", Some(2)),
            ("unix:///s?user=u&replicas=2", Some(2)),
            ("redis-cluster://a:1,b:2?replicas=1", Some(1)),
            ("redis-sentinel://a/main?replicas=3&sentinel_password=x", Some(3)),
        ] {
            assert_eq!(Target::parse(url).unwrap().replicas, replicas, "{url}");
        }
    }

    #[test]
    fn another_address_keeps_user_and_tls() {
        for (url, other) in [
            ("rediss://u:p@h", "u p ::1:7 true"),
            ("unix:///run/s?user=u&pass=p", "u p ::1:7 false"),
        ] {
            let node = Target::parse(url).unwrap().nodes.remove(0);
            assert_eq!(text(&at(&node, "::1", 7)), other);
        }
    }
}
