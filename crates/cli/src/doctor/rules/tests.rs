use super::*;

/// Facts as `name=value name=value`.
fn facts(text: &str) -> Facts {
    let pairs = text.split_whitespace().filter_map(|pair| pair.split_once('='));
    Facts(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
}

const COMMON: &str = "connected_slaves=0 dlock_version=0.2.0 dlock_records_refused=0 min-replicas-to-write=1 \
    min-replicas-max-lag=10 dlock.restart-quarantine-ms=30000 replica-priority=100 appendonly=yes save=";

/// A server that fits, but for these facts.
fn server(address: &str, with: &str) -> Server {
    let role = if address == "p" { "master" } else { "slave" };
    let facts = facts(&format!("role={role} master_link_status=up {COMMON} {with}"));
    Server { address: address.to_owned(), facts: Ok(facts) }
}

fn group(primary: &str, replicas: &[&str]) -> Vec<Server> {
    let replica = |(at, with): (usize, &&str)| server(&format!("r{at}"), with);
    let replicas = replicas.iter().enumerate().map(replica);
    std::iter::once(server("p", primary)).chain(replicas).collect()
}

const SENTINEL: &str =
    "name=locks ip=p port=1 num-other-sentinels=2 quorum=2 down-after-milliseconds=500";

/// `status server check` of each finding that is not `Good`.
fn problems(setup: &Setup, confirm: u64, lease_ms: u64) -> Vec<String> {
    let all = check(setup, confirm, lease_ms);
    assert!(all.iter().all(|found| found.fix.is_empty() == (found.status == Good)), "{all:?}");
    let bad = all.iter().filter(|found| found.status != Good);
    bad.map(|found| format!("{:?} {} {}", found.status, found.server, found.check)).collect()
}

/// Problems of a primary and two replicas with these facts.
fn of(primary: &str, replica: &str) -> Vec<String> {
    let setup = Setup { groups: vec![group(primary, &[replica, ""])], sentinels: Vec::new() };
    problems(&setup, 1, 30_000)
}

#[test]
fn grants_must_be_on_a_majority() {
    for (replicas, confirm, expected, fix) in [
        (0, 1, Fail, "run 2 replicas"),
        (1, 1, Warn, "add a replica"),
        (2, 1, Good, ""),
        (3, 1, Fail, "write replicas=2 into the URL of the clients"),
        (1, 2, Fail, "run 4 replicas"),
        (2, 2, Warn, "add a replica"),
        (3, 2, Good, ""),
        (4, 1, Fail, "write replicas=2 into the URL of the clients"),
        (4, 2, Good, ""),
        (5, 2, Fail, "write replicas=3 into the URL of the clients"),
    ] {
        let setup = Setup { groups: vec![group("", &vec![""; replicas])], sentinels: Vec::new() };
        let all = check(&setup, confirm, 0);
        let found = all.iter().find(|found| found.check == "majority").unwrap();
        assert_eq!((found.status, found.fix.as_str()), (expected, fix), "{found:?}");
    }
}

#[test]
fn each_rule_looks_at_primary_and_replica() {
    assert_eq!(of("", ""), Vec::<String>::new());
    for (fact, status, rule) in [
        ("dlock_version=", "Fail", "module"),
        ("dlock_records_refused=1", "Fail", "records"),
        ("dlock_records_refused=", "NotChecked", "records"),
        ("min-replicas-to-write=0", "Fail", "min-replicas-to-write"),
        ("min-replicas-to-write=", "NotChecked", "min-replicas-to-write"),
        ("min-replicas-max-lag=0", "Fail", "min-replicas-max-lag"),
        ("min-replicas-max-lag=11", "Warn", "min-replicas-max-lag"),
        ("min-replicas-max-lag=", "NotChecked", "min-replicas-max-lag"),
        ("dlock.restart-quarantine-ms=29999", "Fail", "dlock.restart-quarantine-ms"),
        ("dlock.restart-quarantine-ms=", "NotChecked", "dlock.restart-quarantine-ms"),
        ("replica-priority=", "NotChecked", "replica-priority"),
        ("appendonly=no", "Warn", "persistence"),
        ("appendonly=", "NotChecked", "persistence"),
    ] {
        assert_eq!(of(fact, ""), [format!("{status} p {rule}")], "{fact}");
        assert_eq!(of("", fact), [format!("{status} r0 {rule}")], "{fact}");
    }
    for fact in ["min-replicas-to-write=2", "min-replicas-max-lag=1", "appendonly=no save=60"] {
        assert_eq!(of(fact, fact), Vec::<String>::new(), "{fact}");
    }
}

#[test]
fn others_are_compared_with_the_first_server() {
    assert_eq!(of("", "dlock_version=0.1.0"), ["Fail r0 module"]);
    assert_eq!(of("dlock_version=", "dlock_version=0.1.0"), ["Fail p module"]);
    assert_eq!(of("", "replica-priority=0"), ["Warn r0 replica-priority"]);
    assert_eq!(of("replica-priority=0", "replica-priority=0"), ["Warn r1 replica-priority"]);
}

#[test]
fn replicas_follow_the_primary_alone() {
    assert_eq!(of("connected_slaves=2", ""), Vec::<String>::new());
    assert_eq!(of("", "connected_slaves=1"), ["Fail r0 replicas"]);
    assert_eq!(of("", "master_link_status=down"), ["Fail r0 role"]);
    assert_eq!(of("", "role=master"), ["Fail r0 role"]);
    assert_eq!(of("role=slave", ""), ["Fail p role"]);
}

#[test]
fn a_server_that_does_not_answer_is_not_checked() {
    let mut setup = Setup { groups: vec![group("", &["", ""])], sentinels: Vec::new() };
    for (at, expected) in [(2, "NotChecked r1 reachable"), (0, "NotChecked p reachable")] {
        let before = std::mem::replace(&mut setup.groups[0][at].facts, Err("gone".to_owned()));
        assert_eq!(problems(&setup, 1, 30_000), [expected]);
        setup.groups[0][at].facts = before;
    }
}

#[test]
fn every_group_is_checked_with_what_the_clients_need() {
    let groups = vec![group("", &["", ""]), group("", &["", "min-replicas-to-write=0"])];
    let setup = Setup { groups, sentinels: Vec::new() };
    assert_eq!(problems(&setup, 1, 30_000), ["Fail r1 min-replicas-to-write"]);
    assert_eq!(problems(&setup, 1, 30_001).len(), 7);
    assert_eq!(problems(&setup, 2, 30_000).len(), 8);
}

#[test]
fn sentinels_are_three_and_agree() {
    for (fact, expected) in [
        ("", None),
        ("num-other-sentinels=1", Some("sentinels")),
        ("quorum=1", Some("quorum")),
        ("num-other-sentinels=3", Some("quorum")),
        ("ckquorum=NOQUORUM", Some("ckquorum")),
        ("port=2", Some("sentinel-primary")),
    ] {
        let facts = Ok(facts(&format!("{SENTINEL} {fact}")));
        let mut group = group("", &["", ""]);
        group[0].address = "p:1".to_owned();
        let sentinels = vec![Server { address: "s".to_owned(), facts }];
        let found = problems(&Setup { groups: vec![group], sentinels }, 1, 30_000);
        let expected: Vec<String> = expected.iter().map(|rule| format!("Fail s {rule}")).collect();
        assert_eq!(found, expected, "{fact}");
    }
    let sentinels = vec![Server { address: "s".to_owned(), facts: Err("gone".to_owned()) }];
    let setup = Setup { groups: vec![group("", &["", ""])], sentinels };
    assert_eq!(problems(&setup, 1, 30_000), ["NotChecked s reachable"]);
}

const SINGLE: &str = "valkey_version=9.1.2 dlock_server_tried=yes appendfsync=always maxmemory=0 \
    maxmemory-policy=noeviction bind=* protected-mode=no min-replicas-to-write=0 dlock.restart-quarantine-ms=0";

fn single(with: &str) -> Setup {
    let groups = vec![group(&format!("{SINGLE} {with}"), &[])];
    Setup { groups, sentinels: Vec::new() }
}

#[test]
fn one_server_is_one_that_waits_for_no_replica() {
    let hidden = Facts([("role", "master"), ("connected_slaves", "0")].map(owned).into());
    let hidden = vec![Server { address: "p".to_owned(), facts: Ok(hidden) }];
    assert!(is_single(&single("")));
    assert!(is_single(&Setup { groups: vec![hidden], sentinels: Vec::new() }));
    for with in ["connected_slaves=1", "min-replicas-to-write=1", "role=slave"] {
        assert!(!is_single(&single(with)), "{with}");
    }
    let two = vec![server("p", SINGLE), server("r", SINGLE)];
    let gone = vec![Server { address: "p".to_owned(), facts: Err("gone".to_owned()) }];
    let one = || vec![server("p", SINGLE)];
    for groups in [vec![two], vec![gone], vec![one(), one()], Vec::new()] {
        assert!(!is_single(&Setup { groups, sentinels: Vec::new() }));
    }
    let sentinels = vec![server("s", "")];
    assert!(!is_single(&Setup { groups: vec![one()], sentinels }));
}

fn owned((name, value): (&str, &str)) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[test]
fn each_rule_looks_at_one_server() {
    for (facts, expected) in [
        ("", None),
        ("dlock_version=", Some("Fail p module")),
        ("dlock_records_refused=1", Some("Fail p records")),
        ("dlock_server_tried=no", Some("Warn p version")),
        ("dlock_server_tried=", None),
        ("min-replicas-max-lag=0 replica-priority=0", None),
        ("appendfsync=everysec", Some("Warn p persistence")),
        ("appendfsync=no", Some("Warn p persistence")),
        ("appendonly=no save=60", Some("Fail p persistence")),
        ("appendonly=no", Some("Fail p persistence")),
        ("appendonly=no dlock.restart-quarantine-ms=29999", Some("Fail p persistence")),
        ("appendonly=no dlock.restart-quarantine-ms=30000", None),
        ("appendfsync=everysec dlock.restart-quarantine-ms=30000", None),
        ("appendfsync=everysec dlock.restart-quarantine-ms=", Some("NotChecked p persistence")),
        ("dlock.restart-quarantine-ms=", None),
        ("appendonly=", Some("NotChecked p persistence")),
        ("maxmemory-policy=allkeys-lru", Some("Warn p maxmemory-policy")),
        ("maxmemory-policy=allkeys-lru maxmemory=1", Some("Fail p maxmemory-policy")),
        ("maxmemory-policy=volatile-lru maxmemory=1", None),
        ("maxmemory-policy=", Some("NotChecked p maxmemory-policy")),
        ("maxmemory=", Some("NotChecked p maxmemory-policy")),
    ] {
        let found = problems(&single(facts), 0, 30_000);
        assert_eq!(found, expected.map_or(vec![], |problem| vec![problem]), "{facts}");
    }
}

#[test]
fn other_machines_need_a_password() {
    let status = |flags: &str, bind: &str, protected: &str| {
        let mut setup = single(&format!("protected-mode={protected}"));
        if let Ok(facts) = &mut setup.groups[0][0].facts {
            facts.0.extend([(DEFAULT_USER, flags), ("bind", bind)].map(owned));
        }
        let all = check(&setup, 0, 30_000);
        all.iter().find(|found| found.check == "access").map(|found| found.status)
    };
    for (flags, bind, protected, expected) in [
        ("on nopass sanitize-payload", "* -::*", "no", Some(Warn)),
        ("on nopass", "127.0.0.1 10.0.0.1", "no", Some(Warn)),
        ("on nopass", "* -::*", "yes", Some(Good)),
        ("on nopass", "127.0.0.1 -::1 localhost", "no", Some(Good)),
        ("on nopass", "", "no", Some(Good)),
        ("on nopass", "*", "", None),
        ("off nopass", "*", "no", Some(Good)),
        ("on", "*", "no", Some(Good)),
    ] {
        assert_eq!(status(flags, bind, protected), expected, "{flags} {bind} {protected}");
    }
    assert!(check(&single(""), 0, 0).iter().all(|found| found.check != "access"));
}
