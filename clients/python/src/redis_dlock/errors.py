"""What can go wrong, as exceptions, and what servers say, as codes."""

from __future__ import annotations

import asyncio
import sys
from types import FrameType
from typing import Any, Optional, Union

#: These end an acquire, a release, a wait. Every other code passes: the same request, a little later.
FINAL = {"SPENT", "NOTHELD", "LOST", "UNKNOWN", "REENTRY", "REPLACED", "DEADLOCK", "LIMIT", "DIVERGED", "STOPPED",
          "BROKEN", "STALE", "WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS", "CROSSSLOT", "ERR"}


class DLockError(Exception):
    """Base class of all errors of this package. ``code`` is stable; texts may change."""

    code = "DLOCK"


class NotAcquired(DLockError, TimeoutError):
    """The lock was not granted within the timeout. Nothing is held, and no place in a queue is left."""

    code = "NOT_ACQUIRED"


class LockLost(DLockError):
    """The hold ended before it was released, so another client may have held the lock meanwhile.

    ``result``: what the work returned, if it did, of a decorated function or of ``run_once``.

    ``reason`` is one of ``expired`` (the lease ended by this machine's clock, or the server said so), ``refused`` (the
    server did not renew the hold), ``broken`` (by an operator), ``deleted`` (the key is gone), ``disconnected``,
    ``released`` (by a RELEASE without the id of the acquire), ``max_hold``, ``closed`` (the ``DLock`` was closed) and
    ``forked`` (it belongs to the parent of this process).
    """

    code = "LOCK_LOST"
    result: Any = None

    def __init__(self, keys: tuple[str, ...], reason: str) -> None:
        super().__init__(f"lost {', '.join(map(repr, keys))}: {reason}")
        self.keys = keys
        self.reason = reason

    def __reduce__(self) -> Any:
        return type(self), (self.keys, self.reason)


class ReleaseUnknown(DLockError):
    """No reply says whether the hold stood until its release: the work counts only if its fencing token says so.

    ``result``: what the work returned, as in ``LockLost``.
    """

    code = "RELEASE_UNKNOWN"
    result: Any = None


class Deadlock(DLockError):
    """Waiting would close a cycle of owners that wait for each other. Release what you hold, and begin again."""

    code = "DEADLOCK"


class Replaced(DLockError):
    """Another request of the same owner took over the place in the queue: two tasks share one owner."""

    code = "REPLACED"


class Unavailable(DLockError, ConnectionError):
    """No server answered, or could do it, within the timeout or for ``retry_for`` seconds."""

    code = "UNAVAILABLE"


class Closed(DLockError, RuntimeError):
    """The ``DLock`` was closed."""

    code = "CLOSED"


class Refused(DLockError):
    """The server refused the request. ``code`` is the first word of its error."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code, self.text = code, text

    def __reduce__(self) -> Any:
        return type(self), (self.code, self.text)


class ServerError(Exception):
    """An error reply, with its code. Programs decide about it; users see one of the classes above."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code, self.text = code, text


class Disconnected(Exception):
    """No reply came, so the outcome of the request is not known."""

    code = text = ""


class NoTime(Disconnected):
    """The time of the call was over before a reply could be expected: this says nothing about the server."""


def failures() -> tuple[type[Exception], ...]:
    """What clients of redis-py and of valkey-py raise."""
    found: list[type[Exception]] = [OSError, asyncio.TimeoutError]
    for package, name in (("redis", "Redis"), ("valkey", "Valkey")):
        exceptions = sys.modules.get(f"{package}.exceptions")
        if exceptions is not None:
            found += [getattr(exceptions, f"{name}Error"), getattr(exceptions, f"{name}ClusterException")]
    return tuple(found)


# redis-py makes classes of these errors, and cuts the code off their texts.
_CODES = {
    "OutOfMemoryError": "OOM",
    "ReadOnlyError": "READONLY",
    "BusyLoadingError": "LOADING",
    "NoPermissionError": "NOPERM",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "MovedError": "MOVED",
    "AskError": "ASK",
    "ClusterCrossSlotError": "CROSSSLOT",
    "ExecAbortError": "EXECABORT",
    "AuthenticationError": "NOAUTH",
    "AuthenticationWrongNumberOfArgsError": "NOAUTH",
}


def of_handler(error: Optional[BaseException], outer: Optional[BaseException]) -> Optional[BaseException]:
    """What a signal handler raised, if this is it or came of it. ``outer``: what the caller was handling before.

    It may be any OSError, as that of a connection, but its traceback has the arguments of a handler.
    """
    while error is not None and error is not outer:
        trace = error.__traceback__
        while trace is not None:
            for value in trace.tb_frame.f_locals.values():
                if any(isinstance(it, FrameType) for it in (value if isinstance(value, tuple) else (value,))):
                    return error
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
    return None


def from_redis(error: Exception) -> Exception:
    """The error reply in an exception of redis-py or valkey-py; ``Disconnected`` if it is none."""
    classes = [base.__name__ for base in type(error).__mro__]
    for name in classes:
        if name in _CODES:
            return ServerError(getattr(error, "status_code", None) or _CODES[name], str(error))
    if "DataError" in classes:  # redis-py cannot encode an argument
        return ServerError("ERR", str(error))
    if "ResponseError" in classes:
        word, _, text = str(error).partition(" ")
        if getattr(error, "status_code", None) == "ERR":  # redis-py cuts this one off
            word = ""
        return ServerError(word, text) if word.isupper() and word.isalpha() else ServerError("ERR", str(error))
    return Disconnected(str(error) or type(error).__name__)


def from_opening(error: Exception) -> Exception:
    """The same while a connection is being opened: there only an error about the user is more than a failure."""
    found = from_redis(error)
    is_final = isinstance(found, ServerError) and found.code in ("NOPERM", "NOAUTH", "WRONGPASS")
    return found if is_final else Disconnected(str(found))


def from_cluster(error: Exception, commands: int) -> list[Any]:
    """The replies, if what a cluster client raised for one command is an error reply; else raises ``Disconnected``."""
    reply = from_redis(error)
    if isinstance(reply, ServerError) and commands == 1:
        return [reply]
    raise Disconnected(str(error)) from None


def of_pipeline(replies: list[Any]) -> list[Any]:
    """The replies of a cluster client's pipeline. Raises ``Disconnected`` unless each command has one."""
    known = [from_redis(reply) if isinstance(reply, Exception) else reply for reply in replies]
    if any(isinstance(reply, Disconnected) for reply in known):
        raise Disconnected("a node did not answer")
    return known


def user_error(error: Union[Disconnected, ServerError]) -> DLockError:
    """The exception that a user sees for an error reply that ends a call."""
    if error.code == "ERR" and "unknown command" in error.text:
        return Refused("ERR", "the server has no module dlock (loadmodule libdlock.so), or does not know this command")
    known: dict[str, Any] = {"DEADLOCK": Deadlock, "REPLACED": Replaced}
    return known[error.code](error.text) if error.code in known else Refused(error.code, error.text)
