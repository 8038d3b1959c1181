//! Debian's Prometheus scrapes the exporter; its tool checks the output, the alerts and the dashboard.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{fs, io::Read as _};

use dlock_testing::{Guarded, LIMIT, Reply as _, SOON, Server, wait_until};
use serde_json::Value;

use crate::command::stdout;
use crate::http::Exporter;

/// Where prometheus and promtool are. Fails the test, with the command that fetches them, if they are missing.
#[track_caller]
fn programs() -> &'static Path {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| {
        let script = contrib("../scripts/prometheus");
        let output = Command::new(&script).arg("--here").output().expect("scripts/prometheus");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
    })
}

pub fn contrib(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(file)
}

pub fn read(file: &str) -> String {
    fs::read_to_string(contrib(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Runs promtool; fails the test unless it succeeds. Returns what it said.
#[track_caller]
pub fn promtool(args: &[&str], input: &str) -> String {
    let mut command = Command::new(programs().join("promtool"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("promtool");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
    let output = child.wait_with_output().expect("promtool");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "promtool {args:?}: {said}");
    said
}

/// A server on which each metric has a value.
pub fn busy_server() -> Server {
    let server = Server::start();
    server.cmd(&["DLOCK.ACQUIRE", "door", "alice", "PX", "600000"]).ok();
    let mut granted = server.block(&["DLOCK.ACQUIRE", "door", "bob", "PX", "600000", "BLOCK", "0"]);
    server.cmd(&["DLOCK.RELEASE", "door", "alice"]).ok();
    granted.expect_reply(SOON).ok();
    server
}

#[test]
fn promtool_accepts_the_metrics() {
    let server = busy_server();
    let waiter = server.block(&["DLOCK.ACQUIRE", "door", "carol", "BLOCK", "0"]);
    let text = stdout(&server, &["metrics", "--format", "text"]);
    assert!(text.contains("dlock_key_waiters{"), "{text}");
    assert_eq!(promtool(&["check", "metrics"], &text), "");
    drop(waiter);
    server.cmd(&["DEL", "door"]).ok();
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests() {
    let rules = contrib("prometheus/alerts.yml");
    promtool(&["check", "rules", "--lint-fatal", rules.to_str().expect("text")], "");
    let tests = contrib("prometheus/alerts_test.yml");
    promtool(&["test", "rules", tests.to_str().expect("text")], "");

    let text = read("prometheus/alerts.yml");
    let alerts: Vec<&str> =
        text.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() > 10, "{alerts:?}");
    for annotation in ["severity: ", "summary: \"", "description: \"", "runbook: \""] {
        let lines = text.lines().filter(|line| line.trim().starts_with(annotation));
        assert_eq!(lines.count(), alerts.len(), "{annotation}");
    }
    let (tested, documented) = (read("prometheus/alerts_test.yml"), read("../docs/monitoring.md"));
    for alert in alerts {
        assert!(tested.contains(alert), "{alert} has no test");
        assert!(documented.contains(&format!("| `{alert}` | ")), "{alert} is not documented");
    }
}

/// Names of metrics in a text: in expressions, not in prose.
pub fn metrics(text: &str) -> BTreeSet<&str> {
    let is_name = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    text.split(|sign| !is_name(sign)).filter(|word| word.starts_with("dlock_")).collect()
}

#[test]
fn every_metric_of_dashboard_and_alerts_is_in_a_scrape() {
    let server = busy_server();
    let waiter = server.block(&["DLOCK.ACQUIRE", "door", "carol", "BLOCK", "0"]);
    let exporter = Exporter::start(&server, &server.url(), &[]);
    let text = exporter.scrape();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let scraped: BTreeSet<&str> =
        samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
    let dashboard = expressions_of(&dashboard());
    let wanted = [expressions_of_alerts(), dashboard.join("\n")].join("\n");
    let missing: Vec<_> = metrics(&wanted).difference(&scraped).copied().collect();
    assert!(missing.is_empty(), "{missing:?} not in\n{text}");
    assert!(metrics(&wanted).len() > 20, "{wanted}");
    drop(waiter);
    server.cmd(&["DEL", "door"]).ok();
}

/// The alerts without what people read.
pub fn expressions_of_alerts() -> String {
    let alerts = read("prometheus/alerts.yml");
    let expressions: Vec<&str> = alerts.lines().filter(|line| !line.contains(": \"")).collect();
    expressions.join("\n")
}

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana/dlock.json")).expect("JSON")
}

/// All queries of a dashboard, those of its annotations and variables included.
fn expressions_of(dashboard: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut left = vec![dashboard];
    while let Some(value) = left.pop() {
        match value {
            Value::Object(fields) => {
                for name in ["expr", "definition"] {
                    found.extend(fields.get(name).and_then(Value::as_str).map(str::to_owned));
                }
                left.extend(fields.values());
            }
            Value::Array(items) => left.extend(items),
            _ => {}
        }
    }
    found
}

#[test]
fn the_dashboard_is_sound() {
    let dashboard = dashboard();
    assert!(dashboard["schemaVersion"].as_u64() >= Some(39) && dashboard["id"].is_null());
    let variables: Vec<&str> = dashboard["templating"]["list"]
        .as_array()
        .expect("variables")
        .iter()
        .filter_map(|variable| variable["name"].as_str())
        .collect();
    assert_eq!(variables, ["datasource", "server"]);
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids = BTreeSet::new();
    let mut places = Vec::new();
    for panel in panels {
        let name = panel["title"].as_str().expect("a title");
        assert!(ids.insert(panel["id"].as_u64().expect("a number")), "{name}: a second id");
        let of = |side: &str| panel["gridPos"][side].as_u64().expect("a number");
        let (x, y, w, h) = (of("x"), of("y"), of("w"), of("h"));
        assert!(w > 0 && h > 0 && x + w <= 24, "{name}: too wide");
        let apart = |(a, b, c, d): &(u64, u64, u64, u64)| {
            x + w <= *a || a + c <= x || y + h <= *b || b + d <= y
        };
        assert!(places.iter().all(apart), "{name} lies on another panel");
        places.push((x, y, w, h));
        let kind = panel["type"].as_str().expect("a type");
        assert!(["row", "stat", "timeseries", "heatmap", "bargauge"].contains(&kind), "{kind}");
        if kind == "row" {
            continue;
        }
        assert!(panel["description"].as_str().is_some_and(|text| text.ends_with('.')), "{name}");
        let targets = panel["targets"].as_array().expect("targets");
        let refs: BTreeSet<_> = targets.iter().map(|target| target["refId"].as_str()).collect();
        assert!(!targets.is_empty() && refs.len() == targets.len(), "{name}");
        for target in targets {
            assert_eq!(target["datasource"]["uid"], "${datasource}", "{name}");
        }
    }
    let (queries, alerts) = (expressions_of(&dashboard).join("\n"), expressions_of_alerts());
    let (shown, alerted) = (metrics(&queries), metrics(&alerts));
    let missing: Vec<_> = alerted.difference(&shown).collect();
    assert!(missing.is_empty(), "alerts without a panel: {missing:?}");
}

/// The queries of the dashboard as Prometheus gets them.
fn queries() -> Vec<String> {
    let queries = expressions_of(&dashboard()).into_iter();
    let queries = queries.filter(|query| !query.starts_with("label_values(")).map(|query| {
        let query = query.replace("$__rate_interval", "1m").replace("$__range", "1h");
        query.replace("$server", ".*")
    });
    queries.collect()
}

#[test]
fn promtool_accepts_the_queries_of_the_dashboard() {
    let mut rules = "groups:\n  - name: dashboard\n    rules:\n".to_owned();
    for (n, query) in queries().iter().enumerate() {
        assert!(!query.contains(['$', '\'']), "an unknown variable in {query}");
        writeln!(rules, "      - record: panel:{n}\n        expr: '{query}'").expect("memory");
    }
    let folder = Server::start();
    let file = folder.dir().join("rules.yml");
    fs::write(&file, rules).expect("written");
    promtool(&["check", "rules", file.to_str().expect("text")], "");
}

/// A Prometheus that scrapes an exporter each second, with our alerts.
pub struct Prometheus {
    _process: Guarded,
    address: String,
}

impl Prometheus {
    fn start(exporter: &Exporter, folder: &Path) -> Prometheus {
        let text = format!(
            "rule_files: [\"{}\"]\nscrape_configs:\n  - job_name: dlock\n    static_configs: [{{ targets: [{:?}] }}]\n",
            contrib("prometheus/alerts.yml").display(),
            exporter.address
        );
        Prometheus::with(&text, folder)
    }

    pub fn with(config: &str, folder: &Path) -> Prometheus {
        let text = format!("global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\n{config}");
        let config = folder.join("prometheus.yml");
        fs::write(&config, text).expect("written");
        let port =
            TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it").port();
        let address = format!("127.0.0.1:{port}");
        let mut command = Command::new(programs().join("prometheus"));
        command.arg(format!("--config.file={}", config.display()));
        command.arg(format!("--storage.tsdb.path={}", folder.join("tsdb").display()));
        command.arg(format!("--web.listen-address={address}"));
        command
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("prometheus.log")).expect("a log"));
        let prometheus =
            Prometheus { _process: Guarded::spawn(command).expect("prometheus"), address };
        wait_until("Prometheus to be ready", || prometheus.get("/-/ready").is_some());
        prometheus
    }

    /// The body of a successful response.
    fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(&self.address).ok()?;
        stream.set_read_timeout(Some(LIMIT)).ok()?;
        // HTTP/1.0: the response has no chunks.
        write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        head.contains(" 200 OK").then(|| body.to_owned())
    }

    /// How many series a query has now.
    #[track_caller]
    pub fn series(&self, query: &str) -> usize {
        let mut coded = String::new();
        for byte in query.bytes() {
            write!(coded, "%{byte:02x}").expect("memory");
        }
        let answer = self.api(&format!("query?query={coded}"));
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().map_or(0, Vec::len)
    }

    pub fn is_firing(&self, alert: &str) -> bool {
        let alerts = self.api("alerts");
        let mut alerts =
            alerts["data"]["alerts"].as_array().cloned().unwrap_or_default().into_iter();
        alerts.any(|one| one["labels"]["alertname"] == alert && one["state"] == "firing")
    }

    fn api(&self, path: &str) -> Value {
        let body = self.get(&format!("/api/v1/{path}")).unwrap_or_default();
        serde_json::from_str(&body).unwrap_or_default()
    }
}

#[test]
fn prometheus_scrapes_the_exporter_and_an_expired_lease_fires_an_alert() {
    let server = busy_server();
    let waiter = server.block(&["DLOCK.ACQUIRE", "door", "carol", "BLOCK", "0"]);
    let exporter = Exporter::start(&server, &server.url(), &[]);
    let prometheus = Prometheus::start(&exporter, server.dir());
    let names = || -> BTreeSet<String> {
        let names = prometheus.api("label/__name__/values");
        let names = names["data"].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.filter(|name| name.starts_with("dlock_")).map(str::to_owned).collect()
    };
    wait_until("the metrics in Prometheus", || names().contains("dlock_scrape_duration_seconds"));
    let text = exporter.scrape();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let scraped: BTreeSet<String> =
        samples.filter_map(|line| line.split(['{', ' ']).next()).map(str::to_owned).collect();
    assert_eq!(names(), scraped);
    let targets = prometheus.api("targets");
    let target = &targets["data"]["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&"up".into(), &"".into()), "{target}");
    let metadata = prometheus.api("metadata?metric=dlock_hold_seconds");
    let metadata = &metadata["data"]["dlock_hold_seconds"][0];
    assert_eq!((&metadata["type"], &metadata["unit"]), (&"histogram".into(), &"seconds".into()));

    let is_firing = |alert| prometheus.is_firing(alert);
    assert!(!is_firing("DlockLeaseExpired"));
    server.cmd(&["DLOCK.ACQUIRE", "short", "zoe", "PX", "1"]).ok();
    wait_until("the alert", || is_firing("DlockLeaseExpired"));
    for query in queries() {
        wait_until(&query, || prometheus.series(&query) > 0);
    }
    assert!(!is_firing("DlockServerDown") && !is_firing("DlockHoldsLostByDisconnect"));
    drop(waiter);
    server.cmd(&["DEL", "door"]).ok();
}

#[test]
fn prometheus_scrapes_several_servers_through_one_exporter() {
    let config = contrib("prometheus/prometheus.yml");
    promtool(&["check", "config", config.to_str().expect("text")], "");

    let servers = [Server::start(), Server::start()];
    let address = |server: &Server| format!("127.0.0.1:{}", server.port());
    let [one, two] = [0, 1].map(|n| address(&servers[n]));
    let targets = format!("{one},{two}");
    let exporter = Exporter::start(&servers[0], &servers[0].url(), &["--scrape-target", &targets]);
    let mut config = read("prometheus/prometheus.yml");
    let alerts = contrib("prometheus/alerts.yml").display().to_string();
    for (from, to) in [
        ("\"redis-1:6379\"", &format!("\"{one}\"")),
        ("\"redis-2:6379\"", &format!("\"{two}\"")),
        ("127.0.0.1:9735", &exporter.address),
        ("alerts.yml", &alerts),
    ] {
        assert_eq!(config.matches(from).count(), 1, "{from}");
        config = config.replace(from, to);
    }
    let prometheus = Prometheus::with(&config, servers[0].dir());
    for server in [&one, &two] {
        let up = format!("dlock_up{{instance=\"{server}\",server=\"{server}\"}} == 1");
        wait_until(&up, || prometheus.series(&up) == 1);
    }
    assert_eq!(prometheus.series("dlock_up"), 2);
}
