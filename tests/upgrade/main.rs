//! The upgrade of docs/upgrade.md, from the module of the first level to this one, and back, under load. And what came
//! of upgrades from earlier modules. `make upgrade` runs it: it builds these modules from their commits.

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
mod old_way;
mod requests;
mod standing;

use dlock_testing::Binary;

use self::{
    group::{AOF, DataFolder, Group, RDB},
    journey::{first_module, journey},
    old_way::Outcome,
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
                #[ignore = "a minute or more, with modules of other commits: make upgrade"]
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
    a_cluster_is_upgraded_and_downgraded_under_load
    a_former_primary_of_an_earlier_module_starts_with_an_empty_folder
    a_former_primary_of_an_earlier_module_that_keeps_its_file_grants_nothing_or_is_equal
}

fn a_pair_is_upgraded_and_downgraded_under_load(server: &str) {
    journey(server, Group::pair(&Binary::named(server), &first_module(), &RDB));
}

fn a_pair_with_append_only_files_is_upgraded_and_downgraded_under_load(server: &str) {
    journey(server, Group::pair(&Binary::named(server), &first_module(), &AOF));
}

fn a_sentinel_group_is_upgraded_and_downgraded_under_load(server: &str) {
    journey(server, Group::sentinel(&Binary::named(server), &first_module(), &RDB));
}

fn a_cluster_is_upgraded_and_downgraded_under_load(server: &str) {
    journey(server, Group::cluster(&Binary::named(server), &first_module(), &RDB));
}

/// The documented way.
fn a_former_primary_of_an_earlier_module_starts_with_an_empty_folder(server: &str) {
    let outcome = old_way::upgrade(server, DataFolder::Emptied);
    println!("{server}, with an empty folder: {outcome}");
    assert_shows_the_defect(&outcome);
    assert_eq!((outcome.restarted, outcome.refused, outcome.strangers), (0, 0, 0));
}

fn a_former_primary_of_an_earlier_module_that_keeps_its_file_grants_nothing_or_is_equal(
    server: &str,
) {
    let outcome = old_way::upgrade(server, DataFolder::Kept);
    println!("{server}, from its file: {outcome}");
    assert_shows_the_defect(&outcome);
    assert!(outcome.restarted == 0 || outcome.refused > 0, "it differs, and says nothing");
    assert_eq!(outcome.strangers, 0);
}

/// This module reads every record of the earlier one. The earlier one does not read those of this one; else the scene
/// would show nothing.
fn assert_shows_the_defect(outcome: &Outcome) {
    assert_eq!(outcome.upgraded_replica, 0);
    assert!(outcome.earlier_replica > 0);
}
