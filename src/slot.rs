//! Hash slots: in a cluster, each key belongs to one of them, and each slot to one node.

/// The slot of a key: CRC16 (XMODEM), modulo 16384, of the key or of its hash tag. The hash tag is the text
/// between the first `{` and the next `}`, unless that is empty (Redis cluster specification, "Key distribution
/// model").
pub fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|&byte| byte == b'{').and_then(|open| {
        let rest = key.get(open + 1..)?;
        let close = rest.iter().position(|&byte| byte == b'}')?;
        rest.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16(tag.unwrap_or(key)) % 16_384
}

const fn crc16(bytes: &[u8]) -> u16 {
    let (mut crc, mut at) = (0_u16, 0);
    while at < bytes.len() {
        crc = crc << 8 ^ CRC_OF_BYTE[(crc >> 8 ^ bytes[at] as u16) as usize];
        at += 1;
    }
    crc
}

const CRC_OF_BYTE: [u16; 256] = {
    let (mut table, mut byte) = ([0; 256], 0_u16);
    while byte < 256 {
        let (mut crc, mut bit) = (byte << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

// The module cannot be tested without a server, so the known check value is verified here.
const _: () = assert!(crc16(b"123456789") == 0x31C3);
