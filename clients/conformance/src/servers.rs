//! The servers of a scene, with the proxy.

use std::fs;

use dlock_testing::{Binary, Client, Nodes, Proxy, Reply as _, Sentinels, Server};
use redis::Value;

use crate::{
    driver::Stop,
    scene::{self, Scene, World},
};

#[derive(Debug)]
enum Kind {
    Single { server: Box<Server>, proxy: Proxy, replica: Option<Box<Server>> },
    Sentinel { servers: Vec<Server>, sentinels: Sentinels },
    Cluster(Nodes),
}

/// The servers of a scene.
#[derive(Debug)]
pub(crate) struct Servers {
    kind: Kind,
    /// The connection of the scene's own commands to a single server.
    connection: Option<Client>,
}

impl Servers {
    pub(crate) fn start(scene: &Scene, binary: &Binary) -> Servers {
        let settings: Vec<&str> = scene.settings.iter().map(String::as_str).collect();
        let setup = || Server::with(&settings).binary(binary);
        let kind = match scene.world {
            World::Single | World::Replica => {
                let server = Box::new(setup().start());
                let proxy = Proxy::to(&server);
                proxy.remember();
                let is_alone = scene.world == World::Single;
                let replica = (!is_alone).then(|| Box::new(setup().replica_of(&server).start()));
                Kind::Single { server, proxy, replica }
            }
            World::Sentinel => {
                let primary = setup().start();
                let replica = setup().replica_of(&primary).start();
                let sentinels = Sentinels::start(3, &primary, 1);
                Kind::Sentinel { servers: vec![primary, replica], sentinels }
            }
            World::Cluster => Kind::Cluster(Nodes::of((0..2).map(|_| setup()))),
        };
        Servers { kind, connection: None }
    }

    /// The URL for clients.
    pub(crate) fn url(&self) -> String {
        match &self.kind {
            Kind::Single { proxy, .. } => proxy.url(),
            Kind::Sentinel { sentinels, .. } => sentinels.url(),
            Kind::Cluster(nodes) => nodes.url(),
        }
    }

    fn all(&self) -> &[Server] {
        match &self.kind {
            Kind::Single { server, .. } => std::slice::from_ref(server),
            Kind::Sentinel { servers, .. } => servers,
            Kind::Cluster(nodes) => nodes.all(),
        }
    }

    /// The first one.
    pub(crate) fn first(&self) -> &Server {
        &self.all()[0]
    }

    pub(crate) fn proxy(&self) -> Result<&Proxy, Stop> {
        match &self.kind {
            Kind::Single { proxy, .. } => Ok(proxy),
            _ => Err(Stop::Failed("only with one server".to_owned())),
        }
    }

    /// The reply to a command of the scene, by the server that is responsible.
    pub(crate) fn ask(&mut self, words: &[&[u8]]) -> Result<String, Stop> {
        if let Kind::Single { server, .. } = &self.kind {
            let connection = self.connection.get_or_insert_with(|| server.client3());
            return Ok(show(&connection.cmd(words)));
        }
        // A former primary says for seconds that it is one: the Sentinels know better.
        let named = match &self.kind {
            Kind::Sentinel { sentinels, .. } => sentinels.primary_port(),
            _ => None,
        };
        let mut reply = None;
        for server in
            self.all().iter().filter(|server| named.is_none_or(|port| port == server.port()))
        {
            // A failover cuts connections, and changes who answers. A dead server refuses them.
            let connect = std::panic::AssertUnwindSafe(|| server.client3());
            let Ok(mut client) = std::panic::catch_unwind(connect) else { continue };
            if show(&client.cmd(&["ROLE"])).starts_with("[master") {
                let found = show(&client.cmd(words));
                if !found.starts_with("error MOVED") && !found.starts_with("error ASK") {
                    return Ok(found);
                }
                reply = Some(found);
            }
        }
        reply.ok_or_else(|| Stop::Failed("no server answers".to_owned()))
    }

    pub(crate) fn perform(&mut self, what: scene::Server) -> Result<(), Stop> {
        self.connection = None;
        let Kind::Single { server, .. } = &mut self.kind else {
            return Err(Stop::Failed("only with one server".to_owned()));
        };
        match what {
            scene::Server::Freeze => server.freeze(),
            scene::Server::Thaw => server.thaw(),
            scene::Server::Kill => server.kill9(),
            scene::Server::Start => server.start_again(),
            scene::Server::RestartWithData => {
                server.shutdown(&["SAVE"]);
                server.start_again();
            }
            scene::Server::RestartWithoutData => {
                server.kill9();
                let _ = fs::remove_file(server.dir().join("dump.rdb"));
                server.start_again();
            }
        }
        Ok(())
    }

    pub(crate) fn fail_over(&mut self, is_by_death: bool) -> Result<(), Stop> {
        self.connection = None;
        let (servers, sentinels) = match &mut self.kind {
            Kind::Sentinel { servers, sentinels } => (servers, sentinels),
            Kind::Single { server, proxy, replica: Some(replica) } => {
                server.wait_replica_synced(replica);
                replica.cmd(&["REPLICAOF", "NO", "ONE"]).ok();
                let port = replica.port().to_string();
                server.cmd(&["REPLICAOF", "127.0.0.1", &port]).ok();
                proxy.redirect(replica);
                std::mem::swap(server, replica);
                return Ok(());
            }
            _ => return Err("no other server".to_owned().into()),
        };
        let before = sentinels.primary_port();
        let (primary, replicas): (Vec<_>, Vec<_>) =
            servers.iter_mut().partition(|server| Some(server.port()) == before);
        let [primary] = primary.try_into().map_err(|_| "no primary".to_owned())?;
        // A new replica may get nothing for a second after its link is up. What it does not have is lost by right.
        for replica in replicas {
            primary.wait_replica_synced(replica);
            replica.forget_connection();
        }
        primary.forget_connection();
        if !is_by_death {
            sentinels.failover();
            return Ok(());
        }
        primary.kill9();
        sentinels.wait_primary_other_than(before);
        Ok(())
    }

    /// The slot of the key goes to the other node.
    pub(crate) fn move_slot(&mut self, key: &str) -> Result<(), Stop> {
        let Kind::Cluster(nodes) = &self.kind else {
            return Err("only in a cluster".to_owned().into());
        };
        let slot = nodes.all()[0].slot(key);
        let from = nodes.owner_of(slot).ok_or("the nodes disagree".to_owned())?;
        nodes.move_slot(slot, from, 1 - from);
        Ok(())
    }
}

/// A reply on one line: maps as `name=value`, Null as `nil`, an error with the word `error` before it.
pub(crate) fn show(value: &Value) -> String {
    let list = |items: &[Value]| items.iter().map(show).collect::<Vec<_>>().join(" ");
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Int(n) => n.to_string(),
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Okay => "OK".to_owned(),
        Value::Array(items) | Value::Set(items) => format!("[{}]", list(items)),
        Value::Map(pairs) => {
            let pairs =
                pairs.iter().map(|(name, value)| format!("{}={} ", show(name), show(value)));
            pairs.collect()
        }
        Value::ServerError(_) => format!("error {}", value.error()),
        other => other.show(),
    }
}
