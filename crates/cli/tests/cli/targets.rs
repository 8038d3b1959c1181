//! `dlock exporter --scrape-target`: one exporter for several servers.

use std::io::ErrorKind;
use std::net::TcpListener;

use dlock_testing::{Reply as _, Server, Tls, wait_until};
use nix::sys::signal::Signal;

use crate::command::{Running, dlock};
use crate::http::{Exporter, value};
use crate::metrics::{OPEN, up};

/// `/scrape` must not send the exporter's password to a server of the caller's choice, nor without TLS.
#[test]
fn listed_targets_are_scraped_with_the_password_of_the_url_and_no_others() {
    let servers = [Server::start(), Server::start()];
    for server in &servers {
        let user = ["monitor", "on", ">pass-word", "~*", "&*", "+@all"];
        server.cmd(&[&["ACL", "SETUSER"][..], &user].concat()).ok();
    }
    let [main, mut other] = servers;
    let unlisted = TcpListener::bind("127.0.0.1:0").expect("a port");
    unlisted.set_nonblocking(true).expect("it");
    let unlisted_port = unlisted.local_addr().expect("it").port();
    let url = format!("redis://monitor:pass-word@127.0.0.1:{}", main.port());
    let target = format!("127.0.0.1:{}", other.port());
    let options = ["--scrape-target", &target];
    let exporter = Exporter::start(&main, &url, &options);
    let get = |query: &str| exporter.request("GET", &format!("/scrape{query}"), OPEN);

    for query in [
        format!("?target={target}"),
        format!("?target={}", target.replace(':', "%3A")),
        format!("?x=1&target=redis%3A%2F%2F{target}%2F"),
    ] {
        let response = get(&query);
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(value(&response.body, &up(&other)), Some("1"), "{response:?}");
        assert_eq!(value(&response.body, &up(&main)), None, "{response:?}");
    }
    assert!(other.cmd(&["CLIENT", "LIST"]).text().contains(" user=monitor "));
    for query in [
        String::new(),
        "?target=".to_owned(),
        format!("?target=127.0.0.1:{unlisted_port}"),
        format!("?target={target}%40127.0.0.1:{unlisted_port}"),
        // The server of the URL is not listed, either.
        format!("?target=127.0.0.1:{}", main.port()),
        format!("?target=rediss://{target}"),
        format!("?target=redis://monitor:pass-word@{target}"),
        format!("?target=x&target={target}"),
    ] {
        let response = get(&query);
        assert_eq!(response.status, 400, "{query}: {response:?}");
        assert!(response.body.contains("--scrape-target") && !response.body.contains("pass-"));
    }
    let accepted = unlisted.accept().map_err(|error| error.kind());
    assert!(matches!(accepted, Err(ErrorKind::WouldBlock)), "{accepted:?}");

    // The main page is that of the URL alone, and a target that is gone is down.
    assert_eq!(value(&exporter.scrape(), &up(&other)), None);
    other.kill9();
    let query = format!("?target={target}");
    wait_until("the target to be down", || value(&get(&query).body, &up(&other)) == Some("0"));
    assert_eq!(value(&exporter.scrape(), &up(&main)), Some("1"));
    exporter.process.signal(Signal::SIGTERM);
    let ended = exporter.process.output();
    assert!(ended.stderr.contains(&target) && !ended.stderr.contains("pass-"), "{ended:?}");
}

#[test]
fn targets_are_asked_with_the_tls_of_the_url() {
    let Some(tls) = Tls::new() else {
        println!("this server has no TLS");
        return;
    };
    let server = tls.server().start();
    let url = tls.url();
    let address = url.strip_prefix("rediss://").expect("TLS").trim_end_matches('/');
    let authority = tls.authority_file();
    let authority = authority.to_str().expect("text");
    let options = ["--cacert", authority, "--scrape-target", address];
    // Nothing listens there: only the target is up.
    let exporter = Exporter::start(&server, "rediss://127.0.0.1:1", &options);
    for target in [address, &format!("rediss://{address}")] {
        let response = exporter.request("GET", &format!("/scrape?target={target}"), OPEN);
        let sample = format!("dlock_up{{server=\"{address}\"}}");
        assert_eq!(value(&response.body, &sample), Some("1"), "{response:?}");
    }
    let plain = exporter.request("GET", &format!("/scrape?target=redis://{address}"), OPEN);
    assert_eq!(plain.status, 400, "{plain:?}");
}

#[test]
fn wrong_targets_are_wrong_usage() {
    let server = Server::start();
    let tcp = "redis://:pass-word@127.0.0.1:1";
    for (url, target) in [
        (tcp, "host"),
        (tcp, ":1"),
        (tcp, "host:0"),
        (tcp, "redis://host:1"),
        (tcp, "user@host:1"),
        (tcp, "a b:1"),
        ("unix:///run/redis.sock?pass=pass-word", "host:1"),
    ] {
        let mut command = dlock(&server, &["exporter", "--scrape-target", target]);
        command.env("DLOCK_URL", url);
        let output = Running::start(command).output();
        assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{output:?}");
        assert!(output.stderr.contains("--scrape-target"), "{output:?}");
        assert!(!output.stderr.contains("pass-"), "{output:?}");
    }
}
