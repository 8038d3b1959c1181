"""Input and output for threads: connections, the thread that renews, and the thread that listens."""

from __future__ import annotations

import codecs
import math
import sys
import threading
import time
import weakref
from dataclasses import replace
from typing import Any, Callable, Optional, TypeVar

from ._base import FLUSHES, FORMER, Base, Options, new_connection
from ._clock import now
from ._holds import HoldState, RenewalBatch
from ._programs import Pause, Program, acquire, give_up, release
from ._requests import Batch, Message, Target, log, pack, read_replies
from .errors import Disconnected, ServerError, failures, from_cluster, from_opening, of_handler, of_pipeline

T = TypeVar("T")
L = TypeVar("L")


class _Server:
    """Sends batches over connections of its own, each exactly once.

    A connection is used again only if all replies were read from it: none is ever taken for that of another command.
    """

    def __init__(self, client: Any, limit: Callable[[], float], on_drop: Callable[[bool], None]) -> None:
        self._pool, self._limit, self._on_drop = client.connection_pool, limit, on_drop
        # Renewals, releases and messages need connections, too.
        self.spare = max(0, min(64, (self._pool.max_connections - 4) // 2))
        self._idle: list[tuple[Any, float]] = []  # connections, and since when
        self._all: weakref.WeakSet[Any] = weakref.WeakSet()

    def pools(self) -> list[Any]:
        return [self._pool]

    def node(self, key: str) -> str:
        return ""

    def run(self, batch: Batch) -> list[Any]:
        commands, connection, outer, replies, rest = batch.to_send(), None, sys.exc_info()[1], list[Any](), b""
        if len(self._all) >= self._pool.max_connections and not self._idle:
            raise Disconnected(f"all {self._pool.max_connections} connections are in use")
        try:
            connection = self._get()
            socket, limit = connection._sock, self._limit() + batch.block
            if socket.gettimeout() != limit:  # which takes time to set
                socket.settimeout(limit)
            socket.sendall(pack(commands))
            while len(replies) < len(commands):
                data = socket.recv(1 << 16)
                if not data:
                    raise Disconnected("the server ended the connection")
                some, rest = read_replies(rest + data)
                replies += some
            batch.check(replies)
        except BaseException as error:  # a reply may still come
            self._end(connection, False)
            if isinstance(error, ServerError):  # of the opening
                return [error] * len(commands)
            if isinstance(error, (Disconnected, *failures())):
                raise of_handler(error, outer) or Disconnected(str(error) or type(error).__name__) from None
            raise
        is_former = any(isinstance(reply, ServerError) and reply.code in FORMER for reply in replies)
        if rest or is_former:
            self._end(connection, is_former)
        else:
            self._idle.append((connection, now()))
        return replies

    def _get(self) -> Any:
        while self._idle:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                break
            try:  # the look whether one is still open costs more than all the rest
                if now() - since < 1.0 or not connection.can_read(0):
                    return connection
            except failures():
                pass
            self._close(connection)
        connection = new_connection(self._pool, self._limit())
        self._all.add(connection)
        try:
            connection.connect()
        except BaseException as error:
            self._close(connection)
            if isinstance(error, failures()):
                raise from_opening(error) from error
            raise
        return connection

    def _close(self, connection: Any) -> None:
        self._all.discard(connection)
        connection.disconnect()

    def _end(self, connection: Any, is_former: bool) -> None:
        if connection is not None:
            self._close(connection)
        self.clear()  # the server may have ended all of them
        self._on_drop(is_former)

    def clear(self) -> None:
        while self._idle:
            try:
                self._close(self._idle.pop()[0])
            except IndexError:
                return

    def forget(self) -> list[Any]:
        """After a fork: the connections that the parent goes on using."""
        connections, self._idle, self._all = list(self._all), [], weakref.WeakSet()
        return connections


class _Cluster:
    """Sends commands through a cluster client, which follows the slots, and repeats commands by itself."""

    spare = 0

    def __init__(self, client: Any) -> None:
        self._client = client

    def clear(self) -> None:
        pass

    def forget(self) -> list[Any]:
        return []

    def node(self, key: str) -> str:
        try:
            return str(self._client.get_node_from_key(key).name)
        except Exception:  # the slot has no node now
            return "?"

    def pools(self) -> list[Any]:
        return [node.redis_connection.connection_pool for node in self._client.get_nodes() if node.redis_connection]

    def run(self, batch: Batch) -> list[Any]:
        outer = sys.exc_info()[1]
        try:
            if len(batch.commands) == 1:
                replies = [self._client.execute_command(*batch.commands[0])]
            else:
                pipeline = self._client.pipeline()
                for command in batch.commands:
                    pipeline.execute_command(*command)
                replies = of_pipeline(pipeline.execute(raise_on_error=False))
            batch.check(replies)
            return replies
        except BaseException as error:
            interruption = of_handler(error, outer)
            if isinstance(error, failures()) and interruption is None:
                return from_cluster(error, len(batch.commands))
            for pool in self.pools():  # redis-py may have given back a connection with replies to come
                pool.disconnect(inuse_connections=False)
            raise interruption or error from None


class _Waiter:
    """Waits for a message about one request."""

    def __init__(self) -> None:
        self._notice: Optional[Message] = None
        self._is_asleep = threading.Lock()  # much cheaper than an Event, and most requests never wait
        self._is_asleep.acquire()

    def wake(self, notice: Optional[Message]) -> None:
        self._notice = notice
        try:
            self._is_asleep.release()
        except RuntimeError:
            pass  # awake already

    def wait(self, seconds: float) -> Optional[Message]:
        self._is_asleep.acquire(timeout=seconds)
        return self._notice


class Engine(Base[L]):
    """Runs programs, renews holds and hears messages."""

    def _connect(self, is_cluster: bool) -> Any:
        self._blocking = replace(self._settings, block=2.0)
        self._pubsub: Any = None
        return _Cluster(self.client) if is_cluster else _Server(self.client, self._limit, self._on_drop)

    def _begin(self) -> None:
        super()._begin()
        self._start_lock = threading.Lock()
        self._renewer: Optional[threading.Thread] = None
        self._listener: Optional[threading.Thread] = None
        self._wakeup = _Waiter()
        self._block_permits = list(range(self._io.spare))  # connections for waits that block

    def _notify(self) -> None:
        self._wakeup.wake(None)

    def _resubscribe(self) -> None:
        self._generation = 0  # the thread sees it

    def close(self) -> None:
        """Releases all holds, and ends both threads. The client stays open: it is the caller's."""
        self._is_closed = True
        try:
            for batch in self._registry.close():
                self._io.run(batch)
        except Exception as error:  # no server answers: what is held ends with its lease
            log.debug("%s", error)
        self._notify()
        self._wake_all()
        listener = self._listener
        if listener is not None and listener is not threading.current_thread():
            try:  # wakes the listener, which alone may touch its connection
                self._io.run(Batch([["PUBLISH", self._channel, "closed"]], self._channel))
            except Exception as error:
                log.debug("%s", error)
            listener.join(1.1)
        self._io.clear()

    # Programs.

    def _run(self, program: Program[T]) -> T:
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
                    value = self._send(step, reqids) if isinstance(step, Batch) else self._pause(step)
                except BaseException as raised:  # also KeyboardInterrupt: the program leaves the queue
                    error = raised
        finally:
            for reqid in reqids:
                self._waiters.pop(reqid, None)

    def _send(self, batch: Batch, reqids: set[str]) -> list[Any]:
        if batch.reqid:
            if self._is_closed:
                raise RuntimeError("the DLock is closed")
            reqids.add(batch.reqid)
            self._waiters[batch.reqid] = _Waiter()
        return self._io.run(batch)  # type: ignore[no-any-return]

    def _pause(self, pause: Pause) -> Optional[Message]:
        if not pause.reqid:
            time.sleep(pause.seconds)
            return None
        waiter: _Waiter = self._waiters[pause.reqid]  # also woken by the subscription: then the request is repeated
        return waiter.wait(pause.seconds if self._generation else min(1.0, pause.seconds))

    def _background(self, program: Program[Any]) -> None:
        """Runs a program that leaves a queue: now if the server answers, else in a thread of its own."""
        def run() -> None:
            try:
                self._run(program)
            except Exception as error:
                log.warning("left to its lease: %s", error)

        thread = threading.Thread(target=run, name="dlock-rollback", daemon=True)
        thread.start()
        thread.join(min(1.0, self.response_timeout))

    # Holds.

    def _acquire(self, target: Target, options: Options, timeout: Optional[float], waits: bool = True) -> HoldState:
        if self._is_closed:
            raise RuntimeError("the DLock is closed")
        self._start("_listener", self._listen)
        request = self._request(target, options, timeout if waits else 0)
        max_hold = options.get("max_hold", self.max_hold)
        settings, permit = self._settings, None
        if settings.block is None and timeout != 0 and waits and self._block_permits:
            try:  # faster than a message; the rest of many waiters share the connection for messages
                permit = self._block_permits.pop()
                settings = self._blocking
            except IndexError:
                pass
        try:
            state = self._run(acquire(request, timeout, settings, self._background, max_hold, waits))
        finally:
            if permit is not None:
                self._block_permits.append(permit)
        try:
            self._registry.add(state)
            if state.is_unannounced:
                self._resubscribe()  # perhaps it is that of a server that became a replica
            self._start("_renewer", self._renew_holds)
            if state.renew_at < self._wakes_at - state.request.px / 6:
                self._notify()
            if self._is_closed:
                raise RuntimeError("the DLock is closed")
        except BaseException:  # nobody else could release it
            self._registry.remove(state)
            self._background(give_up(state.request, self._settings))
            raise
        return state

    def _release(self, state: HoldState, done: bool = False) -> None:
        self._registry.remove(state)
        self._run(release(state, self._settings, self._background, done))

    # Threads.

    def _start(self, which: str, target: Callable[[], None]) -> None:
        thread = getattr(self, which)
        if thread is not None and thread.is_alive():
            return
        with self._start_lock:
            if getattr(self, which) is thread:
                thread = threading.Thread(target=target, name=f"dlock{which}", daemon=True)
                thread.start()
                setattr(self, which, thread)

    def _renew_holds(self) -> None:
        """Renews all holds."""
        while not self._is_closed:
            sleep = self._wakeup = _Waiter()
            self._wakes_at = math.inf  # a hold that begins now may be overlooked, so it wakes this thread
            rounds, self._wakes_at = self._registry.due(self._settings.replicas, self._io.node)
            if not rounds:
                sleep.wait(max(0.0, self._wakes_at - now()))
            for renewals in rounds:
                if self._io.node(renewals.batch.key):  # a node that does not answer must not stop the others
                    threading.Thread(target=self._renew, args=(renewals,), daemon=True).start()
                else:
                    self._renew(renewals)

    def _renew(self, renewals: RenewalBatch) -> None:
        try:
            renewals.apply(self._io.run(renewals.batch))
        except Disconnected as error:
            log.info("renewal: %s", error)
        except Exception:  # the next attempt follows: nothing ends the thread
            log.exception("renewal")

    def _listen(self) -> None:
        while not self._is_closed:
            try:
                self._pubsub = pubsub = self.client.pubsub()
                try:
                    pubsub.subscribe(self._channel, FLUSHES)
                    is_new = True
                    while not self._is_closed and (is_new or self._generation):
                        self._on_message(pubsub.get_message(timeout=1.0))
                        is_new = is_new and not self._generation
                finally:
                    pubsub.close()
            except Exception as error:
                if not self._is_closed:
                    log.info("messages: %s", error)
                    time.sleep(0.2)

    def _after_fork(self) -> None:
        """In a child: holds, threads and connections are the parent's. Closes copies of sockets without a byte."""
        self._begin()
        pubsub, self._pubsub = self._pubsub, None
        connections: list[Any] = [getattr(pubsub, "connection", None), *self._io.forget()]
        for pool in self._io.pools():
            for name in ("_available_connections", "_in_use_connections", "_connections"):
                connections += getattr(pool, name, ())
            for one in (pool, getattr(pool, "_event_dispatcher", None)):
                for name in ("_lock", "_fork_lock"):  # another thread of the parent may have held them
                    if hasattr(one, name):
                        setattr(one, name, threading.RLock())
            pool.reset()
        for connection in connections:
            socket = getattr(connection, "_sock", None)
            if socket is not None:
                connection._sock = None
                socket.close()


codecs.lookup("idna")  # connecting imports it: a fork during the import would leave its lock to the child
