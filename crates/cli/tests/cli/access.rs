//! `dlock exporter` with TLS and a password.

use std::fs;

use dlock_testing::{Server, Tls};

use crate::command::{Running, dlock};
use crate::http::{Exporter, value};
use crate::metrics::up;

#[test]
fn metrics_are_for_those_with_a_password() {
    let server = Server::start();
    let file = server.dir().join("users");
    fs::write(&file, "prom:pass:word\nother:x\n").expect("a file");
    let options = ["--listen-users", file.to_str().expect("text")];
    let exporter = Exporter::start(&server, &server.url(), &options);
    let get = |path: &str, header: &str| exporter.get_with(path, header, None);
    for header in
        ["Authorization: Basic cHJvbTpwYXNzOndvcmQ=\r\n", "Authorization: Basic b3RoZXI6eA==\r\n"]
    {
        let response = get("/metrics", header);
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(value(&response.body, &up(&server)), Some("1"), "{response:?}");
    }
    for header in ["", "Authorization: Basic b3RoZXI6eQ==\r\n", "Authorization: Basic =\r\n"] {
        for path in ["/metrics", "/scrape?target=x", "/", "/none"] {
            let response = get(path, header);
            assert_eq!(response.status, 401, "{path} {header}: {response:?}");
            assert!(response.head.contains("www-authenticate: basic realm="), "{response:?}");
            assert!(!response.body.contains("dlock"), "{response:?}");
        }
    }
    assert_eq!(get("/healthz", "").status, 200);
}

#[test]
fn metrics_are_served_over_tls() {
    let Some(tls) = Tls::new() else {
        println!("this server has no TLS");
        return;
    };
    let server = Server::start();
    let [cert, key] = tls.client_files();
    let file = |path: &std::path::Path| path.to_str().expect("text").to_owned();
    let options = ["--listen-cert", &file(&cert), "--listen-key", &file(&key)];
    let exporter = Exporter::start(&server, &server.url(), &options);
    let authority = tls.authority_file();
    let response = exporter.get_with("/metrics", "", Some(&authority));
    assert_eq!(value(&response.body, &up(&server)), Some("1"), "{response:?}");

    // A client without TLS gets no page, and harms no other.
    let mut plain = std::net::TcpStream::connect(&exporter.address).expect("it listens");
    let mut answer = Vec::new();
    std::io::Write::write_all(&mut plain, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        .expect("sent");
    let _ = std::io::Read::read_to_end(&mut plain, &mut answer);
    assert!(!answer.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(exporter.get_with("/healthz", "", Some(&authority)).status, 200);
}

#[test]
fn files_that_do_not_fit_are_wrong_usage() {
    let server = Server::start();
    let file = server.dir().join("wrong");
    fs::write(&file, "prom:x\nsecret\n").expect("a file");
    let file = file.to_str().expect("text");
    for (options, text) in [
        (&["--listen-users", file][..], "each line must be user:password"),
        (&["--listen-users", "/no/such/file"], "No such file"),
        (&["--listen-cert", file, "--listen-key", file], "(--listen-key)"),
        (&["--listen-cert", file], "--listen-key"),
        (&["--listen-key", file], "--listen-cert"),
    ] {
        let listen = ["exporter", "--listen", "127.0.0.1:0"];
        let output = Running::start(dlock(&server, &[&listen, options].concat())).output();
        assert_eq!((output.code, output.stdout.as_str()), (64, ""), "{output:?}");
        assert!(output.stderr.contains(text) && !output.stderr.contains("secret"), "{output:?}");
    }
}
