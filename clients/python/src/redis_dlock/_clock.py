"""The clock by which leases are counted. It goes on while the machine is suspended."""

from __future__ import annotations

import time
from typing import Callable


def _boot_time() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class _MaxClock:
    """The larger of the monotonic and the wall time that have passed: the monotonic clock may stop in a suspend."""

    def __init__(self) -> None:
        self._monotonic, self._wall, self._ahead = time.monotonic(), time.time(), 0.0

    def __call__(self) -> float:
        monotonic = time.monotonic()
        self._ahead = max(self._ahead, time.time() - self._wall - (monotonic - self._monotonic))
        return monotonic + self._ahead


now: Callable[[], float] = _boot_time if hasattr(time, "CLOCK_BOOTTIME") else _MaxClock()

#: How often a task that watches holds looks at the clock, in seconds: timers stand still in a suspend.
CLOCK_INTERVAL = 0.25
