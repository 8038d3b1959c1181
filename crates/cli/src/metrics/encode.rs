//! The formats that Prometheus reads: OpenMetrics 1.0, and the older text format.
//!
//! Our own encoder, because client libraries count by themselves and write one format. Here all values come from
//! servers, buckets included, and both formats from the same samples.

use std::fmt::Write as _;

/// A format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// OpenMetrics 1.0
    #[value(name = "openmetrics")]
    OpenMetrics,
    /// The Prometheus text format 0.0.4
    Text,
}

impl Format {
    /// For the HTTP header Content-Type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Goes up and down.
    Gauge,
    /// Only goes up, from 0 at the start of the server's process. Its sample is called `NAME_total`.
    Counter,
    /// Buckets of durations. Its samples are called `NAME_bucket`, `NAME_sum` and `NAME_count`.
    Histogram,
    /// Labels with the constant value 1. Its sample is called `NAME_info`.
    Info,
}

/// A metric, without its values.
#[derive(Debug)]
pub struct Family {
    /// The name; ends with the unit, if there is one.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// `seconds`, or nothing.
    pub unit: &'static str,
    /// One sentence. Without `"`, `\` and line breaks, which the two formats escape differently.
    pub help: &'static str,
}

/// Labels and their values.
pub type Labels = Vec<(&'static str, String)>;

/// A value of a metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The name of its family.
    pub family: &'static str,
    /// Its labels.
    pub labels: Labels,
    /// The value.
    pub value: Value,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number.
    Number(u64),
    /// A duration in microseconds, shown in seconds.
    Micros(u64),
    /// Durations in microseconds, shown in seconds.
    Histogram(Histogram),
}

/// Durations by their length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    /// Upper bounds in microseconds, ascending, each with the number of durations up to it.
    pub buckets: Vec<(u64, u64)>,
    /// The number of all durations.
    pub count: u64,
    /// Their sum in microseconds.
    pub sum: u64,
}

/// Writes the samples, grouped by family. A family without samples is left out.
pub fn encode(families: &[Family], samples: &[Sample], format: Format) -> String {
    let mut text = String::new();
    for family in families {
        let mut samples = samples.iter().filter(|sample| sample.family == family.name).peekable();
        if samples.peek().is_some() {
            head(&mut text, family, format);
        }
        for sample in samples {
            write_sample(&mut text, family, sample);
        }
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// Writing to a String cannot fail, here and below.
fn head(to: &mut String, family: &Family, format: Format) {
    let Family { name, kind, unit, help } = family;
    // The text format describes samples, OpenMetrics describes families.
    let (suffix, kind) = match (format, kind) {
        (_, Kind::Gauge) => ("", "gauge"),
        (_, Kind::Histogram) => ("", "histogram"),
        (Format::OpenMetrics, Kind::Counter) => ("", "counter"),
        (Format::OpenMetrics, Kind::Info) => ("", "info"),
        (Format::Text, Kind::Counter) => ("_total", "counter"),
        (Format::Text, Kind::Info) => ("_info", "gauge"),
    };
    let _ = writeln!(to, "# HELP {name}{suffix} {help}");
    let _ = writeln!(to, "# TYPE {name}{suffix} {kind}");
    if format == Format::OpenMetrics && !unit.is_empty() {
        let _ = writeln!(to, "# UNIT {name} {unit}");
    }
}

fn write_sample(to: &mut String, family: &Family, sample: &Sample) {
    let Sample { labels, value, .. } = sample;
    let name = family.name;
    match (value, family.kind) {
        (Value::Histogram(Histogram { buckets, count, sum }), _) => {
            for (bound, up_to) in buckets {
                let bound = seconds(*bound);
                line(to, &format!("{name}_bucket"), labels, Some(&bound), &up_to.to_string());
            }
            line(to, &format!("{name}_bucket"), labels, Some("+Inf"), &count.to_string());
            line(to, &format!("{name}_sum"), labels, None, &seconds(*sum));
            line(to, &format!("{name}_count"), labels, None, &count.to_string());
        }
        (value, kind) => {
            let suffix = match kind {
                Kind::Counter => "_total",
                Kind::Info => "_info",
                Kind::Gauge | Kind::Histogram => "",
            };
            let value = match value {
                Value::Micros(micros) => seconds(*micros),
                Value::Number(number) => number.to_string(),
                Value::Histogram(_) => return,
            };
            line(to, &format!("{name}{suffix}"), labels, None, &value);
        }
    }
}

fn line(to: &mut String, name: &str, labels: &Labels, bound: Option<&str>, value: &str) {
    to.push_str(name);
    let labels = labels.iter().map(|(label, value)| (*label, value.as_str()));
    let mut open = '{';
    for (label, value) in labels.chain(bound.map(|bound| ("le", bound))) {
        let _ = write!(to, "{open}{label}=\"");
        escape(to, value);
        to.push('"');
        open = ',';
    }
    if open == ',' {
        to.push('}');
    }
    let _ = writeln!(to, " {value}");
}

/// The escapes of label values: the same in both formats.
fn escape(to: &mut String, text: &str) {
    for sign in text.chars() {
        match sign {
            '\\' => to.push_str(r"\\"),
            '"' => to.push_str(r#"\""#),
            '\n' => to.push_str(r"\n"),
            sign => to.push(sign),
        }
    }
}

/// Microseconds as seconds, exact, with at least one decimal: OpenMetrics wants bounds of buckets that way.
fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    let whole = text.trim_end_matches('0');
    if whole.ends_with('.') { format!("{whole}0") } else { whole.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAMILIES: [Family; 4] = [
        Family { name: "a", kind: Kind::Gauge, unit: "", help: "First." },
        Family { name: "b", kind: Kind::Counter, unit: "", help: "Second." },
        Family { name: "c_seconds", kind: Kind::Histogram, unit: "seconds", help: "Third." },
        Family { name: "d", kind: Kind::Info, unit: "", help: "Fourth." },
    ];

    fn sample(family: &'static str, labels: &[(&'static str, &str)], value: Value) -> Sample {
        let labels = labels.iter().map(|(label, value)| (*label, (*value).to_owned())).collect();
        Sample { family, labels, value }
    }

    fn samples() -> Vec<Sample> {
        let histogram =
            Histogram { buckets: vec![(100, 1), (1_000_000, 2)], count: 3, sum: 2_500_100 };
        vec![
            sample("d", &[("version", "1.0")], Value::Number(1)),
            sample("b", &[], Value::Number(7)),
            sample("a", &[("key", "x"), ("n", "1")], Value::Number(u64::MAX)),
            sample("c_seconds", &[("family", "lock")], Value::Histogram(histogram)),
            sample("a", &[("key", "y"), ("n", "2")], Value::Micros(1_000)),
        ]
    }

    const BODY: &str = "c_seconds_bucket{family=\"lock\",le=\"0.0001\"} 1\n\
        c_seconds_bucket{family=\"lock\",le=\"1.0\"} 2\n\
        c_seconds_bucket{family=\"lock\",le=\"+Inf\"} 3\n\
        c_seconds_sum{family=\"lock\"} 2.5001\n\
        c_seconds_count{family=\"lock\"} 3\n";

    #[test]
    fn openmetrics_describes_families() {
        let expected = format!(
            "# HELP a First.\n# TYPE a gauge\na{{key=\"x\",n=\"1\"}} 18446744073709551615\n\
             a{{key=\"y\",n=\"2\"}} 0.001\n\
             # HELP b Second.\n# TYPE b counter\nb_total 7\n\
             # HELP c_seconds Third.\n# TYPE c_seconds histogram\n# UNIT c_seconds seconds\n{BODY}\
             # HELP d Fourth.\n# TYPE d info\nd_info{{version=\"1.0\"}} 1\n# EOF\n"
        );
        assert_eq!(encode(&FAMILIES, &samples(), Format::OpenMetrics), expected);
    }

    #[test]
    fn the_text_format_describes_samples() {
        let expected = format!(
            "# HELP a First.\n# TYPE a gauge\na{{key=\"x\",n=\"1\"}} 18446744073709551615\n\
             a{{key=\"y\",n=\"2\"}} 0.001\n\
             # HELP b_total Second.\n# TYPE b_total counter\nb_total 7\n\
             # HELP c_seconds Third.\n# TYPE c_seconds histogram\n{BODY}\
             # HELP d_info Fourth.\n# TYPE d_info gauge\nd_info{{version=\"1.0\"}} 1\n"
        );
        assert_eq!(encode(&FAMILIES, &samples(), Format::Text), expected);
    }

    #[test]
    fn a_hostile_label_stays_a_label() {
        let hostile = "x\"} 1\nevil{a=\"\\";
        for format in [Format::OpenMetrics, Format::Text] {
            let text =
                encode(&FAMILIES, &[sample("a", &[("key", hostile)], Value::Number(1))], format);
            let line = text.lines().nth(2);
            assert_eq!(line, Some(r#"a{key="x\"} 1\nevil{a=\"\\"} 1"#), "{text}");
            assert!(!text.lines().any(|line| line.starts_with("evil")), "{text}");
        }
    }

    #[test]
    fn no_sample_no_family() {
        assert_eq!(encode(&FAMILIES, &[], Format::OpenMetrics), "# EOF\n");
        assert_eq!(encode(&FAMILIES, &[], Format::Text), "");
    }

    #[test]
    fn seconds_are_exact() {
        for (micros, shown) in [
            (0, "0.0"),
            (1, "0.000001"),
            (250, "0.00025"),
            (1_000_000, "1.0"),
            (3_600_000_000, "3600.0"),
            (u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(seconds(micros), shown);
        }
    }
}
