//! Errors name the server and the key, and missing rights are reported at connect.

use std::time::Duration;

use dlock_client::{Client, Error, ErrorKind};
use dlock_quorum::QuorumLock;
use dlock_testing::{Reply as _, Server};

use crate::support::{quick, start, within};

#[track_caller]
fn names(error: &Error, key: Option<&str>, server: Option<&str>) {
    let text = error.to_string();
    assert_eq!(error.key(), key.map(str::as_bytes), "{text}");
    assert_eq!(error.server(), server, "{text}");
    for named in
        [key.map(|key| format!("\"{key}\"")), server.map(str::to_owned)].into_iter().flatten()
    {
        assert_eq!(text.matches(&named).count(), 1, "{named} in: {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_name_the_key_and_the_server() {
    let mut server = Server::start();
    let here = format!("127.0.0.1:{}", server.port());
    let client =
        quick().retry_for(Duration::from_millis(300)).connect(&server.url()).await.unwrap();
    server.cmd(&["SET", "text", "v"]).ok();
    for error in [
        within("try", client.lock("text").try_acquire()).await.map(drop).unwrap_err(),
        within("wait", client.lock("text").acquire()).await.map(drop).unwrap_err(),
        within("several", client.multi_lock(["text", "b"]).acquire()).await.map(drop).unwrap_err(),
        within("permits", client.semaphore("text").acquire()).await.map(drop).unwrap_err(),
        within("a latch", client.latch("text").wait()).await.unwrap_err(),
        within("INFO", client.lock("text").holder()).await.map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        names(&error, Some("text"), Some(&here));
    }
    // An error of a hold; the text of a quorum lock has the error of the server.
    let lock = client.lock("k");
    let lost = lock.with(async |hold| {
        server.cmd(&["DLOCK.BREAK", "k"]).ok();
        hold.lost().await;
        std::future::pending::<Result<(), Error>>().await
    });
    names(&within("the work", lost).await.unwrap_err(), Some("k"), None);
    let quorum = QuorumLock::new([client.clone()], "text");
    let error = quorum.try_acquire().await.map(drop).unwrap_err().to_string();
    assert_eq!(
        (error.matches("\"text\"").count(), error.matches(&here).count()),
        (1, 1),
        "{error}"
    );
    // An argument that no server has seen.
    let error = client.lock("").try_acquire().await.map(drop).unwrap_err();
    assert_eq!((error.key(), error.server()), (None, None), "{error}");

    server.cmd(&["DEL", "text"]).ok();
    server.kill9();
    let error = within("the acquire", client.lock("k").acquire()).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    names(&error, Some("k"), Some(&here));
    let error = within("connecting", quick().connect(&server.url())).await.map(drop).unwrap_err();
    names(&error, None, Some(&here));
}

/// A user with these rights; `DLOCK` ones come last.
async fn connect_as(server: &Server, rights: &str) -> Result<Client, Error> {
    server.cmd(&["ACL", "DELUSER", "app"]).int();
    let basic = "ACL SETUSER app on >secret ~app:* -@all +ping +hello +command|info";
    let user: Vec<_> = basic.split(' ').chain(rights.split(' ')).collect();
    server.cmd(&user).ok();
    let url = format!("redis://app:secret@127.0.0.1:{}/", server.port());
    within("connecting", Client::connect(&url)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_rights_are_reported_at_connect() {
    let server = Server::start();
    let here = format!("127.0.0.1:{}", server.port());
    let hears = "+subscribe &dlock:notify*";
    let works = "+dlock.acquire +dlock.renew";
    for (rights, said) in [("+subscribe", "&dlock:notify*"), ("&dlock:notify*", "+subscribe")] {
        let error = connect_as(&server, rights).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{rights}: {error}");
        assert!(error.text().contains(said), "{rights}: {error}");
        names(&error, None, Some(&here));
    }
    for rights in [
        format!("{hears} {works} +dlock.release"),
        format!("{hears} +dlock.info"),
        format!("{hears} +dlatch.await"),
        format!("{hears} +@all"),
    ] {
        let client = connect_as(&server, &rights).await.unwrap();
        client.close().await.unwrap();
    }
    let client = connect_as(&server, &format!("{hears} {works} +dlock.release")).await.unwrap();
    client.lock("app:k").acquire().await.unwrap().release().await.unwrap();
    server.left_over_check();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_module_is_reported_with_what_to_do() {
    let plain = Server::with(&[]).without_module().start();
    let error = within("connecting", Client::connect(&plain.url())).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoModule);
    assert!(error.text().contains("loadmodule"), "{error}");
    names(&error, None, Some(&format!("127.0.0.1:{}", plain.port())));
    let (server, client) = start().await;
    client.lock("k").acquire().await.unwrap().release().await.unwrap();
    server.left_over_check();
}
