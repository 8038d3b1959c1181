//! The text of INFO as samples.

use std::collections::BTreeMap;

use super::encode::{Histogram, Labels, Sample, Value};
use super::table::{FIELDS, Field, Unit};

/// What a server that answers has in INFO.
pub struct Answer<'a> {
    /// All fields, `dlock_` included.
    fields: BTreeMap<&'a str, &'a str>,
}

/// The lines of INFO with latencies: the metric, and the word between the family and `_buckets`.
const LATENCIES: [(&str, &str); 2] =
    [("dlock_wait_seconds", "_waited"), ("dlock_hold_seconds", "_held")];

impl<'a> Answer<'a> {
    /// Reads the text of INFO.
    pub fn parse(text: &'a str) -> Self {
        let fields = text.lines().filter_map(|line| line.split_once(':'));
        Self { fields: fields.map(|(name, value)| (name, value.trim())).collect() }
    }

    fn get(&self, name: &str) -> &'a str {
        self.fields.get(name).copied().unwrap_or_default()
    }

    fn number(&self, field: &str) -> Option<u64> {
        self.fields.get(format!("dlock_{field}").as_str())?.parse().ok()
    }

    /// How many wait on this server.
    pub fn waiters(&self) -> u64 {
        ["waiters_blocked", "waiters_queued"].iter().filter_map(|field| self.number(field)).sum()
    }

    /// The samples of a server. What the server does not show is left out.
    pub fn samples(&self, server: &str, to: &mut Vec<Sample>) {
        let labels = |more: &[(&'static str, &str)]| -> Labels {
            let more = more.iter().map(|(label, value)| (*label, (*value).to_owned()));
            std::iter::once(("server", server.to_owned())).chain(more).collect()
        };
        let mut add = |family, labels, value| to.push(Sample { family, labels, value });
        let version = [("version", self.get("dlock_version"))];
        if !version[0].1.is_empty() {
            add("dlock_build", labels(&version), Value::Number(1));
        }
        add("dlock_server", labels(&self.about()), Value::Number(1));
        for Field { info, family, label, unit } in &FIELDS {
            let Some(number) = self.number(info) else { continue };
            let value = match unit {
                Unit::One => Value::Number(number),
                Unit::Micros => Value::Micros(number),
                Unit::Millis => Value::Micros(number.saturating_mul(1_000)),
            };
            add(family, labels(label.as_slice()), value);
        }
        for (family, word) in LATENCIES {
            let suffix = format!("{word}_buckets");
            for (name, buckets) in &self.fields {
                let of = name.strip_prefix("dlock_").and_then(|name| name.strip_suffix(&suffix));
                let Some(of) = of else { continue };
                let figures = self.get(&format!("dlock_{of}{word}"));
                if let Some(histogram) = histogram(figures, buckets) {
                    add(family, labels(&[("family", of)]), Value::Histogram(histogram));
                }
            }
        }
    }

    fn about(&self) -> [(&'static str, &'a str); 3] {
        let role = match self.get("role") {
            "master" => "primary",
            "slave" => "replica",
            other => other,
        };
        let (software, version) = match self.get("valkey_version") {
            "" => ("Redis", self.get("redis_version")),
            version => ("Valkey", version),
        };
        [("role", role), ("software", software), ("version", version)]
    }
}

/// A line of figures (`count=12,sum=3400,…`) and one of cumulative buckets (`100=0,250=7,…,inf=12`), in microseconds.
/// None if they do not belong together: a scrape with such a histogram would be refused as a whole.
fn histogram(figures: &str, buckets: &str) -> Option<Histogram> {
    let figure = |wanted: &str| {
        let mut figures = figures.split(',').filter_map(|pair| pair.split_once('='));
        figures.find(|(name, _)| *name == wanted)?.1.parse::<u64>().ok()
    };
    let (count, sum) = (figure("count")?, figure("sum")?);
    let mut read = Vec::new();
    let mut all = None;
    for pair in buckets.split(',') {
        let (bound, up_to) = pair.split_once('=')?;
        let up_to: u64 = up_to.parse().ok()?;
        match bound {
            "inf" => all = Some(up_to),
            bound => read.push((bound.parse::<u64>().ok()?, up_to)),
        }
    }
    let ascends = read.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
    let is_whole = all == Some(count) && read.last().is_none_or(|(_, up_to)| *up_to <= count);
    (ascends && is_whole).then_some(Histogram { buckets: read, count, sum })
}
