"""What the clients for threads and for asyncio share: settings, and the handles that they make."""

from __future__ import annotations

import functools
import inspect
import os
import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypedDict, TypeVar, Union

from ._holds import Claim, Registry
from ._programs import Call, Permits, Settings
from ._requests import Arg, Message, Replicas, Request, Target, key_tuple, log, message, new_id, number
from .errors import Closed, ServerError, user_error

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: The channel on which servers tell of FLUSHDB and FLUSHALL.
FLUSHES = "dlock:notify"

#: For arguments that were not given.
DEFAULT: Any = object()

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


class Engine:
    """The connections, the renewals and the messages of all ``DLock`` of one pool."""

    is_async = False
    times = (0.0, 60.0)  # the longest place in a queue, the shortest time for a reply

    def __init__(self, client: Any) -> None:
        self.client, self.is_cluster = client, hasattr(client, "get_nodes")
        self.users: weakref.WeakSet[Any] = weakref.WeakSet()
        most = getattr(getattr(client, "connection_pool", None), "max_connections", 1 << 31)
        if most < 4:
            raise ValueError(f"the pool of the client has max_connections={most}: locks need at least 4")
        self.permits = Permits(min(64, (most - 4) // 2))  # renewals, releases and messages need connections, too
        self.channel = f"{FLUSHES}:{new_id()}"
        self.is_closed = False
        self.io = self._connect()
        self._begin()
        _instances.add(self)

    def _connect(self) -> Any:
        raise NotImplementedError

    def limit(self, seconds: float) -> float:
        """How long a reply may take. Before the shortest lease ends, another connection has to be opened and used."""
        return min(seconds, max(0.05, self.registry.shortest / 4))

    def on_drop(self, is_former: bool) -> None:
        """A connection ended, and with it the places that were asked for over it. Perhaps its server is a replica."""
        if is_former:
            self.resubscribe()
        self._wake_all()

    def resubscribe(self) -> None:
        raise NotImplementedError

    def _begin(self) -> None:
        """The state of this process: also of a child, in which nothing of the parent's runs."""
        self.registry = Registry(self.notify, *self.times)
        self.waiters: dict[str, Any] = {}
        self.generation = 0  # of the subscription; 0: there is none
        self._wakes_at = 0.0  # when the holds are looked at next

    def _after_fork(self) -> None:
        """In a child: holds and connections are the parent's. Closes copies of sockets without a byte."""
        raise NotImplementedError

    def notify(self) -> None:
        """Wakes what renews holds."""
        raise NotImplementedError

    def on_message(self, words: Any) -> None:
        """What the subscription received: a list of strings and numbers."""
        event = bytes(words[0]) if isinstance(words, list) and len(words) == 3 else b""
        if event == b"subscribe" and words[2] == 2:
            # Both channels: also after each reconnect, when messages may have been missed.
            self.generation += 1
            for hold in self.registry.all():
                hold.ask()
            self.notify()
            self._wake_all()
        notice = message(words[2]) if event == b"message" else None
        if notice is not None:
            if self.registry.on_message(notice):
                self.notify()
            if notice.event == "flushed":
                self._wake_all(notice)
            elif notice.reqid in self.waiters:
                self.waiters[notice.reqid].wake(notice)

    def _wake_all(self, notice: Optional[Message] = None) -> None:
        """Has all waits send a copy."""
        for waiter in list(self.waiters.values()):
            waiter.wake(notice)


_engines = threading.RLock()


def engine_of(client: Any, kind: type[Engine], user: Any) -> Any:
    """The engine that all users of a pool share: one for each call is as cheap as one for the process."""
    is_async, pool = hasattr(type(client), "__aenter__"), getattr(client, "connection_pool", client)
    if not hasattr(client, "execute_command") or is_async != kind.is_async:
        wanted = "redis.asyncio.Redis()" if kind.is_async else "redis.Redis()"
        raise TypeError(f"{type(user).__name__} needs a client as {wanted}, not {client!r:.80}")
    with _engines:
        engine = vars(pool).get("_redis_dlock")
        if engine is None:
            engine = vars(pool)["_redis_dlock"] = kind(client)
        engine.users.add(user)
        return engine


def leave(engine: Engine, user: Any) -> bool:
    """Whether this was the last user, so that the engine ends."""
    with _engines:
        engine.users.discard(user)
        if len(engine.users) == 0 and not engine.is_closed:
            engine.is_closed = True
            vars(getattr(engine.client, "connection_pool", engine.client)).pop("_redis_dlock", None)
            return True
        return False


class Base(Generic[L]):
    """Settings and handles of ``DLock`` and ``AsyncDLock``."""

    _kind: type[Engine]

    def __init__(self, client: Any, *, lease: float = 30.0, queue: float = 10.0, retry_for: float = 10.0,
                 max_hold: Optional[float] = None, replicas: int = 0, response_timeout: float = 3.0,
                 block: Optional[float] = None) -> None:
        for name, value, least in (("lease", lease, 0.02), ("queue", queue, 0.02), ("retry_for", retry_for, 0.0),
                                   ("max_hold", max_hold, 0.02), ("replicas", replicas, 0), ("block", block, 0.02),
                                   ("response_timeout", response_timeout, 0.02)):
            if value is not None or name not in ("max_hold", "block"):
                number(name, value, least, name == "retry_for")
        self._engine: Any = engine_of(client, self._kind, self)
        self.client, self.lease, self.max_hold, self.response_timeout = client, lease, max_hold, response_timeout
        is_cluster, self._is_closed = self._engine.is_cluster, False
        self._shared: dict[Target, Any] = {}  # the calls of run_once that run now
        # A cluster client reads replies with its own timeout.
        of_nodes = getattr(client, "connection_kwargs", None) or getattr(client, "get_connection_kwargs", dict)()
        limit = of_nodes.get("socket_timeout") if is_cluster else None
        confirm = Replicas(replicas, min(response_timeout / 3, 1.0))
        if block is None and not is_cluster and not self._kind.is_async:
            block = 2.0  # faster than a message
        self._settings = Settings(queue, retry_for, response_timeout, block, min(60.0, limit / 2) if limit else 60.0,
                                  confirm, 0.05 if self._kind.is_async else 0.2, self._engine.permits)
        registry = self._engine.registry
        registry.queue, registry.limit = max(registry.queue, queue), min(registry.limit, response_timeout)
        self._engine.times = registry.queue, registry.limit
        if is_cluster and replicas:
            raise ValueError("replicas needs a client for one server or a Sentinel group")

    def _closed(self) -> Closed:
        return Closed(f"the {type(self).__name__} is closed")

    def _claim(self, target: Target, options: Options, timeout: Optional[float]) -> Claim:
        if self._is_closed:
            raise self._closed()
        return Claim(self._engine.registry, self._request(target, options, timeout), self)

    def _handle(self, target: Target, options: Options) -> L:
        raise NotImplementedError

    def _request(self, target: Target, options: Options, timeout: Optional[float]) -> Request:
        if timeout is not None:
            number("timeout", timeout, 0, infinite=True)
        lease, limit = number("lease", options.get("lease", self.lease), 0.02), options.get("max_hold", self.max_hold)
        lease = lease if limit is None else min(lease, number("max_hold", limit, 0.02))
        owner, label = options.get("owner"), options.get("label")
        for name, word in (("owner", owner), ("label", label)):
            if not isinstance(word, (str, type(None))) or (name == "owner" and word == ""):
                raise TypeError(f"{name} has to be a string, not {word!r}")
            (word or "").encode()  # an error here is the caller's, and not that of all who share the connection
        if hasattr(self.client, "keyslot") and len({self.client.keyslot(key) for key in target.keys}) > 1:
            raise user_error(ServerError("CROSSSLOT", "in a cluster, keys that are locked together need the same slot"))
        # A grant to a client that died while it waited lasts so long: renewals ask for the whole lease.
        px = lease if timeout == 0 else min(lease, self._settings.queue)
        return Request(target, owner or new_id(), new_id(), lease, px, self._engine.channel, label)

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
        for name, value in (("count", count), *((("limit", limit),) if limit is not None else ())):
            if not isinstance(number(name, value, 1), int):
                raise TypeError(f"{name} has to be an int, not {value!r}")
        words: tuple[Arg, ...] = ("COUNT", count) if limit is None else ("COUNT", count, "LIMIT", limit)
        return self._handle(Target("DSEM", (key,), (), words), options)

    def multi_lock(self, keys: Iterable[str], **options: Unpack[Options]) -> L:
        """All of several locks, or none. In a cluster their keys share a slot."""
        return self._handle(Target("DLOCK", key_tuple(keys), form="all"), options)

    def any_lock(self, keys: Iterable[str], **options: Unpack[Options]) -> L:
        """The first of several locks that is free; ``hold.key`` tells which. In a cluster their keys share a slot."""
        return self._handle(Target("DLOCK", key_tuple(keys), form="any"), options)


class Block(Generic[L]):
    """The hold of one ``with`` block. It lives as long as the block, in whichever threads or tasks that runs."""

    def __init__(self) -> None:
        self.hold: Optional[L] = None
        self.is_paired = False  # both methods were looked up, so it has them to itself


class BlockMethod:
    """``__enter__`` or ``__exit__`` of locks. A ``with``, and an ``ExitStack``, looks up both and then calls them.

    So each lookup of both makes a new pair. Methods that are called alone share the holds of their lock.
    """

    _looked_up = threading.local()

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, lock: Any, kind: Any) -> Callable[..., Any]:
        name, block, of = getattr(self._looked_up, "last", ("", None, None))
        if block is not None and name != self._name and of is (kind if lock is None else lock):
            self._looked_up.last, block.is_paired = ("", None, None), True
        else:
            block = Block[Any]()
            self._looked_up.last = self._name, block, kind if lock is None else lock
        method = getattr(kind, f"_block_{self._name.strip('_a')}")
        return functools.partial(method, *(() if lock is None else (lock,)), block=block)


def is_late(work: Any) -> bool:
    """Whether a call of this only makes what runs later."""
    return any(check(work) for check in (inspect.iscoroutinefunction, inspect.isgeneratorfunction,
                                         inspect.isasyncgenfunction))


class BaseLock(Generic[L]):
    """What locks for threads and for asyncio share. ``L`` is their hold."""

    def __init__(self, locks: Any, target: Target, options: Options) -> None:
        if unknown := options.keys() - Options.__annotations__.keys():
            raise TypeError(f"unknown options: {sorted(unknown)}")
        self._locks, self._target, self._options = locks, target, options
        self._entered: list[L] = []  # by methods that were called alone

    def _put(self, block: Block[L], hold: L) -> L:
        if block.is_paired:
            block.hold = hold
        else:
            self._entered.append(hold)
        return hold

    def _take(self, block: Block[L]) -> L:
        hold, block.hold = block.hold, None
        if hold is None and not self._entered:
            raise RuntimeError("the block was not entered")
        return self._entered.pop() if hold is None else hold

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._target}>"

    def _new_run(self) -> Call:
        """A call of ``run_once``. Others have to be able to wait for the end of a hold of the target."""
        if self._target.form != "one" or self._target.family not in ("DLOCK", "DFAIR"):
            raise TypeError("run_once needs lock() or fair_lock()")
        return Call(repr(self._target.keys[0]), self._timeout(), self._locks._settings, True)

    def _timeout(self, given: Any = DEFAULT) -> Optional[float]:
        return self._options.get("timeout") if given is DEFAULT else given


class BaseHold:
    """A hold: what threads and asyncio share."""

    def __init__(self, locks: Any, claim: Claim) -> None:
        assert claim.state is not None
        self._locks, self._claim, self._state = locks, claim, claim.state

    @property
    def key(self) -> str:
        """The key; of several, the first."""
        return self._state.grants[0].key

    @property
    def token(self) -> Union[int, str]:
        """The fencing token, an int that rises from grant to grant. Of a semaphore the permit id, a str."""
        return self._state.grants[0].token

    @property
    def tokens(self) -> dict[str, Union[int, str]]:
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

    def __repr__(self) -> str:
        return f"<hold of {', '.join(map(repr, self._state.keys))}, token {self.token}>"


_instances: weakref.WeakSet[Engine] = weakref.WeakSet()


def _child() -> None:
    global _engines
    _engines = threading.RLock()
    for engine in list(_instances):
        try:
            engine._after_fork()
        except Exception:
            log.exception("fork")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_child)
