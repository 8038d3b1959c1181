//! The network of one set-up: a namespace for each process, and one in the middle that routes between them and drops
//! what a fault cuts. Nothing touches the network of the machine.

use std::{
    fs,
    io::Write as _,
    ops::Range,
    path::Path,
    process::{Command, Stdio},
};

/// Where iproute2 keeps the named namespaces.
const NAMESPACES: &str = "/run/netns";

/// What the names of our namespaces begin with; the process id follows.
const PREFIX: &str = "dlock-failover-";

/// Servers of a group: a primary and its replicas, or all servers of a quorum lock.
pub const HOSTS: usize = 3;

/// Client processes.
pub const CLIENTS: usize = 3;

/// What the servers of a set-up are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum World {
    /// A group, with a Sentinel on each host.
    Sentinel,
    /// A cluster of two groups with keys, and a third primary that votes.
    Cluster,
    /// The servers of a quorum lock. They do not know each other.
    Quorum,
    /// This number of servers, without judges: two primaries, and replicas that change sides. A client knows one
    /// primary.
    Duel(usize),
}

impl World {
    pub fn servers(self) -> usize {
        match self {
            World::Cluster => 2 * HOSTS + 1,
            World::Duel(servers) => servers,
            _ => HOSTS,
        }
    }

    /// The servers that replicate each other.
    pub fn group(self, server: usize) -> Range<usize> {
        if let World::Duel(servers) = self {
            return 0..servers;
        }
        let first = server / HOSTS * HOSTS;
        first..self.servers().min(first + HOSTS)
    }

    pub fn nodes(self) -> Vec<Node> {
        let sentinels = if self == World::Sentinel { HOSTS } else { 0 };
        let servers = (0..self.servers()).map(Node::Server);
        let others = (0..sentinels).map(Node::Sentinel).chain((0..CLIENTS).map(Node::Client));
        servers.chain(others).collect()
    }
}

/// A namespace with one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Server(usize),
    /// It has a namespace apart from the server of its host, so that a fault can cut the two.
    Sentinel(usize),
    Client(usize),
}

impl Node {
    /// A short name, unique in its set-up.
    pub fn name(self) -> String {
        match self {
            Node::Server(n) => format!("server{n}"),
            Node::Sentinel(n) => format!("sentinel{n}"),
            Node::Client(n) => format!("client{n}"),
        }
    }
}

/// The namespaces of a set-up. Dropping it deletes them.
#[derive(Debug)]
pub struct Net {
    prefix: String,
    subnet: usize,
    /// The rules that drop packets now.
    cuts: Vec<String>,
    slow: Vec<Node>,
}

impl Net {
    /// Creates the namespaces of set-up `n`, 0 to 200. Needs root.
    pub fn new(n: usize, world: World) -> Net {
        let nodes = world.nodes();
        let prefix = format!("{PREFIX}{}-{n}-", std::process::id());
        let net = Net { prefix, subnet: n + 1, cuts: Vec::new(), slow: Vec::new() };
        let hub = net.hub();
        let mut names = vec![format!("netns add {hub}")];
        let mut links = vec!["link set lo up".to_owned()];
        for &node in &nodes {
            let (namespace, link, address) = (net.namespace(node), node.name(), net.address(node));
            names.push(format!("netns add {namespace}"));
            links.push(format!("link add {link} type veth peer name eth0 netns {namespace}"));
            links.push(format!("addr add {}/32 dev {link}", net.router()));
            // Only a link that is up takes a route.
            links.push(format!("link set {link} up"));
            links.push(format!("route add {address}/32 dev {link}"));
        }
        batch("ip", None, &names);
        batch("ip", Some(&hub), &links);
        let forward = "echo 1 > /proc/sys/net/ipv4/ip_forward";
        let forward = command(&hub, "sh").args(["-c", forward]).status();
        assert!(forward.is_ok_and(|status| status.success()), "no routing in {hub}");
        for node in nodes {
            let setup = [
                "link set lo up".to_owned(),
                format!("addr add {}/32 dev eth0", net.address(node)),
                "link set eth0 up".to_owned(),
                format!("route add default via {} dev eth0 onlink", net.router()),
            ];
            batch("ip", Some(&net.namespace(node)), &setup);
        }
        net
    }

    /// The address of a node, which only the other nodes can reach.
    pub fn address(&self, node: Node) -> String {
        let (host, last) = match node {
            Node::Server(n) => (n + 1, 1),
            Node::Sentinel(n) => (n + 1, 2),
            Node::Client(n) => (n + 101, 1),
        };
        format!("10.{}.{host}.{last}", self.subnet)
    }

    /// A command that runs this program in the namespace of a node, as the same process.
    pub fn within(&self, node: Node, program: &str) -> Command {
        command(&self.namespace(node), program)
    }

    /// Drops all packets from each of these nodes to each of those.
    pub fn cut_way(&mut self, from: &[Node], to: &[Node]) {
        let mut rules = Vec::new();
        for &one in from {
            for &other in to {
                let (one, other) = (self.address(one), self.address(other));
                rules.push(format!("from {one} to {other} blackhole"));
            }
        }
        let added: Vec<String> = rules.iter().map(|rule| format!("rule add {rule}")).collect();
        batch("ip", Some(&self.hub()), &added);
        self.cuts.extend(rules);
    }

    /// Drops all packets between these nodes and those.
    pub fn cut(&mut self, some: &[Node], others: &[Node]) {
        self.cut_way(some, others);
        self.cut_way(others, some);
    }

    /// Lets at most `kbit` kbit/s pass to and from a node. (A token bucket: more kernels have it than netem.)
    pub fn slow_down(&mut self, node: Node, kbit: u64) {
        self.shape(node, "replace", &format!("tbf rate {kbit}kbit burst 4kb latency 400ms"));
        self.slow.push(node);
    }

    /// Ends all cuts and slow links.
    pub fn heal(&mut self) {
        let removed = self.cuts.drain(..).map(|rule| format!("rule del {rule}"));
        let removed: Vec<String> = removed.collect();
        batch("ip", Some(&self.hub()), &removed);
        for node in std::mem::take(&mut self.slow) {
            self.shape(node, "del", "");
        }
    }

    fn shape(&self, node: Node, verb: &str, how: &str) {
        let line = |link: &str| [format!("qdisc {verb} dev {link} root {how}")];
        batch("tc", Some(&self.hub()), &line(&node.name()));
        batch("tc", Some(&self.namespace(node)), &line("eth0"));
    }

    fn hub(&self) -> String {
        format!("{}hub", self.prefix)
    }

    fn namespace(&self, node: Node) -> String {
        format!("{}{}", self.prefix, node.name())
    }

    fn router(&self) -> String {
        format!("10.{}.0.254", self.subnet)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        delete(|name| name.starts_with(&self.prefix));
    }
}

/// A command in a namespace; it becomes the program, without a process between.
fn command(namespace: &str, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={NAMESPACES}/{namespace}")).arg(program);
    command
}

/// Deletes what an earlier run left that was killed.
pub fn delete_leftovers() {
    delete(|name| {
        let id = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        id.is_some_and(|id| !Path::new("/proc").join(id).exists())
    });
}

fn delete(is_ours: impl Fn(&str) -> bool) {
    for entry in fs::read_dir(NAMESPACES).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_ours(&name) {
            // The others go all the same.
            let _ = Command::new("ip").args(["netns", "del", &name]).status();
        }
    }
}

/// Runs these lines of `ip` or `tc`, in a namespace if one is named.
fn batch(tool: &str, namespace: Option<&str>, lines: &[String]) {
    let lines = lines.join("\n");
    let place = namespace.map(|name| ["-n", name]);
    let mut command = Command::new(tool);
    command.args(place.iter().flatten()).args(["-batch", "-"]).stdin(Stdio::piped());
    let mut child = command.spawn().expect("iproute2 (make deps)");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(lines.as_bytes()).expect("a tool that reads its lines");
    drop(input);
    assert!(child.wait().is_ok_and(|status| status.success()), "{tool} refused:\n{lines}");
}
