//! The commands of the server itself that this crate sends.

use dlock_wire::reply::{Kind, Sink as _};
use dlock_wire::table::COMMANDS;

use crate::resp::Resp;
use crate::state::State;
use crate::{glob, info};

impl State {
    /// Executes a command that is not one of dlock.
    pub(crate) fn general(&mut self, client: u64, name: &[u8], args: &[&[u8]]) -> Resp {
        let db = self.caller(client).db;
        match (name.to_ascii_uppercase().as_slice(), args) {
            (b"HELLO", _) => hello(client),
            (b"CLIENT", [what, ..]) if what.eq_ignore_ascii_case(b"ID") => Resp::number(client),
            (b"AUTH" | b"CLIENT", _) => Resp::ok(),
            (b"SELECT", [db]) => self.select(client, db),
            (b"PING", _) => Resp::simple("PONG"),
            (b"SUBSCRIBE", channels) => self.subscribe(client, false, channels),
            (b"SSUBSCRIBE", channels) => self.subscribe(client, true, channels),
            (b"COMMAND", [_, names @ ..]) => known(names),
            (b"INFO", sections) => Resp::text(info::text(self, sections)),
            (b"SCAN", [_, options @ ..]) => self.scan(db, options),
            (b"DEL", keys) => Resp::number(keys.iter().filter(|key| self.delete(db, key)).count()),
            (b"WAIT", _) => Resp::number(self.replicas),
            (b"WAITAOF", _) => {
                let mut reply = Resp::default();
                reply.array(2);
                reply.int(1);
                reply.int(self.replicas.into());
                reply
            }
            _ => {
                let name = name.escape_ascii();
                Resp::error(&format!("ERR the fake server does not have the command '{name}'"))
            }
        }
    }

    fn select(&mut self, client: u64, db: &[u8]) -> Resp {
        let number = std::str::from_utf8(db).ok().and_then(|db| db.parse().ok());
        match (number.filter(|db| *db < 16), self.connections.get_mut(&client)) {
            (Some(db), Some(connection)) => {
                connection.db = db;
                Resp::ok()
            }
            _ => Resp::error("ERR DB index is out of range"),
        }
    }

    fn subscribe(&mut self, client: u64, is_sharded: bool, channels: &[&[u8]]) -> Resp {
        let Some(connection) = self.connections.get_mut(&client) else {
            return Resp::error("ERR only a connection can subscribe");
        };
        let word = if is_sharded { &b"ssubscribe"[..] } else { b"subscribe" };
        let mut confirmations = Resp::default();
        for &channel in channels {
            connection.channels.insert((is_sharded, channel.to_vec()));
            let of_kind = connection.channels.iter().filter(|(sharded, _)| *sharded == is_sharded);
            let count = i64::try_from(of_kind.count()).unwrap_or(i64::MAX);
            confirmations.push(3);
            confirmations.bulk(word);
            confirmations.bulk(channel);
            confirmations.int(count);
        }
        confirmations
    }

    /// All keys in one page.
    fn scan(&self, db: u32, options: &[&[u8]]) -> Resp {
        let option = |name: &str| {
            let is_it = |pair: &&[&[u8]]| {
                pair.first().is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()))
            };
            options.chunks(2).find(is_it).and_then(|pair| pair.get(1).copied())
        };
        let (pattern, kind) = (option("MATCH").unwrap_or(b"*"), option("TYPE"));
        let found: Vec<&[u8]> = self
            .keys
            .of(db)
            .filter(|(name, value)| {
                let own = Kind::from(value.kind()).key_type().as_bytes();
                kind.is_none_or(|kind| kind == own) && glob::matches(pattern, name)
            })
            .map(|(name, _)| name)
            .collect();
        let mut reply = Resp::default();
        reply.array(2);
        reply.bulk(b"0");
        reply.array(found.len());
        for name in found {
            reply.bulk(name);
        }
        reply
    }
}

fn hello(client: u64) -> Resp {
    let mut reply = Resp::default();
    reply.map(3);
    for (name, text) in [("server", "dlock-fake"), ("role", "master")] {
        reply.bulk(name.as_bytes());
        reply.bulk(text.as_bytes());
    }
    reply.bulk(b"id");
    reply.int(client.cast_signed());
    reply
}

/// COMMAND INFO: of the commands of dlock, their names.
fn known(names: &[&[u8]]) -> Resp {
    let mut reply = Resp::default();
    reply.array(names.len());
    for name in names {
        if COMMANDS.iter().any(|row| row.name.as_bytes().eq_ignore_ascii_case(name)) {
            reply.array(1);
            reply.bulk(name);
        } else {
            reply.null();
        }
    }
    reply
}
