"""The client for threads."""

from __future__ import annotations

import functools
import inspect
import math
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from ._base import DEFAULT, BaseHold, BaseLock, Block, BlockMethod, Options, is_late
from ._clock import CLOCK_INTERVAL, now
from ._programs import Call
from ._requests import Target
from ._sync import Run, SyncBase
from .errors import LockLost, NotAcquired, ReleaseUnknown
from .primitives import BaseElection, Latch, Leader, Once, await_other_run, wait_for_run

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class DLock(SyncBase["Lock"]):
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
    """An event that is set when its hold is lost; like ``threading.Event`` to those that wait. It keeps its hold."""

    def __init__(self, hold: Hold) -> None:
        self._hold, self._state = hold, hold._state

    def is_set(self) -> bool:
        return self._state.reason() is not None

    __bool__ = is_set

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the hold is lost, at most ``timeout`` seconds. False: that is over, or the hold was released."""
        deadline, event = math.inf if timeout is None else now() + timeout, threading.Event()
        self._state.on_loss.append(event.set)
        try:
            while not self.is_set():
                left = min(CLOCK_INTERVAL, deadline - now())
                if self._state.is_released or left <= 0:
                    return False
                event.wait(max(0.001, min(left, self._state.until - now())))
            return True
        finally:
            self._state.on_loss.remove(event.set)


class Hold(BaseHold):
    """A hold of a lock, which is renewed until it is released, or until nothing refers to it any more."""

    @property
    def lost(self) -> Lost:
        """Set when the hold is lost."""
        return Lost(self)

    def release(self, *, done: bool = False) -> None:
        """Gives the lock to the next in the queue. In a child process that was forked under the hold: nothing.

        Raises LockLost if the hold was lost before, and ReleaseUnknown if that is not known. Neither is retried: a
        second call raises the same again.
        """
        if not self._needs_no_release():
            self._locks._release(self._claim, done)

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

    def acquire(self, timeout: Optional[float] = DEFAULT) -> Hold:
        """Waits for the lock. Raises NotAcquired after ``timeout`` seconds (None: never; default: that of the lock)."""
        return Hold(self._locks, self._locks._acquire(self._target, self._options, self._timeout(timeout)))

    def try_acquire(self) -> Optional[Hold]:
        """Acquires the lock if it is free; else None, at once."""
        try:
            return self.acquire(timeout=0)
        except NotAcquired:
            return None

    def _block_enter(self, *, block: Block[Hold]) -> Hold:
        return self._put(block, self.acquire())

    def _block_exit(self, kind: Any, error: Any, trace: Any, *, block: Block[Hold]) -> None:
        self._take(block).__exit__(kind, error, trace)

    if TYPE_CHECKING:
        def __enter__(self) -> Hold: ...
        def __exit__(self, kind: Any, error: Any, trace: Any) -> None: ...
    else:
        __enter__, __exit__ = BlockMethod("__enter__"), BlockMethod("__exit__")

    def __call__(self, work: F) -> F:
        """A decorator: each call of the function runs under the lock."""
        late = "the lock would end before the body runs: coroutine functions need AsyncDLock"
        if is_late(work) or is_late(type(work).__call__) or inspect.isclass(work):
            raise TypeError(late)

        @functools.wraps(work)
        def locked(*args: Any, **kwargs: Any) -> Any:
            def run(hold: Hold) -> Any:
                value = work(*args, **kwargs)
                if inspect.isawaitable(value) or inspect.isgenerator(value) or inspect.isasyncgen(value):
                    getattr(value, "close", int)()
                    raise TypeError(late)
                return value

            return self._under(self.acquire(), run, False)

        return locked  # type: ignore[return-value]

    def _under(self, hold: Hold, work: Callable[[Hold], T], is_run: bool) -> T:
        """What the work returns, under a hold. If that was lost, the error has it."""
        value: Any = DEFAULT
        try:
            with hold:
                value = work(hold)
                if is_run:
                    hold.release(done=True)
        except (LockLost, ReleaseUnknown) as error:
            if value is not DEFAULT:
                error.result = value
            raise
        return value  # type: ignore[no-any-return]

    def run_once(self, work: Callable[[Hold], T]) -> Once[T]:
        """Runs ``work`` in one of the tasks that ask for it at the same time; the others wait for its end.

        In one process they get what it returns, or its error. A run counts if ``work`` returns and the hold lasted
        until then. If it does not, one of the others runs. At least once, not exactly once: look into the cache again
        inside ``work``.
        """
        call, runs = self._new_run(), self._locks._shared
        while True:
            mine: Future[Any] = Future()
            try:
                run = runs.setdefault(self._target, mine)
                if run is mine:
                    return self._run_first(work, call, mine)
                if self._locks._run(wait_for_run(run, call)):
                    return Once(False, run.result())
            finally:
                if runs.get(self._target) is mine:
                    del runs[self._target]
                mine.cancel()

    def _run_first(self, work: Callable[[Hold], T], call: Call, mine: Future[Any]) -> Once[T]:
        while True:
            try:
                claim = self._locks._acquire(self._target, self._options, call.limit, False, None, call)
            except NotAcquired:
                if call.left() == 0:
                    raise
            else:
                def run(hold: Hold) -> T:
                    try:
                        return work(hold)
                    except Exception as error:
                        mine.set_exception(error)
                        raise

                value = self._under(Hold(self._locks, claim), run, True)
                mine.set_result(value)
                return Once(True, value)
            if self._locks._run(await_other_run(self._target, call)):
                mine.set_result(None)
                return Once(False, None)


class Election(BaseElection[Hold, Optional[Leader]]):
    """The leader is the holder of a lock, and its value is the label of the hold."""

    def campaign(self, timeout: Optional[float] = DEFAULT, stop: Optional[threading.Event] = None) -> Hold:
        """Waits until this candidate leads. The hold is the leadership: release it to resign.

        Raises NotAcquired after the timeout, or when ``stop`` is set.
        """
        lock, run, is_over = self._lock, Run(), threading.Event()

        def watch() -> None:
            while not is_over.is_set():
                if stop is not None and stop.wait(0.1):
                    return run.end(NotAcquired(f"{self._key!r}: the campaign was stopped"))

        if stop is not None:
            threading.Thread(target=watch, name="dlock_campaign", daemon=True).start()
        try:
            seconds = lock._timeout(timeout)
            return Hold(lock._locks, lock._locks._acquire(lock._target, lock._options, seconds, True, run))
        finally:
            is_over.set()

    def observe(self) -> Iterator[Leader]:
        """One leader after the other, from the present one on."""
        last = 0
        while True:
            found = self._next(last)
            last = found.token
            yield found
