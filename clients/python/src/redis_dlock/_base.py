"""What the clients for threads and for asyncio share: settings, and the handles that they make."""

from __future__ import annotations

import asyncio
import inspect
import os
import sys
import warnings
import weakref
from collections.abc import Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, Generic, Optional, TypedDict, TypeVar

from ._holds import HoldState, Registry
from ._programs import Settings
from ._requests import Arg, Message, Replicas, Request, Target, key_tuple, log, message, new_id
from .errors import ServerError, user_error

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The channel on which servers tell of FLUSHDB and FLUSHALL.
FLUSHES = "dlock:notify"

L = TypeVar("L")


#: Replies of a server that became a replica: its connections lead nowhere.
FORMER = {"READONLY", "MASTERDOWN", "UNBLOCKED"}


def new_connection(pool: Any, limit: float) -> Any:
    """A connection as those of a pool, for one owner: any interrupted call can leave replies to come in the pool's.

    It is opened once, within ``limit`` seconds a step.
    """
    own = pool.connection_kwargs
    names = ("socket_timeout",) if "path" in own else ("socket_timeout", "socket_connect_timeout")
    limits = {name: min(limit, own.get(name) or limit) for name in names}
    once: dict[str, Any] = {"retry": None, "retry_on_error": [], "retry_on_timeout": False}
    return pool.connection_class(**{**own, **limits, **once})


class Options(TypedDict, total=False):
    """How to acquire. Times are in seconds.

    - ``timeout``: how long to wait. None (default): forever; 0: not at all.
    - ``lease``: how long a hold lasts without renewal. Default: that of the ``DLock``.
    - ``owner``: the name of the task. Default: another one for each acquire. An owner may acquire what it holds again,
      and deadlocks between owners are found. Two tasks must not share one at the same time.
    - ``max_hold``: how long a hold is renewed at most. Default: that of the ``DLock``.
    - ``label``: a text that ``DLOCK.INFO`` shows.
    """

    timeout: Optional[float]
    lease: float
    owner: str
    max_hold: Optional[float]
    label: str


class Base(Generic[L]):
    """Settings and handles of ``DLock`` and ``AsyncDLock``."""

    def __init__(self, client: Any, *, lease: float = 30.0, queue: float = 10.0, retry_for: float = 10.0,
                 max_hold: Optional[float] = None, replicas: int = 0, response_timeout: float = 3.0,
                 block: Optional[float] = None) -> None:
        self.client, self.lease, self.max_hold, self.response_timeout = client, lease, max_hold, response_timeout
        is_cluster = hasattr(client, "get_nodes")
        # A cluster client reads replies with its own timeout.
        of_nodes = getattr(client, "connection_kwargs", None) or getattr(client, "get_connection_kwargs", dict)()
        limit = of_nodes.get("socket_timeout") if is_cluster else None
        confirm = Replicas(replicas, min(response_timeout / 3, 1.0))
        self._settings = Settings(queue, retry_for, block, min(60.0, limit / 2) if limit else 60.0, confirm)
        self._channel = f"{FLUSHES}:{new_id()}"
        self._is_closed = False
        if queue < 0.02:
            raise ValueError("queue must be at least 0.02 s")
        if is_cluster and replicas:
            raise ValueError("replicas needs a client for one server or a Sentinel group")
        self._io = self._connect(is_cluster)
        self._begin()
        _instances.add(self)

    def _connect(self, is_cluster: bool) -> Any:
        raise NotImplementedError

    def _limit(self) -> float:
        """How long a reply may take. Before the shortest lease ends, another connection has to be opened and used."""
        return min(self.response_timeout, max(0.05, self._registry.shortest / 4))

    def _on_drop(self, is_former: bool) -> None:
        """A connection ended, and with it the places that were asked for over it. Perhaps its server is a replica."""
        if is_former:
            self._resubscribe()
        self._wake_all()

    def _resubscribe(self) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        """The state of this process: also of a child, in which nothing of the parent's runs."""
        self._registry = Registry()
        self._waiters: dict[str, Any] = {}
        self._generation = 0  # of the subscription; 0: there is none
        self._wakes_at = 0.0  # when the holds are looked at next

    def _after_fork(self) -> None:
        """In a child: holds and connections are the parent's. Closes copies of sockets without a byte."""
        raise NotImplementedError

    def _notify(self) -> None:
        """Wakes what renews holds."""
        raise NotImplementedError

    def _on_message(self, heard: Any) -> None:
        """What the subscription received, in the form of redis-py."""
        if heard is None:
            return
        if heard["type"] == "subscribe" and heard["data"] == 2:
            # Both channels: also after each reconnect, when messages may have been missed.
            self._generation += 1
            for hold in self._registry.all():
                hold.ask()
            self._notify()
            self._wake_all()
        notice = message(heard["data"]) if heard["type"] == "message" else None
        if notice is not None:
            if self._registry.on_message(notice):
                self._notify()
            if notice.event == "flushed":
                self._wake_all(notice)
            elif notice.reqid in self._waiters:
                self._waiters[notice.reqid].wake(notice)

    def _wake_all(self, notice: Optional[Message] = None) -> None:
        """Has all waits send a copy."""
        for waiter in list(self._waiters.values()):
            waiter.wake(notice)

    def _handle(self, target: Target, options: Options) -> L:
        raise NotImplementedError

    def _request(self, target: Target, options: Options, timeout: Optional[float]) -> Request:
        lease, limit = options.get("lease", self.lease), options.get("max_hold", self.max_hold)
        lease = lease if limit is None else min(lease, limit)
        if lease < 0.02:
            raise ValueError("lease and max_hold must be at least 0.02 s")
        if options.keys() - Options.__annotations__.keys():
            raise TypeError(f"unknown options: {sorted(options.keys() - Options.__annotations__.keys())}")
        owner, label = options.get("owner"), options.get("label")
        for word in (owner or "", label or ""):
            word.encode()  # an error here is the caller's, and not that of all who share the connection
        if hasattr(self.client, "keyslot") and len({self.client.keyslot(key) for key in target.keys}) > 1:
            raise user_error(ServerError("CROSSSLOT", "in a cluster, keys that are locked together need the same slot"))
        # A grant to a client that died while it waited lasts so long: renewals ask for the whole lease.
        px = lease if timeout == 0 else min(lease, self._settings.queue)
        return Request(target, owner or new_id(), new_id(), lease, px, self._channel, label)

    def lock(self, key: str, **options: Unpack[Options]) -> L:
        """One holder at a time (DLOCK)."""
        return self._handle(Target("DLOCK", (key,)), options)

    def fair_lock(self, key: str, **options: Unpack[Options]) -> L:
        """One holder at a time, with a queue that survives restarts and failovers (DFAIR)."""
        return self._handle(Target("DFAIR", (key,)), options)

    def read_lock(self, key: str, **options: Unpack[Options]) -> L:
        """The shared mode of a read-write lock (DRW)."""
        return self._handle(Target("DRW", (key,), ("READ",)), options)

    def write_lock(self, key: str, **options: Unpack[Options]) -> L:
        """The exclusive mode of a read-write lock (DRW)."""
        return self._handle(Target("DRW", (key,), ("WRITE",)), options)

    def semaphore(self, key: str, *, limit: Optional[int] = None, count: int = 1, **options: Unpack[Options]) -> L:
        """``count`` permits of a semaphore (DSEM). ``limit``: its permits, if it has to be created."""
        words: tuple[Arg, ...] = ("COUNT", count) if limit is None else ("COUNT", count, "LIMIT", limit)
        return self._handle(Target("DSEM", (key,), (), words), options)

    def multi_lock(self, keys: Iterable[str], **options: Unpack[Options]) -> L:
        """All of key_tuple locks, or none. In a cluster they share a slot."""
        return self._handle(Target("DLOCK", key_tuple(keys), form="all"), options)

    def any_lock(self, keys: Iterable[str], **options: Unpack[Options]) -> L:
        """The first of key_tuple locks that is free; ``hold.key`` tells which. In a cluster they share a slot."""
        return self._handle(Target("DLOCK", key_tuple(keys), form="any"), options)


NOT_ENTERED = "the block was entered in another thread or task: use 'with lock.acquire() as hold'"


class EnteredHolds(Generic[L]):
    """The holds of the ``with`` blocks of one lock, by the frames that run the blocks.

    A generator may enter and exit in different threads or tasks, but its frame is one. The reference keeps the frame,
    so that no other one is taken for it.
    """

    def __init__(self) -> None:
        self._holds: dict[FrameType, list[tuple[Any, L]]] = {}
        self._lost_exits = 0

    def push(self, frame: FrameType, who: Any, hold: L) -> L:
        self._holds.setdefault(frame, []).append((who, hold))
        return hold

    def pop(self, frame: FrameType, who: Any) -> tuple[list[L], bool]:
        """The hold of the block that ends, and True. Else False, with the holds that no block can have any more."""
        if frame in self._holds:
            return [self._take(frame)], True
        # A helper, as ExitStack, calls from other frames: those that entered have ended.
        running = {at for stack in sys._current_frames().values() for at in _stack(stack)}
        ended = [at for at, entered in list(self._holds.items())
                 if at not in running and _has_ended(at, entered[-1][0], who)]
        mine = [at for at in ended if self._holds[at][-1][0] == who] or ended
        if len(ended) == 1 or mine is not ended:
            return [self._take(mine[-1])], True
        self._lost_exits += 1
        if self._lost_exits < len(ended):
            return [], False  # the others may still be in use
        self._lost_exits = 0
        return [self._take(at) for at in ended], False

    def _take(self, frame: FrameType) -> L:
        _, hold = self._holds[frame].pop()
        if not self._holds[frame]:
            del self._holds[frame]
        return hold


def _stack(frame: Optional[FrameType]) -> Iterable[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _has_ended(frame: FrameType, who: Any, asks: Any) -> bool:
    """Whether a frame that runs in no thread is no generator's or task's that goes on later."""
    if frame.f_code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
        return False
    is_task = isinstance(who, asyncio.Task)
    return who is asks or who.done() if is_task else not frame.f_code.co_flags & inspect.CO_COROUTINE


class BaseLock(Generic[L]):
    """What locks for threads and for asyncio share. ``L`` is their hold."""

    def __init__(self, engine: Any, target: Target, options: Options) -> None:
        self._engine, self._target, self._options = engine, target, options
        self._entered: EnteredHolds[L] = EnteredHolds()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._target}>"

    def _timeout(self, given: Any = ...) -> Optional[float]:
        return self._options.get("timeout") if given is ... else given


class BaseHold:
    """A hold: what threads and asyncio share."""

    def __init__(self, state: HoldState) -> None:
        self._state = state

    @property
    def key(self) -> str:
        """The key; of key_tuple, the first."""
        return self._state.grants[0].key

    @property
    def token(self) -> Any:
        """The fencing token, an int that rises from grant to grant. Of a semaphore the permit id, a str."""
        return self._state.grants[0].token

    @property
    def tokens(self) -> dict[str, Any]:
        """The fencing token of each key."""
        return {grant.key: grant.token for grant in self._state.grants}

    @property
    def owner(self) -> str:
        return self._state.request.owner

    def check(self) -> None:
        """Raises LockLost if the hold is lost. Looks at the clock only: call it before each step of the work."""
        self._state.check()

    def valid_for(self) -> float:
        """For how many seconds the hold is certain without another renewal; 0 if it is lost."""
        return self._state.valid_for()

    def _needs_no_release(self) -> bool:
        """Whether there is nothing to release. Raises again what the first release raised."""
        if self._state.is_released and self._state.outcome is not None:
            raise self._state.outcome
        return self._state.is_released or self._state.pid != os.getpid()

    def __del__(self) -> None:
        state = self.__dict__.get("_state")
        if state is not None and not state.is_released and state.reason() is None:
            warnings.warn(f"{self!r} was dropped without a release, and is renewed", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"<hold of {', '.join(map(repr, self._state.keys))}, token {self.token}>"


_instances: weakref.WeakSet[Base[Any]] = weakref.WeakSet()


def _child() -> None:
    for engine in list(_instances):
        try:
            engine._after_fork()
        except Exception:
            log.exception("fork")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_child)
