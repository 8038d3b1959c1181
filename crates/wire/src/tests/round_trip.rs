//! Every written request parses to itself.

use alloc::string::ToString;
use alloc::vec::Vec;

use super::Random;
use crate::parse;
use crate::permit;
use crate::request::Request;
use crate::table::{Arg, ArgKind, Bounds, COMMANDS, Command};

const RUNS: u64 = 60_000;

type Words = Vec<Vec<u8>>;

impl Random {
    /// A value that the argument accepts.
    fn value(&mut self, arg: &Arg) -> Vec<u8> {
        match arg.bounds {
            Bounds::Any => self.bytes(1, 40),
            Bounds::Bytes { min, max } => self.bytes(min, max),
            Bounds::Uuid => {
                permit::text(&core::array::from_fn(|_| self.next().to_le_bytes()[0])).to_vec()
            }
            Bounds::Number { min, max, .. } => {
                let above = self.within(0, max.abs_diff(min));
                min.checked_add_unsigned(above).expect("in range").to_string().into_bytes()
            }
        }
    }

    /// Adds an argument as a call has it.
    fn argument(&mut self, arg: &Arg, to: &mut Words) {
        if arg.kind == ArgKind::OneOf {
            let part = self.index(arg.parts.len());
            return self.argument(&arg.parts[part], to);
        }
        if arg.kind == ArgKind::Block {
            for part in arg.parts {
                if !part.optional || self.coin() {
                    self.argument(part, to);
                }
            }
        } else if arg.name == "numkeys" {
            to.push(self.within(1, 30).to_string().into_bytes());
        } else if arg.multiple {
            let count = to.last().and_then(|count| str::from_utf8(count).ok()?.parse().ok());
            to.extend((0..count.expect("a number of keys")).map(|key: u8| alloc::vec![b'k', key]));
        } else {
            to.extend(arg.token.map(Vec::from));
            if arg.kind != ArgKind::PureToken {
                to.push(self.value(arg));
            }
        }
    }

    /// A valid call: some of the options, in any order.
    fn call(&mut self, command: &Command) -> Words {
        let is_option = |arg: &&Arg| arg.optional && (arg.token.is_some() || !arg.parts.is_empty());
        let mut words = Words::new();
        for arg in command.args.iter().filter(|arg| !is_option(arg)) {
            if !arg.optional || self.coin() {
                self.argument(arg, &mut words);
            }
        }
        let mut options: Vec<&Arg> = command.args.iter().filter(is_option).collect();
        while !options.is_empty() {
            let at = self.index(options.len());
            let option = options.swap_remove(at);
            if self.coin() {
                self.argument(option, &mut words);
            }
        }
        words
    }
}

fn written(request: &Request<'_>) -> Words {
    let mut out = Vec::new();
    request.write(&mut out);
    out
}

#[test]
fn written_requests_parse_to_themselves() {
    for seed in 0..RUNS {
        let mut random = Random(seed);
        let command = &COMMANDS[random.index(COMMANDS.len())];
        let call = random.call(command);
        let args: Vec<&[u8]> = call.iter().map(Vec::as_slice).collect();
        let request = parse(command.id, &args).unwrap_or_else(|error| panic!("{error}: {seed}"));
        assert_eq!(request.id(), command.id, "seed {seed}");
        let out = written(&request);
        let again: Vec<&[u8]> = out.iter().map(Vec::as_slice).collect();
        assert_eq!(parse(request.id(), &again), Ok(request), "seed {seed}");
    }
}

#[test]
fn any_words_parse_or_fail_and_valid_requests_round_trip() {
    let words: Vec<&[u8]> = COMMANDS
        .iter()
        .flat_map(|command| command.args)
        .flat_map(|arg| core::iter::once(arg).chain(arg.parts))
        .filter_map(|arg| arg.token)
        .map(str::as_bytes)
        .chain([&b"1"[..], b"0", b"-1", b"30000", b"", b"x", b"\xff\0", b"99999999999999999999"])
        .chain([&b"BY"[..], b"GET", b"2", b"-2147483647", b"0192f0c1-5a3e-7c44-9d3b-2f1a6c8e4b70"])
        .collect();
    let mut understood = 0_u32;
    for seed in 0..RUNS {
        let mut random = Random(seed);
        let id = COMMANDS[random.index(COMMANDS.len())].id;
        let args: Vec<&[u8]> =
            (0..random.index(9)).map(|_| words[random.index(words.len())]).collect();
        if let Ok(request) = parse(id, &args) {
            understood += 1;
            let out = written(&request);
            let again: Vec<&[u8]> = out.iter().map(Vec::as_slice).collect();
            assert_eq!(parse(request.id(), &again), Ok(request), "seed {seed}");
        }
    }
    assert!(understood > 2000, "the soup is too thin: {understood} calls were understood");
}
