//! What is written is read back as it was.

use alloc::vec::Vec;

use super::Random;
use crate::names;
use crate::request::{Acquire, Release, Renew, Request, parse};
use crate::table::{COMMANDS, CommandId, LockVerb};

const RUNS: u64 = 50_000;

/// Bytes that requests can borrow from.
struct Material {
    key: Vec<u8>,
    owner: Vec<u8>,
    channel: Vec<u8>,
    reqid: Vec<u8>,
    label: Vec<u8>,
}

impl Material {
    fn new(random: &mut Random) -> Self {
        Self {
            key: random.bytes(1, 40),
            owner: random.bytes(1, names::OWNER_MAX),
            channel: random.bytes(1, names::CHANNEL_MAX),
            reqid: random.bytes(1, names::REQID_MAX),
            label: random.bytes(0, names::LABEL_MAX),
        }
    }
}

fn maybe<T>(random: &mut Random, value: T) -> Option<T> {
    random.coin().then_some(value)
}

fn number(random: &mut Random, min: u64, max: u64) -> Option<u64> {
    let value = random.within(min, max);
    maybe(random, value)
}

fn request<'a>(random: &mut Random, id: CommandId, from: &'a Material) -> Request<'a> {
    let (key, owner) = (from.key.as_slice(), from.owner.as_slice());
    let lease_ms = number(random, names::LEASE_MIN_MS, names::LEASE_MAX_MS);
    let bind_ms = number(random, 0, names::BIND_MAX_MS);
    let token = random.within(names::TOKEN_MIN, names::TOKEN_MAX);
    match id {
        CommandId::Lock(LockVerb::Acquire) => Request::Acquire(Acquire {
            key,
            owner,
            lease_ms,
            block_ms: number(random, 0, names::BLOCK_MAX_MS),
            queue_ms: number(random, names::QUEUE_MIN_MS, names::QUEUE_MAX_MS),
            notify: maybe(random, &from.channel),
            reqid: maybe(random, &from.reqid),
            no_reentry: random.coin(),
            bind_ms,
            label: maybe(random, &from.label),
        }),
        CommandId::Lock(LockVerb::Release) => Request::Release(Release {
            key,
            owner,
            all: random.coin(),
            token: maybe(random, token),
            reqid: maybe(random, &from.reqid),
        }),
        CommandId::Lock(LockVerb::Renew) => {
            Request::Renew(Renew { key, owner, lease_ms, token: maybe(random, token), bind_ms })
        }
        CommandId::Lock(LockVerb::Check) => Request::Check { key, token },
        CommandId::Lock(LockVerb::Fence) => Request::Fence { key, owner, token },
        CommandId::Lock(LockVerb::Break) => Request::Break { key },
        CommandId::Lock(LockVerb::Info) => Request::Info { key },
        CommandId::Lock(LockVerb::Waiters) => {
            Request::Waiters { key, count: number(random, 1, names::COUNT_MAX) }
        }
        CommandId::Lock(LockVerb::Position) => Request::Position { key, owner },
        CommandId::Lock(LockVerb::Cancel) => Request::Cancel { key, owner },
        CommandId::Unblock => Request::Unblock {
            client: random.within(1, names::CLIENT_ID_MAX),
            error: random.coin(),
        },
        CommandId::Apply => Request::Apply { key, payload: &from.label },
    }
}

fn written(request: &Request<'_>) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    request.write(&mut out);
    out
}

#[test]
fn what_is_written_is_read_back() {
    for seed in 0..RUNS {
        let mut random = Random(seed);
        let material = Material::new(&mut random);
        let id = COMMANDS[random.index(COMMANDS.len())].id;
        let request = request(&mut random, id, &material);
        let out = written(&request);
        let args: Vec<&[u8]> = out.iter().map(Vec::as_slice).collect();
        assert_eq!(parse(id, &args), Ok(request), "seed {seed}");
    }
}

#[test]
fn any_soup_of_words_is_answered_and_what_is_understood_survives() {
    let words: Vec<&[u8]> = COMMANDS
        .iter()
        .flat_map(|command| command.args)
        .flat_map(|arg| core::iter::once(arg).chain(arg.parts))
        .filter_map(|arg| arg.token)
        .map(str::as_bytes)
        .chain([&b"1"[..], b"0", b"-1", b"30000", b"", b"x", b"\xff\0", b"99999999999999999999"])
        .collect();
    let mut understood = 0_u32;
    for seed in 0..RUNS {
        let mut random = Random(seed);
        let id = COMMANDS[random.index(COMMANDS.len())].id;
        let args: Vec<&[u8]> =
            (0..random.index(9)).map(|_| words[random.index(words.len())]).collect();
        if let Ok(request) = parse(id, &args) {
            understood += 1;
            let out = written(&request);
            let again: Vec<&[u8]> = out.iter().map(Vec::as_slice).collect();
            assert_eq!(parse(id, &again), Ok(request), "seed {seed}");
        }
    }
    assert!(understood > 1000, "the soup is too thin: {understood} calls were understood");
}
