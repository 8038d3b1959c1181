//! Sentinels and the primary that they name, as a URL.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use redis::{ConnectionInfo, RedisConnectionInfo};

use super::{infos, no_host};
use crate::base::error::Error;

/// A name, the Sentinels that know its primary, and the settings of the servers.
#[derive(Debug, Clone)]
pub(crate) struct NamedPrimary {
    pub(crate) sentinels: Vec<ConnectionInfo>,
    /// Of the primary.
    pub(crate) name: String,
    /// Settings of the servers; its address is not used.
    pub(crate) node: ConnectionInfo,
    /// Certificates for the servers. Those for the Sentinels are part of their addresses.
    #[cfg(feature = "tls-rustls")]
    pub(crate) tls: Option<redis::TlsCertificates>,
}

impl NamedPrimary {
    pub(crate) fn new(sentinels: Vec<ConnectionInfo>, name: &str, node: ConnectionInfo) -> Self {
        Self {
            sentinels,
            name: name.to_owned(),
            node,
            #[cfg(feature = "tls-rustls")]
            tls: None,
        }
    }

    /// What follows `redis-sentinel://` or `rediss-sentinel://`.
    pub(super) fn parse(scheme: &str, rest: &str) -> Result<Self, Error> {
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
        let (mut asked_by, mut user, mut password) = (scheme, String::new(), None);
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=').unwrap_or((parameter, "")) {
                ("sentinel_username", name) => user = decoded(name)?,
                ("sentinel_password", secret) => password = Some(decoded(secret)?),
                ("sentinel_tls", "yes") => asked_by = "rediss",
                ("sentinel_tls", "no") => asked_by = "redis",
                ("sentinel_tls", _) => return Err(Error::invalid("sentinel_tls is yes or no")),
                (name, _) => {
                    return Err(Error::invalid(format!(
                        "the URL has an unknown parameter: {name} (sentinel_username, \
                         sentinel_password and sentinel_tls are known)"
                    )));
                }
            }
        }
        // User and password in front of the hosts are those of the servers.
        let bare = hosts.rsplit_once('@').map_or(hosts, |(_, hosts)| hosts);
        let mut named = Self::new(infos(asked_by, bare, "")?, name, node);
        match password {
            Some(password) => named.set_credentials(&credentials(&user, &password)),
            None if user.is_empty() => {}
            None => return Err(Error::invalid("sentinel_username without sentinel_password")),
        }
        Ok(named)
    }

    /// Asks all Sentinels with this user and password.
    pub(crate) fn set_credentials(&mut self, credentials: &RedisConnectionInfo) {
        for sentinel in &mut self.sentinels {
            *sentinel = sentinel.clone().set_redis_settings(credentials.clone());
        }
    }
}

/// User and password for Sentinels; without a user, the default one.
pub(crate) fn credentials(user: &str, password: &str) -> RedisConnectionInfo {
    let user = if user.is_empty() { "default" } else { user };
    RedisConnectionInfo::default().set_username(user).set_password(password)
}

/// With `%40` for `@` and so on, as in front of the hosts.
fn decoded(text: &str) -> Result<String, Error> {
    let decoded = percent_decode_str(text).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| Error::invalid("bad URL: it is not UTF-8"))
}

#[cfg(test)]
#[cfg(feature = "tls-rustls")]
mod tests {
    use super::*;
    use crate::base::tls::has_tls;
    use crate::base::url::Endpoints;

    fn parse(url: &str) -> NamedPrimary {
        match Endpoints::parse(url) {
            Ok(Endpoints::Sentinel(sentinels)) => *sentinels,
            other => panic!("{url}: {other:?}"),
        }
    }

    #[test]
    fn a_sentinel_url_names_hosts_primary_and_database() {
        let url = "redis-sentinel://u:p@one:26379,two:26380/main/3";
        let NamedPrimary { sentinels, name, node, .. } = parse(url);
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
            let NamedPrimary { sentinels, node, .. } = parse(url);
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
}
