//! Clusters of several nodes, and slots that move between them.

use super::{server::Server, value::Reply as _, wait::wait_until};

impl Server {
    /// Its node id.
    #[track_caller]
    pub fn node_id(&self) -> String {
        self.cmd(&["CLUSTER", "MYID"]).text()
    }

    /// Gives it the slots `from..=to`.
    #[track_caller]
    pub fn add_slots(&self, from: u16, to: u16) {
        self.cmd(&["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]).ok();
    }

    /// Joins the two nodes' clusters; returns when each knows the other.
    #[track_caller]
    pub fn meet(&self, other: &Server) {
        let bus = other.cmd(&["CONFIG", "GET", "cluster-port"]).field("cluster-port").text();
        self.cmd(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), &bus]).ok();
        let (ours, theirs) = (self.node_id(), other.node_id());
        wait_until("the nodes to know each other", || {
            self.cmd(&["CLUSTER", "NODES"]).text().contains(&theirs)
                && other.cmd(&["CLUSTER", "NODES"]).text().contains(&ours)
        });
    }

    /// Waits until this node says that the cluster is whole.
    #[track_caller]
    pub fn wait_cluster_ok(&self) {
        wait_until("cluster_state:ok", || {
            self.cmd(&["CLUSTER", "INFO"]).text().contains("cluster_state:ok")
        });
    }

    /// The slot of a key.
    #[track_caller]
    pub fn slot(&self, key: &str) -> u16 {
        u16::try_from(self.cmd(&["CLUSTER", "KEYSLOT", key]).int()).expect("a slot number")
    }

    /// Opens the move of one slot to `target`: from now on keys that are not here are asked for there.
    #[track_caller]
    pub fn begin_slot_move(&self, slot: u16, target: &Server) {
        let slot = slot.to_string();
        target.cmd(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.node_id()]).ok();
        self.cmd(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.node_id()]).ok();
    }

    /// Moves the keys of a slot to `target` with MIGRATE; how many.
    #[track_caller]
    pub fn migrate_slot_keys(&self, slot: u16, target: &Server) -> usize {
        let keys = self.cmd(&["CLUSTER", "GETKEYSINSLOT", &slot.to_string(), "1000"]).items();
        let port = target.port().to_string();
        for key in &keys {
            let key = key.bytes();
            let call: [&[u8]; 6] = [b"MIGRATE", b"127.0.0.1", port.as_bytes(), &key, b"0", b"5000"];
            self.cmd(&call).ok();
        }
        keys.len()
    }

    /// Ends the move: the slot is `target`'s, and both nodes know it.
    #[track_caller]
    pub fn end_slot_move(&self, slot: u16, target: &Server) {
        let (slot, owner) = (slot.to_string(), target.node_id());
        for node in [target, self] {
            node.cmd(&["CLUSTER", "SETSLOT", &slot, "NODE", &owner]).ok();
        }
    }
}
