"""The tasks of asyncio that renew, listen and run programs."""

from __future__ import annotations

import asyncio
import math
from typing import Any, Optional, TypeVar

from ._base import FLUSHES, Base, Options
from ._clock import CLOCK_INTERVAL, now
from ._holds import HoldState, RenewalBatch
from ._links import Cluster, Server, is_running
from ._programs import Pause, Program, acquire, give_up, release
from ._requests import Batch, Message, Target, log
from .errors import Disconnected

T = TypeVar("T")
L = TypeVar("L")


class _Waiter:
    """Waits for a message about one request."""

    def __init__(self) -> None:
        self.is_woken = False
        self._notice: Optional[Message] = None
        self._future: Optional[asyncio.Future[None]] = None

    def wake(self, notice: Optional[Message]) -> None:
        self._notice, self.is_woken = notice, True
        self._end()

    def _end(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> Optional[Message]:
        if not self.is_woken:
            loop = asyncio.get_running_loop()
            self._future = loop.create_future()
            timer = loop.call_later(seconds, self._end)
            try:
                await self._future
            finally:
                timer.cancel()
        return self._notice


class AsyncEngine(Base[L]):
    """Runs programs, renews holds and hears messages. For one event loop: that of the first acquire."""

    def _connect(self, is_cluster: bool) -> Any:
        return Cluster(self.client) if is_cluster else Server(self.client, self._limit, self._on_drop)

    _inherited: list[Any] = []

    def _begin(self) -> None:
        super()._begin()
        self._wakes_at = math.inf
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: Optional[asyncio.TimerHandle] = None
        self._listener: Optional[asyncio.Task[None]] = None

    def _notify(self) -> None:
        self._wakes_at = 0.0
        self._renew_holds()

    def _resubscribe(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            self._generation, self._listener = 0, asyncio.get_running_loop().create_task(self._listen())

    async def close(self) -> None:
        """Releases all holds, and ends the tasks. The client stays open: it is the caller's."""
        self._is_closed = True
        try:
            for batch in self._registry.close():
                await self._io.run(batch)
        except Exception as error:  # no server answers: what is held ends with its lease
            log.debug("%s", error)
        self._wake_all()
        await asyncio.sleep(0)  # they leave their queues, in tasks
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self.response_timeout)
        if self._timer is not None:
            self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        await self._io.close()

    # Programs.

    async def _run(self, program: Program[T]) -> T:
        value: Any = None
        error: Optional[BaseException] = None
        reqids: set[str] = set()
        try:
            while True:
                try:
                    step = program.send(value) if error is None else program.throw(error)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                value = error = None
                try:
                    value = await (self._send(step, reqids) if isinstance(step, Batch) else self._pause(step))
                except BaseException as raised:  # also CancelledError: the program leaves the queue
                    error = raised
        finally:
            for reqid in reqids:
                self._waiters.pop(reqid, None)

    async def _send(self, batch: Batch, reqids: set[str]) -> list[Any]:
        if batch.reqid:
            if self._is_closed:
                raise RuntimeError("the AsyncDLock is closed")
            reqids.add(batch.reqid)
            self._waiters[batch.reqid] = _Waiter()
        return await self._io.run(batch)  # type: ignore[no-any-return]

    async def _pause(self, pause: Pause) -> Optional[Message]:
        if not pause.reqid:
            await asyncio.sleep(pause.seconds)
            return None
        waiter: _Waiter = self._waiters[pause.reqid]  # also woken by the subscription: then the request is repeated
        return await waiter.wait(pause.seconds if self._generation else min(1.0, pause.seconds))

    def _background(self, program: Program[Any]) -> None:
        async def run() -> None:
            try:
                await self._run(program)
            except Exception as error:
                log.warning("left to its lease: %s", error)

        self._spawn(run())

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Holds.

    async def _acquire(self, target: Target, options: Options, timeout: Optional[float],
                       waits: bool = True) -> HoldState:
        if self._is_closed:
            raise RuntimeError("the AsyncDLock is closed")
        loop = asyncio.get_running_loop()
        if self._listener is None or self._listener.done():
            self._listener = loop.create_task(self._listen())
        request = self._request(target, options, timeout if waits else 0)
        max_hold = options.get("max_hold", self.max_hold)
        state = await self._run(acquire(request, timeout, self._settings, self._background, max_hold, waits))
        if self._is_closed:
            self._background(give_up(state.request, self._settings))
            raise RuntimeError("the AsyncDLock is closed")
        self._loop, state.read = loop, self._read
        self._registry.add(state)
        if state.is_unannounced:  # the subscription is perhaps that of a server that became a replica
            self._resubscribe()
        if state.renew_at < self._wakes_at - state.request.px / 6:
            self._notify()
        return state

    def _read(self) -> None:
        if is_running(self._loop) and isinstance(self._io, Server):
            self._io.read()

    async def _release(self, state: HoldState, done: bool = False) -> None:
        self._registry.remove(state)
        await self._run(release(state, self._settings, self._background, done))

    # Tasks.

    def _renew_holds(self) -> None:
        """Renews the holds that are due, in one step of the loop, and tells the tasks whose holds are lost."""
        if self._timer is not None:
            self._timer.cancel()
        if self._is_closed:
            return
        try:
            if now() >= self._wakes_at:
                rounds, self._wakes_at = self._registry.due(self._settings.replicas, self._io.node)
                for renewals in rounds:
                    if isinstance(self._io, Server):
                        self._io.renew(renewals)
                    else:
                        self._spawn(self._renew(renewals))
        finally:
            left = max(0.001, self._wakes_at - now())
            wait = min(CLOCK_INTERVAL, left) if len(self._registry) else left
            self._timer = asyncio.get_running_loop().call_later(wait, self._renew_holds)

    async def _renew(self, renewals: RenewalBatch) -> None:
        try:
            renewals.end(await self._io.run(renewals.batch))
        except Disconnected as error:
            renewals.end(error)

    async def _listen(self) -> None:
        if not hasattr(self.client, "pubsub"):  # a cluster client of an older redis-py: waits poll
            await asyncio.Event().wait()
        while not self._is_closed:
            try:
                async with self.client.pubsub() as pubsub:
                    await pubsub.subscribe(self._channel, FLUSHES)
                    if getattr(asyncio.current_task(), "cancelling", int)():
                        return  # while it connects, redis-py can drop a cancellation
                    while not self._is_closed:
                        self._on_message(await pubsub.get_message(timeout=None))
            except Exception as error:
                log.info("messages: %s", error)
                await asyncio.sleep(0.2)

    def _after_fork(self) -> None:
        """In a child: holds, tasks and connections are the parent's. Closes copies of sockets without a byte."""
        for socket in self._io.forget():
            inner = getattr(socket, "_sock", None)
            if inner is not None:
                inner.close()
        # What the parent's tasks refer to must live on: a task that is destroyed would end its connection here.
        self._inherited.append((self._io, self._tasks, self._waiters, self._listener, self._timer))
        self._io = self._connect(hasattr(self.client, "get_nodes"))
        self._begin()
