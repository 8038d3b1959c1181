"""Checks the bridge with real clients and two servers: one without dlock (old locks), one with it (`make bridge`).

Old clients, bridged clients and new clients, in Python and in Node, contend for one resource. The check also fails if
old and new clients without a bridge do not disturb each other: then it would not notice a bridge that does nothing.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import redis

from bridge import BridgedLock
from worker import BLOCKS, NEW_KEY, OLD_KEY

HERE = Path(__file__).resolve().parent
OLD_PORT, NEW_PORT, LEASE_MS = int(os.environ["OLD_PORT"]), int(os.environ["NEW_PORT"]), 20_000
PYTHON = [sys.executable, str(HERE / "worker.py")]
NODE = ["node", str(HERE / "worker.mjs")]
old, new = redis.Redis(port=OLD_PORT), redis.Redis(port=NEW_PORT)


def start(kind, turns, redlock=None, lease_ms=LEASE_MS):
    command = NODE if redlock else PYTHON
    command = [*command, kind, turns, OLD_PORT, NEW_PORT, lease_ms, *([redlock] if redlock else [])]
    return subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, text=True)


def contend(kinds, turns):
    """A client of each kind in Python, and one with each version of node-redlock. Returns overlaps, lost updates."""
    old.flushall()
    new.flushall()
    workers = [(kind, start(kind, turns, redlock)) for kind in kinds for redlock in (None, "redlock4", "redlock5")]
    overlaps, longest = 0, {}
    for kind, worker in workers:
        output, _ = worker.communicate(timeout=300)
        assert worker.returncode == 0, f"a client of kind {kind} failed"
        seen = json.loads(output)
        overlaps += seen["overlaps"]
        longest[kind] = max(longest.get(kind, 0), seen["longest_wait_s"])
    made = len(workers) * turns
    lost = made - int(old.get("total"))
    print(f"{' + '.join(kinds)}: {made} turns, {overlaps} overlaps, {lost} lost updates, longest waits {longest} s")
    return overlaps, lost


def exclusion():
    overlaps, lost = contend(["old", "new"], 100)
    assert overlaps > 0 and lost > 0, "without a bridge, old and new clients must disturb each other"
    for kinds in (["old", "bridged"], ["bridged", "new"]):
        assert contend(kinds, 100) == (0, 0), kinds


def bridged(lease_s):
    return BridgedLock(old.lock(OLD_KEY, timeout=lease_s, sleep=0.02, thread_local=False), new, NEW_KEY)


def wait_for(what, condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def a_client_that_is_not_granted_in_time_holds_nothing():
    for holder, name in ((lambda: old.set(OLD_KEY, "x"), "the old lock"), (lock_new, "dlock")):
        old.flushall()
        new.flushall()
        holder()
        start_s = time.monotonic()
        assert bridged(3).acquire(0.5) is None
        assert 0.4 < time.monotonic() - start_s < 5
        node = subprocess.run(
            [*NODE[:1], "--input-type=module", "-e", NOT_GRANTED], env=os.environ | {"HERE": str(HERE)}, timeout=60
        )
        assert node.returncode == 0
        if name == "dlock":
            assert old.get(OLD_KEY) is None, "the old lock is left behind"
        else:
            assert new.execute_command("DLOCK.INFO", NEW_KEY) is None, "dlock was taken first"
        wait_for("a place is left behind", lambda: not new.execute_command("DLOCK.WAITERS", NEW_KEY))
        print(f"not granted in time, {name} is busy: nothing is left behind (Python, Node)")


NOT_GRANTED = """
import { createRequire } from "node:module";
const require = createRequire(process.env.HERE + "/");
const { bridge } = await import(process.env.HERE + "/../../contrib/bridge/bridge.mjs");
const { Redis } = require("ioredis");
for (const name of ["redlock4", "redlock5"]) {
  const exported = require(name);
  const [old, fresh] = [new Redis(Number(process.env.OLD_PORT)), new Redis(Number(process.env.NEW_PORT))];
  const redlock = new (exported.default ?? exported)([old], { retryCount: 0 });
  const lock = bridge(redlock, fresh, { resource: "orders:7", key: "dlock:{orders:7}", lease: 3000 });
  if ((await lock.acquire(500)) !== null) throw new Error("granted");
  old.disconnect();
  fresh.disconnect();
}
"""


def lock_new():
    new.execute_command("DLOCK.ACQUIRE", NEW_KEY, "other", "PX", 60_000)


def a_server_that_cannot_be_reached_leaves_no_old_lock_behind():
    old.flushall()
    nowhere = redis.Redis(port=1, retry=None)
    try:
        BridgedLock(old.lock(OLD_KEY, timeout=30), nowhere, NEW_KEY).acquire(5)
        raise AssertionError("granted without a server")
    except redis.exceptions.ConnectionError:
        pass
    assert old.get(OLD_KEY) is None
    command = [*NODE[:1], "--input-type=module", "-e", UNREACHABLE]
    assert subprocess.run(command, env=os.environ | {"HERE": str(HERE)}, timeout=60).returncode == 0
    assert old.get(OLD_KEY) is None
    print("dlock cannot be reached: an error, and the old lock is released (Python, Node)")


UNREACHABLE = """
import { createRequire } from "node:module";
const require = createRequire(process.env.HERE + "/");
const { bridge } = await import(process.env.HERE + "/../../contrib/bridge/bridge.mjs");
const { Redis } = require("ioredis");
const Redlock = require("redlock5").default;
const old = new Redis(Number(process.env.OLD_PORT));
const nowhere = new Redis({ port: 1, maxRetriesPerRequest: 1 });
nowhere.on("error", () => {});
const redlock = new Redlock([old], { retryCount: 0 });
const lock = bridge(redlock, nowhere, { resource: "orders:7", key: "dlock:{orders:7}", lease: 30_000 });
const failed = await lock.acquire(5000).then(() => false, () => true);
if (!failed) throw new Error("granted without a server");
old.disconnect();
nowhere.disconnect();
"""


def a_lost_connection_does_not_lose_the_place():
    old.flushall()
    new.flushall()
    lock_new()
    lock, got = bridged(30), []
    waiting = threading.Thread(target=lambda: got.append(lock.acquire(30)))
    waiting.start()
    wait_for("the client waits for dlock", lambda: new.execute_command("DLOCK.POSITION", NEW_KEY, waiter()) == 1)
    behind = redis.Redis(port=NEW_PORT)
    assert behind.execute_command("DLOCK.ACQUIRE", NEW_KEY, "behind", "QUEUE", 60_000) is None
    owner = waiter()
    blocked = new.execute_command("DLOCK.WAITERS", NEW_KEY)[0][b"client-id"]
    new.client_kill_filter(_id=blocked)
    wait_for(
        "the same place over another connection",
        lambda: new.execute_command("DLOCK.WAITERS", NEW_KEY)[0][b"client-id"] not in (0, blocked),
    )
    new.execute_command("DLOCK.RELEASE", NEW_KEY, "other")
    waiting.join(30)
    assert got and lock.owner == owner.decode()
    lock.release()
    print("the waiting connection is killed: the client asks again and has its place (Python)")


def a_client_that_loses_the_old_lock_while_it_waits_starts_again():
    old.flushall()
    new.flushall()
    lock_new()
    lock, got = bridged(1), []
    waiting = threading.Thread(target=lambda: got.append(lock.acquire(30)))
    waiting.start()
    wait_for("the client waits for dlock", lambda: new.execute_command("DLOCK.POSITION", NEW_KEY, waiter()) == 1)
    owner = waiter()
    old.set(OLD_KEY, "an old client", px=20_000)  # as if the old lease had ended and another client had the lock
    wait_for("the place is given up", lambda: not new.execute_command("DLOCK.WAITERS", NEW_KEY))
    new.execute_command("DLOCK.RELEASE", NEW_KEY, "other")
    assert not got
    old.delete(OLD_KEY)
    waiting.join(30)
    assert got and got[0] == lock.token and lock.owner != owner.decode()
    lock.release()
    assert old.get(OLD_KEY) is None and new.execute_command("DLOCK.INFO", NEW_KEY) is None
    print("the old lock is lost during the wait for dlock: both are taken again, in order")


def waiter():
    waiters = new.execute_command("DLOCK.WAITERS", NEW_KEY)
    return waiters[0][b"owner"] if waiters else b"none"


def a_holder_learns_of_the_loss_of_either_lock():
    for loss in (lambda: old.delete(OLD_KEY), lambda: new.execute_command("DLOCK.BREAK", NEW_KEY)):
        lock = bridged(10)
        assert lock.acquire(5) is not None
        lock.extend()
        loss()
        for step in (lock.extend, lock.release):
            try:
                step()
            except (redis.exceptions.LockNotOwnedError, redis.exceptions.ResponseError):
                continue
            raise AssertionError("the loss was not reported")
        assert old.get(OLD_KEY) is None and new.execute_command("DLOCK.INFO", NEW_KEY) is None
    print("either lock is lost under the holder: extend and release say so, and release the other one")


def a_killed_holder_costs_its_lease():
    for redlock in (None, "redlock4", "redlock5"):
        old.flushall()
        new.flushall()
        holder = start("bridged", 1_000_000, redlock, lease_ms=1500)
        wait_for("it works", lambda: int(old.get("total") or 0) > 5)
        # Killed while it has both locks: stopped first, so that it cannot release them between the look and the kill.
        while True:
            holder.send_signal(signal.SIGSTOP)
            if old.get(OLD_KEY) and new.execute_command("DLOCK.INFO", NEW_KEY):
                break
            holder.send_signal(signal.SIGCONT)
        holder.kill()
        holder.wait()
        began = time.monotonic()
        lock = bridged(5)
        assert lock.acquire(30) is not None
        waited = time.monotonic() - began
        assert waited < 15
        lock.release()
        name = redlock or "redis-py"
        print(f"{name}: kill -9 under both locks, lease 1.5 s: the next client had them after {waited:.1f} s")


def the_examples_of_the_pages_run():
    old.flushall()
    new.flushall()
    ports, shipped = {"old": OLD_PORT, "new": NEW_PORT}, []
    servers = SimpleNamespace(Redis=lambda host: redis.Redis(port=ports[host]))
    exec(BLOCKS[1], {"redis": servers, "ship": lambda token: shipped.append(token)})
    assert shipped and shipped[0] > 0
    for redlock in ("redlock4", "redlock5"):
        assert start("page", 1, redlock).wait(60) == 0
    assert old.get(OLD_KEY) is None and new.execute_command("DLOCK.INFO", NEW_KEY) is None
    print("the examples of docs/migrate/redis-py.md and node-redlock.md ran")


if __name__ == "__main__":
    exclusion()
    the_examples_of_the_pages_run()
    a_client_that_is_not_granted_in_time_holds_nothing()
    a_server_that_cannot_be_reached_leaves_no_old_lock_behind()
    a_lost_connection_does_not_lose_the_place()
    a_client_that_loses_the_old_lock_while_it_waits_starts_again()
    a_holder_learns_of_the_loss_of_either_lock()
    a_killed_holder_costs_its_lease()
