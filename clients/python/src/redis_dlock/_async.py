"""Input and output for asyncio: one connection that all tasks share, and the tasks that renew and listen."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Callable, Optional, TypeVar

from ._base import FLUSHES, Base, Options, name_for
from ._clock import CLOCK_INTERVAL, now
from ._holds import HoldState, RenewalBatch
from ._programs import Pause, Program, acquire, give_up, release
from ._requests import Batch, Message, Target, log, pack
from .errors import Disconnected, ServerError, failures, from_cluster, from_opening, from_redis, of_pipeline

T = TypeVar("T")
L = TypeVar("L")


class _Link:
    """A connection, and the batches whose replies are still to come."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.sent: deque[tuple[Batch, asyncio.Future[list[Any]]]] = deque()
        self.reader: Optional[asyncio.Task[None]] = None


class _Server:
    """Sends batches over one connection, without waiting for the replies to those before."""

    def __init__(self, client: Any, timeout: float, on_drop: Callable[[], None]) -> None:
        self._pool, self._timeout, self._name = client.connection_pool, timeout, name_for(client.connection_pool)
        self._on_drop = on_drop  # called when a connection failed, and the places that were asked for over it
        self._link: Optional[_Link] = None
        self._queue: list[tuple[Batch, asyncio.Future[list[Any]]]] = []
        self._opening: Optional[asyncio.Task[None]] = None

    async def run(self, batch: Batch) -> list[Any]:
        try:
            if batch.block:
                return await self._alone(batch)
            loop = asyncio.get_running_loop()
            future: asyncio.Future[list[Any]] = loop.create_future()
            self._queue.append((batch, future))
            if len(self._queue) == 1:
                loop.call_soon(self._flush)  # in one write with the batches of other tasks
            return await future  # if the caller is cancelled, the others' replies still come in order
        except ServerError as refusal:  # of the connection
            return [refusal] * len(batch.to_send())

    def _flush(self) -> None:
        """Sends what is in the queue, or opens a connection for it."""
        loop, link = asyncio.get_running_loop(), self._link
        if not self._queue:
            return
        if link is None:
            if self._opening is None or self._opening.done():
                self._opening = loop.create_task(self._open())
            return
        link.sent.extend(self._queue)
        packed = pack([command for batch, _ in self._queue for command in batch.to_send()])
        self._queue = []
        # Not send_packed_command: it opens a connection that ended again, and its order is that of tasks.
        writer = link.connection._writer
        is_open = writer is not None and not writer.is_closing()
        if is_open:
            writer.write(packed)
        if link.reader is None or link.reader.done():
            ended = Disconnected("the connection ended")
            link.reader = loop.create_task(self._receive(link) if is_open else self._drop(link, ended))

    async def _open(self) -> None:
        try:
            self._link = _Link(await self._get())
        except (Exception, asyncio.CancelledError) as error:
            queue, self._queue = self._queue, []
            self._fail(queue, error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            self._flush()

    async def _receive(self, link: _Link) -> None:
        try:
            while link.sent:
                batch, future = link.sent[0]
                replies = [await self._read(link.connection, 0.0) for _ in batch.to_send()]
                link.sent.popleft()
                if not future.done():
                    future.set_result(replies)
        except (Exception, asyncio.CancelledError) as error:
            await self._drop(link, error)
            if isinstance(error, asyncio.CancelledError):
                raise

    async def _drop(self, link: _Link, error: BaseException) -> None:
        """Ends a connection: replies that are still to come must not be taken for others."""
        if self._link is link:
            self._link = None
            self._fail(link.sent, error)
            await link.connection.disconnect(nowait=True)
            await self._pool.release(link.connection)
            self._on_drop()

    def _fail(self, batches: Any, error: BaseException) -> None:
        outcome = error if isinstance(error, ServerError) else Disconnected(str(error) or type(error).__name__)
        for _, future in batches:
            if not future.done():
                future.set_exception(outcome)
        batches.clear()

    async def _alone(self, batch: Batch) -> list[Any]:
        """A batch that blocks has a connection of its own."""
        connection, is_done = await self._get(), False
        try:
            commands = batch.to_send()
            await connection.send_packed_command(pack(commands), check_health=False)
            replies = [await self._read(connection, batch.block) for _ in commands]
            is_done = True
            return replies
        except failures() as error:
            raise from_redis(error) from None
        finally:
            if not is_done:
                await connection.disconnect(nowait=True)
            await self._pool.release(connection)

    async def _get(self) -> Any:
        try:
            return await self._pool.get_connection(*self._name)
        except failures() as error:
            raise from_opening(error) from None

    async def _read(self, connection: Any, block: float) -> Any:
        started, limit = now(), self._timeout + block
        try:
            reply = await connection.read_response(disable_decoding=True, timeout=limit)
        except failures() as error:
            reply = from_redis(error)
            if not isinstance(reply, ServerError):
                raise
        if reply is None and now() - started > limit - 0.01:  # what redis-py returns after a timeout
            raise Disconnected(f"no reply within {limit:g} s")
        return reply

    def node(self, key: str) -> str:
        return ""

    async def close(self) -> None:
        for task in (self._opening, None if self._link is None else self._link.reader):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        self._fail(self._queue, Disconnected("closed"))
        if self._link is not None:
            await self._drop(self._link, Disconnected("closed"))

    def forget(self) -> list[Any]:
        """After a fork: the connections that the parent goes on using."""
        connections = [*getattr(self._pool, "_available_connections", ()),
                       *getattr(self._pool, "_in_use_connections", ())]  # also that of the link
        self._pool.reset()
        return connections


class _Cluster:
    """Sends commands through a cluster client, which follows the slots, and repeats commands by itself."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._turns = asyncio.Semaphore(50)  # more calls at a time would open more connections

    async def run(self, batch: Batch) -> list[Any]:
        try:
            if batch.block:
                return [await self._client.execute_command(*batch.commands[0])]
            async with self._turns:
                if len(batch.commands) == 1:
                    return [await self._client.execute_command(*batch.commands[0])]
                pipeline = self._client.pipeline()
                for command in batch.commands:
                    pipeline.execute_command(*command)
                return of_pipeline(await pipeline.execute(raise_on_error=False))
        except failures() as error:
            return from_cluster(error, len(batch.commands))

    def node(self, key: str) -> str:
        try:
            return str(self._client.get_node_from_key(key).name)
        except Exception:  # the slot has no node now
            return "?"

    async def close(self) -> None:
        pass

    def forget(self) -> list[Any]:
        connections = []
        for node in self._client.get_nodes():
            connections += node._connections
            node._connections, node._free = [], type(node._free)(maxlen=node._free.maxlen)
        return connections


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
        return _Cluster(self.client) if is_cluster else _Server(self.client, self.response_timeout, self._wake_all)

    _inherited: list[Any] = []

    def _begin(self) -> None:
        super()._begin()
        self._wakeup = _Waiter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._renewer: Optional[asyncio.Task[None]] = None
        self._listener: Optional[asyncio.Task[None]] = None

    def _notify(self) -> None:
        self._wakeup.wake(None)

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
        ending = [task for task in (self._renewer, self._listener) if task is not None]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
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

    async def _acquire(self, target: Target, options: Options, timeout: Optional[float]) -> HoldState:
        if self._is_closed:
            raise RuntimeError("the AsyncDLock is closed")
        loop = asyncio.get_running_loop()
        if self._listener is None or self._listener.done():
            self._listener = loop.create_task(self._listen())
        request, max_hold = self._request(target, options, timeout), options.get("max_hold", self.max_hold)
        state = await self._run(acquire(request, timeout, self._settings, self._background, max_hold))
        if self._is_closed:
            self._background(give_up(state.request, self._settings))
            raise RuntimeError("the AsyncDLock is closed")
        self._registry.add(state)
        if state.is_unannounced and self._listener is not None:  # perhaps that of a server that became a replica
            self._listener.cancel()
            self._generation, self._listener = 0, loop.create_task(self._listen())
        if state.renew_at < self._wakes_at - state.request.px / 6:
            self._notify()
        if self._renewer is None or self._renewer.done():
            self._renewer = loop.create_task(self._renew_holds())
        return state

    async def _release(self, state: HoldState, done: bool = False) -> None:
        self._registry.remove(state)
        await self._run(release(state, self._settings, self._background, done))

    # Tasks.

    async def _renew_holds(self) -> None:
        """Renews all holds, and tells the tasks whose holds are lost."""
        while True:
            sleep = self._wakeup = _Waiter()
            rounds, self._wakes_at = self._registry.due(self._settings.replicas, self._io.node)
            for renewals in rounds:
                self._spawn(self._renew(renewals))
            while now() < self._wakes_at and not sleep.is_woken:
                left = max(0.001, self._wakes_at - now())
                await sleep.wait(min(CLOCK_INTERVAL, left) if len(self._registry) else left)

    async def _renew(self, renewals: RenewalBatch) -> None:
        try:
            renewals.apply(await self._io.run(renewals.batch))
        except Disconnected as error:
            log.info("renewal: %s", error)

    async def _listen(self) -> None:
        if not hasattr(self.client, "pubsub"):  # a cluster client of an older redis-py: waits poll
            await asyncio.Event().wait()
        while not self._is_closed:
            try:
                async with self.client.pubsub() as pubsub:
                    await pubsub.subscribe(self._channel, FLUSHES)
                    while not self._is_closed:
                        self._on_message(await pubsub.get_message(timeout=None))
            except Exception as error:
                log.info("messages: %s", error)
                await asyncio.sleep(0.2)

    def _after_fork(self) -> None:
        """In a child: holds, tasks and connections are the parent's. Closes copies of sockets without a byte."""
        for connection in self._io.forget():
            transport = getattr(getattr(connection, "_writer", None), "transport", None)
            socket = getattr(transport, "_sock", None)
            if socket is not None:
                socket.close()
        # What the parent's tasks refer to must live on: a task that is destroyed would end its connection here.
        self._inherited.append((self._io, self._tasks, self._waiters, self._listener, self._renewer))
        self._io = self._connect(hasattr(self.client, "get_nodes"))
        self._begin()
