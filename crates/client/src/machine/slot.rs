//! Slots of a cluster, and where requests go to.

/// Number of slots of a cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// A slot of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot(u16);

impl Slot {
    /// The slot of that number; `None`: there is no such slot.
    pub(crate) fn new(number: u16) -> Option<Self> {
        (number < SLOTS).then_some(Self(number))
    }

    pub(crate) fn index(self) -> usize {
        self.0.into()
    }

    /// The slot of a key, or of its hash tag.
    pub(crate) fn for_key(key: impl AsRef<[u8]>) -> Self {
        let key = key.as_ref();
        Self(crc16(hash_tag(key).unwrap_or(key)) % SLOTS)
    }
}

/// Where a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// To the server that has the slot.
    Slot(Slot),
    /// To that one, by its number.
    Server(usize),
}

impl Place {
    /// The server that has the key.
    pub(crate) fn of(key: &[u8]) -> Self {
        Self::Slot(Slot::for_key(key))
    }
}

/// The text between the first `{` and the first `}` after it, unless it is empty.
fn hash_tag(key: &[u8]) -> Option<&[u8]> {
    let open = key.iter().position(|byte| *byte == b'{')?;
    let after = key.get(open + 1..)?;
    let close = after.iter().position(|byte| *byte == b'}')?;
    after.get(..close).filter(|tag| !tag.is_empty())
}

/// CRC-16/XMODEM, the checksum of the cluster specification.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_slot_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        // As CLUSTER KEYSLOT answers.
        for (key, slot) in [
            ("", 0),
            ("foo", 12_182),
            ("{user1000}.following", 3_443),
            ("user1000", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
            ("a}b{c", 13_587),
        ] {
            assert_eq!(Slot::for_key(key), Slot(slot), "{key}");
        }
    }

    #[test]
    fn the_last_slot_has_the_number_16383() {
        assert_eq!(Slot::new(16_383), Some(Slot(16_383)));
        assert_eq!(Slot::new(16_384), None);
    }
}
