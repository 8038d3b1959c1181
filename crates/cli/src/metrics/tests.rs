//! The table against the text of a server, and against the documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::{env, fs};

use super::encode::{Family, Format, Kind, Sample, encode};
use super::read::Answer;
use super::table::{FAMILIES, FIELDS, Unit};

/// INFO as a server showed it. A test with a real server compares the names of its fields with these.
const RECORDED: &str = include_str!("recorded.txt");

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/monitoring.md");

fn samples(text: &str) -> Vec<Sample> {
    let mut samples = Vec::new();
    Answer::parse(text).samples("a:1", &mut samples);
    samples
}

/// The names of a family's samples.
fn sample_names(family: &Family) -> String {
    let Family { name, kind, .. } = family;
    match kind {
        Kind::Gauge => format!("`{name}`"),
        Kind::Counter => format!("`{name}_total`"),
        Kind::Info => format!("`{name}_info`"),
        Kind::Histogram => format!("`{name}_bucket`, `…_sum`, `…_count`"),
    }
}

#[test]
fn every_field_is_shown_or_left_out_on_purpose() {
    let read_elsewhere = |field: &str| {
        // The percentiles and the largest value of each latency are left out: Prometheus computes percentiles from
        // buckets, of any time and of several servers. `dlock_server_info` has the version of the server, which says
        // whether it was tried.
        ["version", "server_tried"].contains(&field)
            || ["_waited", "_held", "_waited_buckets", "_held_buckets"]
                .iter()
                .any(|end| field.ends_with(end))
    };
    let fields = RECORDED.lines().filter_map(|line| line.split_once(':')?.0.strip_prefix("dlock_"));
    let fields: BTreeSet<&str> = fields.filter(|field| !read_elsewhere(field)).collect();
    assert_eq!(fields, FIELDS.iter().map(|field| field.info).collect());
}

#[test]
fn every_metric_has_a_sample_and_a_sound_name() {
    let mut names: BTreeSet<&str> = samples(RECORDED).iter().map(|sample| sample.family).collect();
    // These do not come from INFO.
    names.extend(["dlock_up", "dlock_key_waiters", "dlock_key_waiters_complete"]);
    names.insert("dlock_scrape_duration_seconds");
    assert_eq!(names, FAMILIES.iter().map(|family| family.name).collect());
    for Family { name, kind, unit, help } in &FAMILIES {
        assert!(name.chars().all(|sign| sign.is_ascii_lowercase() || sign == '_'), "{name}");
        assert!(
            !["_total", "_info", "_bucket", "_sum", "_count"].iter().any(|s| name.ends_with(s))
        );
        assert_eq!(name.ends_with("_seconds"), *unit == "seconds", "{name}");
        assert!(*kind == Kind::Histogram || !name.contains("histogram"), "{name}");
        assert!(help.ends_with('.') && !help.contains(['"', '\\', '\n']), "{name}: {help}");
    }
}

#[test]
fn fields_have_the_unit_of_their_metric() {
    for field in &FIELDS {
        let family = FAMILIES.iter().find(|family| family.name == field.family).expect("a metric");
        assert_eq!(family.unit == "seconds", field.unit != Unit::One, "{}", field.info);
        assert_eq!(field.unit == Unit::Micros, field.info.ends_with("_us"), "{}", field.info);
        assert_eq!(field.unit == Unit::Millis, field.info.ends_with("_ms"), "{}", field.info);
    }
}

#[test]
fn a_recorded_text_becomes_metrics() {
    let text = encode(&FAMILIES, &samples(RECORDED), Format::OpenMetrics);
    for line in [
        r#"dlock_build_info{server="a:1",version="0.1.0"} 1"#,
        r#"dlock_server_info{server="a:1",role="primary",software="Redis",version="7.0.15"} 1"#,
        r#"dlock_waiters{server="a:1",mode="blocked"} 3"#,
        r#"dlock_quarantine_left_seconds{server="a:1"} 1.5"#,
        r#"dlock_alarm_late_worst_seconds{server="a:1"} 1.25"#,
        r#"dlock_holds_lost_total{server="a:1",reason="expired"} 1"#,
        r#"dlock_wait_seconds_bucket{server="a:1",family="lock",le="0.0001"} 0"#,
        r#"dlock_wait_seconds_bucket{server="a:1",family="lock",le="0.00025"} 7"#,
        r#"dlock_wait_seconds_bucket{server="a:1",family="rw",le="3600.0"} 1"#,
        r#"dlock_wait_seconds_bucket{server="a:1",family="rw",le="+Inf"} 2"#,
        r#"dlock_wait_seconds_sum{server="a:1",family="lock"} 0.00505"#,
        r#"dlock_wait_seconds_count{server="a:1",family="latch"} 1"#,
        r#"dlock_hold_seconds_count{server="a:1",family="sem"} 1"#,
    ] {
        assert!(text.lines().any(|have| have == line), "no {line} in\n{text}");
    }
    assert!(!text.contains(r#"dlock_hold_seconds_count{server="a:1",family="latch"}"#), "{text}");
}

#[test]
fn a_histogram_that_contradicts_itself_is_left_out() {
    let of = |figures: &str, buckets: &str| {
        let text = format!("dlock_lock_held:{figures}\ndlock_lock_held_buckets:{buckets}\n");
        samples(&text).iter().any(|sample| sample.family == "dlock_hold_seconds")
    };
    assert!(of("count=2,sum=9", "1=1,5=2,inf=2"));
    assert!(of("count=0,sum=0", "inf=0"));
    for (figures, buckets) in [
        ("count=3,sum=9", "1=1,5=2,inf=2"),
        ("count=2,sum=9", "1=2,5=1,inf=2"),
        ("count=2,sum=9", "5=1,1=2,inf=2"),
        ("count=2,sum=9", "1=1,5=2"),
        ("count=2,sum=9", "1=1,5=3,inf=2"),
        ("count=2,sum=9", "nonsense"),
        ("count=2", "1=1,inf=2"),
        ("", "1=1,inf=2"),
    ] {
        assert!(!of(figures, buckets), "{figures} {buckets}");
    }
}

#[test]
fn an_older_server_has_fewer_metrics() {
    let samples = samples("# dlock_keys\r\ndlock_held_locks:2\r\ndlock_last_token:x\r\n");
    let names: Vec<&str> = samples.iter().map(|sample| sample.family).collect();
    assert_eq!(names, ["dlock_server", "dlock_held_locks"]);
}

/// The rows of the table in the documentation.
fn rows() -> String {
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for sample in samples(RECORDED) {
        labels
            .entry(sample.family)
            .or_default()
            .extend(sample.labels.iter().map(|(name, _)| *name));
    }
    let mut text =
        "| metric | type | labels | `INFO dlock` | |\n|---|---|---|---|---|\n".to_owned();
    for family in &FAMILIES {
        let fields = FIELDS.iter().filter(|field| field.family == family.name);
        let fields: Vec<String> = fields.map(|field| format!("`{}`", field.info)).collect();
        let fields = match family.name {
            "dlock_build" => "`version`".to_owned(),
            "dlock_wait_seconds" => "`…_waited`, `…_waited_buckets`".to_owned(),
            "dlock_hold_seconds" => "`…_held`, `…_held_buckets`".to_owned(),
            _ => fields.join(", "),
        };
        let labels = match family.name {
            "dlock_up" => "server".to_owned(),
            "dlock_key_waiters" => "key, family".to_owned(),
            name => {
                let labels = labels.get(name).into_iter().flatten().copied();
                let (server, more): (Vec<_>, Vec<_>) = labels.partition(|label| *label == "server");
                [server, more].concat().join(", ")
            }
        };
        let kind = format!("{:?}", family.kind).to_lowercase();
        let names = sample_names(family);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {names} | {kind} | {labels} | {fields} | {} |", family.help);
    }
    text
}

#[test]
fn the_documentation_has_every_metric() {
    const BEGIN: &str = "<!-- generated by the tests of dlock-cli: begin -->\n";
    const END: &str = "<!-- end -->";
    let text = fs::read_to_string(DOCUMENT).expect("docs/monitoring.md");
    let (before, rest) = text.split_once(BEGIN).expect("the begin of the table");
    let (table, after) = rest.split_once(END).expect("the end of the table");
    let rows = rows();
    if env::var_os("DLOCK_BLESS").is_some() {
        fs::write(DOCUMENT, format!("{before}{BEGIN}{rows}{END}{after}")).expect("written");
        return;
    }
    assert_eq!(
        table, rows,
        "docs/monitoring.md is older than the table: DLOCK_BLESS=1 cargo test -p dlock-cli --bin dlock metrics"
    );
}
