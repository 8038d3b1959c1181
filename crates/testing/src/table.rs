//! Rules as tables of steps, with time as a column.
//!
//! ```text
//!   0  c1  ACQUIRE k A            => t1
//!   1  c2  ACQUIRE k B BLOCK 50   => parked
//!   9  c1  RELEASE k A            => 0; c2 gets t2
//! ```
//!
//! A verb alone belongs to the table's family; other verbs have their family (`DSEM.ACQUIRE`). The first column is the
//! time in milliseconds. The second is the caller: a connection (`c1`), one inside MULTI (`m1`), a script (`s`), or a
//! reader on the replica (`r`). After the arrow is *all* output: the answer, then the connections that are woken with
//! their answers, then messages as `channel: event db id owner-length owner [reqid] key`. The brackets are left out if
//! there is no request id. Tokens are named in the order in which they appear (`t1`, `t2`, …), and a new one must be
//! larger than all before; `$t1` in a call means its number. Permits are `p1`, `p2`, …, in the order in which they
//! were asked for. A row without an arrow must have no output. A row without a caller is an event on the server:
//!
//! | row | what happens |
//! |---|---|
//! | `gone c1` | the connection is closed, with what was in flight to it |
//! | `del k`, `over k` | DEL, SET over it |
//! | `ttl k` | EXPIRE in the far future; `ttls k …` says which keys still have one |
//! | `rename k l`, `move k 1`, `swapdb 0 1`, `flushdb 0`, `flushall` | as the server's commands |
//! | `restore k l` | DUMP of k and RESTORE of that under l |
//! | `set lock-delay 50` | a setting |
//! | `db 1` | connections use this database from here on |
//! | `events` | from here on keyspace events are shown, as `+event` |
//!
//! A world may have more of them. At the end of a table all connections close, everything ends, and nothing may be
//! left.

use std::{fs, path::Path};

/// A caller of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A connection, by number.
    Client(u64),
    /// The same inside MULTI.
    InMulti(u64),
    /// A script.
    Script,
    /// A reader on the replica.
    Replica,
}

/// What a caller does in a row.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Who calls.
    pub caller: Caller,
    /// The family of a verb that names none.
    pub family: &'a str,
    /// The verb and its arguments.
    pub words: &'a [&'a str],
}

/// Something that can carry out the rows of a table. What it returns is all output, in the words of the table.
pub trait World {
    /// This time has passed since the table began.
    fn at(&mut self, ms: u64);

    /// A call. The world may look at what is expected for the names of new tokens and permits.
    fn call(&mut self, call: Call<'_>, expected: &str) -> String;

    /// An event.
    fn happen(&mut self, words: &[&str], expected: &str) -> String;

    /// The row is over.
    fn rest(&mut self) {}

    /// All connections close, everything ends, and nothing may be left.
    fn finish(self);
}

/// Runs a table in which a verb alone belongs to `family`.
#[track_caller]
pub fn run(mut world: impl World, family: &str, script: &str) {
    for row in rows(script) {
        let (at, words, expected) = parse(row);
        world.at(at);
        let got = step(&mut world, family, &words, expected);
        assert_eq!(got, expected, "\n in the row `{row}`\n of the table, as {family},\n{script}");
        world.rest();
    }
    world.finish();
}

/// Carries out the words of a row, without its time.
pub fn step(world: &mut impl World, family: &str, words: &[&str], expected: &str) -> String {
    match caller(words[0]) {
        Some(caller) => world.call(Call { caller, family, words: &words[1..] }, expected),
        None => world.happen(words, expected),
    }
}

/// The rows of a table.
pub fn rows(script: &str) -> impl Iterator<Item = &str> {
    script.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with('#'))
}

/// The time, the words and the expected output of a row.
#[track_caller]
pub fn parse(row: &str) -> (u64, Vec<&str>, &str) {
    let (step, expected) = row.split_once("=>").unwrap_or((row, ""));
    let mut words: Vec<&str> = step.split_whitespace().collect();
    let at = words.remove(0).parse().unwrap_or_else(|_| panic!("no time in `{row}`"));
    (at, words, expected.trim())
}

fn caller(word: &str) -> Option<Caller> {
    let (kind, rest) = word.split_at(1);
    match (kind, rest.parse()) {
        ("c", Ok(client)) => Some(Caller::Client(client)),
        ("m", Ok(client)) => Some(Caller::InMulti(client)),
        ("s", _) if rest.is_empty() => Some(Caller::Script),
        ("r", _) if rest.is_empty() => Some(Caller::Replica),
        _ => None,
    }
}

impl Call<'_> {
    /// The command of the call.
    pub fn command(&self) -> String {
        match self.words[0] {
            verb if verb.contains('.') => verb.to_owned(),
            // They belong to no other family.
            verb @ ("UNBLOCK" | "MACQUIRE" | "MRELEASE" | "MRENEW" | "ANYACQUIRE") => {
                format!("DLOCK.{verb}")
            }
            verb => format!("{}.{verb}", self.family),
        }
    }
}

/// A table in a source file.
#[derive(Debug)]
pub struct Told {
    /// The file and the name of the test.
    pub name: String,
    /// The families that it is about.
    pub families: Vec<String>,
    /// Its rows.
    pub script: String,
}

/// The tables that are written out in the tests of a source file, and handed to `run`, `run_both` or `run_as`. `home`
/// is the family of the tables of `run`.
#[track_caller]
pub fn written_in(file: &Path, home: &str) -> Vec<Told> {
    let text =
        fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let mut told = Vec::new();
    for test in text.split("#[test]").skip(1) {
        let name = test.split_once("fn ").and_then(|(_, rest)| rest.split_once("()"));
        let name = name.map_or("a test without a name", |(name, _)| name);
        for call in test.split("    run").skip(1) {
            let mut literals = call.split('"').skip(1).step_by(2);
            let families: Vec<&str> = match call.split(['(', '"']).next() {
                Some("") => vec![home],
                Some("_both") => vec!["DLOCK", "DFAIR"],
                Some("_as") => literals.next().into_iter().collect(),
                // Only for a made-up world, or no table.
                _ => continue,
            };
            let is_written_out = call.split_once('(').is_some_and(|(_, rest)| {
                rest.trim_start().starts_with('"') && !call.contains("format!")
            });
            let Some(script) = literals.next().filter(|_| is_written_out) else { continue };
            told.push(Told {
                name: format!("{}: {name}", file.display()),
                families: families.into_iter().map(str::to_owned).collect(),
                script: script.to_owned(),
            });
        }
    }
    told
}
