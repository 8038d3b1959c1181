//! Tests of the verdicts with histories written by hand; the program itself is `main.rs`.

#![allow(dead_code, reason = "only a part of the program is here")]
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a history that cannot be read stops the program"
)]

mod history;
mod judge;

use history::History;
use judge::{Outage, Rule, Verdicts, judge};

/// Judges the lines of two clients and of the nemesis.
fn verdicts(one: &str, two: &str, episodes: &str) -> Verdicts {
    let mut history = History::default();
    for (name, lines) in [("one", one), ("two", two), ("episodes", episodes)] {
        let lines: Vec<&str> = lines.lines().map(str::trim).collect();
        history.add(name, &format!("{}\n", lines.join("\n")));
    }
    judge(&history)
}

/// Numbers of overlaps, lost holds, wrong orders of tokens and refused writes.
#[track_caller]
fn assert_found(one: &str, two: &str, expected: [usize; 4]) -> Verdicts {
    let found = verdicts(one, two, "episode cut 50 80 90");
    let rules = [Rule::Overlap, Rule::LostHold, Rule::TokenOrder, Rule::RefusedWrite];
    let counts = rules.map(|rule| found.of(rule).count());
    assert_eq!(counts, expected, "{found:#?}");
    found
}

// hold KEY INVOKED ANSWERED TOKEN LAST_YES VALID_UNTIL ENDED HOW

#[test]
fn beliefs_one_after_the_other_are_fine() {
    let one = "hold k 1 10 1 40 90 42 released
        hold k 50 102 3 110 190 115 unknown:Unavailable
        hold other 50 62 1 70 90 72 released";
    let found = assert_found(one, "hold k 5 41 2 60 95 61 released", [0; 4]);
    assert_eq!(found.holds, 4);
}

#[test]
fn two_beliefs_at_once_are_an_overlap_of_the_latest_episode() {
    let one = "hold k 1 10 1 70 90 72 released";
    let found = assert_found(one, "hold k 5 60 2 95 99 96 released", [1, 0, 0, 0]);
    let overlap = &found.findings[0];
    assert_eq!((overlap.length, overlap.episode.as_str()), (10, "cut"));
    let found = assert_found(one, "hold k 5 20 2 30 99 31 released", [1, 0, 0, 0]);
    let overlap = &found.findings[0];
    assert_eq!((overlap.length, overlap.episode.as_str()), (10, "before"));
    // The same token twice, and a longer belief over two others.
    assert_found(one, "hold k 5 60 1 95 99 96 released", [1, 0, 0, 0]);
    let two = "hold k 5 20 2 30 99 31 released\nhold k 6 40 3 50 99 51 released";
    assert_found(one, two, [2, 0, 0, 0]);
}

#[test]
fn a_grant_in_which_its_client_never_believed_is_no_overlap() {
    let one = "hold k 1 10 1 70 90 72 released";
    assert_found(one, "hold k 5 60 2 0 0 61 lost:Expired", [0; 4]);
}

#[test]
fn leaders_are_judged_as_holders() {
    let one = "hold elect 1 10 1 70 90 72 released";
    assert_found(one, "hold elect 5 60 2 95 99 96 released", [1, 0, 0, 0]);
}

#[test]
fn a_loss_before_the_end_of_the_promise_is_a_lost_hold() {
    assert_found("hold k 1 10 1 70 90 72 lost:Refused", "", [0, 1, 0, 0]);
    // By the clock, by the contract of elections, or after a release whose answer was lost.
    assert_found("hold k 1 10 1 70 90 91 lost:Expired", "", [0; 4]);
    assert_found("hold k 1 10 1 70 90 72 lost:Disconnected", "", [0; 4]);
    let next = "hold k 5 75 2 85 99 86 released";
    assert_found("hold k 1 10 1 70 90 91 unknown:Unavailable", next, [0; 4]);
    assert_found("hold k 1 10 1 70 90 72 released", next, [0; 4]);
    // Another client had it before, although this one was told late.
    assert_found("hold k 1 10 1 70 90 91 lost:Refused", next, [0, 1, 0, 0]);
    let later = "hold k 5 92 2 95 99 96 released";
    assert_found("hold k 1 10 1 70 90 91 lost:Refused", later, [0; 4]);
}

#[test]
fn tokens_rise_in_the_order_of_real_time() {
    let one = "hold k 1 10 5 20 90 21 released";
    assert_found(one, "hold k 25 30 4 40 99 41 released", [0, 0, 1, 0]);
    assert_found(one, "hold k 25 30 5 40 99 41 released", [0, 0, 1, 0]);
    // It was called before the other's answer: either may be first.
    assert_found(one, "hold k 9 30 4 40 99 41 released", [0; 4]);
    assert_found(one, "hold other 25 30 4 40 99 41 released", [0; 4]);
}

#[test]
fn the_fenced_store_refuses_smaller_tokens() {
    assert_found("write k 1 10\nwrite k 1 20\nwrite other 1 40", "write k 2 30", [0; 4]);
    assert_found("write k 1 10\nwrite k 1 40", "write k 2 30", [0, 0, 0, 1]);
}

#[test]
fn outages_are_measured_within_their_episode() {
    let one = "probe 1 10\nhold k 1 60 1 70 90 72 released\nprobe 150 190\nprobe 195 199";
    let episodes = "episode cut 50 150 200\nepisode kill 300 320 0\nepisode cut 400 450 460";
    let outage = |episode: &str, recovery, without_service| Outage {
        episode: episode.to_owned(),
        recovery,
        without_service,
    };
    let expected = [outage("cut", 150, 130), outage("kill", 0, 100), outage("cut", 60, 60)];
    assert_eq!(verdicts(one, "probe 1 400", episodes).outages, expected);
}

#[test]
fn half_a_line_is_left_for_later() {
    let mut history = History::default();
    history.add("one", "refused k Unavailable\nhold k 1 1");
    assert_eq!((history.refusals.len(), history.holds.len()), (1, 0));
}

#[test]
#[should_panic(expected = "what is this")]
fn a_line_that_nothing_writes_is_refused() {
    History::default().add("one", "hold k 1 10 1 70 90 soon released\n");
}
