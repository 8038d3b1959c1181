//! The requests in a step.

use super::random::Random;
use super::{CLOCKS, NOW};
use dlock_core::base::kind::Kind;
use dlock_core::base::time::LeaseInstant;
use dlock_core::record::{self, Clocks, DecodeError, Level, SpentStep, StepInfo};
use dlock_core::value::resource::Resource;
use dlock_core::value::spent::{Loss, RequestKey, Scope, Use};
use dlock_wire::names;

/// A request with its strings.
type Told = (Scope, Vec<u8>, Vec<u8>, Option<Use>);

/// Every use, and its bytes.
const USES: [(Option<Use>, &[u8]); 14] = [
    (None, b"\x00"),
    (Some(Use::Lost(Loss::Expired)), b"\x01\x00\x00"),
    (Some(Use::Lost(Loss::Broken)), b"\x01\x00\x01"),
    (Some(Use::Lost(Loss::Deleted)), b"\x01\x00\x02"),
    (Some(Use::Lost(Loss::Disconnected)), b"\x01\x00\x03"),
    (Some(Use::Lost(Loss::Released)), b"\x01\x00\x04"),
    (Some(Use::Released(u32::MAX)), b"\x01\x01\xFC\xFF\xFF\xFF\xFF"),
    (Some(Use::Waited), b"\x01\x02"),
    (Some(Use::Unknown), b"\x01\x03"),
    (Some(Use::Taken(2)), b"\x01\x04\x02"),
    (Some(Use::Given(3)), b"\x01\x05\x03"),
    (Some(Use::Drained(0)), b"\x01\x06\x00"),
    (Some(Use::ResizedTo(4)), b"\x01\x07\x04"),
    (Some(Use::ResizedBy(-2)), b"\x01\x08\x03"),
];

fn replayed(payload: &[u8]) -> Result<(Resource, Vec<Told>), DecodeError> {
    let mut current = Resource::free(Kind::Lock);
    let mut told = Vec::new();
    let clocks = Clocks { mono: NOW, lease: LeaseInstant(0) };
    record::replay_with(payload, clocks, &mut current, false, |(name, what)| {
        told.push((name.scope, name.owner.to_vec(), name.id.to_vec(), what));
    })?;
    Ok((current, told))
}

fn step(resource: &mut Resource, told: &[Told]) -> Vec<u8> {
    let mut spent = SpentStep::default();
    for (scope, owner, id, what) in told {
        spent.push(RequestKey { scope: *scope, owner, id }, *what);
    }
    let mut payload = Vec::new();
    let step = StepInfo { granted: false, spent };
    record::encode_step(resource, CLOCKS, Level::FIRST, &step, &mut payload);
    payload
}

fn requests(random: &mut Random) -> Vec<Told> {
    (0..random.below(5))
        .map(|at| {
            let scope = Scope::ALL[usize::try_from(random.below(5)).expect("small")];
            let (what, _) = USES[usize::try_from(random.below(14)).expect("small")];
            let owner = random.bytes(0, names::OWNER_MAX);
            (scope, owner, random.request_numbered(at).to_vec(), what)
        })
        .collect()
}

#[test]
fn what_a_step_tells_of_requests_comes_out_as_it_went_in() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        for kind in Kind::ALL {
            let told = requests(&mut random);
            // Also for a missing key.
            let payload = step(&mut Resource::free(kind), &told);
            let (resource, again) = replayed(&payload).expect("a payload of our own");
            assert!(resource.is_free());
            assert_eq!(again, told);
            let mut kept = random.resource(kind);
            let payload = step(&mut kept, &told);
            assert_eq!(replayed(&payload).expect("a payload of our own").1, told);
            // It is not a state that can be saved.
            assert!(record::decode(&payload, NOW).is_err() || told.is_empty(), "{payload:?}");
            for cut in 0..payload.len() {
                assert!(replayed(&payload[..cut]).is_err(), "cut at {cut}");
            }
        }
    }
}

#[test]
fn the_bytes_are_these() {
    let told = [
        (Scope::Write, b"A".to_vec(), b"r1".to_vec(), Some(Use::Released(3))),
        (Scope::Semaphore, Vec::new(), b"r2".to_vec(), None),
    ];
    let payload = step(&mut Resource::free(Kind::Rw), &told);
    assert_eq!(payload, b"\x01\x04\x02\x03\x01A\x02r1\x01\x01\x03\x04\x00\x02r2\x00\x00");
    for (what, bytes) in USES {
        let told = [(Scope::Lock, b"A".to_vec(), b"r1".to_vec(), what)];
        let payload = step(&mut Resource::free(Kind::Lock), &told);
        let expected = [&b"\x01\x04\x01\x00\x01A\x02r1"[..], bytes, b"\x00"].concat();
        assert_eq!(payload, expected, "{what:?}");
        assert_eq!(replayed(&payload).expect("a payload of our own").1, told);
    }
}

#[test]
fn impossible_requests() {
    let payload = |entry: &[u8]| [b"\x01\x04\x01", entry, b"\x00"].concat();
    assert!(replayed(&payload(b"\x00\x01A\x02r1\x01\x02")).is_ok());
    let failed = |entry: &[u8]| replayed(&payload(entry)).err();
    let impossible = Some(DecodeError::Impossible);
    assert_eq!(failed(b"\x05\x01A\x02r1\x01\x02"), impossible, "no such scope");
    assert_eq!(failed(b"\x00\x01A\x00\x01\x02"), impossible, "an empty id");
    let long = [&b"\x00\x01A\x41"[..], &[b'r'; 65], b"\x01\x02"].concat();
    assert_eq!(failed(&long), impossible, "a long id");
    let long = [&b"\x00\xFB\x01\x01"[..], &[b'A'; 257], b"\x02r1\x01\x02"].concat();
    assert_eq!(failed(&long), impossible, "a long owner");
    let damaged = Some(DecodeError::Damaged);
    assert_eq!(failed(b"\x00\x01A\x02r1\x01\x09"), damaged, "no such use");
    // It announces more than memory can hold.
    let many = b"\x01\x04\xFD\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x00";
    assert_eq!(replayed(many).err(), damaged);
}
