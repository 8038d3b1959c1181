//! Asks servers, Sentinels and a cluster what the rules need.

use std::collections::BTreeMap;

use dlock_client::redis::{
    ConnectionInfo, ParsingError, RedisResult, TlsCertificates, Value, cmd, from_redis_value_ref,
};
use tokio::time::timeout;

use super::PATIENCE;
use super::rules::{DEFAULT_USER, Facts, Server, Setup};
use super::url::{Target, at, open};

const SETTINGS: [&str; 11] = [
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "dlock.restart-quarantine-ms",
    "replica-priority",
    "save",
    "appendonly",
    "appendfsync",
    "maxmemory",
    "maxmemory-policy",
    "bind",
    "protected-mode",
];

type Fields = BTreeMap<String, String>;

impl Server {
    fn new(info: &ConnectionInfo, facts: Result<Facts, String>) -> Self {
        Self { address: info.addr().to_string(), facts }
    }
}

/// Asks all servers of the URL, one after the other.
pub async fn collect(target: &Target, tls: Option<&TlsCertificates>) -> Setup {
    let Target { nodes, sentinels, name, is_cluster, .. } = target;
    let mut setup = Setup::default();
    if *is_cluster {
        for seed in nodes {
            match within(ask_cluster(seed, tls)).await {
                Ok(groups) => {
                    setup.groups.clear();
                    for group in groups {
                        setup.groups.push(ask_group(group, tls, false).await);
                    }
                    break;
                }
                Err(why) => setup.groups.push(vec![Server::new(seed, Err(why))]),
            }
        }
        return setup;
    }
    let mut known = Vec::new();
    for info in sentinels {
        let asked = within(ask_sentinel(info, name, tls)).await;
        if let (Ok((primary, replicas)), true, [node, ..]) = (&asked, known.is_empty(), &nodes[..])
        {
            let named = std::iter::once(&primary.0).chain(replicas);
            known.extend(named.filter_map(|fields| {
                Some(at(node, fields.get("ip")?, fields.get("port")?.parse().ok()?))
            }));
        }
        setup.sentinels.push(Server::new(info, asked.map(|(facts, _)| facts)));
    }
    if sentinels.is_empty() {
        known.clone_from(nodes);
    }
    setup.groups.push(ask_group(known, tls, true).await);
    setup
}

/// Asks the primary, which is the first of `known`, and the replicas: those known and, if `follow`, those that the
/// primary names.
async fn ask_group(
    mut known: Vec<ConnectionInfo>,
    tls: Option<&TlsCertificates>,
    follow: bool,
) -> Vec<Server> {
    let (mut group, mut seen, mut next) = (Vec::new(), Vec::<String>::new(), 0);
    while let Some(info) = known.get(next).cloned() {
        next += 1;
        let facts = within(ask_server(&info, tls)).await;
        if let Ok(facts) = &facts {
            let at = |host: &str, port: &str| at(&info, host, port.parse().unwrap_or(0));
            // A server may have several names.
            if seen.iter().any(|id| id == facts.get("run_id")) {
                continue;
            }
            seen.push(facts.get("run_id").to_owned());
            let named = facts.0.iter().filter_map(|(name, value)| replica(name, value));
            let named =
                named.map(|(host, port)| at(host, port)).filter(|_| follow && group.is_empty());
            let is_new =
                |one: &ConnectionInfo| known.iter().all(|other| other.addr() != one.addr());
            let new: Vec<_> = named.filter(is_new).collect();
            known.extend(new);
        }
        group.push(Server::new(&info, facts));
    }
    group
}

/// Host and port in a field of INFO such as `slave0:ip=10.0.0.2,port=6379,state=online`.
fn replica<'a>(name: &str, value: &'a str) -> Option<(&'a str, &'a str)> {
    name.strip_prefix("slave")?.parse::<u32>().ok()?;
    let field = |name| value.split(',').find_map(|pair| pair.strip_prefix(name));
    Some((field("ip=")?, field("port=")?))
}

async fn ask_server(info: &ConnectionInfo, tls: Option<&TlsCertificates>) -> RedisResult<Facts> {
    let mut server = open(info, tls).await?;
    let sections = ["server", "replication", "dlock"];
    let text: String = cmd("INFO").arg(&sections).query_async(&mut server).await?;
    let config = cmd("CONFIG").arg("GET").arg(&SETTINGS).query_async::<Fields>(&mut server).await;
    // Without settings, the rules report each as not checked.
    let mut facts = facts(&text, config.unwrap_or_default());
    let user = cmd("ACL").arg("GETUSER").arg("default").query_async(&mut server).await;
    // Few users may ask that. Then there is no finding.
    if let Ok(Ok(flags)) = user.map(|user| flags(&user)) {
        facts.0.insert(DEFAULT_USER.to_owned(), flags.join(" "));
    }
    Ok(facts)
}

/// The flags in the reply to ACL GETUSER.
fn flags(user: &BTreeMap<String, Value>) -> Result<Vec<String>, ParsingError> {
    user.get("flags").map_or(Ok(Vec::new()), from_redis_value_ref)
}

/// INFO and settings as one map.
fn facts(info: &str, mut fields: Fields) -> Facts {
    let lines = info.lines().filter_map(|line| line.split_once(':'));
    fields.extend(lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())));
    Facts(fields)
}

/// What a Sentinel says about the primary, and the replicas that it knows.
async fn ask_sentinel(
    info: &ConnectionInfo,
    name: &str,
    tls: Option<&TlsCertificates>,
) -> RedisResult<(Facts, Vec<Fields>)> {
    let mut sentinel = open(info, tls).await?;
    let ask = |verb: &str| cmd("SENTINEL").arg(verb).arg(name).clone();
    let mut fields: Fields = ask("MASTER").query_async(&mut sentinel).await?;
    let replicas = ask("REPLICAS").query_async(&mut sentinel).await?;
    match ask("CKQUORUM").query_async::<String>(&mut sentinel).await {
        Ok(_) => {}
        Err(error) if error.code() == Some("NOQUORUM") => {
            fields.insert("ckquorum".to_owned(), error.to_string());
        }
        Err(error) => return Err(error),
    }
    Ok((Facts(fields), replicas))
}

async fn ask_cluster(
    seed: &ConnectionInfo,
    tls: Option<&TlsCertificates>,
) -> RedisResult<Vec<Vec<ConnectionInfo>>> {
    let nodes: String =
        cmd("CLUSTER").arg("NODES").query_async(&mut open(seed, tls).await?).await?;
    Ok(cluster_groups(&nodes, seed))
}

/// The primaries with slots in the reply to CLUSTER NODES, each with its replicas.
fn cluster_groups(text: &str, seed: &ConnectionInfo) -> Vec<Vec<ConnectionInfo>> {
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
    let rows = || rows.iter().filter(|row| row.len() >= 8);
    let node = |row: &Vec<&str>| {
        // ip:port@bus-port[,hostname[,…]]; a node without an address is out of reach.
        let (address, _) = row[1].split_once('@').unwrap_or((row[1], ""));
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let seed_host = seed.addr().to_string();
        let own = seed_host.rsplit_once(':').map_or("", |(host, _)| host);
        at(seed, if host.is_empty() { own } else { host }, port.parse().unwrap_or(0))
    };
    // In brackets are slots that are being moved.
    let has_slots = |row: &&Vec<&str>| row.iter().skip(8).any(|slot| !slot.starts_with('['));
    let group = |primary: &Vec<&str>| {
        let replicas = rows().filter(|row| row[3] == primary[0]);
        rows().filter(|row| row[0] == primary[0]).chain(replicas).map(node).collect()
    };
    rows().filter(has_slots).map(group).collect()
}

/// The answer, or why there is none in time.
async fn within<T>(answer: impl Future<Output = RedisResult<T>>) -> Result<T, String> {
    match timeout(PATIENCE, answer).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("nothing within {} s", PATIENCE.as_secs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_and_settings_are_one_map() {
        let info = "# Server\r\nrun_id:ab\r\nslave0:ip=::1,port=7001\r\ndlock_version:1.0.0\r\n";
        let found = facts(info, Fields::from([("save".to_owned(), String::new())]));
        assert_eq!((found.get("run_id"), found.get("dlock_version")), ("ab", "1.0.0"));
        assert_eq!(found.0.get("save").map(String::as_str), Some(""));
        assert_eq!(facts("# Server\r\n", Fields::new()).get("dlock_version"), "");
    }

    #[test]
    fn flags_of_a_user_are_words() {
        let flag = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let reply = Value::Array(vec![flag("on"), flag("nopass")]);
        let user = BTreeMap::from([("flags".to_owned(), reply)]);
        assert_eq!(flags(&user).unwrap(), ["on", "nopass"]);
        assert!(flags(&BTreeMap::new()).unwrap().is_empty());
    }

    #[test]
    fn replicas_have_numbers() {
        let value = "ip=::1,port=7001,state=online";
        assert_eq!(replica("slave12", value), Some(("::1", "7001")));
        assert_eq!(replica("slave_priority", "100"), None);
        assert_eq!(replica("slave0", "state=online"), None);
    }

    #[test]
    fn each_primary_with_slots_is_a_group() {
        let text = "p1 10.0.0.1:7000@17000 myself,master - 0 0 1 connected 0-8191 [5->-p2]\n\
            r1 10.0.0.2:7000@17000,host-2 slave,fail p1 0 0 1 disconnected\n\
            p2 :7001@17001 master - 0 0 2 connected 8192-16383\n\
            p3 10.0.0.3:7000@17000 master - 0 0 3 connected [5-<-p1]\n\
            r2 ::1:7002@17002,,shard-id=x slave p2 0 0 2 connected\n";
        let seed = Target::parse("redis-cluster://seed:7").unwrap().nodes.remove(0);
        let groups = cluster_groups(text, &seed);
        let groups: Vec<Vec<String>> = groups
            .iter()
            .map(|group| group.iter().map(|info| info.addr().to_string()).collect())
            .collect();
        assert_eq!(groups, [["10.0.0.1:7000", "10.0.0.2:7000"], ["seed:7001", "::1:7002"]]);
    }
}
