//! Single rules of the algorithm, each in the shortest history that shows it.

use std::time::Duration;

use crate::attempt::{Answer, Attempt, Failure, QuorumCall, QuorumRequest, Standing, Terms};

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A lease of 1000 ms is certain for 988 ms.
const TERMS: Terms = Terms { lease: ms(1000), timeout: ms(50) };

fn call(server: usize, request: QuorumRequest) -> QuorumCall {
    QuorumCall { server, request }
}

fn acquired(attempt: &mut Attempt, at: u64, server: usize, answer: Answer) -> Vec<QuorumCall> {
    attempt.answered(ms(at), call(server, QuorumRequest::Acquire), answer)
}

/// Servers that grant with these tokens at 1 ms.
fn granted(tokens: &[u64]) -> (Attempt, Vec<QuorumCall>) {
    let (mut attempt, calls) = Attempt::start(tokens.len(), TERMS);
    assert!(calls.iter().all(|call| call.request == QuorumRequest::Acquire));
    let mut calls = Vec::new();
    for (server, token) in tokens.iter().enumerate() {
        calls = acquired(&mut attempt, 1, server, Answer::Token(*token));
    }
    (attempt, calls)
}

fn held(tokens: &[u64]) -> Attempt {
    let (mut attempt, calls) = granted(tokens);
    for call in calls {
        let QuorumRequest::Fence(token) = call.request else { panic!("{call:?}") };
        attempt.answered(ms(2), call, Answer::Token(token));
    }
    let token = *tokens.iter().max().unwrap();
    assert_eq!(attempt.standing(), Standing::Held { token, until: ms(988) });
    attempt
}

#[test]
fn the_smaller_tokens_are_raised_before_the_lock_is_returned() {
    let (mut attempt, calls) = granted(&[10, 30, 20]);
    assert_eq!(calls, [call(0, QuorumRequest::Fence(30)), call(2, QuorumRequest::Fence(30))]);
    assert_eq!(attempt.standing(), Standing::Pending);
    attempt.answered(ms(5), calls[1], Answer::Token(30));
    assert_eq!(attempt.standing(), Standing::Held { token: 30, until: ms(988) });
}

#[test]
fn equal_tokens_need_no_raising() {
    let (attempt, calls) = granted(&[7, 7, 7]);
    assert_eq!((calls, attempt.standing()), (vec![], Standing::Held { token: 7, until: ms(988) }));
}

#[test]
fn an_answer_above_t_is_not_counted_and_given_back() {
    let (mut attempt, calls) = granted(&[10, 30, 20]);
    let given_back = attempt.answered(ms(5), calls[0], Answer::Token(31));
    assert_eq!(given_back, [call(0, QuorumRequest::Release)]);
    let given_back = attempt.answered(ms(5), calls[1], Answer::Token(31));
    assert_eq!(given_back, [call(2, QuorumRequest::Release), call(1, QuorumRequest::Release)]);
    assert_eq!(attempt.standing(), Standing::Failed { why: Failure::TooLate, granted: 1 });
}

#[test]
fn a_majority_does_not_wait_for_the_last_ones_until_their_timeout() {
    let (mut attempt, _) = Attempt::start(5, TERMS);
    for server in 0..3 {
        acquired(&mut attempt, 4, server, Answer::Token(9));
    }
    assert_eq!(attempt.next_tick(), Some(ms(10)));
    assert_eq!(attempt.tick(ms(9)), []);
    assert_eq!(
        attempt.tick(ms(10)),
        [call(3, QuorumRequest::Release), call(4, QuorumRequest::Release)]
    );
    assert_eq!(attempt.standing(), Standing::Held { token: 9, until: ms(988) });
    // Granted after all: once more.
    let late = acquired(&mut attempt, 20, 4, Answer::Token(12));
    assert_eq!(late, [call(4, QuorumRequest::Release)]);
}

#[test]
fn a_failed_attempt_gives_back_after_each_answer_and_each_timeout() {
    let (mut attempt, _) = Attempt::start(5, TERMS);
    acquired(&mut attempt, 1, 0, Answer::Token(9));
    acquired(&mut attempt, 1, 1, Answer::No);
    acquired(&mut attempt, 1, 2, Answer::No);
    let calls = acquired(&mut attempt, 1, 3, Answer::Unknown);
    assert_eq!(calls, [call(3, QuorumRequest::Release), call(0, QuorumRequest::Release)]);
    assert_eq!(attempt.standing(), Standing::Failed { why: Failure::Contended, granted: 1 });
    assert_eq!(attempt.tick(ms(50)), [call(4, QuorumRequest::Release)]);
    assert_eq!(
        acquired(&mut attempt, 900, 4, Answer::Token(10)),
        [call(4, QuorumRequest::Release)]
    );
    assert_eq!(acquired(&mut attempt, 900, 4, Answer::No), []);
}

#[test]
fn three_silent_servers_of_five_are_no_contention() {
    let (mut attempt, _) = Attempt::start(5, TERMS);
    acquired(&mut attempt, 1, 0, Answer::Token(9));
    acquired(&mut attempt, 1, 1, Answer::Token(8));
    attempt.tick(ms(50));
    assert_eq!(attempt.standing(), Standing::Failed { why: Failure::Unreachable, granted: 2 });
}

#[test]
fn validity_is_taken_after_the_last_answer() {
    let (mut attempt, calls) = granted(&[10, 30, 10]);
    attempt.answered(ms(988), calls[0], Answer::Token(30));
    assert_eq!(attempt.standing(), Standing::Failed { why: Failure::TooLate, granted: 2 });
}

#[test]
fn a_renewal_counts_from_when_it_was_sent_and_only_for_its_round() {
    let mut attempt = held(&[1, 2, 3]);
    let first = attempt.renew(ms(300));
    assert_eq!(first.len(), 3);
    attempt.answered(ms(310), first[0], Answer::Token(3));
    let second = attempt.renew(ms(600));
    attempt.answered(ms(610), first[1], Answer::Token(3));
    attempt.answered(ms(610), second[2], Answer::Token(3));
    assert_eq!(attempt.standing(), Standing::Held { token: 3, until: ms(988) });
    attempt.answered(ms(700), second[0], Answer::Token(3));
    assert_eq!(attempt.standing(), Standing::Held { token: 3, until: ms(1588) });
}

#[test]
fn a_server_that_lost_its_hold_is_not_asked_again_and_a_second_one_ends_it() {
    let mut attempt = held(&[1, 2, 3]);
    let renewals = attempt.renew(ms(300));
    attempt.answered(ms(310), renewals[1], Answer::No);
    assert_eq!(attempt.renew(ms(600)).len(), 2);
    let calls = attempt.answered(ms(610), renewals[0], Answer::No);
    assert_eq!(calls, [call(2, QuorumRequest::End)]);
    assert_eq!(attempt.standing(), Standing::Refused);
}

#[test]
fn what_has_expired_stays_so() {
    let mut attempt = held(&[1, 2, 3]);
    let renewals = attempt.renew(ms(500));
    attempt.answered(ms(510), renewals[0], Answer::Token(3));
    attempt.answered(ms(988), renewals[1], Answer::Token(3));
    assert_eq!(attempt.standing(), Standing::Expired);
    assert_eq!(attempt.renew(ms(990)), []);
}
