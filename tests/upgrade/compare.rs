//! A replica and its primary, key by key, while the primary takes no writes.

use std::collections::BTreeMap;

use dlock_testing::{Client, Reply as _, Server, redis::Value, wait_until};

/// Fields that only a primary has, or that depend on the moment.
const VOLATILE: [&str; 8] = [
    "ttl-ms",
    "held-ms",
    "waiting-ms",
    "remaining-ms",
    "client-id",
    "bound-client",
    "observers",
    "reserved-for",
];

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Comparison {
    pub keys: usize,
    /// What differs, a line for each key.
    pub different: Vec<String>,
}

/// Compares every key, and the number of remembered requests. The primary takes no writes meanwhile.
pub fn compare(primary: &Server, replica: &Server) -> Comparison {
    primary.ask("CLIENT PAUSE 60000 WRITE").ok();
    let offset = primary.info_number("replication", "master_repl_offset");
    wait_until("the replica to catch up", || {
        let info = replica.info("replication");
        info.get("master_link_status").is_some_and(|status| status == "up")
            && replica.info_number("replication", "slave_repl_offset") >= offset
    });
    let sides = [primary, replica].map(read);
    let remembered = [primary, replica]
        .map(|server| server.info("dlock").get("requests_remembered").cloned().unwrap_or_default());
    primary.ask("CLIENT UNPAUSE").ok();
    let mut result = Comparison::default();
    let names: std::collections::BTreeSet<_> = sides.iter().flat_map(|side| side.keys()).collect();
    result.keys = names.len();
    for name in names {
        let [ours, theirs] = [&sides[0], &sides[1]].map(|side| side.get(name));
        if ours != theirs {
            result.different.push(format!("{name}: {ours:?}, replica {theirs:?}"));
        }
    }
    if remembered[0] != remembered[1] {
        result.different.push(format!("remembered requests: {remembered:?}"));
    }
    result
}

fn shown(client: &mut Client, key: &str) -> Vec<String> {
    let kind = client.cmd(&["TYPE", key]).text();
    let family = match &*kind {
        "dlock-mtx" => "DLOCK",
        "dlock-fif" => "DFAIR",
        "dlock-rwl" => "DRW",
        "dlock-sem" => "DSEM",
        "dlock-cdl" => "DLATCH",
        _ => return vec![kind],
    };
    let mut questions = vec![vec![format!("{family}.INFO"), key.to_owned()]];
    match family {
        // Only here waiters are part of the value.
        "DFAIR" => questions.push(vec!["DFAIR.WAITERS".to_owned(), key.to_owned()]),
        "DSEM" => questions.push(vec!["DSEM.PERMITS".to_owned(), key.to_owned()]),
        _ => {}
    }
    questions.push(["DEBUG", "DIGEST-VALUE", key].map(str::to_owned).to_vec());
    let answers = client.pipeline(&questions);
    let has_queue = family == "DFAIR";
    answers.iter().map(|answer| lasting(answer, has_queue)).collect()
}

/// A reply without the volatile fields.
fn lasting(value: &Value, has_queue: bool) -> String {
    let Value::Array(items) = value else { return value.show() };
    let is_map = items.len().is_multiple_of(2)
        && matches!(items.first(), Some(Value::BulkString(_) | Value::SimpleString(_)));
    if !is_map {
        let items: Vec<_> = items.iter().map(|item| lasting(item, has_queue)).collect();
        return format!("[{}]", items.join(", "));
    }
    let fields = value
        .pairs()
        .into_iter()
        .filter(|(name, _)| !VOLATILE.contains(&&**name) && (has_queue || name != "waiters"));
    let fields: Vec<_> =
        fields.map(|(name, value)| format!("{name}={}", lasting(&value, has_queue))).collect();
    format!("{{{}}}", fields.join(" "))
}

/// What a server shows of each key.
fn read(server: &Server) -> BTreeMap<String, Vec<String>> {
    let mut client = server.client();
    if server.info("cluster").get("cluster_enabled").is_some_and(|enabled| enabled == "1") {
        client.cmd(&["READONLY"]).ok();
    }
    let names = client.cmd(&["KEYS", "*"]).items();
    names.iter().map(|name| (name.text(), shown(&mut client, &name.text()))).collect()
}
