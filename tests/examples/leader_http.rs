//! Two instances of a web service: only the leader serves, and hands over when it is told to stop.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use dlock_testing::Server;

use crate::built;

/// Longer than any hand-over.
const PATIENCE: Duration = Duration::from_mins(1);

/// An instance as a process.
struct Instance {
    process: Child,
    /// The lines that it prints.
    says: Receiver<String>,
    address: String,
}

impl Instance {
    fn start(server: &Server) -> Self {
        let mut command = Command::new(&built()["leader_http"]);
        command.args([&server.url(), "127.0.0.1:0"]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("the example runs");
        let output = BufReader::new(process.stdout.take().expect("its output"));
        let (say, says) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|l| say.send(l)));
        let mut this = Self { process, says, address: String::new() };
        this.address = this.hear(" stands by").replace(" stands by", "");
        this
    }

    /// Its next line that has these words.
    fn hear(&self, words: &str) -> String {
        let line = self.says.iter().find(|line| line.contains(words));
        line.unwrap_or_else(|| panic!("it ended before it said '{words}'"))
    }

    fn terminate(&self) {
        // The kill of the shell: small systems have no program of that name.
        let kill = format!("kill -TERM {}", self.process.id());
        let killed = Command::new("sh").args(["-c", &kill]).status().expect("a shell");
        assert!(killed.success());
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The status and the text.
type Answer = (u16, String);

/// One request. None: the instance takes no connections any more.
fn get(address: &str, ms: u64) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET /{ms} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status = answer.split(' ').nth(1)?.parse().ok()?;
    Some((status, answer.split("\r\n\r\n").nth(1)?.to_owned()))
}

fn token(text: &str) -> u64 {
    text.trim_end().rsplit(' ').next().and_then(|token| token.parse().ok()).expect("a token")
}

/// The answers of an instance up to such a one, or until it takes no connections, with the times of their arrival.
fn poll(address: &str, is_last: impl Fn(&Answer) -> bool) -> Vec<(Answer, Instant)> {
    let (mut answers, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < PATIENCE {
        let Some(answer) = get(address, 0) else { break };
        let ends = is_last(&answer);
        answers.push((answer, Instant::now()));
        if ends {
            break;
        }
    }
    answers
}

#[test]
fn only_the_leader_serves_and_hands_over_when_it_is_told_to_stop() {
    let server = Server::start();
    let mut first = Instance::start(&server);
    let before = token(&first.hear("leads, with token "));
    let mut second = Instance::start(&server);
    let done = |token| (200, format!("done with token {token}\n"));
    assert_eq!(get(&first.address, 0), Some(done(before)));
    let names_first = (503, format!("the leader is {}\n", first.address));
    assert_eq!(get(&second.address, 0), Some(names_first.clone()));

    // A request is in flight when the leader is told to stop.
    let work = Duration::from_millis(300);
    let sent = Instant::now();
    let (slow, of_first, of_second) = thread::scope(|scope| {
        let (one, other) = (first.address.as_str(), second.address.as_str());
        let slow = scope.spawn(|| (get(one, 300), Instant::now()));
        first.hear("works for 300 ms");
        let of_first = scope.spawn(|| poll(one, |_| false));
        let of_second = scope.spawn(|| poll(other, |answer| answer.0 == 200));
        first.hear("works for 0 ms");
        first.terminate();
        let slow = slow.join().expect("the slow request");
        (slow, of_first.join().expect("answers"), of_second.join().expect("answers"))
    });
    let ended = first.process.wait().expect("it ends");
    assert!(ended.success(), "{ended}");

    let after = token(&second.hear("leads, with token "));
    assert!(after > before);
    assert_eq!(slow.0, Some(done(before)), "the request in flight");
    // The first has served all requests under its token. Those that waited are told of the second.
    let names_second = (503, format!("the leader is {}\n", second.address));
    let count = of_first.iter().take_while(|(answer, _)| *answer == done(before)).count();
    let (answered, told) = of_first.split_at(count);
    assert!(told.iter().all(|(answer, _)| *answer == names_second), "{told:?}");
    // The second has served none before the first was done.
    let (served_there, refused) = of_second.split_last().expect("answers");
    assert_eq!(served_there.0, done(after));
    let names_one = |answer: &Answer| *answer == names_first || *answer == names_second;
    assert!(refused.iter().all(|(answer, _)| names_one(answer)), "{refused:?}");
    assert!(served_there.1 >= sent + work, "while the first worked");
    let last = answered.last().expect("the first served").1.max(slow.1);
    let gap = served_there.1.duration_since(last);
    // Each answer of the second takes an HTTP request and one round trip to the lock server.
    let mut times: Vec<_> = of_second.windows(2).map(|two| two[1].1 - two[0].1).collect();
    times.sort_unstable();
    println!("gap: {gap:?}; a request: {:?}", times.get(times.len() / 2));

    second.terminate();
    assert!(second.process.wait().expect("it ends").success());
    server.left_over_check();
}
