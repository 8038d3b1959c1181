//! What CLUSTER SLOTS says: which node has which slots.

use redis::Value;

use crate::base::command::NodeAddress;

/// A reply of CLUSTER SLOTS. An empty host is that of the node that replied.
pub(crate) struct ClusterSlots {
    pub(crate) ranges: Vec<SlotRange>,
    pub(crate) replicas: Vec<NodeAddress>,
}

/// Slots of one primary, the last one included.
pub(crate) struct SlotRange {
    pub(crate) first: u16,
    pub(crate) last: u16,
    pub(crate) primary: NodeAddress,
}

impl ClusterSlots {
    pub(crate) fn parse(reply: &Value) -> Option<Self> {
        let Value::Array(all) = reply else { return None };
        let (mut ranges, mut replicas) = (Vec::new(), Vec::new());
        for range in all {
            let Value::Array(range) = range else { return None };
            let [first, last, primary, others @ ..] = range.as_slice() else { return None };
            let (first, last) = (number(first)?, number(last)?);
            ranges.push(SlotRange { first, last, primary: node(primary)? });
            replicas.extend(others.iter().filter_map(node).filter(|node| !node.host.is_empty()));
        }
        Some(Self { ranges, replicas })
    }
}

fn number(value: &Value) -> Option<u16> {
    match value {
        Value::Int(number) => u16::try_from(*number).ok(),
        _ => None,
    }
}

fn node(node: &Value) -> Option<NodeAddress> {
    let Value::Array(node) = node else { return None };
    let [host, port, ..] = node.as_slice() else { return None };
    let host = match host {
        // The node does not know its own address.
        Value::BulkString(host) if host == b"?" => String::new(),
        Value::BulkString(host) => String::from_utf8(host.clone()).ok()?,
        Value::Nil => String::new(),
        _ => return None,
    };
    Some(NodeAddress { host, port: number(port)? })
}
