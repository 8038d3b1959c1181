"""Latches and elections, for threads and for asyncio: there each method that asks the server is awaited."""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Callable, Generic, Optional, TypeVar

from ._clock import CLOCK_INTERVAL
from ._programs import Call, Pause, Program, Settings, ask, wait_for
from ._requests import Target, fields, new_id, number, text
from .errors import NotAcquired

T = TypeVar("T")
Bool = TypeVar("Bool")
Int = TypeVar("Int")
H = TypeVar("H")
Lead = TypeVar("Lead")


def _as(convert: Callable[[Any], T], program: Program[Any]) -> Program[T]:
    return convert((yield from program))


def _count(info: Any) -> int:
    return int(fields(info).get("count", 0))


class BaseLatch(Generic[Bool, Int]):
    """A latch: opens, once, after a number of steps."""

    def __init__(self, locks: Any, key: str) -> None:
        self._locks, self._key = locks, Target("DLATCH", (key,)).keys[0]

    def _ask(self, convert: Callable[[Any], Any], *words: Any) -> Any:
        call = Call(repr(self._key), None, self._locks._settings)
        return self._locks._run(_as(convert, ask(list(words), self._key, call)))

    def init(self, count: int) -> Bool:
        """Closes the latch for ``count`` steps; False if one is closed already, which does not change."""
        number("count", count, 1)
        return self._ask(bool, "DLATCH.INIT", self._key, count)  # type: ignore[no-any-return]

    def count_down(self, steps: int = 1) -> Int:
        """Counts, and returns how many steps remain."""
        return self._ask(int, "DLATCH.COUNTDOWN", self._key, steps, "REQID", new_id())  # type: ignore[no-any-return]

    def remaining(self) -> Int:
        """How many steps remain; 0: the latch is open, or was never closed."""
        return self._ask(_count, "DLATCH.INFO", self._key)  # type: ignore[no-any-return]

    def wait(self, timeout: Optional[float] = None) -> Bool:
        """Waits until the latch is open, at most ``timeout`` seconds. Refused (BROKEN): it was deleted."""
        if timeout is not None:
            number("timeout", timeout, 0, infinite=True)
        call = Call(repr(self._key), timeout, self._locks._settings, timeout is not None)
        waiting = wait_for(["DLATCH.AWAIT", self._key], self._key, call)
        return self._locks._run(_as(bool, waiting))  # type: ignore[no-any-return]


class Latch(BaseLatch[bool, int]):
    """A latch: opens, once, after a number of steps."""


class AsyncLatch(BaseLatch[Awaitable[bool], Awaitable[int]]):
    """A latch, for asyncio."""


@dataclass(frozen=True)
class Leader:
    """Who leads, as all can see it: the value of the election, and the fencing token."""

    value: str
    token: int


def leader(key: str, settings: Settings) -> Program[Optional[Leader]]:
    """The holder of the lock, with the label of its hold as value."""
    info = fields((yield from ask(["DLOCK.INFO", key], key, Call(repr(key), None, settings))))
    return Leader(text(info["label"]), int(info["token"])) if int(info.get("holds", 0)) else None


class BaseElection(Generic[H, Lead]):
    """What elections for threads and for asyncio share."""

    def __init__(self, lock: Any) -> None:
        self._lock, self._locks, self._key = lock, lock._locks, lock._target.keys[0]

    def leader(self) -> Lead:
        """Who leads now; the answer may be outdated when you read it."""
        return self._locks._run(leader(self._key, self._locks._settings))  # type: ignore[no-any-return]

    def _next(self, last: int) -> Any:
        return self._locks._run(next_leader(self._key, last, self._locks._settings))


def next_leader(key: str, last: int, settings: Settings) -> Program[Leader]:
    """Waits until the leadership with the token ``last`` has ended and another one has begun."""
    if last:
        yield from wait_for(["DLOCK.AWAIT", key, "TOKEN", last], key, Call(repr(key), None, settings))
    while True:
        found = yield from leader(key, settings)
        if found is not None and found.token > last:
            return found
        yield Pause(CLOCK_INTERVAL)


@dataclass(frozen=True)
class Once(Generic[T]):
    """``ran``: whether this call ran the work. ``value``: its result, None if another process ran it."""

    ran: bool
    value: Optional[T]


def await_other_run(target: Target, call: Call) -> Program[bool]:
    """Waits for the end of the hold in force. Whether its work is done."""
    end = yield from wait_for([f"{target.family}.AWAIT", target.keys[0], "REASON"], target.keys[0], call)
    if end is None:
        raise call.over()
    if text(end) == "free":
        yield Pause(0.02)  # perhaps not for us: the server may keep it closed for a while, as after a restart
    return text(end) == "done"


def wait_for_run(run: Any, call: Call) -> Program[bool]:
    """Waits for the end of a run in this process, which says more than the server. Whether it counts."""
    while not run.done():
        if call.left() == 0:
            raise NotAcquired(f"{call.name}: another run did not end in time")
        yield Pause(call.left(), run=run)
    return not run.cancelled()
