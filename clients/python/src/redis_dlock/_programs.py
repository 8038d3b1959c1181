"""The logic of the client, without I/O.

A program is a generator. It yields a ``Batch`` of commands and gets their replies, or a ``Pause`` and gets the event
that ended it. If no reply comes, ``Disconnected`` is thrown into it; so is the interruption of the caller, whatever its
class. Threads and asyncio run the same programs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, Optional, TypeVar, Union

from ._clock import now
from ._holds import FLUSH_GAP, HoldState, RenewalBatch
from ._requests import Arg, Batch, Command, Message, Replicas, Request, milliseconds, require_quarantine
from .errors import (
    FINAL,
    Disconnected,
    DLockError,
    LockLost,
    NotAcquired,
    Refused,
    ReleaseUnknown,
    ServerError,
    Unavailable,
    user_error,
)

T = TypeVar("T")


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
    safe_leases: set[float] = field(default_factory=set)  # not above the quarantine of the server


class _Backoff:
    """Pauses between attempts, until no server has answered for too long. ``may_pass``: an error is an answer."""

    def __init__(self, limit: float, may_pass: bool = False) -> None:
        self._limit, self._attempts, self._may_pass = limit, 0, may_pass
        self._since: Optional[float] = None  # the first failure after the last answer

    def answered(self) -> None:
        self._since, self._attempts = None, 0

    def pause(self, error: Union[Disconnected, ServerError], left: float = math.inf) -> Pause:
        self._attempts += 1
        self._since = now() if self._since is None or (self._may_pass and error.code) else self._since
        if now() - self._since >= self._limit:
            raise Unavailable(f"no server could answer for {self._limit:g} s; the last error: {error}") from None
        seconds = random.uniform(0.5, 1.0) * min(1.0, 0.02 * 2 ** min(self._attempts, 6))
        word = error.text.partition(" ")[0]
        if error.code == "QUARANTINE" and word.isdigit():  # how long it lasts
            seconds = max(seconds, int(word) / 1000)
        return Pause(min(seconds, left))


def ask(command: Command, key: str, settings: Settings, block: float = 0.0) -> Program[Any]:
    """One command that may be repeated: it changes nothing, or has a REQID."""
    backoff = _Backoff(settings.retry_for)
    while True:
        try:
            (reply,) = yield Batch([command], key, block)
        except Disconnected as error:
            reply = error
        if not isinstance(reply, (Disconnected, ServerError)):
            return reply
        if reply.code in FINAL:
            raise user_error(reply)
        yield backoff.pause(reply)


def acquire(request: Request, limit: Optional[float], settings: Settings, in_background: Any,
            max_hold: Optional[float], waits: bool = True) -> Program[HoldState]:
    """Asks until the request is granted; at most ``limit`` seconds (0: once; None: forever).

    ``in_background`` runs a program in the background: whatever else ends the wait, the request is given up. Without
    ``waits`` only until the server says whether the lock is free.
    """
    key, end = request.target.keys[0], math.inf if limit is None else now() + limit
    backoff, first, may_have, was_poll = _Backoff(settings.retry_for, True), now(), False, False
    in_time = f", not granted in {limit:g} s" if limit else ""
    if settings.replicas.wanted and request.lease not in settings.safe_leases:
        patience = settings if limit is None else replace(settings, retry_for=min(limit, settings.retry_for))
        require_quarantine((yield from ask(["INFO", "dlock_keys"], key, patience)), request.lease)
        settings.safe_leases.add(request.lease)
    try:
        while True:
            sent = now()
            left = max(0.0, end - sent)
            copy, block = _copy(request, left if waits else 0.0, settings)
            is_first = not may_have
            first, may_have = first if may_have else sent, True  # what the request may have is ended if all else fails
            try:
                (reply,) = yield Batch([copy], key, block, reqid=request.reqid, check=request.check)
                grants = () if isinstance(reply, ServerError) else request.target.grants(reply)
                # A try whose only copy was answered has what its reply says.
                may_have = not is_first or (waits and limit != 0)
            except Disconnected as error:
                reply = error
            if not isinstance(reply, (Disconnected, ServerError)):
                if not grants:
                    backoff.answered()
                    if left == 0 or not waits:
                        raise NotAcquired(f"{key!r} is held by another" + in_time)
                    if block:
                        continue  # the next copy asks
                    pause = Pause(min(settings.queue / 2, left), request.reqid)
                    paused = now()
                    notice: Optional[Message] = yield pause
                    was_poll = notice is None and now() - paused >= pause.seconds
                    if notice is not None and notice.event == "replaced":
                        raise user_error(ServerError("REPLACED", "another request of the owner took over the place"))
                    if notice is not None and notice.event == "flushed":
                        yield Pause(max(0.0, sent + FLUSH_GAP - now()))
                    if notice is None or notice.event != "granted":
                        continue
                    # Only the server knows this id, so this is a grant: perhaps as old as the first copy.
                    grants, sent = request.target.grants(notice.token), first
                may_have, state = True, HoldState(request, grants, sent, max_hold)
                state.is_unannounced = was_poll
                if not settings.replicas.wanted and state.until - now() >= request.px / 2:
                    return state
                renewal = RenewalBatch([state], settings.replicas._replace(is_new=True))
                try:
                    reply = renewal.apply((yield renewal.batch))
                except Disconnected as error:
                    reply = error
                if reply is None and state.reason() is None:
                    return state
                reply = reply or ServerError("NOTHELD", "the lease ended before the reply came")
            elif reply.code in FINAL and reply.code != "SPENT":
                raise user_error(reply)
            else:
                grants = ()
            if grants or reply.code == "SPENT":  # what it had is not certain, or has ended
                in_background(give_up(request, settings))
                request, may_have = request.renewed(), False
            if left == 0:
                what = Unavailable if limit == 0 and isinstance(reply, Disconnected) else NotAcquired
                raise what(f"{key!r}{in_time}: {reply}")
            yield backoff.pause(reply, left)
    except GeneratorExit:
        raise  # a task was destroyed, with its loop or in a child of a fork: nothing can be sent
    except BaseException:
        if may_have:
            in_background(give_up(request, settings))
        raise


def _copy(request: Request, left: float, settings: Settings) -> tuple[Command, float]:
    """The next copy of an acquire, and how long the server may take to answer it."""
    has_place = request.target.form == "one"  # others wait on a connection only, and lose their position with it
    longest = settings.block if has_place else math.inf
    block = 0.0 if longest is None else min(longest, settings.longest_block, left)
    blocks: tuple[Arg, ...] = ("BLOCK", milliseconds(block)) if block else ()
    queues: tuple[Arg, ...] = ("QUEUE", milliseconds(settings.queue)) if left and has_place else ()
    return request.acquire(*blocks, *queues), block


def give_up(request: Request, settings: Settings) -> Program[None]:
    """Ends what a request has: until the server says so, or until nothing of the request can be left."""
    try:
        yield from ask(request.release(), request.target.keys[0], _patient(request, settings))
    except Refused:
        pass  # it had nothing


def _patient(request: Request, settings: Settings) -> Settings:
    return replace(settings, retry_for=settings.queue + request.lease)


def release(state: HoldState, settings: Settings, in_background: Any, done: bool = False,
            goes_on: bool = False) -> Program[None]:
    """Gives a hold back. Raises LockLost if it was lost before, ReleaseUnknown if no reply says whether it was.

    If it is interrupted, or no server answers, it goes on in the background: all copies are one request.
    """
    known, names = state.reason(), ", ".join(state.keys)
    interrupted = ReleaseUnknown(f"{names}: the release was interrupted")
    state.outcome = ReleaseUnknown(f"{interrupted}, and goes on") if goes_on else interrupted
    state.is_released = True
    command, lost = state.request.release(state.grants, done and not known), known
    text = "the request had no hold"
    once = replace(settings, retry_for=0.0)  # a hold that has ended is no reason to wait
    try:
        reply = yield from ask(command, state.keys[0], once if known else settings)
        if isinstance(reply, int):
            lost = known or ""
    except Unavailable as error:
        text = str(error)
        if not goes_on:
            in_background(give_up(state.request, settings))
    except DLockError as error:
        text = str(error)
        word, reason, *_ = text.split(" ") + [""]
        if word == "LOST":  # a lease that lasted until the work ended, by the client's clock, covered it
            lost = known or ("" if reason == "expired" else reason)
    except GeneratorExit:
        state.outcome = interrupted
        raise
    except BaseException:
        if not goes_on:
            in_background(release(state, _patient(state.request, settings), in_background, done, goes_on=True))
        raise
    state.outcome = None if lost == "" else LockLost(state.keys, lost) if lost else ReleaseUnknown(f"{names}: {text}")
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
