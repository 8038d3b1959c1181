"""The rules of docs/protocol.md for the end of a request: giving up, and releasing."""

from __future__ import annotations

import pytest
from programs import FINAL, LOST, Run, hold, option, request, settings, start

from redis_dlock import LockLost, Refused, ReleaseUnknown, Unavailable
from redis_dlock._holds import HoldState, Registry
from redis_dlock._programs import release
from redis_dlock._requests import Batch, Grant
from redis_dlock.errors import NoTime, ServerError


@pytest.mark.parametrize(("of", "words"), [
    (request(), ["DLOCK.RELEASE", "k", "me", "REQID", "id"]),
    (request(family="DFAIR"), ["DFAIR.RELEASE", "k", "me", "REQID", "id"]),
    (request(family="DRW", mode=("READ",)), ["DRW.RELEASE", "k", "me", "READ", "REQID", "id"]),
    (request(family="DSEM"), ["DSEM.RELEASE", "k", "me", "REQID", "id"]),
    (request("all", keys=("a", "b")), ["DLOCK.MRELEASE", 2, "a", "b", "me", "REQID", "id"]),
    (request("any", keys=("a", "b")), ["DLOCK.MRELEASE", 2, "a", "b", "me", "REQID", "id"]),
])
@pytest.mark.parametrize("how", ["interrupted", "interrupted while it asks", "no server", "refused", "time over"])
def test_any_end_but_success_releases_the_request(clock, of, words, how):
    run = start(of=of, limit=5 if how == "time over" else None)
    if how == "interrupted while it asks":
        run.reply(KeyboardInterrupt())
    elif how == "refused":
        run.reply(ServerError("DEADLOCK", "text"))
    elif how == "time over":
        clock.now += 5
        run.reply(None)
        run = run if isinstance(run.step, Batch) else run.wake()
        run.reply(None)
    elif how == "no server":
        run.reply(LOST)
        clock.now += 11
        run.wake().reply(LOST)
    else:
        run.reply(LOST)
        run.go(run.program.throw, KeyboardInterrupt())
    assert run.error is not None
    assert run.background == [words] and not run.registry.open


def test_an_error_names_what_the_server_said_last_and_not_that_the_time_is_over(clock):
    late = NoTime("no reply in time")
    run = start(limit=None).reply(ServerError("READONLY", "a replica")).wake().reply(late)
    clock.now += 11
    run.wake().reply(late)
    assert isinstance(run.error, Unavailable) and "READONLY a replica" in str(run.error)


@pytest.mark.parametrize("answer", [None, ServerError("OOM", ""), ServerError("REENTRY", ""), 7])
def test_a_try_whose_only_copy_was_answered_needs_no_release(clock, answer):
    run = start(limit=0, of=request(px=30.0))
    assert option(run.sent[0], "QUEUE") is None and option(run.sent[0], "PX") == 30_000
    assert not run.reply(answer).background and run.step is None
    run = start(limit=0).reply(LOST).wake().reply(LOST)
    assert isinstance(run.error, Unavailable) and len(run.background) == 1


@pytest.mark.parametrize(("px", "lasts"), [(4.0, 10), (30.0, 30)])
def test_a_release_goes_on_until_it_is_answered_or_the_time_of_the_request_is_over(clock, px, lasts):
    """That of its place, or of its grant, whichever is longer."""
    registry, began = Registry(queue=10.0), clock.now
    registry.give_up(request(px=px))
    while registry.is_ending():
        for one in registry.due(str)[0]:
            one.end(LOST if clock.now % 2 else [ServerError("READONLY", "")])
        clock.now += 0.5
    assert lasts <= clock.now - began < lasts + 3
    for answer in (0, None, ServerError("UNKNOWN", ""), ServerError("LOST", "broken"), ServerError("SPENT", "")):
        registry.give_up(request())
        registry.due(str)[0][0].end([ServerError("MOVING", "")])
        assert registry.is_ending() and not registry.due(str)[0]
        clock.now += 1.1
        registry.due(str)[0][0].end([answer])
        assert not registry.is_ending()


def test_a_release_that_failed_wakes_what_sends_it_again(clock):
    """It slept until the attempt could have been without a reply: seconds longer."""
    woken = []
    registry = Registry(lambda: woken.append(clock.now))
    registry.give_up(request())
    registry.due(str)[0][0].end(LOST)
    assert len(woken) == 2 and registry.due(str)[1] <= clock.now + 0.02
    clock.now += 0.03
    registry.due(str)[0][0].end([0])
    assert len(woken) == 2 and not registry.is_ending()


OUTCOMES = [
    (0, None), (3, None), (None, ReleaseUnknown),
    (ServerError("LOST", "expired"), None), (ServerError("LOST", "expired text"), None),
    *((ServerError("LOST", f"{reason} text"), reason) for reason in ("broken", "deleted", "disconnected", "released")),
    *((ServerError(code, "text"), ReleaseUnknown) for code in FINAL if code != "LOST"),
]


@pytest.mark.parametrize(("reply", "outcome"), OUTCOMES)
@pytest.mark.parametrize("copies", [1, 2, 3])
def test_what_a_release_says(clock, reply, outcome, copies):
    """However many copies were sent. A lease that lasted until the end of the work covered it."""
    state = hold(clock)
    run = Run(release, state, settings())
    assert state.valid_for() == 0 and state.is_released
    for number in range(copies - 1):
        run.reply(ServerError("READONLY", "") if number else LOST)
        clock.now += 5  # its lease may end meanwhile
        run.wake()
    run.reply(reply)
    assert run.sent == [["DLOCK.RELEASE", "k", "me", "TOKEN", 7, "REQID", "id"]] * copies and not run.background
    if isinstance(outcome, str):
        assert isinstance(run.error, LockLost) and run.error.reason == outcome
    else:
        assert type(run.error) is (outcome or type(None))
    assert state.outcome is run.error


@pytest.mark.parametrize("reply", [0, None, ServerError("LOST", "expired"), ServerError("UNKNOWN", ""), LOST,
                                   ServerError("READONLY", "")])
@pytest.mark.parametrize("how", ["clock", "message"])
def test_a_loss_that_was_known_stays_one(clock, reply, how):
    state = hold(clock)
    if how == "clock":
        clock.now += 9.9
    else:
        state.lose("broken")
    run = Run(release, state, settings()).reply(reply)
    assert isinstance(run.error, LockLost) and len(run.sent) == 1  # no reason to wait
    assert len(run.background) == (reply is LOST or getattr(reply, "code", "") == "READONLY")
    assert run.error.reason == ("expired" if how == "clock" else "broken")


def test_a_release_without_an_answer_is_unknown_and_goes_on(clock):
    state = hold(clock)
    run = Run(release, state, settings(retry_for=1.0)).reply(LOST)
    clock.now += 2
    run.wake().reply(LOST)
    assert isinstance(run.error, ReleaseUnknown)
    assert run.background == [["DLOCK.RELEASE", "k", "me", "TOKEN", 7, "REQID", "id"]]


def test_an_interrupted_release_goes_on_under_its_id(clock):
    state = hold(clock)
    run = Run(release, state, settings(), done=True).reply(KeyboardInterrupt())
    assert isinstance(run.error, KeyboardInterrupt) and isinstance(state.outcome, ReleaseUnknown)
    assert run.background == run.sent == [["DLOCK.RELEASE", "k", "me", "TOKEN", 7, "REQID", "id", "DONE"]]
    clock.now += 20
    run.registry.due(str)[0][0].end([ServerError("LOST", "expired")])  # the work had ended before
    assert state.outcome is None and not run.registry.is_ending()


@pytest.mark.parametrize(("of", "grants", "words"), [
    (request(family="DSEM"), (Grant("k", "uuid"),), ["DSEM.RELEASE", "k", "me", "REQID", "id"]),
    (request(family="DRW", mode=("WRITE",)), (Grant("k", 7),),
     ["DRW.RELEASE", "k", "me", "WRITE", "TOKEN", 7, "REQID", "id"]),
    (request("any", keys=("a", "b")), (Grant("b", 7),), ["DLOCK.RELEASE", "b", "me", "TOKEN", 7, "REQID", "id"]),
    (request("all", keys=("a", "b")), (Grant("a", 7), Grant("b", 8)),
     ["DLOCK.MRELEASE", 2, "a", "b", "me", "REQID", "id"]),
])
def test_the_words_of_a_release(clock, of, grants, words):
    assert Run(release, HoldState(of, grants, clock.now, None), settings()).sent == [words]
    closing = Registry()
    closing.add(HoldState(of, grants, clock.now, None))
    closing.close(None)
    assert closing.due(str)[0][0].batch.commands == [words]


def test_refusals_are_told_as_such(clock):
    run = start().reply(ServerError("STOPPED", "text"))
    assert isinstance(run.error, Refused) and run.error.code == "STOPPED"
