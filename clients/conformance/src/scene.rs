//! The language of scenes. README.md describes it.

use std::time::Duration;

use dlock_testing::{Cut, Fault, Way};

/// What a scene runs on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum World {
    /// One server, behind the proxy.
    #[default]
    Single,
    /// The same, with a replica.
    Replica,
    /// A primary, a replica and three Sentinels.
    Sentinel,
    /// A cluster of two primaries.
    Cluster,
}

/// A scene.
#[derive(Clone, Debug)]
pub struct Scene {
    /// What it shows.
    pub name: String,
    /// File and line.
    pub place: String,
    /// What it runs on.
    pub world: World,
    /// Settings of the servers: names and values.
    pub settings: Vec<String>,
    /// Mistakes of the naive client with which it fails.
    pub traps: Vec<String>,
    /// The section of docs/protocol.md that it tests.
    pub section: String,
    /// What happens.
    pub(crate) steps: Vec<Line>,
}

/// A step with its line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// Line in the file.
    pub(crate) number: usize,
    /// As written.
    pub(crate) text: String,
    /// What it means.
    pub(crate) step: Step,
}

/// What follows a step that waits: from when, and until when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// Not earlier than this.
    pub(crate) from: Option<Duration>,
    /// Not later than this.
    pub(crate) within: Option<Duration>,
    /// The mark from which both count; else the end of the step before.
    pub(crate) of: Option<String>,
}

/// The expected number of requests that the proxy saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    /// That many.
    Exactly(usize),
    /// That many or more.
    AtLeast(usize),
    /// That many or fewer.
    AtMost(usize),
}

impl Count {
    /// Whether `found` is as expected.
    pub(crate) fn admits(self, found: usize) -> bool {
        match self {
            Count::Exactly(n) => found == n,
            Count::AtLeast(n) => found >= n,
            Count::AtMost(n) => found <= n,
        }
    }
}

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// `> words`: to the driver.
    Tell(String),
    /// `< subject pattern`: from the driver.
    Expect { subject: String, pattern: String, times: Times, save: Option<String> },
    /// `never subject pattern for MS`.
    Never { subject: String, pattern: String, time: Duration },
    /// `redis words => pattern`: to a server; `until redis`: again and again until it matches.
    Redis { words: String, pattern: Option<String>, is_polled: bool, save: Option<String> },
    /// `async redis words => pattern`: the reply may come later; `reply => pattern` checks it.
    Post(String),
    /// `reply => pattern`.
    Reply(String),
    /// `honest task key for MS`.
    Honest { task: String, key: String, time: Duration },
    /// `forge event key`, with a token that the server did not issue; `forge event key as token`.
    Forge { event: String, key: String, token: Option<String> },
    /// `resend command => pattern`.
    Resend { pattern: String, reply: String },
    /// `requests pattern => count`; `until requests`: again and again until it matches.
    Requests { pattern: String, count: Count, is_polled: bool },
    /// `connections => count`: open ones; `connections ever => count`: all since the start; `until …`: again and again.
    Connections { is_ever: bool, count: Count, is_polled: bool },
    /// `wait MS`.
    Wait(Duration),
    /// `mark name`.
    Mark(String),
    /// `proxy …`.
    Proxy(Proxy),
    /// `server …`.
    Server(Server),
    /// `driver …`.
    Driver(Driver),
    /// `failover`: in order; `failover by death`: the primary is killed.
    Failover { is_by_death: bool },
    /// `move slot key`: the slot of the key goes to the other node.
    MoveSlot(String),
    /// `each byte of requests|replies` … `end`.
    EachByte { way: Way, body: Vec<Line> },
    /// `cut here`: where the bytes of `each byte` count from.
    CutHere,
}

/// A fault of the network.
#[derive(Clone, Debug)]
pub(crate) enum Proxy {
    Cut(Cut),
    Refuse,
    Accept,
    Stall(Option<Way>),
    Mute,
    Flow,
    Heal,
    Delay(Way, Duration),
    DropMessages,
    /// The next requests whose name matches have a fault.
    Fault(Fault, String, usize),
    /// Waits until the latest fault has struck.
    Struck,
}

/// What happens to the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Server {
    Freeze,
    Thaw,
    Kill,
    Start,
    /// Clean restart: it saves its data.
    RestartWithData,
    /// As after a power cut without a file.
    RestartWithoutData,
}

/// What happens to the driver's process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Driver {
    Stop,
    Continue,
    Kill,
    /// A new process.
    Start,
    /// Its wall clock moves by seconds.
    Wallclock(i64),
    /// Its machine slept for that many milliseconds.
    Suspend(i64),
}

/// Reads the scenes of a file; the error names the line.
pub fn parse(file: &str, text: &str) -> Result<Vec<Scene>, String> {
    let mut scenes: Vec<Scene> = Vec::new();
    let mut loops: Vec<(usize, Way, Vec<Line>)> = Vec::new();
    let mut of_file = String::new();
    for (number, line) in text.lines().enumerate().map(|(n, line)| (n + 1, line.trim())) {
        let fail = |what: &str| format!("{file}:{number}: {what}: {line}");
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix("scene ") {
            if !loops.is_empty() {
                return Err(fail("`end` is missing before"));
            }
            scenes.push(Scene {
                name: name.to_owned(),
                place: format!("{file}:{number}"),
                world: World::default(),
                settings: Vec::new(),
                traps: Vec::new(),
                section: of_file.clone(),
                steps: Vec::new(),
            });
            continue;
        }
        if let Some(name) = line.strip_prefix("section ") {
            let section = scenes.last_mut().map_or(&mut of_file, |scene| &mut scene.section);
            name.clone_into(section);
            continue;
        }
        let scene = scenes.last_mut().ok_or_else(|| fail("no scene before"))?;
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["world", "single"] => scene.world = World::Single,
            ["world", "replica"] => scene.world = World::Replica,
            ["world", "sentinel"] => scene.world = World::Sentinel,
            ["world", "cluster"] => scene.world = World::Cluster,
            ["setting", name, value] => scene.settings.extend([*name, *value].map(str::to_owned)),
            ["trap", name] => scene.traps.push((*name).to_owned()),
            ["each", "byte", "of", way] => {
                loops.push((number, way_of(way).ok_or_else(|| fail("no direction"))?, Vec::new()));
            }
            ["end"] => {
                let (number, way, body) = loops.pop().ok_or_else(|| fail("nothing to end"))?;
                let step = Step::EachByte { way, body };
                let text = "each byte".to_owned();
                let steps = loops.last_mut().map_or(&mut scene.steps, |(.., body)| body);
                steps.push(Line { number, text, step });
            }
            words => {
                let step = step(line, words).ok_or_else(|| fail("not understood"))?;
                let steps = loops.last_mut().map_or(&mut scene.steps, |(.., body)| body);
                steps.push(Line { number, text: line.to_owned(), step });
            }
        }
    }
    if !loops.is_empty() {
        return Err(format!("{file}: `end` is missing at the end"));
    }
    Ok(scenes)
}

fn millis(word: &str) -> Option<Duration> {
    word.parse().ok().map(Duration::from_millis)
}

fn way_of(word: &str) -> Option<Way> {
    match word {
        "requests" => Some(Way::ToServer),
        "replies" => Some(Way::ToClient),
        _ => None,
    }
}

fn count(word: &str) -> Option<Count> {
    let number = |text: &str| text.parse().ok();
    if let Some(rest) = word.strip_prefix(">=") {
        return number(rest).map(Count::AtLeast);
    }
    if let Some(rest) = word.strip_prefix("<=") {
        return number(rest).map(Count::AtMost);
    }
    number(word).map(Count::Exactly)
}

/// `text -> name`: what to save the last word as.
fn split_save(text: &str) -> (&str, Option<String>) {
    match text.rsplit_once(" -> ") {
        Some((text, name)) => (text.trim(), Some(name.trim().to_owned())),
        None => (text, None),
    }
}

/// `words => pattern`.
fn split_pattern(text: &str) -> (String, Option<String>) {
    match text.split_once(" => ") {
        Some((text, pattern)) => (text.trim().to_owned(), Some(pattern.trim().to_owned())),
        None => (text.to_owned(), None),
    }
}

/// Takes `within MS`, `not before MS`, `of MARK` from the end of an expectation.
fn split_times(mut words: &[&str]) -> Option<(String, Times)> {
    let mut times = Times::default();
    loop {
        words = match words {
            [rest @ .., "of", mark] => {
                times.of = Some((*mark).to_owned());
                rest
            }
            [rest @ .., "not", "before", time] => {
                times.from = Some(millis(time)?);
                rest
            }
            [rest @ .., "within", time] => {
                times.within = Some(millis(time)?);
                rest
            }
            rest => return Some((rest.join(" "), times)),
        };
    }
}

fn step(line: &str, words: &[&str]) -> Option<Step> {
    let rest = |from: usize| words[from..].join(" ");
    Some(match words {
        [">", _, ..] => Step::Tell(rest(1)),
        ["<", subject, _, ..] => {
            let (text, save) = split_save(line.strip_prefix('<')?);
            let text: Vec<&str> = text.split_whitespace().skip(1).collect();
            let (pattern, times) = split_times(&text)?;
            Step::Expect { subject: (*subject).to_owned(), pattern, times, save }
        }
        ["never", subject, pattern @ .., "for", time] => Step::Never {
            subject: (*subject).to_owned(),
            pattern: pattern.join(" "),
            time: millis(time)?,
        },
        ["until", "redis", ..] | ["redis", ..] => {
            let is_polled = words[0] == "until";
            let text = rest(1 + usize::from(is_polled));
            let (text, save) = split_save(&text);
            let (words, pattern) = split_pattern(text);
            if is_polled && pattern.is_none() {
                return None;
            }
            Step::Redis { words, pattern, is_polled, save }
        }
        ["async", "redis", ..] => Step::Post(rest(2)),
        ["reply", "=>", _, ..] => Step::Reply(rest(2)),
        ["honest", task, key, "for", time] => {
            Step::Honest { task: (*task).to_owned(), key: (*key).to_owned(), time: millis(time)? }
        }
        ["forge", event, key, rest @ ..] => {
            let token = match rest {
                [] => None,
                ["as", token] => Some((*token).to_owned()),
                _ => return None,
            };
            Step::Forge { event: (*event).to_owned(), key: (*key).to_owned(), token }
        }
        ["resend", ..] => {
            let (pattern, reply) = split_pattern(&rest(1));
            Step::Resend { pattern, reply: reply? }
        }
        ["until", "requests", ..] | ["requests", ..] => {
            let is_polled = words[0] == "until";
            let (pattern, found) = split_pattern(&rest(1 + usize::from(is_polled)));
            Step::Requests { pattern, count: count(&found?)?, is_polled }
        }
        ["until", "connections", rest @ ..] | ["connections", rest @ ..] => {
            let (is_ever, found) = match rest {
                ["=>", found] => (false, found),
                ["ever", "=>", found] => (true, found),
                _ => return None,
            };
            Step::Connections { is_ever, count: count(found)?, is_polled: words[0] == "until" }
        }
        ["wait", time] => Step::Wait(millis(time)?),
        ["mark", name] => Step::Mark((*name).to_owned()),
        ["proxy", words @ ..] => Step::Proxy(proxy(words)?),
        ["server", words @ ..] => Step::Server(match words {
            ["freeze"] => Server::Freeze,
            ["thaw"] => Server::Thaw,
            ["kill"] => Server::Kill,
            ["start"] => Server::Start,
            ["restart", "with", "data"] => Server::RestartWithData,
            ["restart", "without", "data"] => Server::RestartWithoutData,
            _ => return None,
        }),
        ["driver", words @ ..] => Step::Driver(match words {
            ["stop"] => Driver::Stop,
            ["continue"] => Driver::Continue,
            ["kill"] => Driver::Kill,
            ["start"] => Driver::Start,
            ["wallclock", seconds] => Driver::Wallclock(seconds.parse().ok()?),
            ["suspend", millis] => Driver::Suspend(millis.parse().ok()?),
            _ => return None,
        }),
        ["failover"] => Step::Failover { is_by_death: false },
        ["failover", "by", "death"] => Step::Failover { is_by_death: true },
        ["move", "slot", key] => Step::MoveSlot((*key).to_owned()),
        ["cut", "here"] => Step::CutHere,
        _ => return None,
    })
}

fn proxy(words: &[&str]) -> Option<Proxy> {
    Some(match words {
        ["cut"] => Proxy::Cut(Cut::Fin),
        ["reset"] => Proxy::Cut(Cut::Reset),
        ["half-open"] => Proxy::Cut(Cut::HalfOpen),
        ["refuse"] => Proxy::Refuse,
        ["accept"] => Proxy::Accept,
        ["stall", "all"] => Proxy::Stall(None),
        ["stall", way] => Proxy::Stall(Some(way_of(way)?)),
        ["mute"] => Proxy::Mute,
        ["flow"] => Proxy::Flow,
        ["heal"] => Proxy::Heal,
        ["delay", way, time] => Proxy::Delay(way_of(way)?, millis(time)?),
        ["drop", "messages"] => Proxy::DropMessages,
        ["lose", "request", name] => Proxy::Fault(Fault::LoseRequest, (*name).to_owned(), 1),
        ["lose", "reply", name] => Proxy::Fault(Fault::LoseReply, (*name).to_owned(), 1),
        ["lose", "reply", name, times] => {
            Proxy::Fault(Fault::LoseReply, (*name).to_owned(), times.parse().ok()?)
        }
        ["answer", name, times, reply @ ..] => {
            let replies: Option<Vec<_>> = reply.join(" ").split(" | ").map(whole_reply).collect();
            let reply = Fault::Answer(replies?.concat().leak());
            Proxy::Fault(reply, (*name).to_owned(), times.parse().ok()?)
        }
        ["hold", "reply", name] => Proxy::Fault(Fault::StallReply, (*name).to_owned(), 1),
        ["struck"] => Proxy::Struck,
        _ => return None,
    })
}

/// The bytes of a reply that a line has: `:1`, `+OK`, `-CODE text`, `$text`, where `;` ends a line of the text. Half a
/// reply ends with `…`.
fn whole_reply(line: &str) -> Option<Vec<u8>> {
    let whole = match (line.strip_prefix('$'), line.get(..1)?) {
        (Some(text), _) => {
            let text = text.replace(';', "\r\n");
            format!("${}\r\n{text}\r\n", text.len())
        }
        (None, ":" | "+" | "-") => match line.strip_suffix('…') {
            Some(half) => half.to_owned(),
            None => format!("{line}\r\n"),
        },
        _ => return None,
    };
    Some(whole.into_bytes())
}
