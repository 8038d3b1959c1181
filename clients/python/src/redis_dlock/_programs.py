"""The logic of the client, without I/O.

A program is a generator. It yields a ``Batch`` of commands and gets their replies, or a ``Pause`` and gets the event
that ended it. If no reply comes, ``Disconnected`` is thrown into it; so is the interruption of the caller, whatever its
class. Threads and asyncio run the same programs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, Optional, TypeVar, Union

from ._clock import now
from ._holds import HoldState
from ._requests import Batch, Command, Grant, Replicas, Request, milliseconds, new_id
from .errors import Disconnected, LockLost, NotAcquired, Refused, ReleaseUnknown, ServerError, Unavailable, user_error

T = TypeVar("T")

#: The server cannot decide now: the same request, a little later.
_RETRYABLE = {"MOVING", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS", "MISCONF",
              "MOVED", "ASK", "QUARANTINE"}


@dataclass
class Pause:
    """Waits for a message about a request, or for a time."""

    seconds: float
    reqid: str = ""


Step = Union[Batch, Pause]
Program = Generator[Step, Any, T]


@dataclass(frozen=True)
class Settings:
    """What the programs of one ``DLock`` have in common; times in seconds."""

    queue: float
    retry_for: float
    block: Optional[float]  # wait on a connection taken from the pool, at most this long at a time
    longest_block: float  # shorter than every timeout of the connection
    replicas: Replicas


class _Backoff:
    """Pauses between attempts, until no server has answered for too long."""

    def __init__(self, limit: float) -> None:
        self._limit, self._attempts = limit, 0
        self._since: Optional[float] = None  # the first failure after the last answer

    def answered(self) -> None:
        self._since, self._attempts = None, 0

    def pause(self, error: Exception) -> Pause:
        self._attempts += 1
        self._since = now() if self._since is None else self._since
        if now() - self._since >= self._limit:
            raise Unavailable(f"no server answered for {self._limit:g} s; the last error: {error}") from None
        return Pause(random.uniform(0.5, 1.0) * min(1.0, 0.02 * 2 ** min(self._attempts, 6)))


class NotReplicated(Refused):
    """Fewer replicas than asked for have the grant, so it does not count, and was given back."""


def ask(command: Command, key: str, settings: Settings, block: float = 0.0) -> Program[Any]:
    """One command that may be repeated: it changes nothing, or has a REQID."""
    backoff = _Backoff(settings.retry_for)
    while True:
        try:
            (reply,) = yield Batch([command], key, block)
        except Disconnected as error:
            yield backoff.pause(error)
            continue
        if not isinstance(reply, ServerError):
            return reply
        if reply.code not in _RETRYABLE:
            raise user_error(reply)
        yield backoff.pause(reply)


def acquire(request: Request, limit: Optional[float], settings: Settings, in_background: Any,
            max_hold: Optional[float]) -> Program[HoldState]:
    """Asks until the request is granted; at most ``limit`` seconds (0: once; None: forever).

    ``in_background`` runs a program in the background: whatever ends the wait, the queue is left.
    """
    deadline, was_poll = None if limit is None else now() + limit, False
    backoff, attempt, name = _Backoff(settings.retry_for), _Attempt(request), repr(request.target.keys[0])
    try:
        while True:
            left = None if deadline is None else max(0.0, deadline - now())
            words, block = attempt.words(left, settings)
            asked = now()
            attempt.is_unknown = True
            try:
                reply, *confirmed = yield Batch([words], request.target.keys[0], block, settings.replicas,
                                                attempt.request.reqid)
            except Disconnected as error:
                if limit == 0:
                    raise Unavailable(f"{name}: no reply: {error}") from None
                if left == 0:
                    raise NotAcquired(f"{name}: not granted in {limit:g} s; the last error: {error}") from None
                pause = backoff.pause(error)
                pause.seconds = pause.seconds if left is None else min(pause.seconds, left)
                yield pause
                continue
            attempt.is_unknown = attempt.was_unanswered
            if isinstance(reply, ServerError):
                if reply.code == "SPENT":  # its hold ended before we learned of it
                    attempt = _Attempt(attempt.request.renewed())
                elif reply.code not in _RETRYABLE:
                    attempt.is_refused = True
                    raise user_error(reply)
                elif left == 0:
                    raise NotAcquired(f"{name}: {reply}")
                yield backoff.pause(reply)
                continue
            backoff.answered()
            attempt.was_asked = True
            grants = request.target.grants(reply)
            if grants:
                state = attempt.granted = HoldState(attempt.request, grants, asked, max_hold)
                errors: list[ServerError] = []
                if block and now() - asked > request.lease / 10:  # the lease began at some moment of the wait
                    asked = now()
                    renewals = [attempt.request.renew(grant, request.lease) for grant in grants]
                    try:
                        replies = yield Batch(renewals, grants[0].key, 0.0, settings.replicas)
                    except Disconnected as error:
                        replies = [ServerError("", str(error))] * len(grants)
                    errors = [reply for reply in replies[: len(grants)] if isinstance(reply, ServerError)]
                    confirmed = replies[len(grants) :]
                    state = HoldState(attempt.request, grants, asked, max_hold)
                if not errors and settings.replicas.are_too_few(confirmed):
                    text = f"{confirmed[0]} of {settings.replicas.wanted} replicas have the grant"
                    raise NotReplicated("NOREPLICAS", text)
                if not errors and settings.replicas.are_from_elsewhere(confirmed):
                    errors = [ServerError("QUARANTINE", "a replica came to the server since the grant")]
                if errors:
                    in_background(roll_back(attempt.request, False, state, settings))
                    attempt = _Attempt(attempt.request.renewed())
                    yield backoff.pause(errors[0])
                    continue
                state.is_unannounced = was_poll
                return state
            if left == 0:
                raise NotAcquired(f"{name} is held by another" + (f", not granted in {limit:g} s" if limit else ""))
            if not block:
                pause = Pause(settings.queue / 2 if left is None else min(settings.queue / 2, left),
                              attempt.request.reqid)
                paused = now()
                event = yield pause
                was_poll = event is None and now() - paused >= pause.seconds
                if event == "replaced":
                    attempt.is_over = True
                    raise user_error(ServerError("REPLACED", "another request of the owner took over the place"))
    except GeneratorExit:
        raise  # a task was destroyed, with its loop or in a child of a fork: nothing can be sent
    except BaseException:
        if attempt.needs_rollback(limit):
            in_background(roll_back(attempt.request, attempt.is_unknown, attempt.granted, settings))
        raise


class _Attempt:
    """What is known of one request while it is repeated."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.is_unknown = False
        self.was_unanswered = False
        self.is_over = False
        self.is_refused = False
        self.was_asked = False
        self.granted: Optional[HoldState] = None

    def words(self, left: Optional[float], settings: Settings) -> tuple[Command, float]:
        """The next copy, and how long the server may take to answer it."""
        self.was_unanswered = self.is_unknown
        if left == 0:
            return self.request.acquire(), 0.0
        queue = ("QUEUE", milliseconds(settings.queue))
        if self.request.target.form != "one":  # these wait on a connection only, and lose their position with it
            block = settings.longest_block if left is None else min(settings.longest_block, left)
            return self.request.acquire("BLOCK", milliseconds(block)), block
        if settings.block is not None:
            block = min(settings.block, settings.longest_block, math.inf if left is None else left)
            return self.request.acquire("BLOCK", milliseconds(block), *queue), block
        return self.request.acquire(*queue), 0.0

    def needs_rollback(self, limit: Optional[float]) -> bool:
        """Whether the request may have a place, or a grant that nobody learned of."""
        is_first = self.is_refused and not (self.was_asked or self.is_unknown)
        return not (self.is_over or is_first) and (limit != 0 or self.is_unknown or self.granted is not None)


def roll_back(request: Request, is_unknown: bool, granted: Optional[HoldState], settings: Settings) -> Program[None]:
    """Leaves the queue. If a reply was lost, asks what the request did, and releases what it was granted."""
    key = request.target.keys[0]
    yield from ask(request.cancel(), key, settings)
    grants: tuple[Grant, ...] = () if granted is None else granted.grants
    if granted is None and is_unknown:
        try:
            grants = request.target.grants((yield from ask(request.acquire(), key, settings)))
        except Refused:
            return  # SPENT: nothing is held
    for grant in grants:
        try:
            yield from ask(request.release(grant, new_id()), grant.key, settings)
        except Refused:
            pass


def release(state: HoldState, settings: Settings, done: bool = False) -> Program[None]:
    """Gives a hold back. Raises LockLost if it was lost before, ReleaseUnknown if no reply says whether it was.

    If it is interrupted, it may run once more: all copies of the release have one id, and count once.
    """
    known, names = state.reason(), ", ".join(state.keys)
    reqid = state.release_id = state.release_id or new_id()
    state.outcome = ReleaseUnknown(f"{names}: the release was interrupted, and goes on")
    if known is None:
        state.is_released = True
    # Several copies of a request share its id, so a second one finds what the first one did.
    waiting = [state.request.release(grant, reqid, done) for grant in state.grants]
    backoff, copies, is_lost, is_unknown = _Backoff(settings.retry_for), 0, False, False
    first: Optional[Batch] = None  # the first copy that the server may have looked at
    while waiting:
        batch = Batch(waiting, state.keys[0])
        copies, first = copies + 1, first or batch
        try:
            replies = yield batch
        except Disconnected as error:
            if known is not None:
                break  # the hold has ended: nobody needs this release
            try:
                yield backoff.pause(error)
            except Unavailable as late:
                state.outcome = ReleaseUnknown(f"{names}: {late}")
                raise state.outcome from None
            continue
        waiting = []
        for command, reply in zip(batch.commands, replies):
            code = reply.code if isinstance(reply, ServerError) else ""
            if code in _RETRYABLE:
                waiting.append(command)
            elif code in ("NOTHELD", "WRONGTYPE", "SPENT"):
                is_first = copies == (2 if code == "SPENT" else 1)
                if is_first and first.is_certain and now() < state.until:
                    is_lost = True
                else:
                    is_unknown = True
            elif code:
                state.outcome = user_error(reply)
                raise state.outcome
        if waiting:
            copies, first = copies - 1, None if copies == 1 else first  # refused without a look at the hold
            yield backoff.pause(ServerError("", "the server cannot decide now"))
    state.outcome = None
    if known is not None or is_lost:
        state.outcome = LockLost(state.keys, known or "refused")
    elif is_unknown:
        state.outcome = ReleaseUnknown(f"{names}: the hold had ended when the server looked, perhaps by an earlier "
                                       "copy of this release; only the token tells whether its writes count")
    if state.outcome is not None:
        raise state.outcome


def wait_for(command: Command, key: str, limit: Optional[float], settings: Settings) -> Program[Any]:
    """Repeats a command that waits with BLOCK until it replies something, at most ``limit`` seconds; else None."""
    deadline = None if limit is None else now() + limit
    while True:
        left = None if deadline is None else max(0.0, deadline - now())
        block = min(2.0, settings.longest_block, math.inf if left is None else left)
        waiting = [*command, "BLOCK", milliseconds(block)] if block else command
        try:
            reply = yield from ask(waiting, key, settings, block)
        except Unavailable:
            if left == 0:
                return None
            raise
        if reply is not None or left == 0:
            return reply
