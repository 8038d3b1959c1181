//! `redis.conf.example` matches the behaviour of the server.

use crate::support::{Reply, Server};

/// The settings of the example, without comments and the module's path.
fn settings() -> Vec<(&'static str, &'static str)> {
    include_str!("../../redis.conf.example")
        .lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with("loadmodule "))
        .filter_map(|line| line.split_once(' '))
        .collect()
}

#[test]
fn every_setting_is_accepted() {
    let given: Vec<_> = settings().into_iter().filter(|(name, _)| *name != "port").collect();
    let flat: Vec<&str> = given.iter().flat_map(|&(name, value)| [name, value]).collect();
    let server = Server::with(&flat).start();
    for (name, value) in given {
        assert_eq!(server.cmd(&["CONFIG", "GET", name]).field(name).text(), value, "{name}");
    }
}

#[test]
fn it_shows_every_setting_of_dlock_with_its_default() {
    let server = Server::start();
    let mut defaults: Vec<(String, String)> = server
        .cmd(&["CONFIG", "GET", "dlock.*"])
        .pairs()
        .into_iter()
        .map(|(name, value)| (name, value.text()))
        .collect();
    defaults.sort();
    let mut shown: Vec<(String, String)> = settings()
        .into_iter()
        .filter(|(name, _)| name.starts_with("dlock."))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    shown.sort();
    assert_eq!(shown, defaults);
}
