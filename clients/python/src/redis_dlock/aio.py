"""The client for asyncio. It mirrors that for threads."""

from __future__ import annotations

import asyncio
import functools
import inspect
import weakref
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from ._async import AsyncBase
from ._base import DEFAULT, BaseHold, BaseLock, Block, BlockMethod, Options
from ._holds import Claim
from ._links import is_running
from ._programs import Call
from ._requests import Target
from .errors import LockLost, NotAcquired, ReleaseUnknown
from .primitives import AsyncLatch, BaseElection, Leader, Once, await_other_run, wait_for_run

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


class AsyncDLock(AsyncBase["AsyncLock"]):
    """Locks on a server, a Sentinel group or a cluster, for asyncio.

    ``client`` is a ``redis.asyncio.Redis`` (also from ``Sentinel.master_for``) or a
    ``redis.asyncio.cluster.RedisCluster``. The settings are those of ``DLock``. All tasks share one connection for
    commands and one for messages; waits for several locks, latches and runs have up to 64 more. It belongs to one event
    loop.
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
    """Set when its hold is lost: ``await hold.lost``. It keeps its hold."""

    def __init__(self, hold: AsyncHold) -> None:
        self._hold, self._state = hold, hold._state

    def is_set(self) -> bool:
        return self._state.reason() is not None

    __bool__ = is_set

    async def wait(self) -> None:
        """Waits until the hold is lost. It never ends after a release."""
        event = asyncio.Event()
        tell = _in_loop(event.set)
        self._state.on_loss.append(tell)
        try:
            if not self.is_set():
                await event.wait()
        finally:
            self._state.on_loss.remove(tell)

    def __await__(self) -> Generator[Any, None, None]:
        return self.wait().__await__()


class AsyncHold(BaseHold):
    """A hold of a lock, which is renewed until it is released, or until nothing refers to it any more.

    As ``async with hold`` it cancels the body when it is lost, and raises LockLost.
    """

    def __init__(self, locks: AsyncDLock, claim: Claim) -> None:
        super().__init__(locks, claim)
        self._body: Optional[asyncio.Task[Any]] = None
        self._is_cancelled, self._is_over, self._earlier_cancels = False, False, 0

    @property
    def lost(self) -> AsyncLost:
        """Set when the hold is lost."""
        return AsyncLost(self)

    async def release(self, *, done: bool = False) -> None:
        """Gives the lock to the next in the queue. In a child process that was forked under the hold: nothing.

        Raises LockLost if the hold was lost before, and ReleaseUnknown if that is not known. Neither is retried: a
        second call raises the same again. If the caller is cancelled, the release goes on.
        """
        self._is_over = True
        if not self._needs_no_release():
            await self._locks._release(self._claim, done)

    async def __aenter__(self) -> AsyncHold:
        self._body = body = asyncio.current_task()
        self._earlier_cancels = body.cancelling() if body is not None and hasattr(body, "cancelling") else 0
        cancel = weakref.WeakMethod(self._cancel)  # what the client refers to would never be dropped
        self._state.on_loss.append(_in_loop(lambda: (cancel() or int)()))
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

    async def acquire(self, timeout: Optional[float] = DEFAULT) -> AsyncHold:
        """Waits for the lock. Raises NotAcquired after ``timeout`` seconds (None: never; default: that of the lock).

        A task that is cancelled leaves the queue.
        """
        claim = await self._locks._acquire(self._target, self._options, self._timeout(timeout))
        return AsyncHold(self._locks, claim)

    async def try_acquire(self) -> Optional[AsyncHold]:
        """Acquires the lock if it is free; else None, without waiting for it."""
        try:
            return await self.acquire(timeout=0)
        except NotAcquired:
            return None

    async def _block_enter(self, *, block: Block[AsyncHold]) -> AsyncHold:
        return await self._put(block, await self.acquire()).__aenter__()

    async def _block_exit(self, kind: Any, error: Any, trace: Any, *, block: Block[AsyncHold]) -> None:
        await self._take(block).__aexit__(kind, error, trace)

    if TYPE_CHECKING:
        async def __aenter__(self) -> AsyncHold: ...
        async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None: ...
    else:
        __aenter__, __aexit__ = BlockMethod("__aenter__"), BlockMethod("__aexit__")

    def __call__(self, work: Callable[..., Awaitable[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
        """A decorator: each call of the coroutine function runs under the lock."""
        if inspect.isgeneratorfunction(work) or inspect.isasyncgenfunction(work) or inspect.isclass(work):
            raise TypeError("AsyncDLock decorates what returns a coroutine; generators would run without the lock")

        @functools.wraps(work)
        async def locked(*args: Any, **kwargs: Any) -> T:
            async def run(hold: AsyncHold) -> T:
                value = work(*args, **kwargs)
                if not inspect.isawaitable(value):
                    raise TypeError("AsyncDLock decorates what returns a coroutine; other functions need DLock")
                return await value

            return await self._under(await self.acquire(), run, False)

        return locked

    async def _under(self, hold: AsyncHold, work: Callable[[AsyncHold], Awaitable[T]], is_run: bool) -> T:
        """What the work returns, under a hold. If that was lost, the error has it."""
        value: Any = DEFAULT
        try:
            async with hold:
                value = await work(hold)
                if is_run:
                    await hold.release(done=True)
        except (LockLost, ReleaseUnknown) as error:
            if value is not DEFAULT:
                error.result = value
            raise
        return value  # type: ignore[no-any-return]

    async def run_once(self, work: Callable[[AsyncHold], Awaitable[T]]) -> Once[T]:
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
                    return await self._run_first(work, call, mine)
                if await self._locks._run(wait_for_run(run, call)):
                    return Once(False, run.result())
            finally:
                if runs.get(self._target) is mine:
                    del runs[self._target]
                mine.cancel()

    async def _run_first(self, work: Callable[[AsyncHold], Awaitable[T]], call: Call, mine: Future[Any]) -> Once[T]:
        while True:
            try:
                claim = await self._locks._acquire(self._target, self._options, call.limit, False, call)
            except NotAcquired:
                if call.left() == 0:
                    raise
            else:
                async def run(hold: AsyncHold) -> T:
                    try:
                        return await work(hold)
                    except Exception as error:
                        mine.set_exception(error)
                        raise

                value = await self._under(AsyncHold(self._locks, claim), run, True)
                mine.set_result(value)
                return Once(True, value)
            if await self._locks._run(await_other_run(self._target, call)):
                mine.set_result(None)
                return Once(False, None)


class AsyncElection(BaseElection[Awaitable[AsyncHold], Awaitable[Optional[Leader]]]):
    """The leader is the holder of a lock, and its value is the label of the hold."""

    async def campaign(self, timeout: Optional[float] = DEFAULT, stop: Optional[asyncio.Event] = None) -> AsyncHold:
        """Waits until this candidate leads. The hold is the leadership: release it to resign.

        Raises NotAcquired after the timeout, or when ``stop`` is set.
        """
        both = [asyncio.ensure_future(one) for one in (self._lock.acquire(timeout), *([stop.wait()] if stop else []))]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if both[0].done():
                return both[0].result()  # type: ignore[no-any-return]
            raise NotAcquired(f"{self._key!r}: the campaign was stopped")
        finally:
            for one in both:
                one.cancel()

    async def observe(self) -> AsyncIterator[Leader]:
        """One leader after the other, from the present one on."""
        last = 0
        while True:
            found = await self._next(last)
            last = found.token
            yield found
