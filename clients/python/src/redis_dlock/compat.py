"""``Lock`` with the interface of redis-py's, and a ``Redis`` whose ``lock`` makes it."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace
from typing import Any, Callable, Optional, Union

import redis as redis_py
from redis.exceptions import ConnectionError, LockError, LockNotOwnedError, ResponseError
from redis.lock import Lock as PollingLock

from ._programs import Call, Settings, ask
from ._requests import Target, fields, milliseconds, text
from .errors import DLockError, NotAcquired, Refused, Unavailable
from .locks import DLock


class _Local(threading.local):
    token: Optional[bytes] = None
    state: Any = None


class Lock(PollingLock):
    """``redis.lock.Lock`` on dlock: waiters are served in order, without polling. ``sleep`` has no effect.

    With a ``timeout`` the hold ends after it, as there. Without one it is renewed until it is released, and ends at
    most 30 s after its process. Errors are those of redis-py. redis-py's own ``Lock`` cannot use the same key.
    """

    def __init__(self, redis: Any, name: str, *args: Any, **options: Any) -> None:
        super().__init__(redis, name, *args, **options)
        if self.thread_local:
            self.local: Any = _Local()
        self.local.state = None
        self._locks = DLock(redis)  # clients of one pool share the threads

    def register_scripts(self) -> None:
        """None are needed."""

    def acquire(self, sleep: Optional[float] = None, blocking: Optional[bool] = None,
                blocking_timeout: Optional[float] = None, token: Union[str, bytes, None] = None) -> bool:
        """Whether the lock was acquired. ``token`` is the owner; by default another one for each acquire."""
        owner, lease = uuid.uuid4().hex if token is None else text(token), self.timeout or self._locks.lease
        wait = self.blocking_timeout if blocking_timeout is None else blocking_timeout
        limit = (wait and max(0.0, wait)) if (self.blocking if blocking is None else blocking) else 0.0
        target = Target("DLOCK", (text(self.name),), options=("NOREENTRY",))
        claim = self._call(self._locks._acquire, target, {"owner": owner, "lease": lease}, limit)
        if claim is None:
            return False
        claim.forget()  # who drops a lock of redis-py does not release it
        self.local.token, self.local.state = owner.encode("utf-8", "surrogateescape"), claim.state
        state = claim.state
        if self.timeout:
            self._locks._engine.registry.remove(state)  # so it is not renewed
            if state.request.px < self.timeout:  # the grant after a wait is shorter
                self.do_extend(self.timeout, True)
        return True

    @property
    def fencing_token(self) -> Optional[int]:
        """Of the last acquire of this object, in this thread: a number that rises from grant to grant."""
        return None if self.local.state is None else int(self.local.state.grants[0].token)

    def locked(self) -> bool:
        return int(fields(self._ask("INFO")).get("holds", 0)) > 0

    def owned(self) -> bool:
        return self.local.token is not None and self._ask("POSITION", self.local.token) == 0

    def do_release(self, expected_token: Any) -> None:
        state, self.local.state = self.local.state, None
        if state is None:  # a token from elsewhere: without the id of its acquire a release is not repeated
            once = replace(self._locks._settings, retry_for=0.0)
            self._send(["DLOCK.RELEASE", self.name, expected_token], once)
        else:
            self._locks._engine.registry.remove(state)
            self._send(state.request.release(state.grants))

    def do_extend(self, additional_time: float, replace_ttl: bool) -> Any:
        rest = 0 if replace_ttl else int(fields(self._ask("INFO")).get("ttl-ms", 0))
        self._ask("RENEW", self.local.token, "PX", max(1, rest + milliseconds(additional_time)))
        return True

    def do_reacquire(self) -> Any:
        return self.do_extend(self.timeout or 0, True)

    def _ask(self, verb: str, *words: Any) -> Any:
        return self._send([f"DLOCK.{verb}", self.name, *words])

    def _send(self, command: Any, settings: Optional[Settings] = None) -> Any:
        call = Call("redis-dlock", None, settings or self._locks._settings)
        return self._call(self._locks._run, ask(command, text(self.name), call))

    def _call(self, work: Callable[..., Any], *args: Any) -> Any:
        try:
            return work(*args)
        except NotAcquired:
            return None
        except Unavailable as error:
            raise ConnectionError(str(error)) from error
        except Refused as error:
            if error.code in ("NOTHELD", "LOST", "UNKNOWN"):
                raise LockNotOwnedError(f"The lock is no longer owned: {error}", self.name) from error
            if error.code != "REENTRY":  # the token holds the lock: its next acquire fails
                raise ResponseError(str(error)) from error
        except DLockError as error:
            raise LockError(str(error), self.name) from error


class Redis(redis_py.Redis):
    """``redis.Redis`` whose ``lock`` makes a ``Lock`` of this module, for settings that name a class."""

    def lock(  # type: ignore[override]
            self, name: str, timeout: Optional[float] = None, sleep: float = 0.1, blocking: bool = True,
            blocking_timeout: Optional[float] = None, lock_class: Any = None, **options: Any) -> Any:
        return super().lock(name, timeout, sleep, blocking, blocking_timeout, lock_class or Lock, **options)
