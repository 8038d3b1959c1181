"""The engine for asyncio. It has no task that goes on: timers renew, and connections call it."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator
from typing import Any, Optional, TypeVar

from ._base import FLUSHES, Base, Engine, Options, leave
from ._clock import CLOCK_INTERVAL, now
from ._holds import Claim
from ._links import Cluster, Link, Server, is_running
from ._programs import Pause, Program, Step, acquire, release
from ._requests import Message, Target, log
from .errors import Disconnected, DLockError, NoTime, ServerError

# How late, in seconds, the end of a time may be noticed, and how much longer it is if that is later: a computation may
# have kept a request from being written.
LATE, MORE = 0.03, 0.05

T = TypeVar("T")
L = TypeVar("L")


class Waiter:
    """Waits for a message about one request."""

    def __init__(self) -> None:
        self.is_woken = False
        self.notice: Optional[Message] = None
        self.future: Optional[asyncio.Future[Any]] = None

    def wake(self, notice: Optional[Message]) -> None:
        self.notice, self.is_woken = notice, True
        if self.future is not None and not self.future.done():
            self.future.set_result(None)


class AsyncEngine(Engine):
    """Runs programs, renews holds and hears messages. For one event loop: that of the first acquire."""

    is_async = True
    _inherited: list[Any] = []

    def _connect(self) -> Any:
        return Cluster(self) if self.is_cluster else Server(self)

    def _begin(self) -> None:
        self.loop: Any = None
        self._timer: Optional[asyncio.TimerHandle] = None
        self._messages: Optional[Link] = None
        self._is_listening = self._is_notified = False
        self._at_end: Any = None
        super()._begin()
        self._wakes_at = math.inf

    def enter(self, user: Any) -> None:
        """Begins in the loop that runs. Each user belongs to one."""
        loop = asyncio.get_running_loop()
        if self.loop is not None and self.loop is not loop and self.loop.is_closed():
            self.io = self._connect()  # a later loop of the process
            self._begin()
        if self.loop not in (None, loop) or user._loop not in (None, loop):
            raise DLockError("an AsyncDLock and its client belong to the event loop that used them first: make others")
        user._loop = loop
        if self.loop is None:
            self.loop, self._at_end = loop, self._until_end()
            with contextlib.suppress(StopIteration):
                self._at_end.asend(None).send(None)

    async def _until_end(self) -> AsyncGenerator[None, None]:
        """``asyncio.run`` closes asynchronous generators before it closes the loop: then what is held is released."""
        try:
            yield
        finally:
            for user in list(self.users):
                await user.close()

    def notify(self) -> None:
        """Also called by other threads, and while Python collects garbage."""
        self._wakes_at = 0.0
        if not (self._is_notified or self.loop is None or self.loop.is_closed()):
            self._is_notified = True
            self.loop.call_soon_threadsafe(self._renew_holds)

    def resubscribe(self) -> None:
        if self._messages is not None:
            self._messages.end(Disconnected("another one is opened"))
        self.listen()

    def listen(self) -> None:
        """Opens the connection for messages, unless it is open."""
        def fail(error: Any) -> None:
            log.info("messages: %s", error)
            self._is_listening = False
            if not self.is_closed and not self.loop.is_closed():
                self.loop.call_later(0.2, self.listen)

        def opened(link: Link) -> None:
            self._is_listening, self._messages, self.generation = False, link, 0
            link.write([["SUBSCRIBE", self.channel, FLUSHES]])

        if self._is_listening or self.is_closed or not (self._messages is None or self._messages.is_ended):
            return
        self._is_listening, self.generation = True, 0
        try:
            self.io.open(self.io.pool(), opened, fail, self.on_message)
        except Disconnected as error:
            fail(error)

    def link_ended(self, link: Link) -> None:
        if link is self._messages and not self.is_closed and not self.loop.is_closed():
            self.loop.call_later(0.05, self.listen)

    # Programs.

    async def perform(self, step: Step, futures: set[Any], reqids: set[str]) -> Any:
        """Does what a program asks for."""
        future = self.loop.create_future()
        if isinstance(step, Pause):
            waiter: Waiter = self.waiters[step.reqid] if step.reqid else Waiter()
            waiter.future = future
            if step.run is not None:
                step.run.add_done_callback(lambda _: waiter.wake(None))
            if not waiter.is_woken:  # without a subscription the request is repeated
                seconds = step.seconds if self.generation or not step.reqid else min(1.0, step.seconds)
                await self._result(future, seconds, futures)
            return waiter.notice
        if step.reqid:
            reqids.add(step.reqid)
            self.waiters[step.reqid] = Waiter()
        job = self.io.start(step, lambda found: None if future.done() else future.set_result(found))
        outcome: Any = None
        try:
            outcome = await self._result(future, step.until - now(), futures)
        finally:
            if outcome is None:
                job.abandon()
        if outcome is None:
            raise NoTime("no reply in time")
        if isinstance(outcome, ServerError):  # of the opening
            return [outcome] * len(job.commands)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _result(self, future: Any, seconds: float, futures: set[Any]) -> Any:
        """What the future gets within this time; else None."""
        timer, latest = None, now() + seconds + LATE

        def end() -> None:
            nonlocal timer, latest
            if now() > latest:
                timer, latest = self.loop.call_later(MORE, end), math.inf
            elif not future.done():
                future.set_result(None)

        if seconds < 1e6:
            timer = self.loop.call_later(max(0.0, seconds), end)
        futures.add(future)
        try:
            return await future
        finally:
            futures.discard(future)
            if timer is not None:
                timer.cancel()

    def read(self) -> None:
        if is_running(self.loop):
            self.io.read()

    def watch(self) -> None:
        """From now on looks at the clock, and for claims that were dropped, each ``CLOCK_INTERVAL``."""
        if self._timer is None or self._timer.when() > self.loop.time() + CLOCK_INTERVAL:
            self._renew_holds()

    def _renew_holds(self) -> None:
        """Sends the renewals and releases that are due, and tells the tasks whose holds are lost."""
        self._is_notified = False
        if self._timer is not None:
            self._timer.cancel()
        if self.is_closed or self.loop.is_closed():
            return
        try:
            if now() >= self._wakes_at or not self.registry.dropped.empty():
                self._wakes_at = math.inf
                rounds, self._wakes_at = self.registry.due(self.io.node)
                for one in rounds:
                    self.io.start(one.batch, one.end)
                if rounds:
                    self.io.flush()  # now, and not in the next step of a loop that may be slow
        finally:
            left = max(0.001, self._wakes_at - now())
            wait = min(CLOCK_INTERVAL, left) if self.registry.open else left
            self._timer = self.loop.call_later(min(wait, 1e6), self._renew_holds)

    async def flush(self, until: float) -> None:
        """Sends each release that has no reply yet once more, until then."""
        waiting = []
        for one in self.registry.due(self.io.node, math.inf)[0]:
            future = self.loop.create_future()

            def end(found: Any, one: Any = one, future: Any = future) -> None:
                one.end(found if isinstance(found, list) else Disconnected(str(found)))
                if not future.done():
                    future.set_result(None)

            self.io.start(one.batch, end)
            waiting.append(future)
        if waiting:
            await asyncio.wait(waiting, timeout=max(0.0, until - now()))

    async def close(self, until: float) -> None:
        """After its last user: sends the releases that are left, and ends the timers and the connections."""
        await self.flush(until)
        if self._timer is not None:
            self._timer.cancel()
        await self.io.close()

    def _after_fork(self) -> None:
        """In a child: holds, tasks and connections are the parent's. Closes copies of sockets without a byte."""
        for socket in self.io.forget():
            inner = getattr(socket, "_sock", None)
            if inner is not None:
                inner.close()
        # What the parent's tasks refer to must live on: a task that is destroyed would end its connection here.
        users = list(self.users)
        self._inherited.append((vars(self).copy(), [vars(user).copy() for user in users]))
        self.io = self._connect()
        self._begin()
        for user in users:
            user._loop, user._futures = None, set()


class AsyncBase(Base[L]):
    """Runs programs in the task that calls."""

    _kind = AsyncEngine

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._loop: Any = None
        self._futures: set[Any] = set()
        self._closing: Optional[asyncio.Task[None]] = None

    async def _run(self, program: Program[T]) -> T:
        value: Any = None
        error: Optional[BaseException] = None
        reqids: set[str] = set()
        self._engine.enter(self)
        try:
            while True:
                try:
                    step = program.send(value) if error is None else program.throw(error)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                value = error = None
                try:
                    if self._is_closed:
                        raise self._closed()
                    value = await self._engine.perform(step, self._futures, reqids)
                except BaseException as raised:  # also CancelledError: the program leaves the queue
                    error = raised
        finally:
            for reqid in reqids:
                self._engine.waiters.pop(reqid, None)

    async def _acquire(self, target: Target, options: Options, timeout: Optional[float], waits: bool = True,
                       call: Any = None) -> Claim:
        engine = self._engine
        if not self._is_closed:
            engine.enter(self)
            engine.listen()
        claim = self._claim(target, options, timeout if waits else 0)
        engine.watch()
        max_hold = options.get("max_hold", self.max_hold)
        state = await self._run(acquire(claim, timeout, self._settings, max_hold, waits, call))
        if self._is_closed:
            claim.give_up()
            raise self._closed()
        state.read = engine.read
        engine.registry.add(state)
        if state.is_unannounced:  # the subscription is perhaps that of a server that became a replica
            engine.resubscribe()
        if state.renew_at < engine._wakes_at - state.request.px / 6:
            engine.notify()
        return claim

    async def _release(self, claim: Claim, done: bool = False) -> None:
        self._engine.registry.remove(claim.state)
        await self._run(release(claim, self._settings, done))

    async def close(self) -> None:
        """Releases all holds, and ends all waits. The client stays open: it is the caller's."""
        if self._closing is None:
            self._is_closed = True
            self._engine.registry.close(self)
            for future in list(self._futures):
                if not future.done():
                    future.set_exception(self._closed())
            self._closing = asyncio.get_running_loop().create_task(self._close(now() + self.response_timeout))
        await asyncio.shield(self._closing)

    async def _close(self, until: float) -> None:
        await asyncio.sleep(0)
        while self._futures and now() < until:
            await asyncio.sleep(0)  # they leave their queues
        is_last = leave(self._engine, self)
        if self._loop is not None:
            await (self._engine.close(until) if is_last else self._engine.flush(until))
