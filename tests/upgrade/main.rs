//! The upgrade of docs/upgrade.md under load, and back: from this module to the same with a second record level.
//! `make upgrade` runs it. `DLOCK_FROM` names a commit whose module is in the place of the first one.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on stops here and says why"
)]

mod caller;
mod compare;
mod group;
mod journey;
mod ledger;
mod load;
mod requests;
mod standing;

use dlock_testing::Binary;

use self::{
    group::{AOF, Group, PROFILE, RDB},
    journey::{former_module, journey},
};

/// Makes a test of each function for each server.
macro_rules! on_each_server {
    ($($test:ident)*) => {
        on_each_server!(@ redis_7_0 "redis-7.0" $($test)*);
        on_each_server!(@ redis_8_2 "redis-8.2" $($test)*);
        on_each_server!(@ valkey_9_1 "valkey-9.1" $($test)*);
    };
    (@ $module:ident $server:literal $($test:ident)*) => {
        mod $module {
            $(
                #[test]
                #[ignore = "a minute or more, with another module: make upgrade"]
                fn $test() {
                    super::$test($server);
                }
            )*
        }
    };
}

on_each_server! {
    a_pair_is_upgraded_and_downgraded_under_load
    a_pair_with_append_only_files_is_upgraded_and_downgraded_under_load
    a_sentinel_group_is_upgraded_and_downgraded_under_load
    a_sentinel_group_with_the_failover_profile_is_upgraded_and_downgraded_under_load
    a_cluster_is_upgraded_and_downgraded_under_load
}

fn a_pair_is_upgraded_and_downgraded_under_load(server: &str) {
    journey(server, Group::pair(&Binary::named(server), &former_module(), &RDB));
}

fn a_pair_with_append_only_files_is_upgraded_and_downgraded_under_load(server: &str) {
    journey(server, Group::pair(&Binary::named(server), &former_module(), &AOF));
}

fn a_sentinel_group_is_upgraded_and_downgraded_under_load(server: &str) {
    journey(server, Group::sentinel(&Binary::named(server), &former_module(), &RDB));
}

fn a_sentinel_group_with_the_failover_profile_is_upgraded_and_downgraded_under_load(server: &str) {
    journey(server, Group::sentinel(&Binary::named(server), &former_module(), &PROFILE));
}

fn a_cluster_is_upgraded_and_downgraded_under_load(server: &str) {
    journey(server, Group::cluster(&Binary::named(server), &former_module(), &RDB));
}
