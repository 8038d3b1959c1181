"""A client of the check: `worker.py old|bridged|new TURNS OLD_PORT NEW_PORT LEASE_MS`. Prints what it saw as JSON.

New clients acquire with the code of docs/migrate/redis-py.md.
"""

import json
import random
import re
import sys
import time
import uuid
from pathlib import Path

import redis

from bridge import BridgedLock

OLD_KEY, NEW_KEY = "orders:7", "dlock:{orders:7}"
PAGE = (Path(__file__).resolve().parents[2] / "docs/migrate/redis-py.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.S)
exec(BLOCKS[0])


class NewLock:
    def __init__(self, client, lease_ms):
        self.client, self.lease_ms = client, lease_ms

    def acquire(self, timeout):
        self.owner = uuid.uuid4().hex
        return acquire(self.client, NEW_KEY, self.owner, self.lease_ms, timeout)  # noqa: F821, from the page

    def release(self):
        self.client.execute_command("DLOCK.RELEASE", NEW_KEY, self.owner, "REQID", "r")


class OldLock:
    def __init__(self, lock):
        self.lock = lock

    def acquire(self, timeout):
        return self.lock.acquire(blocking_timeout=timeout) or None

    def release(self):
        self.lock.release()


def lock_of(kind, old, new, lease_ms):
    if kind == "new":
        return NewLock(new, lease_ms)
    lock = old.lock(OLD_KEY, timeout=lease_ms / 1000, sleep=0.02)
    return BridgedLock(lock, new, NEW_KEY) if kind == "bridged" else OldLock(lock)


def main(kind, turns, old_port, new_port, lease_ms):
    old, new = redis.Redis(port=old_port), redis.Redis(port=new_port)
    lock = lock_of(kind, old, new, lease_ms)
    overlaps, longest = 0, 0.0
    for _ in range(turns):
        start = time.monotonic()
        assert lock.acquire(60) is not None, "not granted in a minute"
        longest = max(longest, time.monotonic() - start)
        overlaps += old.incr("inside") != 1
        value = int(old.get("total") or 0)
        time.sleep(random.uniform(0, 0.003))
        old.set("total", value + 1)
        old.decr("inside")
        lock.release()
    print(json.dumps({"turns": turns, "overlaps": overlaps, "longest_wait_s": round(longest, 2)}))


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:6]))
