//! Events that grant a blocked MACQUIRE, and changes of its keys meanwhile.

use super::{clear, picture, tokens};
use crate::{
    args,
    support::{Blocked, Reply, SOON, Server, wait_until},
};

/// Holds `busy` as `h` with a lease of a minute; `m` waits for that one and two free ones.
fn scene(server: &Server) -> Blocked {
    scene_for(server, 60_000)
}

fn scene_for(server: &Server, lease_ms: u64) -> Blocked {
    server.ask(&format!("DLOCK.ACQUIRE busy h PX {lease_ms}")).int();
    server.wait("DLOCK.MACQUIRE 3 f1 busy f2 m PX 50000 BLOCK 0")
}

fn end(server: &Server, mut m: Blocked) {
    let granted = tokens(&m.expect_reply(SOON));
    assert!(granted.is_sorted_by(|one, next| one < next), "{granted:?}");
    assert_eq!(picture(server, "f1 busy f2"), "f1:m busy:m f2:m");
    for key in ["f1", "busy", "f2"] {
        let ttl = server.cmd(&["DLOCK.INFO", key]).field("ttl-ms").int();
        assert!((40_000..=50_000).contains(&ttl), "the lease begins with the grant: {ttl}");
    }
    assert_eq!(server.ask("DLOCK.MRELEASE 3 f1 f2 busy m").int(), 3);
    server.left_over_check();
}

/// A value that appears under a name with only waiters, and is removed again within one turn of the server's loop.
#[test]
fn a_temporary_value_of_another_type_is_noticed_or_harmless() {
    let server = Server::start();
    let mut m = scene(&server);
    let mut client = server.client();
    client.pipeline(&[
        args!["MULTI"],
        args!["SET", "f1", "text"],
        args!["DEL", "f1"],
        args!["EXEC"],
    ]);
    server.ask("DLOCK.RELEASE busy h").int();
    let reply = m.expect_reply(SOON);
    if let redis::Value::ServerError(_) = &reply {
        assert!(reply.error().starts_with("WRONGTYPE "), "{}", reply.show());
        assert_eq!(picture(&server, "f1 busy f2"), "f1:- busy:- f2:-");
    } else {
        assert_eq!(tokens(&reply).len(), 3);
        assert_eq!(picture(&server, "f1 busy f2"), "f1:m busy:m f2:m");
    }
    clear(&server);
}

#[test]
fn nothing_is_granted_while_writes_are_refused() {
    let server = Server::start();
    let mut m = scene_for(&server, 1_000);
    server.ask("CONFIG SET min-replicas-to-write 1").ok();
    wait_until("the end of the lease", || picture(&server, "busy") == "busy:-<m");
    for call in [
        "DLOCK.MACQUIRE 2 x1 x2 x",
        "DLOCK.MACQUIRE 2 x1 x2 x BLOCK 0",
        "DLOCK.ANYACQUIRE 2 x1 x2 x",
        "DLOCK.MRELEASE 1 busy h",
        "DLOCK.MRENEW 1 busy h",
    ] {
        let refusal = server.ask(call).error();
        assert!(refusal.starts_with("NOREPLICAS "), "{call}: {refusal}");
    }
    m.assert_no_reply();
    assert_eq!(picture(&server, "f1 busy f2"), "f1:-<m busy:-<m f2:-<m");
    server.ask("CONFIG SET min-replicas-to-write 0").ok();
    end(&server, m);
}
