//! One read-write lock, semaphore and latch in every possible state, for transfer between servers.

use crate::{
    args,
    looks::{latch, rw, sem},
    support::{Client, Reply, Server},
};

/// A name that is not valid text. `ODD` in the calls below is replaced with it.
const ODD: &[u8] = b"%s\0\xff caf\xc3\xa9\r\n";

/// Database, command to show it, and key of each specimen.
const PLACES: [(&str, &str, &str); 13] = [
    ("0", "DRW.INFO", "readers"),
    ("0", "DRW.INFO", "both"),
    ("0", "DRW.INFO", "turn"),
    ("0", "DRW.INFO", "closed"),
    ("9", "DRW.INFO", "ODD"),
    ("0", "DSEM.INFO", "made"),
    ("0", "DSEM.PERMITS", "made"),
    ("0", "DSEM.INFO", "passing"),
    ("0", "DSEM.PERMITS", "passing"),
    ("0", "DSEM.INFO", "over"),
    ("0", "DSEM.PERMITS", "over"),
    ("0", "DLATCH.INFO", "endless"),
    ("0", "DLATCH.INFO", "limited"),
];

/// Calls that create them, on a temporary connection. `LONG` is longer than any test, `TEXT` has the maximum length.
const CALLS: [&str; 28] = [
    "DRW.ACQUIRE both a WRITE PX 600000 REQID w BIND 3600000",
    "DRW.ACQUIRE turn a WRITE",
    "CONFIG SET dlock.claim-ms LONG",
    "2: DRW.ACQUIRE turn b READ QUEUE LONG PX 7000 NOTIFY ODD",
    "2: DRW.ACQUIRE turn c READ QUEUE LONG PX 7000",
    "DRW.RELEASE turn a WRITE",
    "CONFIG SET dlock.lock-delay-ms LONG",
    "DRW.ACQUIRE closed a WRITE",
    "DRW.BREAK closed",
    "CONFIG SET dlock.lock-delay-ms 0",
    "DSEM.INIT made 100",
    "DSEM.TAKE made 7 REQID t",
    "DSEM.GIVE made 2 REQID g",
    "DSEM.ACQUIRE made first COUNT 3 PX LONG LABEL TEXT NOTIFY ODD REQID same",
    "DSEM.ACQUIRE passing ODD LIMIT 3 PX LONG BIND 3600000 REQID ODD",
    "DSEM.TAKE passing 2",
    "DSEM.INIT over 5",
    "DSEM.ACQUIRE over a COUNT 4 PX LONG",
    "DSEM.TAKE over",
    "2: DSEM.ACQUIRE over b QUEUE LONG PX 7000",
    "DSEM.GIVE over",
    "DSEM.RESIZE over 2",
    "DLATCH.INIT endless 1000",
    "DLATCH.INIT limited 5 PX LONG",
    "DLATCH.COUNTDOWN limited 2 REQID ODD",
    "SELECT 9",
    "DRW.ACQUIRE ODD ODD READ PX LONG REQID ODD",
    "SELECT 0",
];

/// The words of a call.
fn words(call: &str) -> Vec<Vec<u8>> {
    let word = |word: &str| match word {
        "ODD" => ODD.to_vec(),
        "LONG" => b"86400000".to_vec(),
        "TEXT" => vec![b'x'; 256],
        word => word.as_bytes().to_vec(),
    };
    call.split(' ').map(word).collect()
}

/// The specimens on a server.
pub struct Specimens {
    /// The connections of bindings and waiters.
    _connections: [Client; 2],
    state: Vec<String>,
    digest: String,
    /// The permit of the semaphore that was made on first use.
    permit: String,
    /// An unclaimed grant.
    queued: String,
    /// The largest issued token.
    largest: i64,
}

/// All of INFO and PERMITS, without values that vary over time or between servers.
#[track_caller]
fn state(server: &Server) -> Vec<String> {
    let mut client = server.client();
    let mut show = |&(db, verb, key): &(&str, &str, &str)| {
        client.cmd(&["SELECT", db]).ok();
        let shown = client.cmd(&words(&format!("{verb} {key}"))).show();
        // Fields come in pairs: a name and its varying value.
        let mut words: Vec<&str> = shown.split(", ").collect();
        let mut n = 0;
        while n + 1 < words.len() {
            let name = words[n].trim_start_matches('[');
            if ["\"ttl-ms\"", "\"held-ms\"", "\"bound-client\"", "\"waiters\""].contains(&name) {
                words.remove(n + 1);
            }
            n += 1;
        }
        format!("{verb} {key}: {}", words.join(", "))
    };
    PLACES.iter().map(&mut show).collect()
}

impl Specimens {
    /// Creates them.
    #[track_caller]
    pub fn make(server: &Server) -> Specimens {
        let mut connections = [server.client(), server.client()];
        let many = (0..30)
            .map(|n| format!("DRW.ACQUIRE readers o{n} READ PX LONG LABEL TEXT REQID r{n}"))
            // Ten ids, of which the first is over.
            .chain((0..10).map(|n| format!("DRW.ACQUIRE both a READ PX LONG REQID r{n}")))
            .chain(["DRW.RELEASE both a READ REQID r0".to_owned()])
            .chain(CALLS.iter().map(|&call| call.to_owned()))
            .chain(
                (0..18).map(|n| {
                    format!("DSEM.ACQUIRE made o{n} COUNT {} PX LONG REQID same", 1 + n % 3)
                }),
            )
            .chain((0..300).map(|n| format!("DLATCH.COUNTDOWN endless REQID step-{n}-of-many")));
        for call in many {
            match call.strip_prefix("2: ") {
                Some(call) => assert!(connections[1].cmd(&words(call)).is_null(), "{call}"),
                None => drop(connections[0].cmd(&words(&call)).ok()),
            }
        }
        let permit_of = |key: &str, owner: &[u8]| {
            let permits = server.cmd(&["DSEM.PERMITS", key]).items();
            let found = permits.iter().find(|permit| permit.field("owner").bytes() == owner);
            found.unwrap().field("id").text()
        };
        assert_eq!(rw(server, "turn"), "read b*1 c*1");
        assert_eq!(rw(server, "closed"), "free");
        Specimens {
            state: state(server),
            digest: server.digest(),
            permit: permit_of("passing", ODD),
            queued: permit_of("over", b"b"),
            largest: server.info_number("dlock", "last_token"),
            _connections: connections,
        }
    }

    /// Fails the test unless they are on `server` unchanged; then uses each up.
    #[track_caller]
    pub fn use_up(self, server: &Server, how: &str) {
        for (is, was) in state(server).iter().zip(&self.state) {
            assert_eq!(is, was, "{how}");
        }
        assert_eq!(server.digest(), self.digest, "{how}");
        self.use_up_locks(server, how);
        self.use_up_semaphores(server, how);
        use_up_latches(server, how);
        server.left_over_check();
    }

    #[track_caller]
    fn use_up_locks(&self, server: &Server, how: &str) {
        let number = |call: &str| server.cmd(&words(call)).int();
        // A request that the hold knows counts nothing, another one counts.
        for (request, both) in [
            ("READ REQID r1", "write a*1; read a*9"),
            ("READ REQID r9", "write a*1; read a*9"),
            ("READ REQID new", "write a*1; read a*10"),
            ("WRITE REQID w", "write a*1; read a*10"),
        ] {
            number(&format!("DRW.ACQUIRE both a {request}"));
            assert_eq!(rw(server, "both"), both, "{how}: {request}");
        }
        assert_eq!(number("DRW.BREAK both"), 2, "{how}");
        // Grants to places still belong to their owners, in their mode, for the longer of QUEUE and PX.
        assert!(server.cmd(&words("DRW.ACQUIRE turn x WRITE")).is_null(), "{how}");
        number("DRW.RENEW turn b READ");
        assert_eq!(number("DRW.RELEASE turn c READ"), 0, "{how}");
        let reader = server.cmd(&["DRW.INFO", "turn"]).field("readers").items()[0].clone();
        let left = reader.field("ttl-ms").int();
        assert!((80_000_000..=86_400_000).contains(&left), "{how}: {left}");
        assert_eq!(number("DRW.RELEASE turn b READ"), 0, "{how}");
        // A closed lock stays closed.
        for mode in ["READ", "WRITE"] {
            assert!(server.cmd(&["DRW.ACQUIRE", "closed", "b", mode]).is_null(), "{how}");
        }
        // All readers exist, and the next token is above all earlier ones.
        assert_eq!(number("DRW.BREAK readers o29"), 1, "{how}");
        assert_eq!(number("DRW.BREAK readers"), 29, "{how}");
        let next = number("DRW.ACQUIRE readers a READ");
        assert!(next > self.largest, "{how}: {next} is not above {}", self.largest);
        number("DEL readers closed");
        let mut client = server.client();
        client.cmd(&["SELECT", "9"]).ok();
        assert_eq!(client.cmd(&words("DRW.RELEASE ODD ODD READ")).int(), 0, "{how}");
    }

    #[track_caller]
    fn use_up_semaphores(&self, server: &Server, how: &str) {
        let number = |call: &str| server.cmd(&words(call)).int();
        assert_eq!(sem(server, "made"), "56 of 100 (39 leased, 5 taken)", "{how}");
        assert_eq!(number("DSEM.GIVE made 5"), 61, "{how}");
        let again = server.cmd(&words("DSEM.ACQUIRE passing ODD REQID ODD")).text();
        assert_eq!(again, self.permit, "{how}");
        assert_eq!(sem(server, "passing"), "0 of 3 (1 leased, 2 taken)", "{how}");
        assert_eq!(number(&format!("DSEM.RELEASE passing {again}")), 1, "{how}");
        assert_eq!(number("DSEM.GIVE passing 2"), 3, "{how}");
        assert_eq!(sem(server, "passing"), "nothing", "{how}: it was made on first use");
        assert_eq!(sem(server, "over"), "-3 of 2 (5 leased, 0 taken)", "{how}");
        assert_eq!(number(&format!("DSEM.RENEW over {}", self.queued)), 1, "{how}");
        assert_eq!(number(&format!("DSEM.RELEASE over {}", self.queued)), -2, "{how}");
        number("DEL made over");
    }
}

#[track_caller]
fn use_up_latches(server: &Server, how: &str) {
    let number = |call: &[Vec<u8>]| server.cmd(call).int();
    // Latches remember every step.
    assert_eq!(latch(server, "endless"), "700 of 1000", "{how}");
    for n in 0..300 {
        let call = args!["DLATCH.COUNTDOWN", "endless", "REQID", format!("step-{n}-of-many")];
        assert_eq!(number(&call), 700, "{how}: step {n}");
    }
    assert_eq!(number(&words("DLATCH.COUNTDOWN limited 2 REQID ODD")), 3, "{how}");
    let left = server.cmd(&["DLATCH.INFO", "limited"]).field("ttl-ms").int();
    assert!((80_000_000..=86_400_000).contains(&left), "{how}: {left}");
    assert_eq!(number(&words("DLATCH.COUNTDOWN limited 3")), 0, "{how}");
    number(&words("DEL endless"));
}
