//! Tests of the fault injection itself, under a plain client: all other tests rely on it.

use std::{
    io::ErrorKind,
    net::TcpStream,
    time::{Duration, Instant},
};

use dlock_testing::{
    Cut, Fault, LIMIT, Nodes, Proxy, Reply as _, SOON, Sentinels, Server, Tls, Way, args,
    wait_until,
};
use redis::{Connection, ErrorKind as RedisError, RedisResult, TlsCertificates, Value};

/// A plain server and a proxy in front of it.
fn plain() -> (Server, Proxy) {
    let server = Server::with(&[]).without_module().start();
    let proxy = Proxy::to(&server);
    (server, proxy)
}

fn connect(proxy: &Proxy) -> Connection {
    let connection = redis::Client::open(proxy.url()).unwrap().get_connection().unwrap();
    connection.set_read_timeout(Some(LIMIT)).unwrap();
    connection
}

fn call(connection: &mut Connection, words: &[&str]) -> RedisResult<Value> {
    redis::cmd(words[0]).arg(&words[1..]).query(connection)
}

/// The call gets no reply in a time that is normally enough. A later reply is discarded.
fn silent(connection: &mut Connection, words: &[&str]) {
    connection.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let error = call(connection, words).unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    connection.set_read_timeout(Some(LIMIT)).unwrap();
}

#[test]
fn bytes_pass_and_are_counted() {
    let (_server, proxy) = plain();
    let mut one = connect(&proxy);
    let mut two = connect(&proxy);
    let before = proxy.requests("INCR");
    let mut pipeline = redis::pipe();
    for _ in 0..1_000 {
        pipeline.cmd("INCR").arg("n");
    }
    let trips = proxy.round_trips();
    let replies: Vec<u64> = pipeline.query(&mut one).unwrap();
    assert_eq!(replies.last(), Some(&1_000));
    assert_eq!(call(&mut two, &["INCR", "n"]), Ok(Value::Int(1_001)));
    assert_eq!(proxy.requests("INCR") - before, 1_001);
    let trips = proxy.round_trips() - trips;
    assert!((2..4).contains(&trips), "{trips} round trips for two calls");
    assert_eq!((proxy.accepted(), proxy.open()), (2, 2));
    let traffic = proxy.traffic();
    assert_eq!(traffic[0].requests["INCR"], 1_000);
    assert_eq!(traffic[1].requests["INCR"], 1);
    assert!(traffic[0].bytes_to_server > 1_000 * 20 && traffic[0].bytes_to_client > 1_000 * 4);
    // Large values pass, too, in both directions.
    let big = "x".repeat(3_000_000);
    call(&mut one, &["SET", "big", &big]).unwrap();
    assert_eq!(call(&mut one, &["GET", "big"]).unwrap().bytes().len(), big.len());
    drop(one);
    wait_until("the end of a connection to be passed on", || proxy.open() == 1);
    assert_eq!(call(&mut two, &["INCR", "n"]), Ok(Value::Int(1_002)));
}

#[test]
fn requests_are_remembered_on_request() {
    let (_server, proxy) = plain();
    let mut one = connect(&proxy);
    call(&mut one, &["SET", "a", "1"]).unwrap();
    assert!(proxy.seen().is_empty());
    proxy.remember();
    call(&mut one, &["GET", "a"]).unwrap();
    let seen = proxy.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].connection, &seen[0].command), (0, &args!["GET", "a"]));
    assert!(proxy.seen().is_empty());
}

#[test]
fn messages_are_no_replies() {
    let (server, proxy) = plain();
    let url = format!("{}?protocol=resp3", proxy.url());
    let mut one = redis::Client::open(url).unwrap().get_connection().unwrap();
    one.send_packed_command(&redis::cmd("SUBSCRIBE").arg("a").arg("b").get_packed_command())
        .unwrap();
    for _ in 0..2 {
        one.recv_response().unwrap();
    }
    server.cmd(&["PUBLISH", "a", "hello"]).ok();
    one.recv_response().unwrap();
    // The lost reply is that of the PING, although messages came first.
    let lost = proxy.once("PING", Fault::LoseReply);
    assert!(call(&mut one, &["PING"]).is_err());
    assert_eq!(lost.fired(), 1);
    assert!(proxy.traffic()[0].pushes >= 3);
}

#[test]
fn a_lost_reply_is_lost_after_the_deed() {
    let (server, proxy) = plain();
    for fault in [Fault::LoseReply, Fault::HalfOpen] {
        server.cmd(&["DEL", "n"]).ok();
        let mut one = connect(&proxy);
        let id = call(&mut one, &["CLIENT", "ID"]).unwrap().int();
        let lost = proxy.on(1, fault, |command| command == args!["INCR", "n"]);
        // Earlier requests are answered; this one and later ones are not.
        let mut bytes = Vec::new();
        for words in [["GET", "m"], ["INCR", "n"], ["GET", "n"]] {
            bytes.extend(redis::cmd(words[0]).arg(words[1]).get_packed_command());
        }
        one.send_packed_command(&bytes).unwrap();
        assert_eq!(one.recv_response(), Ok(Value::Nil));
        assert!(one.recv_response().unwrap_err().is_io_error());
        assert_eq!(lost.fired(), 1);
        assert_eq!(server.cmd(&["GET", "n"]).text(), "1");
        let known = || {
            let listed = server.cmd(&args!["CLIENT", "LIST", "ID", id]);
            !listed.text().trim().is_empty()
        };
        if fault == Fault::HalfOpen {
            assert!(known());
            proxy.cut(Cut::Reset);
        }
        wait_until("the server to hear of it", || !known());
        // The rule is used up.
        assert_eq!(call(&mut connect(&proxy), &["INCR", "n"]), Ok(Value::Int(2)));
    }
}

#[test]
fn a_lost_request_never_arrives() {
    let (server, proxy) = plain();
    let mut one = connect(&proxy);
    let lost = proxy.times(2, "incr", Fault::LoseRequest);
    for n in 1..=2 {
        assert!(call(&mut one, &["INCR", "n"]).unwrap_err().is_io_error());
        assert_eq!(lost.fired(), n);
        one = connect(&proxy);
    }
    assert!(server.cmd(&["GET", "n"]).is_null());
    assert_eq!(call(&mut one, &["INCR", "n"]), Ok(Value::Int(1)));
}

#[test]
fn a_stalled_reply_comes_late() {
    let (server, proxy) = plain();
    let mut one = connect(&proxy);
    let stalled = proxy.once("INCR", Fault::StallReply);
    silent(&mut one, &["INCR", "n"]);
    stalled.wait_fired(1);
    assert_eq!(server.cmd(&["GET", "n"]).text(), "1");
    // Other requests are not affected.
    assert_eq!(call(&mut connect(&proxy), &["INCR", "n"]), Ok(Value::Int(2)));
    proxy.flow();
    assert_eq!(call(&mut one, &["INCR", "n"]), Ok(Value::Int(3)));
}

#[test]
fn a_black_hole_swallows_silently() {
    let (server, proxy) = plain();
    let mut one = connect(&proxy);
    proxy.stall(Way::ToServer);
    silent(&mut one, &["INCR", "n"]);
    assert!(server.cmd(&["GET", "n"]).is_null());
    proxy.flow();
    assert_eq!(call(&mut one, &["INCR", "n"]), Ok(Value::Int(2)));

    proxy.stall(Way::ToClient);
    silent(&mut one, &["INCR", "n"]);
    wait_until("the request to arrive", || server.cmd(&["GET", "n"]).text() == "3");
    // New connections are accepted, and lead nowhere.
    let new = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
    drop(new);
    // Kept data can be lost permanently.
    proxy.cut(Cut::Fin);
    proxy.flow();
    assert!(one.recv_response().unwrap_err().is_io_error());

    let two = connect(&proxy);
    let clients = || server.info_number("clients", "connected_clients");
    let before = clients();
    proxy.stall_all();
    drop(two);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(clients(), before, "the server heard of it");
    proxy.heal();
    wait_until("the server to hear of it", || clients() < before);
}

#[test]
fn a_delay_delays_one_way() {
    let (server, proxy) = plain();
    let mut one = connect(&proxy);
    for way in Way::BOTH {
        proxy.delay(way, Duration::from_millis(60));
        let start = Instant::now();
        call(&mut one, &["PING"]).unwrap();
        assert!((60..5_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
        // Concurrent requests are delayed once.
        let start = Instant::now();
        let mut pipeline = redis::pipe();
        for _ in 0..50 {
            pipeline.cmd("INCR").arg("n");
        }
        pipeline.exec(&mut one).unwrap();
        assert!((60..2_000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
        proxy.delay(way, Duration::ZERO);
    }
    assert_eq!(server.cmd(&["GET", "n"]).text(), "100");
}

#[test]
fn cuts_and_refusals_work() {
    let (server, proxy) = plain();
    for how in [Cut::Fin, Cut::Reset, Cut::HalfOpen] {
        let mut raw = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap();
        wait_until("the connection", || proxy.open() == 1);
        proxy.cut(how);
        assert_eq!(proxy.open(), 0);
        let end = std::io::Read::read(&mut raw, &mut [0]).map_err(|error| error.kind());
        let wanted = if how == Cut::Fin { Ok(0) } else { Err(ErrorKind::ConnectionReset) };
        assert_eq!(end, wanted, "{how:?}");
    }
    let mut one = connect(&proxy);
    proxy.refuse();
    let refused = TcpStream::connect(("127.0.0.1", proxy.port())).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    call(&mut one, &["PING"]).unwrap();
    proxy.accept();
    call(&mut connect(&proxy), &["PING"]).unwrap();

    // In the middle of a reply.
    let cut = proxy.cut_after(Way::ToClient, 3);
    assert!(call(&mut one, &["PING"]).unwrap_err().is_io_error());
    assert_eq!(cut.fired(), 1);
    // In the middle of a request.
    let mut one = connect(&proxy);
    let cut = proxy.cut_after(Way::ToServer, 20);
    assert!(call(&mut one, &["SET", "k", "v"]).unwrap_err().is_io_error());
    assert_eq!(cut.fired(), 1);
    assert!(server.cmd(&["GET", "k"]).is_null());
}

#[test]
fn a_proxy_can_be_redirected_and_lose_its_server() {
    let (one, proxy) = plain();
    let mut two = Server::with(&[]).without_module().start();
    one.cmd(&["SET", "who", "one"]).ok();
    two.cmd(&["SET", "who", "two"]).ok();
    let mut connection = connect(&proxy);
    proxy.redirect(&two);
    assert_eq!(call(&mut connection, &["GET", "who"]).unwrap().text(), "one");
    assert_eq!(call(&mut connect(&proxy), &["GET", "who"]).unwrap().text(), "two");
    two.kill9();
    assert!(redis::Client::open(proxy.url()).unwrap().get_connection().is_err());
}

#[test]
fn a_frozen_server_hangs_and_goes_on() {
    let (server, proxy) = plain();
    let mut one = connect(&proxy);
    server.freeze();
    silent(&mut one, &["PING"]);
    server.thaw();
    assert_eq!(call(&mut one, &["ECHO", "back"]).unwrap().text(), "back");
    // A frozen server ends with its test, too.
    server.freeze();
}

#[test]
fn sentinels_name_the_primary_and_fail_over() {
    let primary = Server::with(&[]).start();
    let mut replica = Server::with(&[]).replica_of(&primary).start();
    let sentinels = Sentinels::start(3, &primary, 1);
    assert_eq!(sentinels.primary_port(), Some(primary.port()));
    assert_eq!(sentinels.ports().len(), 3);
    sentinels.failover();
    assert_eq!(sentinels.primary_port(), Some(replica.port()));
    replica.forget_connection();
    assert_eq!(replica.cmd(&["ROLE"]).items()[0].text(), "master");
    sentinels.wait_replica(&primary);
    let start = Instant::now();
    replica.kill9();
    sentinels.wait_primary(&primary);
    println!("a killed primary was replaced after {:?}", start.elapsed());
    primary.forget_connection();
    assert_eq!(primary.cmd(&["ROLE"]).items()[0].text(), "master");
}

#[test]
fn sentinels_replace_a_primary_that_hangs() {
    let primary = Server::with(&[]).start();
    let replica = Server::with(&[]).replica_of(&primary).start();
    let sentinels = Sentinels::start(1, &primary, 1);
    primary.freeze();
    sentinels.wait_primary_other_than(Some(primary.port()));
    replica.forget_connection();
    assert_eq!(replica.cmd(&["ROLE"]).items()[0].text(), "master");
    primary.thaw();
}

#[test]
fn slots_move_in_a_cluster_of_three() {
    let nodes = Nodes::start(3);
    let [one, _, three] = nodes.all() else { panic!("three nodes") };
    // The slot of "k" is 7629, in the second third.
    let slot = one.slot("k");
    assert_eq!(nodes.owner_of(slot), Some(1));
    let moved = one.cmd(&["DLOCK.ACQUIRE", "k", "a"]).error();
    assert!(moved.starts_with("MOVED "), "{moved}");
    let token = nodes.all()[1].cmd(&["DLOCK.ACQUIRE", "k", "a"]).int();
    nodes.move_slot(slot, 1, 2);
    wait_until("all nodes to agree", || nodes.owner_of(slot) == Some(2));
    assert_eq!(three.cmd(&args!["DLOCK.CHECK", "k", token]).int(), 1);
    three.cmd(&["DLOCK.RELEASE", "k", "a"]).ok();
    nodes.left_over_check();
}

#[test]
fn a_replica_in_a_cluster_takes_over() {
    let mut nodes = Nodes::start(3);
    let replica = nodes.add_replica(0);
    nodes.wait_whole();
    nodes.node(0).kill9();
    let limit = Instant::now() + Duration::from_secs(30);
    while nodes.all()[replica].cmd(&["ROLE"]).items()[0].text() != "master" {
        assert!(Instant::now() < limit, "no failover");
        std::thread::sleep(Duration::from_millis(10));
    }
    nodes.all()[replica].wait_cluster_ok();
}

#[test]
fn a_server_speaks_tls() {
    let Some(tls) = Tls::new() else {
        println!("this server has no TLS");
        return;
    };
    let server = tls.server().start();
    server.cmd(&["SET", "k", "v"]).ok();
    let trusted = TlsCertificates { client_tls: None, root_cert: Some(tls.authority()) };
    let client = redis::Client::build_with_tls(tls.url(), trusted).unwrap();
    let mut connection = client.get_connection_with_timeout(SOON).unwrap();
    assert_eq!(call(&mut connection, &["GET", "k"]).unwrap().text(), "v");
    // Other clients do not trust this authority.
    let stranger = redis::Client::open(tls.url()).unwrap();
    let refused = stranger.get_connection_with_timeout(SOON).err().unwrap();
    assert_eq!(refused.kind(), RedisError::Io);
    // The proxy passes it on without looking into it.
    let proxy = Proxy::to_port(tls.port());
    let trusted = TlsCertificates { client_tls: None, root_cert: Some(tls.authority()) };
    let url = format!("rediss://127.0.0.1:{}/", proxy.port());
    let client = redis::Client::build_with_tls(url, trusted).unwrap();
    let mut connection = client.get_connection_with_timeout(SOON).unwrap();
    assert_eq!(call(&mut connection, &["GET", "k"]).unwrap().text(), "v");
    assert_eq!(proxy.all_requests(), 0);
}
