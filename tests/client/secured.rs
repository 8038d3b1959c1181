//! Sentinels with a password, Sentinels and clusters with TLS.

use std::fs;
use std::time::Duration;

use dlock_client::{Client, ClientBuilder, ErrorKind, Lost, TlsCertificates};
use dlock_testing::{Nodes, Reply as _, Sentinels, Server, Tls};
use redis::IntoConnectionInfo as _;

use crate::support::{Variant, WAITS, until, within};

/// Acquires the lock, waits for it, and releases it.
async fn works(client: &Client, key: &str) {
    let lock = client.lock(key);
    let guard = within("the acquire", lock.acquire()).await.unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap().release().await.unwrap() }
    });
    guard.release().await.unwrap();
    within("the waiter", waiting).await.unwrap();
}

#[track_caller]
fn refused(url: &str, error: &dlock_client::Error) {
    assert_eq!(error.kind(), ErrorKind::Refused, "{url}: {error}");
    assert!(!format!("{error:?}").contains("pass-"), "{error:?}");
}

/// The servers have other users than the Sentinels.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_want_a_password_of_their_own() {
    let primary = Server::start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    for server in [&primary, &replica] {
        let user = "ACL SETUSER app on >pass-server ~* &dlock:* +@all";
        server.cmd(&user.split(' ').collect::<Vec<_>>()).ok();
    }
    let sentinels = Sentinels::with().requirepass("pass-&sentinel").start(3, &primary, 1);
    let url = sentinels.url().replace("://", "://app:pass-server@");
    let in_url = format!("{url}?sentinel_password=pass-%26sentinel");

    for url in [url.clone(), format!("{url}?sentinel_password=pass-server")] {
        let error = within("connecting", patient().connect(&url)).await.unwrap_err();
        refused(&url, &error);
    }
    let stranger = in_url.replace("pass-server", "pass-wrong");
    let error = within("connecting", patient().connect(&stranger)).await.unwrap_err();
    refused(&stranger, &error);

    let builder = patient().sentinel_credentials("", "pass-&sentinel");
    assert!(!format!("{builder:?}").contains("pass-"), "{builder:?}");
    let first = builder.connect(&url).await.unwrap();
    let second = patient().connect(&in_url).await.unwrap();
    // The builder overrides the URL.
    let wrong = format!("{url}?sentinel_password=wrong");
    let third = patient().sentinel_credentials("default", "pass-&sentinel").connect(&wrong).await;
    for client in [&first, &second, &third.unwrap()] {
        works(client, "k").await;
    }
    tokio::task::block_in_place(|| sentinels.failover());
    tokio::task::block_in_place(|| sentinels.wait_replica(&primary));
    for client in [&first, &second] {
        works(client, "k").await;
    }
    replica.forget_connection();
    replica.left_over_check();
}

/// The permissions that docs/operations.md lists for a user of the Sentinels are sufficient and necessary.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_of_sentinels_needs_few_rights() {
    let primary = Server::start();
    let sentinels = Sentinels::with().start(1, &primary, 0);
    let url = format!("{}?sentinel_username=app&sentinel_password=pass-app", sentinels.url());
    sentinels.cmd(
        &"ACL SETUSER app on >pass-app -@all +role +sentinel|masters"
            .split(' ')
            .collect::<Vec<_>>(),
    );
    let client = patient().connect(&url).await.unwrap();
    works(&client, "k").await;
    for right in ["-role", "+role", "-sentinel|masters"] {
        sentinels.cmd(&["ACL", "SETUSER", "app", right]);
        let connected = within("connecting", patient().connect(&url)).await;
        assert_eq!(connected.is_ok(), right == "+role", "{right}");
        if let Err(error) = connected {
            refused(&url, &error);
        }
    }
    primary.left_over_check();
}

/// The lines of the documents that create a user `worker`.
fn documented_users() -> Vec<Vec<&'static str>> {
    let lines = include_str!("../../docs/operations.md").lines().map(str::trim);
    let users = lines.filter(|line| line.starts_with("ACL SETUSER worker "));
    users.map(|line| line.split(' ').collect()).collect()
}

/// The documented permissions of a user of locks are sufficient for this client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_of_the_documents_can_work() {
    let users = documented_users();
    assert!(users.len() >= 3, "{users:?}");
    let server = Server::start();
    let nodes = Nodes::start(2);
    for user in users {
        server.cmd(&user).ok();
        let url = server.url().replace("://", "://worker:secret@");
        for wait in WAITS {
            let client = patient().wait(wait).connect(&url).await;
            let client = client.unwrap_or_else(|error| panic!("{user:?}: {error}"));
            works(&client, "lock:k").await;
            // The message of a flush gets through.
            let mut how = Lost::Refused;
            // A renewal may find out first.
            for _ in 0..5 {
                let guard = client.lock("lock:k").acquire().await.unwrap();
                server.cmd(&["FLUSHALL"]).ok();
                how = within("the flush", guard.lost()).await;
                if how != Lost::Refused {
                    break;
                }
            }
            assert_eq!(how, Lost::Flushed, "{user:?}");
            let error = client.lock("other").acquire().await.unwrap_err();
            refused(&user.join(" "), &error);
        }
        if user.contains(&"+cluster|slots") || user.contains(&"+@all") {
            for node in nodes.all() {
                node.cmd(&user).ok();
            }
            let url = nodes.url().replace("://", "://worker:secret@");
            let client = patient().connect(&url).await;
            let client = client.unwrap_or_else(|error| panic!("{user:?}: {error}"));
            for key in ["lock:a", "lock:b", "lock:c"] {
                works(&client, key).await;
            }
            for node in nodes.all() {
                node.cmd(&["CONFIG", "RESETSTAT"]).ok();
                node.cmd(&["ACL", "DELUSER", "worker"]).ok();
            }
        }
        server.cmd(&["ACL", "DELUSER", "worker"]).ok();
    }
    server.left_over_check();
    nodes.left_over_check();
}

/// The authority, with or without a certificate of the client.
fn certificates(tls: &Tls, shown: bool) -> TlsCertificates {
    let certificates = TlsCertificates::new().authority(tls.authority());
    let [chain, key] = tls.client_files().map(|file| fs::read(file).unwrap());
    if shown { certificates.client(chain, key) } else { certificates }
}

/// A handshake of a build without optimisations takes long on a busy machine.
fn patient() -> ClientBuilder {
    Client::builder().connect_timeout(Duration::from_secs(20))
}

/// Without a client certificate, and without trust in the authority; with the expected errors.
fn strangers(tls: &Tls) -> [(ClientBuilder, &'static str); 2] {
    let unknown = patient().tls(certificates(tls, false));
    [(unknown, "CertificateRequired"), (patient(), "UnknownIssuer")]
}

/// Servers that require a certificate from all clients and from each other.
const SHOW: [&str; 4] = ["tls-auth-clients", "yes", "tls-replication", "yes"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_and_servers_behind_tls() {
    let Some(tls) = Tls::new() else {
        println!("this server has no TLS");
        return;
    };
    let primary = tls.server().and(&SHOW).start();
    let of_primary = format!("127.0.0.1 {}", tls.port());
    let of_replica = tls.another();
    let replica = of_replica.server().and(&SHOW).and(&["replicaof", &of_primary]).start();
    let setup = Sentinels::with().tls(&tls).and("tls-auth-clients yes");
    let sentinels = setup.start(3, &primary, 1);
    let url = sentinels.url();
    assert!(url.starts_with("rediss-sentinel://"), "{url}");

    let client = patient().tls(certificates(&tls, true)).connect(&url).await.unwrap();
    let infos = sentinels
        .ports()
        .into_iter()
        .map(|port| format!("rediss://127.0.0.1:{port}").into_connection_info().unwrap());
    let node = "rediss://ignored/".into_connection_info().unwrap();
    let (infos, name) = (infos.collect(), sentinels.name());
    let builder = patient().tls(certificates(&tls, true));
    let second = builder.connect_sentinel(infos, name, node).await.unwrap();
    // The servers behind TLS, the Sentinels not.
    let plain: Vec<String> =
        sentinels.plain_ports().iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let plain = format!("rediss-sentinel://{}/{name}?sentinel_tls=no", plain.join(","));
    let third = patient().tls(certificates(&tls, true)).connect(&plain).await.unwrap();
    let all = [client, second, third];
    for client in &all {
        works(client, "k").await;
    }
    for (builder, why) in strangers(&tls) {
        for url in [&url, &plain] {
            let error = within("connecting", builder.clone().connect(url)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{url}: {error}");
            assert!(error.text().contains(why), "{url}: {error}");
        }
    }
    tokio::task::block_in_place(|| sentinels.failover());
    assert_eq!(sentinels.primary_port(), Some(of_replica.port()));
    tokio::task::block_in_place(|| sentinels.wait_replica(&primary));
    for client in &all {
        works(client, "k").await;
    }
    replica.forget_connection();
    replica.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_behind_tls() {
    let Some(tls) = Tls::new() else {
        println!("this server has no TLS");
        return;
    };
    let ports = [(); 3].map(|()| tls.another());
    let setups = ports.each_ref().map(|tls| tls.server().and(&SHOW).and(&["tls-cluster", "yes"]));
    let nodes = Nodes::of(setups);
    // One node is enough to discover the others.
    let url = format!("rediss-cluster://127.0.0.1:{}", ports[1].port());
    let builder = patient().tls(certificates(&tls, true));
    let client = within("connecting", builder.connect(&url)).await.unwrap();
    for (n, node) in nodes.all().iter().enumerate() {
        let mut keys = (0..).map(|n| format!("k{n}"));
        let here = |key: &String| nodes.owner_of(node.slot(key)) == Some(n);
        let key = keys.find(here).expect("some key is here");
        for variant in Variant::ALL {
            let guard = within("the acquire", variant.lock(&client, &key).acquire()).await.unwrap();
            assert_eq!(variant.holds(node, &key), 1);
            guard.release().await.unwrap();
            until("the release", || variant.is_free(node, &key)).await;
        }
    }
    for (builder, why) in strangers(&tls) {
        let builder = builder.connect_timeout(Duration::from_secs(1));
        let error = within("connecting", builder.connect(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.text().contains(why), "{error}");
    }
    nodes.left_over_check();
}

/// No server is contacted: none exists.
#[tokio::test]
async fn bad_certificates_are_reported_at_once() {
    let Some(tls) = Tls::new() else {
        println!("this server has no TLS");
        return;
    };
    let good = certificates(&tls, true);
    let certificate = |pem: &[u8]| TlsCertificates::new().authority(pem);
    let pair = |chain: &[u8], key: &[u8]| TlsCertificates::new().client(chain, key);
    let authority = tls.authority();
    let [_, key] = tls.client_files().map(|file| fs::read(file).unwrap());
    let damaged = String::from_utf8(authority.clone()).unwrap().replacen("\nM", "\n!", 1);
    for (url, certificates) in [
        ("redis://127.0.0.1:1/", good.clone()),
        ("unix:///nowhere", good.clone()),
        ("redis-cluster://127.0.0.1:1", good.clone()),
        ("redis-sentinel://127.0.0.1:1/locks", good),
        ("rediss://127.0.0.1:1/", certificate(b"")),
        ("rediss://127.0.0.1:1/", certificate(&key)),
        ("rediss://127.0.0.1:1/", certificate(damaged.as_bytes())),
        ("rediss-cluster://127.0.0.1:1/", certificate(damaged.as_bytes())),
        ("rediss-sentinel://127.0.0.1:1/locks", certificate(damaged.as_bytes())),
        ("rediss://127.0.0.1:1/", pair(&key, &key)),
        ("rediss://127.0.0.1:1/", pair(&authority, &authority)),
    ] {
        let error = within(url, patient().tls(certificates).connect(url)).await.unwrap_err();
        println!("{url}: {error}");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
    }
}
