//! Connections to a server, and the errors without one.

use std::time::{Duration, Instant};

use dlock_client::{Client, ErrorKind, TlsCertificates};
use dlock_testing::{Nodes, Proxy, Reply as _, Server, Tls};
use redis::IntoConnectionInfo as _;

use crate::support::{PATIENCE, quick, start, until, within};

async fn works(client: &Client, key: &str) {
    let lock = client.lock(key);
    let guard = within("the acquire", lock.acquire()).await.unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap().release().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(5)).await;
    guard.release().await.unwrap();
    within("the waiter", waiting).await.unwrap();
    let latch = client.latch(format!("{key}:latch"));
    latch.init(1).await.unwrap();
    latch.count_down(1).await.unwrap();
    within("the latch", latch.wait()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_is_reached_by_every_kind_of_url() {
    let server = Server::start();
    let socket = server.dir().join("s");
    for url in [
        server.url(),
        format!("redis://localhost:{}", server.port()),
        format!("unix://{}", socket.display()),
        format!("redis+unix://{}", socket.display()),
    ] {
        println!("{url}");
        works(&Client::connect(&url).await.unwrap(), "k").await;
    }
    let existing = redis::Client::open(server.url()).unwrap();
    works(&Client::builder().connect_client(&existing).await.unwrap(), "k").await;
    let info = existing.get_connection_info().clone();
    works(&Client::builder().connect_info(info).await.unwrap(), "k").await;
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_are_apart() {
    let (server, client) = start().await;
    let third = Client::connect(&format!("{}3", server.url())).await.unwrap();
    let one = client.lock("k").acquire().await.unwrap();
    let two = third.lock("k").try_acquire().await.unwrap().expect("another database");
    works(&third, "l").await;
    // A message of one database does not lose holds of the other.
    let mut admin = server.client();
    admin.cmd(&["SELECT", "3"]).ok();
    admin.cmd(&["FLUSHDB"]).ok();
    within("lost()", two.lost()).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(one.lost_now(), None);
    one.release().await.unwrap();
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acl_users_use_their_permissions() {
    let server = Server::start();
    let user = "ACL SETUSER app on >secret ~app:* &dlock:* +@all -@dangerous +info";
    server.cmd(&user.split(' ').collect::<Vec<_>>()).ok();
    let url = |user: &str, password: &str| {
        format!("redis://{user}:{password}@127.0.0.1:{}/", server.port())
    };
    let client = Client::connect(&url("app", "secret")).await.unwrap();
    works(&client, "app:k").await;
    let error = within("the refusal", client.lock("other").acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");

    let start = Instant::now();
    let error = Client::connect(&url("app", "wrong")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(!format!("{error:?}").contains("secret"));
    assert!(start.elapsed() < Duration::from_secs(8), "a refusal is not tried again");
    server.cmd(&["ACL", "SETUSER", "default", ">pass"]).ok();
    server.left_over_check();
    server.cmd(&["ACL", "SETUSER", "default", "resetpass"]).ok();
    let error = Client::connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_without_the_module_are_named() {
    let plain = Server::with(&[]).without_module().start();
    let error = within("connecting", Client::connect(&plain.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoModule, "{error}");
    // A user without the permission to check learns it from use.
    plain.cmd(&["ACL", "SETUSER", "default", "-command"]).ok();
    let client = Client::connect(&plain.url()).await.unwrap();
    let error = within("the acquire", client.lock("k").acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");

    let (server, client) = start().await;
    server.cmd(&["SET", "k", "v"]).ok();
    let error = within("the acquire", client.lock("k").acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    server.cmd(&["DEL", "k"]).ok();
    let guard = client.fair_lock("k").acquire().await.unwrap();
    let error = within("the acquire", client.lock("k").acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    guard.release().await.unwrap();
    server.left_over_check();

    for url in ["", "k", "http://127.0.0.1/", "redis-sentinel://127.0.0.1:1", "redis://[::1"] {
        let error = Client::connect(url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_server_is_reported_in_time() {
    let mut server = Server::start();
    let proxy = Proxy::to(&server);
    let client = quick().retry_for(Duration::from_secs(1)).connect(&proxy.url()).await.unwrap();
    let builder = || quick().retry_for(Duration::from_secs(1));
    server.kill9();
    let start = Instant::now();
    for url in [server.url(), proxy.url()] {
        let error = within("connecting", builder().connect(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    let error = within("the try", client.lock("k").try_acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let error = within("the acquire", client.lock("k").acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // The server that accepts and says nothing.
    proxy.stall_all();
    let error = within("connecting", builder().connect(&proxy.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
    // The client works again when there is one again.
    proxy.heal();
    proxy.cut(dlock_testing::Cut::Reset);
    server.start_again();
    works(&client, "k").await;
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connecting_waits_for_a_server() {
    let mut server = Server::start();
    let proxy = Proxy::to(&server);
    server.kill9();
    let start = Instant::now();
    let limit = Duration::from_millis(200);
    let error = quick().connect_retry_for(limit).connect(&server.url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(start.elapsed() >= limit, "{:?}", start.elapsed());

    let before = proxy.accepted();
    let url = proxy.url();
    let patient = quick().connect_retry_for(PATIENCE);
    let connecting = tokio::spawn(async move { patient.connect(&url).await });
    until("two attempts", || proxy.accepted() >= before + 2).await;
    server.start_again();
    works(&within("connecting", connecting).await.unwrap().unwrap(), "k").await;
    // What waiting does not fix is an error at once.
    let patient = quick().connect_retry_for(PATIENCE);
    let error = patient.connect(&format!("{}99", server.url())).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_dropped_closes_its_connections() {
    let server = Server::start();
    let clients = || server.info_number("clients", "connected_clients");
    let before = clients();
    let client = Client::connect(&server.url()).await.unwrap();
    works(&client, "k").await;
    assert!(clients() > before);
    drop(client);
    until("the connections to close", || clients() == before).await;
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_trusts_only_the_given_authority() {
    let Some(tls) = Tls::new() else {
        println!("this server has no TLS");
        return;
    };
    let server = tls.server().start();
    let trusted = TlsCertificates::new().authority(tls.authority());
    let client = Client::builder().tls(trusted.clone()).connect(&tls.url()).await.unwrap();
    works(&client, "k").await;
    let info = tls.url().into_connection_info().unwrap();
    let client = Client::builder().tls(trusted).connect_info(info).await.unwrap();
    works(&client, "k").await;
    let trusted = redis::TlsCertificates { client_tls: None, root_cert: Some(tls.authority()) };
    let existing = redis::Client::build_with_tls(tls.url(), trusted.clone()).unwrap();
    works(&Client::builder().connect_client(&existing).await.unwrap(), "k").await;
    let builder = Client::builder().tls(trusted.into());
    works(&builder.connect(&tls.url()).await.unwrap(), "k").await;
    let error = within("the stranger", quick().connect(&tls.url())).await.unwrap_err();
    assert!(!error.text().contains("redis://"), "{error}");
    // TLS to a port without it, and the other way round.
    let plain = Server::start();
    for (url, hint) in [
        (plain.url().replace("redis:", "rediss:"), "if this port has no TLS"),
        (tls.url().replace("rediss:", "redis:"), "if this port has TLS"),
    ] {
        let error = within("connecting", quick().connect(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.text().contains(hint), "{error}");
    }
    server.left_over_check();
}

/// URLs that no retry would fix, such as that of another kind of server, fail at once with the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wrong_kind_of_url_is_said_to_be_wrong() {
    let (server, client) = start().await;
    let nobody = dlock_testing::Server::start();
    let gone = nobody.port();
    drop(nobody);
    let begin = Instant::now();
    for (url, said) in [
        (format!("redis-cluster://127.0.0.1:{}", server.port()), "cluster support disabled"),
        (
            format!("redis-cluster://127.0.0.1:{},127.0.0.1:{gone}", server.port()),
            "cluster support",
        ),
        (format!("{}99", server.url()), "out of range"),
        (format!("redis-sentinel://127.0.0.1:{}/name", server.port()), "sentinel"),
    ] {
        let error = within("connecting", Client::connect(&url)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
        assert!(error.text().contains(said), "{url}: {error}");
    }
    // One node of several, addressed as a single server.
    let nodes = Nodes::start(2);
    let node = &nodes.all()[0];
    let mut keys = (0..).map(|n| format!("k{n}"));
    let there = keys.find(|key| node.slot(key) > 8_192).unwrap();
    let one = Client::connect(&node.url()).await.unwrap();
    for error in [
        within("a lock", one.lock(&there).acquire()).await.map(drop).unwrap_err(),
        within("a latch", one.latch(&there).wait()).await.unwrap_err(),
        within("locks", one.multi_lock([&there]).acquire()).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.text().contains("redis-cluster://"), "{error}");
    }
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
    nodes.left_over_check();

    for error in [
        client.semaphore("").init(1).await.map(drop).unwrap_err(),
        client.latch("").wait().await.unwrap_err(),
        client.lock("").check(1).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    // A command that only newer servers have does not mean that the module is missing.
    let on_disk = client.lock("k").replicas_on_disk(1, Duration::from_millis(1));
    let error = within("the try", on_disk.try_acquire()).await.unwrap_err();
    assert_ne!(error.kind(), ErrorKind::NoModule, "{error}");
    server.left_over_check();
}
