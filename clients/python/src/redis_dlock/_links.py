"""Connections for asyncio: one that all tasks share, and one for each batch that blocks."""

from __future__ import annotations

import asyncio
import math
import os
import weakref
from collections import deque
from typing import Any, Callable, Optional, Union

from ._base import FORMER, new_connection
from ._clock import now
from ._holds import RenewalBatch
from ._requests import Batch, pack, read_replies
from .errors import Disconnected, ServerError, failures, from_cluster, from_opening, of_pipeline

#: Takes the replies to a batch, or why there are none.
End = Callable[[Union[list[Any], Exception]], Any]


def is_running(loop: Any) -> bool:
    """Whether this is a step of the loop, and no other thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class _Link(asyncio.Protocol):
    """A connection that redis-py opened, and the batches whose replies are still to come.

    It reads by itself: replies are applied in the step of the loop that reads them, before any timer.
    """

    def __init__(self, connection: Any, limit: Callable[[], float], on_end: Callable[[Any, bool], None]) -> None:
        self._writer, connection._reader, connection._writer = connection._writer, None, None
        self._transport, self._limit, self._on_end = self._writer.transport, limit, on_end
        self._transport.set_protocol(self)
        self._sent: deque[tuple[Batch, int, End, float]] = deque()  # with the number of replies, and since when
        self._rest, self._replies = b"", list[Any]()
        self._timer: Optional[asyncio.TimerHandle] = None
        self._is_reading = self.is_ended = False
        self.socket = self._transport.get_extra_info("socket")

    def send(self, batches: list[tuple[Batch, End]]) -> None:
        commands: list[Any] = []
        for batch, end in batches:
            words = batch.to_send()
            commands += words
            self._sent.append((batch, len(words), end, now() + batch.block))
        self._transport.write(pack(commands))
        self._watch()

    def _watch(self) -> None:
        """Ends the connection if a reply does not come in time."""
        loop = asyncio.get_running_loop()
        if self._left() <= 0:
            self.read()
        if self._left() <= 0:
            self.end(Disconnected(f"no reply within {self._limit():g} s"))
        elif self._sent and (self._timer is None or not loop.time() < self._timer.when() < loop.time() + self._left()):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_later(self._left(), self._watch)

    def _left(self) -> float:
        return self._sent[0][3] + self._limit() - now() if self._sent else math.inf

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
            arrived, self._rest = read_replies(self._rest + data)
            for reply in arrived:
                batch, count, end, _ = self._sent[0]
                self._replies.append(reply)
                is_former = is_former or (isinstance(reply, ServerError) and reply.code in FORMER)
                if len(self._replies) == count:
                    batch.check(self._replies)
                    self._sent.popleft()
                    replies, self._replies = self._replies, []
                    end(replies)
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
            while self._sent:
                self._sent.popleft()[2](error)
            self._on_end(self, is_former)


class Server:
    """Sends batches over one connection, without waiting for the replies to those before."""

    def __init__(self, client: Any, limit: Callable[[], float], on_drop: Callable[[bool], None]) -> None:
        self._pool, self._limit, self._on_drop = client.connection_pool, limit, on_drop
        self._link: Optional[_Link] = None
        self._queue: list[tuple[Batch, End]] = []
        self._opening: Optional[asyncio.Task[None]] = None
        self._idle: list[_Link] = []  # for batches that block
        self._links: weakref.WeakSet[_Link] = weakref.WeakSet()

    async def run(self, batch: Batch) -> list[Any]:
        loop, link = asyncio.get_running_loop(), None
        outcome: Any = None
        future: asyncio.Future[Any] = loop.create_future()
        one = (batch, lambda found: None if future.done() else future.set_result(found))
        try:
            if batch.block:
                link = self._idle.pop() if self._idle else await self._open()
                link.send([one])
            else:
                self._queue.append(one)
                if len(self._queue) == 1:
                    loop.call_soon(self._flush)  # in one write with the batches of other tasks
            outcome = await future  # if the caller is cancelled, the others' replies still come in order
        except ServerError as refusal:
            outcome = refusal
        finally:
            if link is not None and outcome is None:
                link.end(Disconnected("cancelled"))
        if link is not None and not link.is_ended:
            self._idle.append(link)
        if isinstance(outcome, ServerError):  # of the opening
            return [outcome] * len(batch.to_send())
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def renew(self, renewals: RenewalBatch) -> None:
        """Sends renewals now, and applies the replies in the step that reads them."""
        self._queue.append((renewals.batch, renewals.end))
        self._flush()

    def _flush(self) -> None:
        """Sends what is in the queue, or opens a connection for it."""
        if self._queue and self._link is not None:
            queue, self._queue = self._queue, []
            self._link.send(queue)
        elif self._queue and (self._opening is None or self._opening.done()):
            self._opening = asyncio.get_running_loop().create_task(self._open_link())

    async def _open_link(self) -> None:
        try:
            self._link = await self._open()
        except (Exception, asyncio.CancelledError) as error:
            self._fail(error if isinstance(error, (Disconnected, ServerError)) else Disconnected(repr(error)))
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            self._flush()

    async def _open(self) -> _Link:
        if len(self._links) >= self._pool.max_connections:
            raise Disconnected(f"all {self._pool.max_connections} connections are in use")
        connection = new_connection(self._pool, self._limit())
        try:
            await connection.connect()
            link = _Link(connection, self._limit, self._ended)
        except GeneratorExit:
            raise  # the loop has ended
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, failures()):
                raise from_opening(error) from None
            raise
        self._links.add(link)
        return link

    def _fail(self, error: Exception) -> None:
        queue, self._queue = self._queue, []
        for _, end in queue:
            end(error)

    def _ended(self, link: _Link, is_former: bool) -> None:
        self._links.discard(link)
        if link in self._idle:
            self._idle.remove(link)
        if link is self._link:
            self._link = None
        elif not is_former:
            return
        self._on_drop(is_former)

    def read(self) -> None:
        if self._link is not None:
            self._link.read()

    def node(self, key: str) -> str:
        return ""

    async def close(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        self._fail(Disconnected("closed"))
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


class Cluster:
    """Sends commands through a cluster client, which follows the slots, and repeats commands by itself."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._turns = asyncio.Semaphore(50)  # more calls at a time would open more connections

    async def run(self, batch: Batch) -> list[Any]:
        try:
            if batch.block:
                replies = [await self._client.execute_command(*batch.commands[0])]
            else:
                async with self._turns:
                    replies = await self._send(batch)
            batch.check(replies)
            return replies
        except failures() as error:
            return from_cluster(error, len(batch.commands))
        except asyncio.CancelledError:
            for node in self._client.get_nodes():  # one of the connections may have replies to come
                for connection in list(node._free):
                    await connection.disconnect(nowait=True)
            raise

    async def _send(self, batch: Batch) -> list[Any]:
        if len(batch.commands) == 1:
            return [await self._client.execute_command(*batch.commands[0])]
        pipeline = self._client.pipeline()
        for command in batch.commands:
            pipeline.execute_command(*command)
        return of_pipeline(await pipeline.execute(raise_on_error=False))

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
        return sockets(connections)
