//! Tests of the verdicts with ledgers written by hand; the program itself is `main.rs`.

#![allow(dead_code, reason = "only a part of the program is here")]

mod book;
mod judge;

use std::{slice::from_ref, time::Duration};

use book::{At, End, Outcome, Turn};
use judge::{Verdicts, judge};

const LOST: Outcome = Outcome::Lost { by_clock: false };

fn at(ms: u64) -> At {
    Duration::from_millis(ms)
}

/// Asked at the beginning, entered 1 ms later, works until the end, settled 10 ms later.
fn turn(key: &str, token: u64, from: u64, to: u64, outcome: Outcome) -> Turn {
    Turn {
        worker: 0,
        holds: vec![(key.to_owned(), token)],
        asked: at(from),
        entered: at(from + 1),
        yes: at(to),
        valid: at(1_000),
        is_finished: true,
        outcome,
        settled: at(to + 10),
    }
}

fn end(key: &str, token: u64, ms: u64, is_forced: bool) -> End {
    let how = "expired".to_owned();
    End { key: key.to_owned(), token, after: at(ms), before: at(ms + 1), is_forced, how }
}

/// Numbers of overlaps, successes for lost work, losses for finished work, late yes, token order.
fn counts(found: &Verdicts) -> [usize; 5] {
    found.findings().map(|(_, all)| all.len())
}

#[track_caller]
fn assert_found(turns: &[Turn], ends: &[End], expected: [usize; 5]) {
    let found = judge(turns, ends);
    assert_eq!(counts(&found), expected, "{found:#?}");
    assert_eq!(found.is_fine(), expected == [0; 5]);
}

#[test]
fn turns_one_after_the_other_are_fine() {
    let turns = [
        turn("k", 1, 0, 50, Outcome::Success),
        turn("k", 2, 40, 90, Outcome::Unknown),
        turn("l", 3, 30, 90, Outcome::Success),
    ];
    // The second asked while the first worked, and entered after it.
    let second = Turn { entered: at(51), ..turns[1].clone() };
    let turns = [turns[0].clone(), second, turns[2].clone()];
    assert_found(&turns, &[], [0; 5]);
    assert_eq!(judge(&turns, &[]).unknown, 1);
}

#[test]
fn two_beliefs_at_once_are_an_overlap() {
    for outcome in [Outcome::CutShort, Outcome::Unknown] {
        let turns = [turn("k", 1, 0, 50, outcome), turn("k", 2, 20, 60, Outcome::Success)];
        assert_found(&turns, &[], [1, 0, 0, 0, 0]);
        // Whatever ended the first hold, unless it was an operator before the second grant.
        assert_found(&turns, &[end("k", 1, 55, true)], [1, 0, 0, 0, 0]);
        assert_found(&turns, &[end("k", 1, 10, true)], [0; 5]);
        assert_found(&turns, &[end("k", 2, 10, true)], [1, 1, 0, 0, 0]);
    }
    let reentry = [turn("k", 1, 0, 50, Outcome::Success), turn("k", 1, 20, 30, Outcome::Success)];
    assert_found(&reentry, &[], [0; 5]);
}

#[test]
fn a_belief_of_several_locks_is_one_in_each() {
    let mut several = turn("k", 1, 0, 50, Outcome::CutShort);
    several.holds.push(("l".to_owned(), 2));
    let turns = [several, turn("l", 3, 20, 60, Outcome::Success)];
    assert_found(&turns, &[], [1, 0, 0, 0, 0]);
}

#[test]
fn success_needs_a_hold_that_lasted() {
    let mut several = turn("k", 1, 0, 50, Outcome::Success);
    several.holds.push(("l".to_owned(), 2));
    // One of two was broken before the work ended; after it, the end does not count.
    assert_found(from_ref(&several), &[end("l", 2, 40, true)], [0, 1, 0, 0, 0]);
    assert_found(from_ref(&several), &[end("l", 2, 50, true)], [0; 5]);
    assert_found(from_ref(&several), &[end("l", 1, 40, true)], [0; 5]);
    // Another worker had it, in a moment in which the first did not look.
    let mut later = turn("k", 3, 20, 30, Outcome::Success);
    later.yes = later.entered;
    assert_found(&[several, later], &[], [0, 1, 0, 0, 0]);
}

#[test]
fn a_loss_needs_an_end() {
    let lost = turn("k", 1, 0, 50, LOST);
    assert_found(from_ref(&lost), &[], [0, 0, 1, 0, 0]);
    assert_found(from_ref(&lost), &[end("k", 1, 400, false)], [0, 0, 1, 0, 0]);
    for moment in [20, 55, 300] {
        let found = judge(from_ref(&lost), &[end("k", 1, moment, true)]);
        assert_eq!((counts(&found), found.real_losses), ([0; 5], 1));
    }
    assert_found(&[lost.clone(), turn("k", 2, 51, 70, Outcome::Success)], &[], [0; 5]);
    // Work that stopped because of the loss is not judged.
    let stopped = Turn { is_finished: false, ..lost };
    assert_eq!(judge(&[stopped], &[]).cut_short, 1);
}

#[test]
fn with_may_see_by_the_clock_that_the_work_took_too_long() {
    let over = Outcome::Lost { by_clock: true };
    let lost = turn("k", 1, 0, 50, over);
    assert_found(from_ref(&lost), &[], [0, 0, 1, 0, 0]);
    assert_found(&[Turn { valid: at(5), ..lost.clone() }], &[], [0; 5]);
    assert_found(&[Turn { valid: at(5), outcome: LOST, ..lost.clone() }], &[], [0, 0, 1, 0, 0]);
    let late = Turn { valid: at(5), settled: at(3_000), ..lost };
    assert_found(&[late], &[], [0, 0, 1, 0, 0]);
}

#[test]
fn check_says_no_before_the_server_frees_the_lock() {
    for outcome in [Outcome::CutShort, Outcome::Unknown, LOST] {
        let one = turn("k", 1, 0, 50, outcome);
        assert_found(from_ref(&one), &[end("k", 1, 40, false)], [0, 0, 0, 1, 0]);
        assert_found(from_ref(&one), &[end("k", 1, 50, false)], [0; 5]);
        assert_found(&[one], &[end("k", 1, 40, true)], [0; 5]);
    }
}

#[test]
fn tokens_rise_in_the_order_of_entries() {
    let turns = [turn("k", 2, 0, 10, Outcome::Success), turn("k", 1, 20, 30, Outcome::Success)];
    let found = judge(&turns, &[]);
    assert_eq!(found.token_order.len(), 1, "{found:#?}");
    // Both asked before either entered: either may be first.
    let turns = [turn("k", 2, 0, 10, Outcome::Success), turn("k", 1, 1, 1, Outcome::CutShort)];
    assert_eq!(judge(&turns, &[]).token_order.len(), 0);
}
