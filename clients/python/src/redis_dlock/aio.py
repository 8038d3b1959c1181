"""The client for asyncio. It mirrors that for threads."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator
from types import FrameType
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from ._async import AsyncEngine
from ._base import NOT_ENTERED, BaseHold, BaseLock, Options
from ._clock import now
from ._holds import HoldState
from ._links import is_running
from ._requests import Target
from .errors import NotAcquired
from .primitives import AsyncLatch, BaseElection, Leader, Once, await_other_run, require_run

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class AsyncDLock(AsyncEngine["AsyncLock"]):
    """Locks on a server, a Sentinel group or a cluster, for asyncio.

    ``client`` is a ``redis.asyncio.Redis`` (also from ``Sentinel.master_for``) or a
    ``redis.asyncio.cluster.RedisCluster``. The settings are those of ``DLock``. All tasks share one connection for
    commands and one for messages, but for waits for key_tuple locks. It belongs to one event loop.
    """

    def _handle(self, target: Target, options: Options) -> AsyncLock:
        return AsyncLock(self, target, options)

    def latch(self, key: str) -> AsyncLatch:
        """A count-down latch (DLATCH)."""
        return AsyncLatch(self, key)

    def election(self, key: str, value: str = "", **options: Unpack[Options]) -> AsyncElection:
        """One leader at a time, whose ``value`` all can read."""
        return AsyncElection(self._handle(Target("DLOCK", (key,)), {**options, "label": value}))

    async def __aenter__(self) -> AsyncDLock:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _in_loop(call: Callable[[], Any]) -> Callable[[], Any]:
    """The same call, also from another thread: ``hold.check()`` may notice the loss anywhere."""
    loop = asyncio.get_running_loop()

    def run() -> None:
        if is_running(loop):
            call()
        else:
            loop.call_soon_threadsafe(call)

    return run


class AsyncLost:
    """Set when its hold is lost: ``await hold.lost``."""

    def __init__(self, state: HoldState) -> None:
        self._state = state
        self._event: Optional[asyncio.Event] = None

    def is_set(self) -> bool:
        return self._state.reason() is not None

    __bool__ = is_set

    async def wait(self) -> None:
        """Waits until the hold is lost. It never ends after a release."""
        if self._event is None:
            self._event = asyncio.Event()
            self._state.on_loss.append(_in_loop(self._event.set))
        if not self.is_set():
            await self._event.wait()

    def __await__(self) -> Generator[Any, None, None]:
        return self.wait().__await__()


class AsyncHold(BaseHold):
    """A hold of a lock, which is renewed until it is released. ``lost`` is set when it is lost.

    As ``async with hold`` it cancels the body when it is lost, and raises LockLost.
    """

    def __init__(self, engine: AsyncEngine[AsyncLock], state: HoldState) -> None:
        super().__init__(state)
        self._engine, self.lost = engine, AsyncLost(state)
        self._body: Optional[asyncio.Task[Any]] = None
        self._is_cancelled, self._is_over, self._earlier_cancels = False, False, 0

    async def release(self, *, done: bool = False) -> None:
        """Gives the lock to the next in the queue. In a child process that was forked under the hold: nothing.

        Raises LockLost if the hold was lost before, and ReleaseUnknown if that is not known. Neither is retried: a
        second call raises the same again. If the caller is cancelled, the release goes on.
        """
        self._is_over = True
        if not self._needs_no_release():
            await self._engine._release(self._state, done)

    async def __aenter__(self) -> AsyncHold:
        self._body = body = asyncio.current_task()
        self._earlier_cancels = body.cancelling() if body is not None and hasattr(body, "cancelling") else 0
        self._state.on_loss.append(_in_loop(self._cancel))
        if self._state.reason() is not None:
            self._cancel()
        return self

    def _cancel(self) -> None:
        if self._body is None or self._is_cancelled or self._is_over:
            return
        if self._state.reason() == "closed" and self._body is asyncio.current_task():
            return  # the body itself closes the client
        self._is_cancelled = True
        self._body.cancel()

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        body, self._body = self._body, None
        if body is not asyncio.current_task():
            body = None  # it was entered in another task
        is_cancelled = kind is not None and issubclass(kind, asyncio.CancelledError)
        has_error, others = kind not in (None, GeneratorExit) and not is_cancelled, 0
        if self._is_cancelled and body is not None:
            if not is_cancelled:
                try:
                    await asyncio.sleep(0)  # the body ended before it was cancelled: the cancellation arrives here
                except asyncio.CancelledError:
                    pass
            # A cancellation by others (asyncio.timeout, too) is worth more than ours. Python 3.9 and 3.10 cannot tell.
            others = body.uncancel() - self._earlier_cancels if hasattr(body, "uncancel") else 0
            is_cancelled = others > 0
        try:
            if not self._state.is_released:  # else the body released it, and learned the outcome
                await self.release()
            elif self._is_cancelled and kind is not None and issubclass(kind, asyncio.CancelledError):
                self._state.check()  # the cancellation was ours: it came before the release, and ended that
        except Exception as lost:
            if not (is_cancelled or has_error):  # else the error of the body is the one to be seen
                raise lost from None
        if others > 0 and (kind is None or has_error):
            raise asyncio.CancelledError


class AsyncLock(BaseLock["AsyncHold"]):
    """What can be acquired: with ``async with``, as a decorator, or by ``acquire``. One object serves any task."""

    async def acquire(self, timeout: Any = ...) -> AsyncHold:
        """Waits for the lock. Raises NotAcquired after ``timeout`` seconds (None: never; default: that of the lock).

        A task that is cancelled leaves the queue.
        """
        return AsyncHold(self._engine, await self._engine._acquire(self._target, self._options, self._timeout(timeout)))

    async def try_acquire(self) -> Optional[AsyncHold]:
        """Acquires the lock if it is free; else None, without waiting for it."""
        try:
            return await self.acquire(timeout=0)
        except NotAcquired:
            return None

    def __aenter__(self) -> Coroutine[Any, Any, AsyncHold]:
        return self._enter(sys._getframe(1))

    def __aexit__(self, kind: Any, error: Any, trace: Any) -> Coroutine[Any, Any, None]:
        return self._exit(sys._getframe(1), kind, error, trace)

    async def _enter(self, frame: FrameType) -> AsyncHold:
        return await self._entered.push(frame, asyncio.current_task(), await self.acquire()).__aenter__()

    async def _exit(self, frame: FrameType, kind: Any, error: Any, trace: Any) -> None:
        holds, is_mine = self._entered.pop(frame, asyncio.current_task())
        for hold in holds:
            await hold.__aexit__(kind if is_mine else RuntimeError, error, trace)
        if not is_mine:
            raise RuntimeError(NOT_ENTERED)

    def __call__(self, work: F) -> F:
        """A decorator: each call of the coroutine function runs under the lock."""
        if not inspect.iscoroutinefunction(work):
            raise TypeError("AsyncDLock decorates coroutine functions; other functions need DLock")

        @functools.wraps(work)
        async def locked(*args: Any, **kwargs: Any) -> Any:
            async with self:
                return await work(*args, **kwargs)

        return locked  # type: ignore[return-value]

    async def run_once(self, work: Callable[[AsyncHold], Awaitable[T]]) -> Once[T]:
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
                state = await self._engine._acquire(self._target, self._options, left, waits=False)
            except NotAcquired:
                if left == 0:
                    raise
            else:
                async with AsyncHold(self._engine, state) as hold:
                    value = await work(hold)
                    await hold.release(done=True)
                return Once(True, value)
            if await self._engine._run(await_other_run(self._target, deadline, self._engine._settings)):
                return Once(False, None)


class AsyncElection(BaseElection[Awaitable[AsyncHold], Awaitable[Optional[Leader]]]):
    """The leader is the holder of a lock, and its value is the label of the hold."""

    async def observe(self) -> AsyncIterator[Leader]:
        """One leader after the other, from the present one on."""
        last = 0
        while True:
            found = await self._next(last)
            last = found.token
            yield found
