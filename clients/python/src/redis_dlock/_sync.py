"""Input and output for threads: connections, the thread that renews, and the thread that listens."""

from __future__ import annotations

import _thread
import atexit
import codecs
import math
import random
import sys
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, Optional, TypeVar

from ._base import FLUSHES, FORMER, Base, Engine, Options, _instances, leave, new_connection
from ._clock import now
from ._holds import Claim
from ._programs import Pause, Program, Step, acquire, release
from ._requests import Batch, Message, Target, encoded, log, pack, read_replies
from .errors import Disconnected, NoTime, ServerError, failures, from_cluster, from_opening, of_handler, of_pipeline

T = TypeVar("T")
L = TypeVar("L")

#: How many connections all calls share that do not block.
SHARED = 32


class Waiter:
    """Sleeps until it is woken, perhaps by a message about a request."""

    def __init__(self) -> None:
        self.notice: Optional[Message] = None
        self.error: Optional[Exception] = None
        self._is_asleep = threading.Lock()  # much cheaper than an Event, and most requests never wait
        self._is_asleep.acquire()

    def wake(self, notice: Optional[Message] = None) -> None:
        self.notice = notice
        try:
            self._is_asleep.release()
        except RuntimeError:
            pass  # awake already

    def wait(self, seconds: float) -> None:
        self._is_asleep.acquire(timeout=max(0.0, min(seconds, 1e6)))


class Run:
    """One call of a user. ``end`` ends it at once, whatever it waits for."""

    def __init__(self) -> None:
        self.error: Optional[Exception] = None
        self.waiter: Optional[Waiter] = None
        self.socket: Any = None
        self.reqids: set[str] = set()

    def end(self, error: Exception) -> None:
        self.error, waiter, socket = error, self.waiter, self.socket
        if waiter is not None:
            waiter.wake()
        shut(socket)

    def wait(self, waiter: Waiter, seconds: float) -> Optional[Message]:
        self.waiter = waiter
        if self.error is None:
            waiter.wait(seconds)
        self.waiter = None
        if self.error is not None:
            raise self.error
        return waiter.notice


def shut(socket: Any) -> None:
    """Ends a connection that another thread reads from: its read returns at once."""
    try:
        if socket is not None:
            socket.shutdown(2)
    except OSError:
        pass


def in_thread(work: Callable[[], Any]) -> None:
    """Runs what no signal may interrupt, and what may take longer than its caller has time."""
    try:
        _thread.start_new_thread(work, ())  # a Thread would be left half begun by a signal
    except RuntimeError:
        work()  # the process ends


class _Server:
    """Sends batches over connections of its own, each exactly once.

    A connection is used again only if all replies were read from it: none is ever taken for that of another command.
    """

    def __init__(self, engine: SyncEngine) -> None:
        self._pool, self._engine = engine.client.connection_pool, engine
        self._most = max(2, min(SHARED, self._pool.max_connections // 2))
        self._idle: list[tuple[Any, float]] = []  # connections, and since when
        self._all: weakref.WeakSet[Any] = weakref.WeakSet()
        self._opening: set[Waiter] = set()
        self._waiting: deque[Waiter] = deque()

    def pools(self) -> list[Any]:
        return [self._pool]

    def node(self, key: str) -> str:
        return ""

    def run(self, batch: Batch, run: Run, is_urgent: bool = False) -> list[Any]:
        commands, connection, outer, replies, rest = batch.to_send(), None, sys.exc_info()[1], list[Any](), b""
        begun, limit = now(), self._engine.limit(batch.limit)
        try:
            connection = self._get(min(begun + limit, batch.until), run, is_urgent or batch.block > 0)
            run.socket = socket = connection._sock
            limit = self._engine.limit(batch.limit) + batch.block
            end = min(now() + limit, batch.until)
            if run.error is not None:
                raise run.error
            socket.settimeout(max(0.001, end - now()))
            socket.sendall(pack(commands))
            while len(replies) < len(commands):
                data = socket.recv(1 << 16)
                if not data:
                    raise Disconnected("the server ended the connection")
                some, rest = read_replies(rest + data)
                replies += some
                if len(replies) < len(commands):
                    socket.settimeout(max(0.001, end - now()))
            batch.check(replies)
        except BaseException as error:  # a reply may still come
            if connection is not None:
                self._close(connection)
            if run.error is not None:
                raise run.error from None
            if isinstance(error, ServerError):  # of the opening
                return [error] * len(commands)
            if not isinstance(error, (Disconnected, *failures())):
                raise
            interruption = of_handler(error, outer)
            if interruption is not None:
                raise interruption from None
            if now() >= batch.until and batch.until < begun + limit:
                raise NoTime("no reply in time") from None
            if connection is not None:
                self._ended(False)
            raise Disconnected(str(error) or type(error).__name__) from None
        finally:
            run.socket = None
        is_former = any(isinstance(reply, ServerError) and reply.code in FORMER for reply in replies)
        if rest or is_former:
            self._close(connection)
            self._ended(is_former)
        else:
            self._give(connection)
        return replies

    def _get(self, until: float, run: Run, is_extra: bool) -> Any:
        """An idle connection; else one that a thread opens, or that another call gives back."""
        waiter = Waiter()
        while True:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                if waiter.error is not None:
                    raise waiter.error from None
                if now() >= until:
                    raise Disconnected("no connection in time") from None
            else:
                try:  # the look whether one is still open costs more than all the rest
                    if now() - since < 1.0 or not connection.can_read(0):
                        return connection
                except failures():
                    pass
                self._close(connection)
                continue
            self._waiting.append(waiter)
            try:
                if not self._idle:
                    if waiter not in self._opening and (is_extra or len(self._all) < self._most):
                        self._open(waiter)
                    run.wait(waiter, min(0.25, until - now()))
            finally:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)

    def _open(self, waiter: Waiter) -> None:
        connection = new_connection(self._pool, self._engine.limit(self._engine.registry.limit))
        self._opening.add(waiter)
        self._all.add(connection)

        def work() -> None:
            try:
                connection.connect()
                self._give(connection)
            except Exception as error:
                self._close(connection)
                waiter.error = from_opening(error)
                waiter.wake()
            finally:
                self._opening.discard(waiter)

        in_thread(work)

    def _give(self, connection: Any) -> None:
        self._idle.append((connection, now()))
        try:
            self._waiting.popleft().wake()
        except IndexError:
            if self._engine.is_over:
                self.clear()

    def _close(self, connection: Any) -> None:
        self._all.discard(connection)
        connection.disconnect()

    def _ended(self, is_former: bool) -> None:
        self.clear()  # the server may have ended all of them
        self._engine.on_drop(is_former)

    def clear(self) -> None:
        while self._idle:
            try:
                self._close(self._idle.pop()[0])
            except IndexError:
                return

    def forget(self) -> list[Any]:
        """After a fork: the connections that the parent goes on using."""
        connections = list(self._all)
        self.__init__(self._engine)  # type: ignore[misc]
        return connections


class _Cluster:
    """Sends commands through a cluster client, which follows the slots, and repeats commands by itself."""

    def __init__(self, engine: SyncEngine) -> None:
        self._client = engine.client

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
        nodes = self._client.get_nodes()
        random.shuffle(nodes)
        return [node.redis_connection.connection_pool for node in nodes if node.redis_connection]

    def run(self, batch: Batch, run: Run, is_urgent: bool = False) -> list[Any]:
        found, waiter = list[Any](), Waiter()

        def work() -> None:
            try:
                found.append(self._send(batch))
            except Exception as error:
                found.append(error)
            waiter.wake()

        in_thread(work)
        run.wait(waiter, batch.until - now())
        if not found:
            raise NoTime("no reply in time")
        if isinstance(found[0], failures()):
            return from_cluster(found[0], len(batch.commands))
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]  # type: ignore[no-any-return]

    def _send(self, batch: Batch) -> list[Any]:
        if len(batch.commands) == 1:
            replies = [self._client.execute_command(*encoded(batch.commands[0]), NEVER_DECODE=True)]
        else:
            pipeline = self._client.pipeline()
            for command in batch.commands:
                pipeline.execute_command(*encoded(command), NEVER_DECODE=True)
            replies = of_pipeline(pipeline.execute(raise_on_error=False))
        batch.check(replies)
        return replies


class SyncEngine(Engine):
    """Runs programs, renews holds and hears messages."""

    def _connect(self) -> Any:
        self._messages: Any = None
        self.is_over = False
        return _Cluster(self) if self.is_cluster else _Server(self)

    def _begin(self) -> None:
        self._start_lock = threading.Lock()
        self._running: set[str] = set()
        super()._begin()

    def notify(self) -> None:
        self.registry.dropped.put(None)
        if self.is_over:  # a call ends after close(), and no other thread sends its release
            in_thread(lambda: self.flush(now() + self.registry.limit, 0.0))

    def resubscribe(self) -> None:
        self.generation = 0
        shut(getattr(self._messages, "_sock", None))  # the thread sees it

    def start(self) -> None:
        for name, work in (("renewer", self._renew_holds), ("listener", self._listen)):
            if name not in self._running:
                thread = threading.Thread(target=self._once, args=(name, work), name=f"dlock_{name}", daemon=True)
                in_thread(thread.start)

    def _once(self, name: str, work: Callable[[], None]) -> None:
        """Runs in a thread, which registers itself: a signal could raise between its start and that, or in is_alive."""
        with self._start_lock:
            if name in self._running:
                return
            self._running.add(name)
        try:
            work()
        finally:
            self._running.discard(name)

    def perform(self, step: Step, run: Run) -> Any:
        """Does what a program asks for."""
        if isinstance(step, Pause):
            waiter = self.waiters[step.reqid] if step.reqid else Waiter()
            if step.run is not None:
                step.run.add_done_callback(lambda _: waiter.wake())
            # Without a subscription nothing wakes a waiter: then the request is repeated.
            return run.wait(waiter, step.seconds if self.generation or not step.reqid else min(1.0, step.seconds))
        if step.reqid:
            run.reqids.add(step.reqid)
            self.waiters[step.reqid] = Waiter()
        return self.io.run(step, run)

    def close(self, until: float) -> None:
        """After its last user: sends the releases that are left, and ends the threads and the connections."""
        self.is_closed = self.is_over = True
        self.flush(until)
        self.resubscribe()
        self.io.clear()
        patience = now() + 0.5
        while self._running and now() < min(patience, until):
            time.sleep(0.001)

    def flush(self, until: float, due: float = math.inf) -> None:
        """Sends each release that has no reply yet once more, until then. ``due``: 0 for those that were never sent."""
        rounds, _ = self.registry.due(self.io.node, due)
        self.registry.dropped.put(None)  # due() may have taken what wakes the thread that renews
        for one in rounds:
            one.batch.until = until
            self._send(one)

    # Threads.

    def _renew_holds(self) -> None:
        """Renews all holds, and releases what was given up."""
        while not self.is_over:
            self._wakes_at = math.inf  # a hold that begins now may be overlooked, so it wakes this thread
            rounds, self._wakes_at = self.registry.due(self.io.node)
            if not rounds:
                self.registry.sleep(self._wakes_at - now())
            for one in rounds:
                if self.is_cluster:  # a node that does not answer must not stop the others
                    in_thread(lambda one=one: self._send(one))  # type: ignore[misc]
                else:
                    self._send(one)

    def _send(self, one: Any) -> None:
        try:
            one.end(self.io.run(one.batch, Run(), True))
        except Disconnected as error:
            one.end(error)
        except Exception as error:  # the next attempt follows: nothing ends the thread
            log.exception("renewal")
            one.end(Disconnected(str(error)))

    def _listen(self) -> None:
        while not self.is_over:
            try:
                self._messages = connection = new_connection(self.io.pools()[0], self.limit(self.registry.limit))
                try:
                    connection.connect()
                    connection._sock.sendall(pack([["SUBSCRIBE", self.channel, FLUSHES]]))
                    connection._sock.settimeout(None)
                    rest, data = b"", b" "
                    while data and not self.is_over:
                        data = connection._sock.recv(1 << 16)
                        messages, rest = read_replies(rest + data, True)
                        for words in messages:
                            self.on_message(words)
                finally:
                    self.generation = 0
                    connection.disconnect()
            except Exception as error:
                if not self.is_over:
                    log.info("messages: %s", error)
                    time.sleep(0.2)

    def _after_fork(self) -> None:
        """In a child: holds, threads and connections are the parent's. Closes copies of sockets without a byte."""
        self._begin()
        for user in list(self.users):
            user._runs = set()
        connections: list[Any] = [self._messages, *self.io.forget()]
        for pool in self.io.pools():
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


class SyncBase(Base[L]):
    """Runs programs in the thread that calls."""

    _kind = SyncEngine

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._runs: set[Run] = set()
        self._closing = threading.RLock()

    def _run(self, program: Program[T], run: Optional[Run] = None) -> T:
        value: Any = None
        error: Optional[BaseException] = None
        is_whole, run = run is None, Run() if run is None else run
        self._runs.add(run)
        try:
            while True:
                try:
                    step = program.send(value) if error is None else program.throw(error)
                except StopIteration as end:
                    return end.value  # type: ignore[no-any-return]
                value = error = None
                try:
                    if self._is_closed:
                        run.error = self._closed()
                    if run.error is not None:
                        raise run.error
                    value = self._engine.perform(step, run)
                except BaseException as raised:  # also KeyboardInterrupt: the program leaves the queue
                    error = raised
        finally:
            if is_whole:
                self._runs.discard(run)
            for reqid in run.reqids:
                self._engine.waiters.pop(reqid, None)

    def _acquire(self, target: Target, options: Options, timeout: Optional[float], waits: bool = True,
                 run: Optional[Run] = None, call: Any = None) -> Claim:
        engine, run, claim = self._engine, Run() if run is None else run, None
        self._runs.add(run)  # until the registry knows what it gets: close() waits for it
        try:
            claim = self._claim(target, options, timeout if waits else 0)
            engine.start()
            max_hold = options.get("max_hold", self.max_hold)
            state = self._run(acquire(claim, timeout, self._settings, max_hold, waits, call), run)
            engine.registry.add(state)
            if self._is_closed:
                claim.give_up()
                raise self._closed()
        except BaseException:
            patience = now() + 0.05  # if the server answers, no place is left behind when the caller goes on
            while claim is not None and engine.registry.is_ending(claim.request) and now() < patience:
                time.sleep(0.001)
            raise
        finally:
            self._runs.discard(run)
        if state.is_unannounced:
            engine.resubscribe()  # perhaps it is that of a server that became a replica
        if state.renew_at < engine._wakes_at - state.request.px / 6:
            engine.notify()
        return claim

    def _release(self, claim: Claim, done: bool = False) -> None:
        self._engine.registry.remove(claim.state)
        self._run(release(claim, self._settings, done))

    def close(self) -> None:
        """Releases all holds, and ends all waits. The client stays open: it is the caller's."""
        self._close(now() + self.response_timeout)

    def _close(self, until: float) -> None:
        with self._closing:  # a second call waits for the first
            if self._is_closed:
                return
            self._is_closed, patience = True, now() + 0.3
            self._engine.registry.close(self)
            for run in self._runs.copy():
                run.end(self._closed())
            while self._runs and now() < patience:
                time.sleep(0.001)  # they leave their queues
            if leave(self._engine, self):
                self._engine.close(until)
            else:
                self._engine.flush(until)


def _at_exit() -> None:
    """What a process holds when it ends is released. Its threads cannot begin others any more."""
    begun = now()
    for engine in list(_instances):
        for user in list(engine.users) if isinstance(engine, SyncEngine) else ():
            user._close(begun + user.response_timeout)


atexit.register(_at_exit)
codecs.lookup("idna")  # connecting imports it: a fork during the import would leave its lock to the child
