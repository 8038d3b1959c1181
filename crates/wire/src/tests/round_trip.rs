//! Every written request parses to itself.

use alloc::format;
use alloc::vec::Vec;

use super::Random;
use crate::names;
use crate::permit::PermitId;
use crate::request::{
    Acquire, Channel, MAcquire, MRelease, MRenew, Mode, Release, Renew, Request, ResizeTo,
    RwAcquire, RwRelease, RwRenew, SemAcquire, SemRenew, Take, parse,
};
use crate::table::{COMMANDS, CommandId, LatchVerb, LockVerb, MultiVerb, RwVerb, SemVerb};

const RUNS: u64 = 60_000;

/// Bytes that requests can borrow from.
struct Material {
    key: Vec<u8>,
    keys: Vec<Vec<u8>>,
    owner: Vec<u8>,
    channel: Vec<u8>,
    reqid: Vec<u8>,
    label: Vec<u8>,
}

impl Material {
    fn new(random: &mut Random) -> Self {
        Self {
            key: random.bytes(1, 40),
            keys: (0..random.within(1, 30)).map(|key| format!("k{key}").into_bytes()).collect(),
            owner: random.bytes(1, names::OWNER_MAX),
            channel: random.bytes(1, names::CHANNEL_MAX),
            reqid: random.bytes(1, names::REQID_MAX),
            label: random.bytes(0, names::LABEL_MAX),
        }
    }
}

/// Makes requests of one command.
struct Maker<'r, 'a> {
    random: &'r mut Random,
    from: &'a Material,
    keys: &'a [&'a [u8]],
}

impl<'a> Maker<'_, 'a> {
    fn maybe<T>(&mut self, value: T) -> Option<T> {
        self.random.coin().then_some(value)
    }

    fn number(&mut self, min: u64, max: u64) -> Option<u64> {
        let value = self.random.within(min, max);
        self.maybe(value)
    }

    fn number32(&mut self) -> u32 {
        u32::try_from(self.random.within(1, u64::from(names::PERMITS_MAX))).expect("fits")
    }

    fn lease_ms(&mut self) -> Option<u64> {
        self.number(names::LEASE_MIN_MS, names::LEASE_MAX_MS)
    }

    fn block_ms(&mut self) -> Option<u64> {
        self.number(0, names::BLOCK_MAX_MS)
    }

    fn bind_ms(&mut self) -> Option<u64> {
        self.number(0, names::BIND_MAX_MS)
    }

    fn token(&mut self) -> u64 {
        self.random.within(names::TOKEN_MIN, names::TOKEN_MAX)
    }

    fn reqid(&mut self) -> Option<&'a [u8]> {
        self.maybe(&self.from.reqid)
    }

    fn permit(&mut self) -> PermitId {
        core::array::from_fn(|_| self.random.next().to_le_bytes()[0])
    }

    fn notify(&mut self) -> Option<Channel<'a>> {
        let is_sharded = self.random.coin();
        let named = self.maybe(&*self.from.channel)?;
        Some(if is_sharded { Channel::Sharded(named) } else { Channel::Plain(named) })
    }

    fn mode(&mut self) -> Mode {
        Mode::ALL[self.random.index(Mode::ALL.len())]
    }

    fn acquire(&mut self, no_reentry: bool) -> Acquire<'a> {
        Acquire {
            key: &self.from.key,
            owner: &self.from.owner,
            lease_ms: self.lease_ms(),
            block_ms: self.block_ms(),
            queue_ms: self.number(names::QUEUE_MIN_MS, names::QUEUE_MAX_MS),
            notify: self.notify(),
            reqid: self.reqid(),
            no_reentry,
            bind_ms: self.bind_ms(),
            label: self.maybe(&self.from.label),
        }
    }

    fn release(&mut self) -> Release<'a> {
        let token = self.token();
        Release {
            key: &self.from.key,
            owner: &self.from.owner,
            all: self.random.coin(),
            token: self.maybe(token),
            reqid: self.reqid(),
        }
    }

    fn renew(&mut self) -> Renew<'a> {
        let token = self.token();
        Renew {
            key: &self.from.key,
            owner: &self.from.owner,
            lease_ms: self.lease_ms(),
            token: self.maybe(token),
            bind_ms: self.bind_ms(),
        }
    }

    fn request(&mut self, id: CommandId) -> Request<'a> {
        match id {
            CommandId::Lock(verb) | CommandId::Fair(verb) => self.lock(verb),
            CommandId::Rw(verb) => self.rw(verb),
            CommandId::Sem(verb) => self.semaphore(verb),
            CommandId::Latch(verb) => self.latch(verb),
            CommandId::Multi(verb) => self.multi(verb),
            CommandId::Unblock => Request::Unblock {
                client: self.random.within(1, names::CLIENT_ID_MAX),
                error: self.random.coin(),
            },
            CommandId::Apply => Request::Apply { key: &self.from.key, payload: &self.from.label },
        }
    }

    fn lock(&mut self, verb: LockVerb) -> Request<'a> {
        let (key, owner) = (self.from.key.as_slice(), self.from.owner.as_slice());
        match verb {
            LockVerb::Acquire => {
                let no_reentry = self.random.coin();
                Request::Acquire(self.acquire(no_reentry))
            }
            LockVerb::Release => Request::Release(self.release()),
            LockVerb::Renew => Request::Renew(self.renew()),
            LockVerb::Check => Request::Check { key, token: self.token() },
            LockVerb::Fence => Request::Fence { key, owner, token: self.token() },
            LockVerb::Break => Request::Break { key },
            LockVerb::Info => Request::Info { key },
            LockVerb::Waiters => Request::Waiters { key, count: self.number(1, names::COUNT_MAX) },
            LockVerb::Position => Request::Position { key, owner },
            LockVerb::Cancel => Request::Cancel { key, owner, reqid: self.reqid() },
        }
    }

    fn rw(&mut self, verb: RwVerb) -> Request<'a> {
        let mode = self.mode();
        match verb {
            RwVerb::Acquire => Request::RwAcquire(RwAcquire { acquire: self.acquire(false), mode }),
            RwVerb::Release => Request::RwRelease(RwRelease { release: self.release(), mode }),
            RwVerb::Renew => Request::RwRenew(RwRenew { renew: self.renew(), mode }),
            RwVerb::Break => {
                Request::RwBreak { key: &self.from.key, owner: self.maybe(&self.from.owner) }
            }
            RwVerb::Check => self.lock(LockVerb::Check),
            RwVerb::Info => self.lock(LockVerb::Info),
            RwVerb::Waiters => self.lock(LockVerb::Waiters),
            RwVerb::Position => self.lock(LockVerb::Position),
            RwVerb::Cancel => self.lock(LockVerb::Cancel),
        }
    }

    fn semaphore(&mut self, verb: SemVerb) -> Request<'a> {
        let key = self.from.key.as_slice();
        let n = self.number32();
        match verb {
            SemVerb::Init => Request::SemInit { key, permits: n },
            SemVerb::Resize => {
                let to = match self.random.index(3) {
                    0 => ResizeTo::Absolute(n),
                    1 => ResizeTo::By(i64::from(n)),
                    _ => ResizeTo::By(-i64::from(n)),
                };
                Request::Resize { key, to, reqid: self.reqid() }
            }
            SemVerb::Acquire => Request::SemAcquire(SemAcquire {
                acquire: self.acquire(false),
                count: n,
                limit: self.random.coin().then(|| self.number32()),
            }),
            SemVerb::Release => Request::SemRelease { key, permit: self.permit() },
            SemVerb::Renew => Request::SemRenew(SemRenew {
                key,
                permit: self.permit(),
                lease_ms: self.lease_ms(),
                bind_ms: self.bind_ms(),
            }),
            SemVerb::Take => {
                Request::Take(Take { key, n, block_ms: self.block_ms(), reqid: self.reqid() })
            }
            SemVerb::Give => Request::Give { key, n, reqid: self.reqid() },
            SemVerb::Drain => Request::Drain { key, reqid: self.reqid() },
            SemVerb::Break => Request::SemBreak { key, permit: self.permit() },
            SemVerb::Permits => Request::Permits { key },
            SemVerb::Info => self.lock(LockVerb::Info),
            SemVerb::Waiters => self.lock(LockVerb::Waiters),
            SemVerb::Position => self.lock(LockVerb::Position),
            SemVerb::Cancel => self.lock(LockVerb::Cancel),
        }
    }

    fn latch(&mut self, verb: LatchVerb) -> Request<'a> {
        let key = self.from.key.as_slice();
        let n = self.number32();
        match verb {
            LatchVerb::Init => Request::LatchInit { key, count: n, lease_ms: self.lease_ms() },
            LatchVerb::CountDown => Request::CountDown { key, n, reqid: self.reqid() },
            LatchVerb::Await => Request::Await { key, block_ms: self.block_ms() },
            LatchVerb::Info => self.lock(LockVerb::Info),
            LatchVerb::Waiters => self.lock(LockVerb::Waiters),
        }
    }

    fn multi(&mut self, verb: MultiVerb) -> Request<'a> {
        let (keys, owner) = (self.keys, self.from.owner.as_slice());
        match verb {
            MultiVerb::Acquire => Request::MAcquire(self.multi_acquire()),
            MultiVerb::AnyAcquire => Request::AnyAcquire(self.multi_acquire()),
            MultiVerb::Release => Request::MRelease(MRelease { keys, owner, reqid: self.reqid() }),
            MultiVerb::Renew => Request::MRenew(MRenew { keys, owner, lease_ms: self.lease_ms() }),
        }
    }

    fn multi_acquire(&mut self) -> MAcquire<'a> {
        MAcquire {
            keys: self.keys,
            owner: &self.from.owner,
            lease_ms: self.lease_ms(),
            block_ms: self.block_ms(),
            notify: self.notify(),
            reqid: self.reqid(),
            bind_ms: self.bind_ms(),
            label: self.maybe(&self.from.label),
        }
    }
}

fn written(request: &Request<'_>) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    request.write(&mut out);
    out
}

#[test]
fn written_requests_parse_to_themselves() {
    for seed in 0..RUNS {
        let mut random = Random(seed);
        let material = Material::new(&mut random);
        let id = COMMANDS[random.index(COMMANDS.len())].id;
        let keys: Vec<&[u8]> = material.keys.iter().map(Vec::as_slice).collect();
        let request = Maker { random: &mut random, from: &material, keys: &keys }.request(id);
        let out = written(&request);
        let args: Vec<&[u8]> = out.iter().map(Vec::as_slice).collect();
        assert_eq!(parse(id, &args), Ok(request), "seed {seed}");
    }
}

#[test]
fn any_words_parse_or_fail_and_valid_requests_round_trip() {
    let words: Vec<&[u8]> = COMMANDS
        .iter()
        .flat_map(|command| command.args)
        .flat_map(|arg| core::iter::once(arg).chain(arg.parts))
        .filter_map(|arg| arg.token)
        .map(str::as_bytes)
        .chain([&b"1"[..], b"0", b"-1", b"30000", b"", b"x", b"\xff\0", b"99999999999999999999"])
        .chain([&b"BY"[..], b"2", b"-2147483647", b"0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70"])
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
    assert!(understood > 2000, "the soup is too thin: {understood} calls were understood");
}
