//! The wire format, as far as needed to split a byte stream into replies.

/// Appends one command to `out`.
pub fn encode<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// Length of the first line of `bytes` with its CRLF, if it is complete.
pub fn line_len(bytes: &[u8]) -> Option<usize> {
    Some(bytes.windows(2).position(|pair| pair == b"\r\n")? + 2)
}

/// Length of the first whole RESP2 or RESP3 reply in `bytes`; `None` if it is incomplete.
pub fn frame_len(bytes: &[u8]) -> Option<usize> {
    let mut end = line_len(bytes)?;
    let header = &bytes[..end - 2];
    let count = || -> Option<usize> {
        // A negative count is RESP2's Null: no elements follow.
        std::str::from_utf8(&header[1..]).ok()?.parse().ok()
    };
    let children = match header.first()? {
        b'$' | b'!' | b'=' => {
            if let Some(len) = count() {
                end += len + 2;
            }
            0
        }
        b'*' | b'~' | b'>' => count().unwrap_or(0),
        b'%' => count().unwrap_or(0) * 2,
        // An attribute belongs to the value after it.
        b'|' => count().unwrap_or(0) * 2 + 1,
        _ => 0,
    };
    for _ in 0..children {
        end += frame_len(bytes.get(end..)?)?;
    }
    (end <= bytes.len()).then_some(end)
}

/// One command as it appears in a replication stream: an array of bulk strings. `frame` is a whole frame.
pub fn decode_command(frame: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &frame[line_len(frame).expect("a header line")..];
    let mut args = Vec::new();
    while let Some(head) = line_len(rest) {
        let len: usize = std::str::from_utf8(&rest[1..head - 2])
            .ok()
            .and_then(|len| len.parse().ok())
            .unwrap_or_else(|| panic!("not a bulk string in a command stream: {frame:?}"));
        args.push(rest[head..head + len].to_vec());
        rest = &rest[head + len + 2..];
    }
    args
}

#[test]
fn frames_are_cut_where_they_end() {
    for whole in [
        "+OK\r\n",
        "-ERR no\r\n",
        ":-5\r\n",
        "$-1\r\n",
        "$0\r\n\r\n",
        "$3\r\na\r\n\r\n",
        "*-1\r\n",
        "*0\r\n",
        "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        "_\r\n",
        "%1\r\n+a\r\n:1\r\n",
        ">2\r\n+message\r\n$1\r\nx\r\n",
        "|1\r\n+a\r\n+b\r\n:7\r\n",
    ] {
        let stream = format!("{whole}+next\r\n");
        assert_eq!(frame_len(stream.as_bytes()), Some(whole.len()), "{whole:?}");
        for cut in 0..whole.len() {
            assert_eq!(frame_len(&whole.as_bytes()[..cut]), None, "{whole:?} cut at {cut}");
        }
    }
}
