//! What passed through the proxy, for people.

use std::{fmt, time::Instant};

use super::{Proxy, Way};
use crate::resp::decode_command;

/// A recorded frame: a request, a reply or a message.
#[derive(Clone, Debug)]
pub struct Wire {
    /// The number of its connection, from 0.
    pub connection: usize,
    /// When the proxy got it.
    pub at: Instant,
    /// Its direction.
    pub way: Way,
    /// Whether a fault kept it back for good.
    pub is_lost: bool,
    /// Its bytes.
    pub frame: Vec<u8>,
}

/// Its connection and its words; long ones are cut.
impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.way {
            Way::ToServer => decode_command(&self.frame).join(&b' '),
            Way::ToClient => self.frame.clone(),
        };
        let text: String = String::from_utf8_lossy(&text).replace("\r\n", " ");
        let lost = if self.is_lost { " (lost)" } else { "" };
        write!(f, "[{}] {:.200}{lost}", self.connection, text.trim_end())
    }
}

impl Proxy {
    /// All recorded frames.
    pub fn wire(&self) -> Vec<Wire> {
        self.shared.lock().wire.clone()
    }
}
