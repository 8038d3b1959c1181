"""Locks in Redis and Valkey servers with the module dlock: https://github.com/dlock/dlock."""

from .aio import AsyncDLock, AsyncElection, AsyncHold, AsyncLock
from .errors import Closed, Deadlock, DLockError, LockLost, NotAcquired, Refused, ReleaseUnknown, Replaced, Unavailable
from .locks import DLock, Election, Hold, Lock
from .primitives import AsyncLatch, Latch, Leader, Once

__all__ = [
    "AsyncDLock", "AsyncElection", "AsyncHold", "AsyncLatch", "AsyncLock", "Closed", "DLock", "DLockError", "Deadlock",
    "Election", "Hold", "Latch", "Leader", "Lock", "LockLost", "NotAcquired", "Once", "Refused", "ReleaseUnknown",
    "Replaced", "Unavailable",
]

__version__ = "1.0.0"
