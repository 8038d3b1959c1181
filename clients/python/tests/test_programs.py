"""The rules of docs/protocol.md for belief, messages and codes."""

from __future__ import annotations

import math

import pytest
import redis
from programs import FINAL, LOST, PASSING, Run, hold, info, option, settings, start, told

from redis_dlock import DLock, NotAcquired, Refused, Replaced, Unavailable
from redis_dlock._holds import HoldState, Registry, RenewalBatch
from redis_dlock._programs import Pause, ask
from redis_dlock._requests import Grant, Replicas, Request, Target
from redis_dlock.errors import Disconnected, ServerError, from_opening

# Belief


def test_belief_counts_from_when_the_request_was_sent(clock):
    run = start()
    clock.now += 3
    assert run.reply(7).result.until == pytest.approx(1000 + 9.9 - 0.002)
    assert run.result.valid_for() == pytest.approx(6.898)


def test_promises_only_grow(clock):
    """A renewal that asks for less, or whose reply comes late, shortens nothing."""
    state = hold(clock, lease=30.0, px=30.0)
    renewal, until = RenewalBatch([state], Replicas()), state.until
    clock.now += 1
    state.renewed(clock.now, 5.0)
    assert state.until == until
    later = RenewalBatch([state], Replicas())
    clock.now += 3  # the reply is on its way
    later.apply([7])
    assert state.until == pytest.approx(1001 + 29.7 - 0.002)
    renewal.apply([7])
    assert state.until == pytest.approx(1001 + 29.7 - 0.002)


def test_the_first_renewal_asks_for_the_whole_lease(clock):
    run = start()
    assert option(run.sent[0], "PX") == 10_000
    registry = Registry()
    registry.add(run.reply(7).result)
    clock.now += 3.4
    (renewal,), _ = registry.due(lambda key: "")
    assert renewal.batch.commands == [["DLOCK.RENEW", "k", "me", "PX", 30_000, "TOKEN", 7]]
    renewal.apply([7])
    assert run.result.until == pytest.approx(1003.4 + 29.7 - 0.002)


@pytest.mark.parametrize(("timeout", "lease", "px"), [(None, 30, 10), (5, 30, 10), (0, 30, 30), (None, 4, 4)])
def test_a_wait_asks_for_no_more_than_its_time_in_the_queue(timeout, lease, px):
    """A grant to a client that died while it waited lasts so long. A try has no place."""
    made = DLock(redis.Redis(port=1))._request(Target("DLOCK", ("k",)), {"lease": lease}, timeout)
    assert (made.lease, made.px) == (lease, px)


def test_all_copies_have_the_same_lease(clock):
    """The copy without QUEUE at the end of a wait, too."""
    run = start(limit=6)
    run.reply(None).wake()
    clock.now += 6
    run.reply(None).wake()
    assert [option(copy, "PX") for copy in run.sent] == [10_000] * 3
    assert [option(copy, "QUEUE") for copy in run.sent] == [10_000, 10_000, None]
    assert {option(copy, "REQID") for copy in run.sent} == {"id"}


@pytest.mark.parametrize("code", [*FINAL, *PASSING])
def test_a_hold_ends_at_a_renewal_by_two_codes_only(clock, code):
    state = hold(clock)
    RenewalBatch([state], Replicas()).apply([ServerError(code, "text")])
    assert (state.reason() is not None) == (code in ("NOTHELD", "WRONGTYPE"))


def test_a_renewal_counts_if_replicas_have_it(clock):
    state, replicas = hold(clock), Replicas(1, 0.5)
    until = state.until
    clock.now += 1
    RenewalBatch([state], replicas).apply([7, 0, info()])
    assert state.until == until
    RenewalBatch([state], replicas).apply([7, 1, info()])
    assert state.until > until + 1


@pytest.mark.parametrize(("left", "age", "counts"), [
    (0, 5000, True), (0, 199, False), (700, 5000, True), (700, 201, True), (700, 199, False), (29_999, 1, False)])
def test_a_renewal_across_which_a_quarantine_began_does_not_count(clock, left, age, counts):
    """docs/failover.md, rule 5: WAIT counts connections, so a replica that came again may have counted twice."""
    state = hold(clock)
    until = state.until
    renewal = RenewalBatch([state], Replicas(2, 0.5))
    clock.now += 0.2
    renewal.apply([7, 2, info(left, age)])
    assert (state.until > until) == counts and state.reason() is None


@pytest.mark.parametrize(("left", "age", "counts"), [
    (0, 5000, True), (0, 201, True), (0, 199, False), (700, 5000, False)])
def test_a_grant_counts_if_there_was_no_quarantine_since_it_was_asked_for(clock, left, age, counts):
    """docs/failover.md, rule 4: a hold that was known in a quarantine may be older than it."""
    renewal = RenewalBatch([hold(clock)], Replicas(1, 0.5, is_new=True))
    clock.now += 0.2
    failure = renewal.apply([7, 1, info(left, age)])
    assert (failure is None) == counts and (counts or failure.code == "QUARANTINE")


def test_the_confirmation_follows_the_lease_of_the_lock(clock):
    for lease, wait in ((30.0, 1000), (0.6, 100)):
        renewal = RenewalBatch([hold(clock, lease=lease)], Replicas(1, 1.0))
        assert renewal.batch.to_send()[1] == ["WAIT", 1, wait]


def test_a_lease_above_the_quarantine_of_the_server_is_refused(clock):
    """Its belief could outlast the quarantine of a new primary."""
    for reply, refused in ((info(length=29_999), True), (info(), False), (b"# dlock_keys", False)):
        leases = set()
        run = start(replicas=Replicas(1, 0.5), checked=leases)
        assert run.sent == [["INFO", "dlock_keys"]]
        run.reply(reply)
        assert isinstance(run.error, Refused) == refused and len(run.sent) == 2 - refused and not run.background
        assert leases == (set() if refused else {30.0})  # then it is known
    run = start(limit=0, replicas=Replicas(1, 0.5), checked=set()).reply(LOST).wake().reply(LOST)
    assert isinstance(run.error, Unavailable)


# Grants by message


def test_a_message_is_a_grant_and_counts_from_the_first_copy(clock):
    """It needs no claim: nothing more is sent."""
    run = start()
    clock.now += 1
    run.reply(None)
    clock.now += 1
    run.wake()
    clock.now += 1
    run.reply(None)
    clock.now += 1
    run.wake(told("granted", "9"))
    assert run.result.grants == (Grant("k", 9),) and run.result.until == pytest.approx(1000 + 9.9 - 0.002)
    assert len(run.sent) == 2 and not run.background


@pytest.mark.parametrize("waited", [4.8, 5.0, 60.0])
def test_a_message_after_a_long_wait_needs_a_renewal(clock, waited):
    run = start()
    clock.now += waited
    run.reply(None).wake(told("granted"))
    if waited < 4.9:
        assert run.result is not None
        return
    assert run.sent[-1] == ["DLOCK.RENEW", "k", "me", "PX", 30_000, "TOKEN", 7]
    run.reply(7)
    assert run.result.until == pytest.approx(clock.now + 29.7 - 0.002) and run.result.reason() is None


@pytest.mark.parametrize("block", [2.0, 8.0])
def test_a_blocked_call_that_took_long_needs_a_renewal(clock, block):
    run = start(block=block)
    assert option(run.sent[0], "BLOCK") == block * 1000 and option(run.sent[0], "QUEUE") == 10_000
    clock.now += block
    run.reply(7)
    assert (run.result is None) == (block > 5)


@pytest.mark.parametrize("answer", [LOST, ServerError("NOTHELD", ""), ServerError("OOM", ""), ServerError("ERR", "")])
def test_a_grant_that_cannot_be_renewed_is_given_up(clock, answer):
    run = start()
    clock.now += 60
    run.reply(None).wake(told("granted")).reply(answer)
    assert run.background == [["DLOCK.RELEASE", "k", "me", "REQID", "id"]]
    run.wake()
    assert option(run.sent[-1], "REQID") not in ("id", None) and run.sent[-1][0] == "DLOCK.ACQUIRE"
    # What the new request learns counts from its own first copy.
    clock.now += 1
    run.reply(None).wake(told("granted", "8"))
    assert run.result.until == pytest.approx(clock.now - 1 + 9.9 - 0.002)


@pytest.mark.parametrize(("confirmed", "left", "counts"), [
    (1, 0, True), (2, 0, True), (0, 0, False), (None, 0, False), (1, 700, False), (ServerError("ERR", ""), 0, False)])
def test_a_grant_counts_if_replicas_have_it_and_none_came_over(clock, confirmed, left, counts):
    """docs/failover.md, rule 4. A replica that came over since may have confirmed a grant of another primary."""
    run = start(replicas=Replicas(1, 0.5)).reply(7)
    assert run.sent[1:] == [["DLOCK.RENEW", "k", "me", "PX", 30_000, "TOKEN", 7], ["WAIT", 1, 500],
                            ["INFO", "dlock_keys"]]
    run.reply(7, confirmed, info(left, 5000))
    assert (run.result is not None) == counts and len(run.background) == (not counts)
    if left:
        assert run.step.seconds >= 0.7  # the quarantine


def test_too_few_replicas_end_a_try_and_in_time_a_wait(clock):
    few = (7, 0, info())
    run = start(limit=0, replicas=Replicas(1, 0.5)).reply(7).reply(*few)
    assert isinstance(run.error, NotAcquired) and "NOREPLICAS 0 of 1" in str(run.error)
    run = start(limit=15, replicas=Replicas(1, 0.5))
    for _ in range(100):
        run.reply(7).reply(*few)
        if run.error is not None:
            break
        clock.now += 1
        run.wake()
    assert isinstance(run.error, NotAcquired) and "NOREPLICAS" in str(run.error) and len(run.background) == 16


# Messages are hints


@pytest.mark.parametrize("event", ["deadlock", "offered", "expired", "deleted", "broken", "something new"])
def test_other_messages_about_a_wait_only_make_it_ask(clock, event):
    run = start().reply(None).wake(told(event))
    assert run.result is None and run.error is None
    assert [words[0] for words in run.sent] == ["DLOCK.ACQUIRE"] * 2 and run.sent[0] == run.sent[1]


def test_another_request_that_took_over_the_place_ends_the_wait(clock):
    run = start().reply(None).wake(told("replaced", "0"))
    assert isinstance(run.error, Replaced)
    assert run.background == [["DLOCK.RELEASE", "k", "me", "REQID", "id"]]


def test_a_flush_makes_a_wait_ask_once_a_second(clock):
    run = start().reply(None)
    clock.now += 0.3
    run.wake(told("flushed", ""))
    assert isinstance(run.step, Pause) and run.step.seconds == pytest.approx(0.7)
    clock.now += 0.7
    assert len(run.wake().sent) == 2


class Waiting:
    """A wait, and what woke it."""

    def __init__(self):
        self.woken = []

    def wake(self, notice):
        self.woken.append(notice)


def test_a_subscription_makes_all_waits_and_holds_ask(clock):
    """Also after each reconnect: messages may have been missed. And a flush does, once a second."""
    locks, waits, state = DLock(redis.Redis(port=1)), [Waiting(), Waiting()], hold(clock)
    locks._engine.waiters.update(zip("ab", waits))
    locks._engine.registry.add(state)
    locks._engine.on_message([b"subscribe", b"channel", 1])
    assert not waits[0].woken and state.hinted_at == math.inf
    locks._engine.on_message([b"subscribe", b"dlock:notify", 2])
    assert [one.woken for one in waits] == [[None], [None]] and state.hinted_at <= clock.now
    (renewal,), _ = locks._engine.registry.due(lambda key: "")
    assert renewal.batch.commands[0][0] == "DLOCK.RENEW"
    locks._engine.on_message([b"message", b"dlock:notify", b"flushed 0"])
    assert [one.woken[1].event for one in waits] == ["flushed"] * 2 and state.hinted_at == clock.now + 1
    locks._engine.on_message([b"message", b"channel", b"granted 0 7 2 me 1 b k"])
    assert waits[1].woken[2:] == [told("granted", "7", "b")] and len(waits[0].woken) == 2


@pytest.mark.parametrize("event", ["expired", "broken", "deleted", "disconnected"])
def test_messages_about_a_hold_ask_the_server_each_100_ms(clock, event):
    state, registry = hold(clock), Registry()
    registry.add(state)
    due = lambda: registry.due(lambda key: "")[0]  # noqa: E731
    assert not registry.on_message(told(event, "8")) and not due()  # of another hold
    assert not registry.on_message(told("granted", "7")) and not due()
    sent = []
    for _ in range(100):
        assert registry.on_message(told(event, "7", "of the outer hold"))
        assert state.reason() is None  # it is a hint
        sent += due()
        clock.now += 0.01
    assert 9 <= len(sent) <= 11
    sent[-1].apply([ServerError("NOTHELD", "")])
    assert state.reason() == event


def test_a_flush_asks_the_server_about_all_holds_once_a_second(clock):
    registry = Registry()
    for number in range(3):
        registry.add(HoldState(Request(Target("DLOCK", ("k",)), "me", f"{number}", 30.0, 30.0, "c", None),
                               (Grant("k", number),), clock.now, None))
    renewals = 0
    for _ in range(250):
        assert registry.on_message(told("flushed", "", ""))
        due, again = registry.due(lambda key: "")
        renewals += sum(one.apply([7] * 3) is None and len(one.batch.commands) for one in due)
        assert again > clock.now
        clock.now += 0.01
    assert renewals == 6


# Codes


@pytest.mark.parametrize("code", FINAL)
def test_final_codes_end_an_acquire(clock, code):
    run = start().reply(ServerError(code, "text"))
    if code == "SPENT":
        return
    assert run.error is not None and not isinstance(run.error, (NotAcquired, Unavailable))
    assert len(run.background) == 1  # it may have waited before
    run = Run(ask, ["DLATCH.AWAIT", "k"], "k", settings()).reply(ServerError(code, "text"))
    assert run.error is not None and not isinstance(run.error, Unavailable)


@pytest.mark.parametrize("code", PASSING)
def test_other_codes_pass(clock, code):
    run = start().reply(ServerError(code, "text"))
    assert isinstance(run.step, Pause) and not run.step.reqid and not run.background
    assert run.wake().sent[0] == run.sent[1]
    run = Run(ask, ["DLATCH.AWAIT", "k"], "k", settings()).reply(ServerError(code, "text"))
    assert isinstance(run.step, Pause) and run.wake().sent[0] == run.sent[1]


@pytest.mark.parametrize("limit", [0, 5])
def test_what_ends_a_wait_carries_the_last_code(clock, limit):
    run = start(limit=limit)
    if limit:
        run.reply(ServerError("OOM", "no memory"))
        clock.now += limit
        run.wake()
    run.reply(ServerError("MISCONF", "no disk"))
    assert isinstance(run.error, NotAcquired) and "MISCONF no disk" in str(run.error)
    assert len(run.background) == (limit > 0)


def test_no_answer_ends_a_wait_after_a_while(clock):
    run = start()
    run.reply(LOST)
    clock.now += 11
    run.wake().reply(ServerError("LOADING", "x"))  # an answer
    run.wake().reply(LOST)
    clock.now += 11
    run.wake().reply(LOST)
    assert isinstance(run.error, Unavailable) and len(run.background) == 1


def test_a_quarantine_says_how_long_it_lasts(clock):
    assert start().reply(ServerError("QUARANTINE", "2500 text")).step.seconds == 2.5
    assert start(limit=1).reply(ServerError("QUARANTINE", "2500 text")).step.seconds == 1
    assert start().reply(ServerError("QUARANTINE", "text")).step.seconds < 1


def test_a_spent_request_is_given_up_and_followed_by_another(clock):
    run = start().reply(ServerError("SPENT", "text"))
    assert run.background == [["DLOCK.RELEASE", "k", "me", "REQID", "id"]]
    clock.now += 5
    run.wake()
    assert option(run.sent[-1], "REQID") != "id"
    run.reply(None).wake(told("granted", "9"))
    assert run.result.until == pytest.approx(1005 + 9.9 - 0.002)


def test_an_error_while_a_connection_is_opened_is_no_answer():
    from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError
    for error in (ResponseError("ERR max number of clients reached"), ResponseError("LOADING x"), OSError("x")):
        assert isinstance(from_opening(error), Disconnected)
    for error in (AuthenticationError("x"), NoPermissionError("x"), ResponseError("NOAUTH x")):
        assert isinstance(from_opening(error), ServerError)
