//! Times waited and held: `INFO`, section `dlock_latency`.

use std::time::Duration;

use dlock_wire::reply::Kind;

/// How long waits or holds of one family last: see [`Stats::latency`](crate::Stats::latency).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Latency {
    /// The family.
    pub kind: Kind,
    /// Holds, from the grant to the end; else grants after waiting, from the call to the grant.
    pub is_held: bool,
    /// How many there were.
    pub count: u64,
    /// The median.
    pub p50: Duration,
    /// 99 % were at most this long.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
}

const FAMILIES: [(Kind, &str); 5] = [
    (Kind::Lock, "lock"),
    (Kind::Fair, "fair"),
    (Kind::ReadWrite, "rw"),
    (Kind::Semaphore, "sem"),
    (Kind::Latch, "latch"),
];

/// The figures of all families: of waits, then of holds. `get` returns the value of a line of INFO.
pub(crate) fn read<'a>(get: impl Fn(&str) -> &'a str) -> Vec<Latency> {
    let mut all = Vec::new();
    for is_held in [false, true] {
        for (kind, family) in FAMILIES {
            let what = if is_held { "held" } else { "waited" };
            all.extend(figures(kind, is_held, get(&format!("dlock_{family}_{what}"))));
        }
    }
    all
}

fn figures(kind: Kind, is_held: bool, line: &str) -> Option<Latency> {
    let figure = |name: &str| {
        let mut fields = line.split(',').filter_map(|field| field.split_once('='));
        fields.find(|(of, _)| *of == name)?.1.parse().ok()
    };
    let time = |name| figure(name).map(Duration::from_micros);
    let (count, p50, p99, max) = (figure("count")?, time("p50")?, time("p99")?, time("max")?);
    Some(Latency { kind, is_held, count, p50, p99, max })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_are_there_are_read() {
        let get = |name: &str| match name {
            "dlock_rw_waited" => "count=12,sum=3400,p50=210,p99=900,p99.9=905,max=910",
            "dlock_lock_held" => "count=1,nonsense",
            _ => "",
        };
        let us = Duration::from_micros;
        let expected = Latency {
            kind: Kind::ReadWrite,
            is_held: false,
            count: 12,
            p50: us(210),
            p99: us(900),
            max: us(910),
        };
        assert_eq!(read(get), [expected]);
    }
}
