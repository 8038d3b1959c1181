//! The cluster of a set-up: how it is formed, when it is whole, and slots that move.

use super::{
    client::KEYS,
    group::{Group, SERVER_PORT},
    net::{HOSTS, Net, Node},
    wait_for,
};

/// The slots of the two groups with keys, and of the primary that votes: only primaries with slots do.
const SLOTS: [&str; 3] = ["0 8191", "8192 16382", "16383 16383"];

/// Groups with keys.
const GROUPS: usize = 2;

impl Group {
    /// Makes a cluster of the servers; the first server of each group is its primary.
    pub fn form_cluster(&self, net: &Net) {
        let tell = |server: usize, line: &str| {
            let is_done = || self.servers[server].ask(line).is_some_and(|reply| reply == "+OK");
            wait_for(line, is_done);
        };
        for server in &self.servers {
            wait_for("a node", || server.ask("PING").is_some());
        }
        for (group, slots) in SLOTS.into_iter().enumerate() {
            let primary = group * HOSTS;
            tell(primary, &format!("CLUSTER SET-CONFIG-EPOCH {}", group + 1));
            tell(primary, &format!("CLUSTER ADDSLOTSRANGE {slots}"));
        }
        for server in 1..self.servers.len() {
            let address = net.address(Node::Server(server));
            tell(0, &format!("CLUSTER MEET {address} {SERVER_PORT}"));
        }
        for server in 0..self.servers.len() {
            let primary = self.world.group(server).start;
            if server != primary {
                let id = self.id(primary).expect("a node has an id");
                tell(server, &format!("CLUSTER REPLICATE {id}"));
            }
        }
    }

    /// The primaries of the groups with keys, if all nodes see the same cluster, without a fault, and no slot moves.
    pub fn agreed(&self) -> Option<Vec<usize>> {
        let mut agreed: Option<Vec<String>> = None;
        for server in &self.servers {
            let view = server.ask("CLUSTER NODES")?;
            let is_calm = |line: &str| line.contains(" connected") && !line.contains(['[', '?']);
            if view.contains("fail") || !view.trim_end().lines().all(is_calm) {
                return None;
            }
            let mut view: Vec<String> = view.trim_end().lines().map(what_all_know).collect();
            view.sort_unstable();
            if view.len() != self.servers.len() || agreed.is_some_and(|other| other != view) {
                return None;
            }
            agreed = Some(view);
        }
        self.primaries()
    }

    /// The primary of each group with keys, if exactly one server says it is one and has slots.
    fn primaries(&self) -> Option<Vec<usize>> {
        let has_slots = |own: String| own.contains("master") && own.split(' ').count() > 8;
        let of = |group: usize| {
            let servers = self.world.group(group * HOSTS);
            let mut primaries = servers.filter(|&server| self.own(server).is_some_and(has_slots));
            primaries.next().filter(|_| primaries.next().is_none())
        };
        (0..GROUPS).map(of).collect()
    }

    /// Moves the slot of a key from the first group to the second, or back: in one step both nodes know of it, in two
    /// the key is moved, in three the slot. `None`: a node did not do its part; a later call goes on.
    pub fn move_slot(&self, net: &Net, key: &str, primaries: &[usize], steps: u64) -> Option<()> {
        let slot = self.servers[0].ask(&format!("CLUSTER KEYSLOT {key}"))?;
        let slot: u16 = slot.strip_prefix(':')?.parse().ok()?;
        let is_owner = |&&server: &&usize| self.own(server).is_some_and(|own| has(&own, slot));
        let from = *primaries.iter().find(is_owner)?;
        let target = *primaries.iter().find(|&&server| server != from)?;
        let tell = |server: usize, what: &str| {
            let reply = self.servers[server].ask(&format!("CLUSTER SETSLOT {slot} {what}"))?;
            (reply == "+OK").then_some(())
        };
        tell(target, &format!("IMPORTING {}", self.id(from)?))?;
        tell(from, &format!("MIGRATING {}", self.id(target)?))?;
        if steps == 1 {
            return Some(());
        }
        // If both have the key, the one that owns the slot has the one that clients see.
        let address = net.address(Node::Server(target));
        let migrate = format!("MIGRATE {address} {SERVER_PORT} {key} 0 250 REPLACE");
        let reply = self.servers[from].ask(&migrate)?;
        if !matches!(reply.as_str(), "+OK" | "+NOKEY") || steps == 2 {
            return None;
        }
        let owner = format!("NODE {}", self.id(target)?);
        tell(target, &owner)?;
        tell(from, &owner)
    }

    /// Ends the moves that a fault has interrupted, and makes primaries without slots replicas, as an operator does.
    /// Nothing while a group has no primary.
    pub fn end_moves(&self, net: &Net) {
        let Some(primaries) = self.primaries() else { return };
        for &primary in &primaries {
            let id = self.id(primary).unwrap_or_default();
            for server in self.world.group(primary).filter(|&server| server != primary) {
                if self.own(server).is_some_and(|own| own.contains("master")) {
                    self.servers[server].ask(&format!("CLUSTER REPLICATE {id}"));
                }
            }
        }
        let own = |&server: &usize| self.own(server).unwrap_or_default();
        let owns: String = primaries.iter().map(own).collect();
        for key in KEYS {
            let slot = self.servers[0].ask(&format!("CLUSTER KEYSLOT {key}")).unwrap_or_default();
            if owns.contains(&format!("[{}-", slot.trim_start_matches(':'))) {
                // It is called again until there is none.
                let _ = self.move_slot(net, key, &primaries, 3);
            }
        }
    }

    fn id(&self, server: usize) -> Option<String> {
        Some(self.own(server)?.split_once(' ')?.0.to_owned())
    }

    /// What a node says of itself.
    fn own(&self, server: usize) -> Option<String> {
        let view = self.servers[server].ask("CLUSTER NODES")?;
        view.lines().find(|line| line.contains("myself")).map(str::to_owned)
    }
}

/// The part of a line of CLUSTER NODES that is the same at all nodes: id, role, primary and slots.
fn what_all_know(line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let is_primary = words[2].contains("master");
    format!("{} {is_primary} {} {}", words[0], words[3], words[8..].join(" "))
}

/// Whether a line of CLUSTER NODES names this slot as one of its own.
fn has(line: &str, slot: u16) -> bool {
    let ranges = line.split(' ').skip(8).filter(|word| !word.starts_with('['));
    let ends = ranges.map(|word| word.split_once('-').unwrap_or((word, word)));
    let number = |word: &str| word.trim_end().parse::<u16>().ok();
    ends.filter_map(|(first, last)| Some(number(first)?..=number(last)?))
        .any(|range| range.contains(&slot))
}
