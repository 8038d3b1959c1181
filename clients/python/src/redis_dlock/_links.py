"""Connections for asyncio: one that all tasks share, one for messages, and one for each batch that blocks."""

from __future__ import annotations

import asyncio
import math
import os
import random
import weakref
from collections import deque
from typing import Any, Callable, Optional, Union

from ._base import FORMER, new_connection
from ._clock import now
from ._requests import Batch, Command, encoded, pack, read_replies
from .errors import Disconnected, ServerError, failures, from_cluster, from_opening, of_pipeline

#: Takes the replies to a batch, or why there are none.
End = Callable[[Union[list[Any], Exception]], Any]


def is_running(loop: Any) -> bool:
    """Whether this is a step of the loop, and no other thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class Job:
    """A batch, and what takes its replies."""

    def __init__(self, batch: Batch, end: End) -> None:
        self.batch, self.end, self.sent = batch, end, 0.0
        self.commands = batch.to_send()
        self.is_over = False  # nobody wants the replies any more
        self.link: Optional[Link] = None  # of a batch that blocks
        self.task: Optional[asyncio.Task[Any]] = None

    def abandon(self) -> None:
        self.is_over = True
        if self.link is not None:
            self.link.end(Disconnected("cancelled"))
        if self.task is not None:
            self.task.cancel()


class Link(asyncio.Protocol):
    """A connection that redis-py opened, and the batches whose replies are still to come.

    It reads by itself: replies are applied in the step of the loop that reads them, before any timer.
    """

    def __init__(self, connection: Any, limit: Callable[[float], float], on_end: Callable[[Any, bool], None],
                 on_message: Optional[Callable[[Any], None]] = None) -> None:
        self._writer, connection._reader, connection._writer = connection._writer, None, None
        self._transport, self._limit, self._on_end = self._writer.transport, limit, on_end
        self._transport.set_protocol(self)
        self._sent: deque[Job] = deque()
        self._rest, self._replies, self._on_message = b"", list[Any](), on_message
        self._timer: Optional[asyncio.TimerHandle] = None
        self._is_reading = self.is_ended = False
        self.socket = self._transport.get_extra_info("socket")

    def write(self, commands: list[Command]) -> None:
        self._transport.write(pack(commands))

    def send(self, jobs: list[Job]) -> None:
        for job in jobs:
            job.sent = now() + job.batch.block
        self._sent += jobs
        self.write([command for job in jobs for command in job.commands])
        self._watch()

    def _watch(self) -> None:
        """Ends the connection if a reply does not come in time."""
        loop = asyncio.get_running_loop()
        if self._left() <= 0:
            self.read()
        if self._left() <= 0:
            self.end(Disconnected(f"no reply within {self._limit(self._sent[0].batch.limit):g} s"))
        elif self._sent and (self._timer is None or not loop.time() < self._timer.when() < loop.time() + self._left()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(self._left(), self._watch)

    def _left(self) -> float:
        return self._sent[0].sent + self._limit(self._sent[0].batch.limit) - now() if self._sent else math.inf

    def read(self) -> None:
        """Takes what has arrived, without waiting for the loop. With TLS only the loop can."""
        if not (self._is_reading or self.is_ended) and self._transport.get_extra_info("sslcontext") is None:
            try:
                self.data_received(os.read(self.socket.fileno(), 1 << 16))
            except OSError:
                pass  # nothing, or the loop will see what

    def data_received(self, data: bytes) -> None:
        self._is_reading, is_former = True, False
        try:
            arrived, self._rest = read_replies(self._rest + data, self._on_message is not None)
            for reply in arrived:
                if self._on_message is not None:
                    self._on_message(reply)
                    continue
                job = self._sent[0]
                self._replies.append(reply)
                is_former = is_former or (isinstance(reply, ServerError) and reply.code in FORMER)
                if len(self._replies) == len(job.commands):
                    job.batch.check(self._replies)
                    self._sent.popleft()
                    replies, self._replies = self._replies, []
                    job.end(replies)
            if is_former:
                self.end(Disconnected("the server is not a primary"), True)
        except (Disconnected, IndexError) as error:
            self.end(Disconnected(str(error)))
        finally:
            self._is_reading = False

    def connection_lost(self, error: Optional[Exception]) -> None:
        self.end(Disconnected(str(error or "the connection ended")))

    def end(self, error: Exception, is_former: bool = False) -> None:
        """Replies that are still to come must not be taken for others."""
        if not self.is_ended:
            self.is_ended = True
            self._transport.abort()
            if self._timer is not None:
                self._timer.cancel()
            while self._sent:
                self._sent.popleft().end(error)
            self._on_end(self, is_former)


class Server:
    """Sends batches over one connection, without waiting for the replies to those before."""

    def __init__(self, engine: Any) -> None:
        self._pool, self._engine = engine.client.connection_pool, engine
        self._link: Optional[Link] = None
        self._queue: list[Job] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening: Optional[asyncio.Task[None]] = None
        self._idle: list[Link] = []  # for batches that block
        self._links: weakref.WeakSet[Link] = weakref.WeakSet()

    def start(self, batch: Batch, end: End) -> Job:
        """Sends a batch; if it does not block, in one write with those of other tasks."""
        job = Job(batch, end)
        if batch.block:
            self._block(job)
        else:
            self._queue.append(job)
            if len(self._queue) == 1:
                asyncio.get_running_loop().call_soon(self.flush)
        return job

    def _block(self, job: Job) -> None:
        def opened(link: Link) -> None:
            job.link = link
            if job.is_over:
                self._idle.append(link)
            else:
                link.send([job])

        def ended(outcome: Union[list[Any], Exception]) -> None:
            link, job.link = job.link, None
            if link is not None and not link.is_ended:
                self._idle.append(link)
            end(outcome)

        end, job.end = job.end, ended
        if self._idle:
            opened(self._idle.pop())
        else:
            self.open(self._pool, opened, job.end, None)

    def flush(self) -> None:
        """Sends what is in the queue, or opens a connection for it."""
        queue = [job for job in self._queue if not job.is_over]
        if queue and self._link is not None:
            self._queue = []
            self._link.send(queue)
        elif queue and (self._opening is None or self._opening.done()):
            self._opening = self.open(self._pool, self._opened, self._fail, None)

    def _opened(self, link: Link) -> None:
        self._link = link
        self.flush()

    def open(self, pool: Any, then: Callable[[Link], Any], fail: Callable[[Any], Any],
             on_message: Optional[Callable[[Any], None]]) -> asyncio.Task[None]:
        """Opens a connection in a task, within the time of a reply."""
        async def work() -> None:
            connection, limit = None, self._engine.limit(self._engine.registry.limit)
            try:
                connection = new_connection(pool, limit)
                await asyncio.wait_for(connection.connect(), limit)
                link = Link(connection, self._engine.limit, self._ended, on_message)
            except GeneratorExit:
                raise  # the loop has ended
            except BaseException as error:
                if connection is not None:
                    await connection.disconnect(nowait=True)
                fail(from_opening(error) if isinstance(error, failures()) else Disconnected(repr(error)))
                if not isinstance(error, Exception):
                    raise
            else:
                self._links.add(link)
                then(link)

        task = asyncio.get_running_loop().create_task(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _fail(self, error: Exception) -> None:
        queue, self._queue = self._queue, []
        for job in queue:
            job.end(error)

    def _ended(self, link: Link, is_former: bool) -> None:
        self._links.discard(link)
        if link in self._idle:
            self._idle.remove(link)
        if link is self._link:
            self._link = None
        elif not is_former:
            self._engine.link_ended(link)
            return
        self._engine.on_drop(is_former)

    def pool(self) -> Any:
        return self._pool

    def read(self) -> None:
        if self._link is not None:
            self._link.read()

    def node(self, key: str) -> str:
        return ""

    async def close(self) -> None:
        opening = list(self._tasks)
        for task in opening:
            task.cancel()
        if opening:
            await asyncio.wait(opening, timeout=0.5)  # redis-py may drop a cancellation
        for link in list(self._links):
            link.end(Disconnected("closed"))
        await asyncio.sleep(0)  # now their sockets are closed

    def forget(self) -> list[Any]:
        """After a fork: the sockets that the parent goes on using."""
        connections = [*getattr(self._pool, "_available_connections", ()),
                       *getattr(self._pool, "_in_use_connections", ())]
        self._pool.reset()
        return [*sockets(connections), *(link.socket for link in self._links)]


def sockets(connections: list[Any]) -> list[Any]:
    writers = [getattr(connection, "_writer", None) for connection in connections]
    return [writer.get_extra_info("socket") for writer in writers if writer is not None]


class Cluster(Server):
    """Sends commands through a cluster client, which follows the slots, and repeats commands by itself."""

    def __init__(self, engine: Any) -> None:
        self._client = self._pool = engine.client
        self._turns: Any = None  # more calls at a time would open more connections
        self._engine, self._links, self._tasks = engine, weakref.WeakSet(), set()
        self._link, self._idle = None, []

    def start(self, batch: Batch, end: End) -> Job:
        job = Job(batch, end)
        job.task = asyncio.get_running_loop().create_task(self._run(job))
        self._tasks.add(job.task)
        job.task.add_done_callback(self._tasks.discard)
        return job

    def flush(self) -> None:
        pass

    async def _run(self, job: Job) -> None:
        outcome: Any = Disconnected("cancelled")
        try:
            if job.batch.block:
                outcome = await self._send(job.batch)
            else:
                self._turns = self._turns or asyncio.Semaphore(50)
                async with self._turns:
                    outcome = await self._send(job.batch)
            job.batch.check(outcome)
        except failures() as error:
            try:
                outcome = from_cluster(error, len(job.batch.commands))
            except Disconnected as lost:
                outcome = lost
        except Disconnected as error:
            outcome = error
        except asyncio.CancelledError:
            for node in self._client.get_nodes():  # one of the connections may have replies to come
                for connection in list(node._free):
                    await connection.disconnect(nowait=True)
            raise
        finally:
            job.end(outcome)

    async def _send(self, batch: Batch) -> list[Any]:
        if len(batch.commands) == 1:
            return [await self._client.execute_command(*encoded(batch.commands[0]), NEVER_DECODE=True)]
        pipeline = self._client.pipeline()
        for command in batch.commands:
            pipeline.execute_command(*encoded(command), NEVER_DECODE=True)
        return of_pipeline(await pipeline.execute(raise_on_error=False))

    def pool(self) -> Any:
        """One of the nodes: each passes the messages of all on."""
        nodes = self._client.get_nodes()
        if not nodes:
            raise Disconnected("the cluster is not known yet")
        return random.choice(nodes)

    def node(self, key: str) -> str:
        try:
            return str(self._client.get_node_from_key(key).name)
        except Exception:  # the slot has no node now
            return "?"

    def forget(self) -> list[Any]:
        connections = []
        for node in self._client.get_nodes():
            connections += node._connections
            node._connections, node._free = [], type(node._free)(maxlen=node._free.maxlen)
        return [*sockets(connections), *(link.socket for link in self._links)]
