"""One lock that takes a redis-py `Lock` and a dlock lock. For the days on which old and new clients run side by side.

docs/migrate/redis-py.md says when to use it, and why it takes the old lock first.
"""

import time
import uuid

from redis.exceptions import LockNotOwnedError, ResponseError


class BridgedLock:
    """`old` is a redis-py Lock with a timeout; `new` is a redis-py client of the server with dlock. One per task.

    After `acquire`, `token` is the fencing token, and `until` is the moment (time.monotonic) at which the holder must
    have released or extended. `block_ms` must be below the socket timeout of `new` (redis-py 8: 5 s).
    """

    def __init__(self, old, new, key, block_ms=1000):
        self.old, self.new, self.key = old, new, key
        self.lease_ms = int(old.timeout * 1000)
        self.block_ms = min(block_ms, self.lease_ms // 3)
        self.token, self.until = None, 0.0

    def acquire(self, timeout):
        """Returns the fencing token, or None after `timeout` seconds. Then it holds neither lock."""
        end = time.monotonic() + timeout
        while self.old.acquire(blocking=True, blocking_timeout=max(0, end - time.monotonic())):
            self.owner = uuid.uuid4().hex
            try:
                if self._acquire_new(end):
                    return self.token
                timed_out = True
            except LockNotOwnedError:  # the old lease ended while this waited for dlock: start again
                timed_out = False
            except BaseException:
                self._undo()
                raise
            self._undo()
            if timed_out:
                return None
        return None

    def _acquire_new(self, end):
        while True:
            start = time.monotonic()
            args = ["DLOCK.ACQUIRE", self.key, self.owner, "PX", self.lease_ms, "REQID", "acquire"]
            left_ms = int((end - start) * 1000)
            if left_ms > 0:  # BLOCK for less than a socket timeout; QUEUE keeps the place between two calls
                args += ["BLOCK", min(self.block_ms, left_ms), "QUEUE", max(3 * self.block_ms, 10_000)]
            token = self.new.execute_command(*args)
            self.old.reacquire()  # the old lease restarts, also while this waits for dlock
            if token is not None:
                self.token, self.until = token, start + self.lease_ms / 1000
                return True
            if left_ms <= 0:
                return False

    def extend(self):
        """Both leases start again in full. Raises when one of the locks is lost: then stop the work, and release."""
        start = time.monotonic()
        self.old.reacquire()
        self.new.execute_command("DLOCK.RENEW", self.key, self.owner, "PX", self.lease_ms, "TOKEN", self.token)
        self.until = start + self.lease_ms / 1000

    def release(self):
        """Releases dlock, then the old lock, also when the first one fails. Raises when one of them was lost."""
        try:
            self.new.execute_command("DLOCK.RELEASE", self.key, self.owner, "TOKEN", self.token, "REQID", "acquire")
        finally:
            self.token = None
            self.old.release()

    def _undo(self):
        try:  # it also ends a copy of the request that is still under way
            self.new.execute_command("DLOCK.RELEASE", self.key, self.owner, "REQID", "acquire")
        except ResponseError:  # UNKNOWN or LOST: it held nothing
            pass
        finally:
            try:
                self.old.release()
            except LockNotOwnedError:
                pass
