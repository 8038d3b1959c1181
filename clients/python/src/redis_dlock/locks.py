"""The client for threads."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from ._base import NOT_ENTERED, BaseHold, BaseLock, Options
from ._clock import CLOCK_INTERVAL, now
from ._holds import HoldState
from ._requests import Target
from ._sync import Engine
from .errors import NotAcquired
from .primitives import BaseElection, Latch, Leader, Once, await_other_run, require_run

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class DLock(Engine["Lock"]):
    """Locks on a server, a Sentinel group or a cluster, for threads.

    ``client`` is a ``redis.Redis`` (also from ``Sentinel.master_for``) or a ``redis.cluster.RedisCluster``. Times are
    in seconds: ``lease`` is renewed every third of it; ``queue``, how long a place in a queue outlives its connection,
    and the most that a grant to a client that died while it waited lasts (at least 0.02);
    ``retry_for``, how long a call goes on while no server answers; ``response_timeout``, how long a reply may take;
    ``max_hold``, how long a hold is renewed at most; ``replicas``, how many replicas must have each grant and each
    renewal. ``block``: wait on a connection of the pool for so long at a time, for servers behind proxies that pass no
    messages on; by default waits share one connection for messages.

    One thread renews all holds, and one listens to messages. Both begin with the first hold.
    """

    def _handle(self, target: Target, options: Options) -> Lock:
        return Lock(self, target, options)

    def latch(self, key: str) -> Latch:
        """A count-down latch (DLATCH)."""
        return Latch(self, key)

    def election(self, key: str, value: str = "", **options: Unpack[Options]) -> Election:
        """One leader at a time, whose ``value`` all can read."""
        return Election(self._handle(Target("DLOCK", (key,)), {**options, "label": value}))

    def __enter__(self) -> DLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Lost:
    """An event that is set when its hold is lost; like ``threading.Event`` to those that wait."""

    def __init__(self, state: HoldState) -> None:
        self._state = state
        self._event: Optional[threading.Event] = None

    def is_set(self) -> bool:
        return self._state.reason() is not None

    __bool__ = is_set

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the hold is lost, at most ``timeout`` seconds. False: that is over, or the hold was released."""
        deadline = None if timeout is None else now() + timeout
        if self._event is None:
            self._event = threading.Event()
            self._state.on_loss.append(self._event.set)
        while not self.is_set():
            if self._state.is_released:
                return False
            left = CLOCK_INTERVAL if deadline is None else min(CLOCK_INTERVAL, deadline - now())
            if left <= 0:
                return False
            self._event.wait(max(0.001, min(left, self._state.until - now())))
        return True


class Hold(BaseHold):
    """A hold of a lock, which is renewed until it is released. ``lost`` is set when it is lost."""

    def __init__(self, engine: Engine[Lock], state: HoldState) -> None:
        super().__init__(state)
        self._engine, self.lost = engine, Lost(state)

    def release(self, *, done: bool = False) -> None:
        """Gives the lock to the next in the queue. In a child process that was forked under the hold: nothing.

        Raises LockLost if the hold was lost before, and ReleaseUnknown if that is not known. Neither is retried: a
        second call raises the same again.
        """
        if not self._needs_no_release():
            self._engine._release(self._state, done)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._state.is_released:
            return  # the body released it, and learned the outcome
        try:
            self.release()
        except Exception:
            if kind in (None, GeneratorExit):  # else the error of the body is the one to be seen
                raise


class Lock(BaseLock["Hold"]):
    """What can be acquired: with ``with``, as a decorator, or by ``acquire``. One object serves any number of tasks."""

    def acquire(self, timeout: Any = ...) -> Hold:
        """Waits for the lock. Raises NotAcquired after ``timeout`` seconds (None: never; default: that of the lock)."""
        return Hold(self._engine, self._engine._acquire(self._target, self._options, self._timeout(timeout)))

    def try_acquire(self) -> Optional[Hold]:
        """Acquires the lock if it is free; else None, at once."""
        try:
            return self.acquire(timeout=0)
        except NotAcquired:
            return None

    def __enter__(self) -> Hold:
        hold = self.acquire()
        try:
            return self._entered.push(sys._getframe(1), threading.get_ident(), hold)
        except BaseException:
            hold.release()
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        holds, is_mine = self._entered.pop(sys._getframe(1), threading.get_ident())
        for hold in holds:
            hold.__exit__(kind if is_mine else RuntimeError, error, trace)
        if not is_mine:
            raise RuntimeError(NOT_ENTERED)

    def __call__(self, work: F) -> F:
        """A decorator: each call of the function runs under the lock."""
        late = "the lock would end before the body runs: coroutine functions need AsyncDLock"
        kinds = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
        if any(is_late(work) or is_late(type(work).__call__) for is_late in kinds):
            raise TypeError(late)

        @functools.wraps(work)
        def locked(*args: Any, **kwargs: Any) -> Any:
            with self:
                value = work(*args, **kwargs)
                if inspect.isawaitable(value):
                    raise TypeError(late)
                return value

        return locked  # type: ignore[return-value]

    def run_once(self, work: Callable[[Hold], T]) -> Once[T]:
        """Runs ``work`` in one of the tasks that ask for it at the same time; the others wait for its end.

        A run counts if ``work`` returns and the hold lasted until then. If it does not, one of the others runs. At
        least once, not exactly once: look into the cache again inside ``work``.
        """
        require_run(self._target)
        timeout = self._timeout()
        deadline = None if timeout is None else now() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - now())
            try:
                hold = Hold(self._engine, self._engine._acquire(self._target, self._options, left, waits=False))
            except NotAcquired:
                if left == 0:
                    raise
            else:
                with hold:
                    value = work(hold)
                    hold.release(done=True)
                return Once(True, value)
            if self._engine._run(await_other_run(self._target, deadline, self._engine._settings)):
                return Once(False, None)


class Election(BaseElection[Hold, Optional[Leader]]):
    """The leader is the holder of a lock, and its value is the label of the hold."""

    def observe(self) -> Iterator[Leader]:
        """One leader after the other, from the present one on."""
        last = 0
        while True:
            found = self._next(last)
            last = found.token
            yield found
