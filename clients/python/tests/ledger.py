"""A ledger of 200 workers in three languages on ten locks, while processes are killed, connections cut, servers killed.

    SECONDS=60 python -m pytest -s tests/ledger.py

The default is 10 s for each of the two tests: one server that is restarted, and a Sentinel group that fails over.

40 threads in four processes, 45 tasks of asyncio in three, 60 tasks of the Rust client in three, and 55 promises of the
Node client in three. Each notes start and steps of its turns with its token in a second server, the recorder, which
refuses a token that is not the largest of its lock. A turn is an overlap if a note was refused, but its client believed
in the hold after that, or the release says that the hold stood. One turn of a hundred is as long as a lease: such holds
are renewed, and servers fail under them.

Tokens show the order in which the server granted: that of one lock rises from turn to turn. They do not show the order
in which requests arrived. For that each worker takes a ticket from the recorder before it asks, and the recorder counts
the tickets that came later and began earlier. That number is printed, and not judged: requests can pass each other
between the recorder and the server, and a queue of DLOCK ends with its server.

The Rust workers are ``crates/client/examples/ledger.rs``: ``DLOCK_LEDGER`` names the program, else cargo builds it.
Those of Node are ``clients/node/tests/ledger.mjs``, and run if that client was built.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

sys.path.insert(0, str(Path(__file__).parent))

import redis  # noqa: E402
import redis.asyncio  # noqa: E402
import redis.asyncio.sentinel  # noqa: E402
import redis.sentinel  # noqa: E402
from redis.backoff import NoBackoff  # noqa: E402
from redis.retry import Retry  # noqa: E402
from servers import SERVER, Proxy, Server, free_port, until  # noqa: E402

from redis_dlock import AsyncDLock, DLock, DLockError  # noqa: E402

LOCKS, LEASE = 10, 1.5
KINDS = [("threads", 10)] * 4 + [("asyncio", 15)] * 3 + [("rust", 20)] * 3 + [("node", 18)] * 2 + [("node", 19)]
NODE = Path(__file__).resolve().parents[2] / "node"
STEP = 0.01
#: KEYS: the lock; ARGV: event, token, kind, ticket. "ask" replies a ticket; "start" and "step" reply whether the token
#: is the largest of the lock.
SCRIPT = """
local event, token, kind = ARGV[1], tonumber(ARGV[2]), ARGV[3]
if event == 'ask' then return redis.call('INCR', KEYS[1] .. ':tickets') end
if event ~= 'start' and event ~= 'step' then
    redis.call('HINCRBY', 'results', event, 1)
    redis.call('HINCRBY', 'results', kind .. ' ' .. event, 1)
    if event == 'overlap' then redis.call('RPUSH', 'overlaps', KEYS[1] .. ' ' .. ARGV[2] .. ' ' .. kind) end
    return 1
end
local largest = tonumber(redis.call('GET', KEYS[1]) or '0')
if event == 'step' then return token == largest and 1 or 0 end
if token <= largest then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
local passed = redis.call('ZCOUNT', KEYS[1] .. ':begun', '(' .. ARGV[4], '+inf')
redis.call('ZADD', KEYS[1] .. ':begun', ARGV[4], ARGV[4])
redis.call('HINCRBY', 'passed', passed, 1)
return 1
"""


def outcome(is_noted: bool, is_believed: bool, has_stood: bool) -> str:
    if not is_noted and (is_believed or has_stood):
        return "overlap"
    return "turn" if has_stood else "lost"


def steps(token: int) -> int:
    """How long a turn lasts: now and then so long that its hold is renewed."""
    return int(LEASE / STEP) if token % 100 == 0 else 1


def in_threads(server: str, recorder: int, threads: int) -> None:
    record = redis.Redis(port=recorder)
    client, replicas = connect(server, redis.Redis, redis.sentinel.Sentinel)
    locks = DLock(client, lease=LEASE, replicas=replicas)

    def work(turn: int) -> None:
        while True:
            turn += 1
            key = f"ledger:{turn % LOCKS}"

            def note(event: str, token: int, ticket: int = 0) -> int:
                return record.eval(SCRIPT, 1, key, event, token, "threads", ticket)  # noqa: B023
            ticket = note("ask", 0)
            try:
                hold = locks.lock(key).acquire()
            except DLockError:
                time.sleep(0.05)
                continue
            is_noted, left = note("start", hold.token, ticket), steps(hold.token)
            while is_noted and left and hold.valid_for() > 0:
                time.sleep(STEP)
                is_noted, left = note("step", hold.token), left - 1
            is_believed, has_stood = hold.valid_for() > 0, True
            try:
                hold.release()
            except DLockError:
                has_stood = False
            note(outcome(is_noted, is_believed, has_stood), hold.token)

    workers = [threading.Thread(target=ends_all, args=(work, number)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def ends_all(work: Callable[[int], None], number: int) -> None:
    """An error that a worker does not expect ends its process, which the test finds."""
    try:
        work(number)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


async def in_tasks(server: str, recorder: int, tasks: int) -> None:
    record = redis.asyncio.Redis(port=recorder)
    client, replicas = connect(server, redis.asyncio.Redis, redis.asyncio.sentinel.Sentinel)
    locks = AsyncDLock(client, lease=LEASE, replicas=replicas)

    async def work(turn: int) -> None:
        while True:
            turn += 1
            key = f"ledger:{turn % LOCKS}"

            async def note(event: str, token: int, ticket: int = 0) -> int:
                return await record.eval(SCRIPT, 1, key, event, token, "asyncio", ticket)  # noqa: B023
            ticket = await note("ask", 0)
            try:
                hold = await locks.lock(key).acquire()
            except DLockError:
                await asyncio.sleep(0.05)
                continue
            is_noted, left = await note("start", hold.token, ticket), steps(hold.token)
            while is_noted and left and hold.valid_for() > 0:
                await asyncio.sleep(STEP)
                is_noted, left = await note("step", hold.token), left - 1
            is_believed, has_stood = hold.valid_for() > 0, True
            try:
                await hold.release()
            except DLockError:
                has_stood = False
            await note(outcome(is_noted, is_believed, has_stood), hold.token)

    await asyncio.gather(*(work(number) for number in range(tasks)))


def connect(server: str, direct: Any, sentinel: Any) -> tuple[Any, int]:
    """A client, and the replicas that must confirm its grants."""
    kind, port = server.split(":")
    if kind == "sentinel":
        return sentinel([("127.0.0.1", int(port))]).master_for("main", socket_timeout=2), 1
    return direct(port=int(port)), 0


def rust_program() -> str:
    """The program of the Rust workers, or nothing."""
    root = Path(__file__).resolve().parents[3]
    if "DLOCK_LEDGER" in os.environ:
        return os.environ["DLOCK_LEDGER"]
    if shutil.which("cargo") is None:
        print("\nno cargo: no Rust workers")
        return ""
    build = ["cargo", "build", "--quiet", "--package", "dlock-client", "--example", "ledger"]
    subprocess.run(build, cwd=root, check=True)
    return str(Path(os.environ.get("CARGO_TARGET_DIR", root / "target")) / "debug/examples/ledger")


class Workers:
    """Processes with workers, and the recorder of their turns. ``server``: its kind and port."""

    def __init__(self, server: str) -> None:
        self._server, self._rust = server, rust_program()
        missing = [] if self._rust else ["rust"]
        if not (NODE / "dist").exists():
            print("\nno build of clients/node: no Node workers")
            missing.append("node")
        self.kinds = [kind for kind in KINDS if kind[0] not in missing]
        self.recorder = Server("--appendonly", "no", module=False)
        self._processes: list[subprocess.Popen] = []
        self.killed = 0

    def start(self) -> None:
        for kind in self.kinds:
            self._processes.append(self._start(*kind))
        until(lambda: all(self.turns(f"{kind} turn") > 5 for kind, _ in self.kinds), 60)

    def _start(self, kind: str, count: int) -> subprocess.Popen:
        words = [sys.executable, __file__, kind, self._server, str(self.recorder.port), str(count)]
        if kind == "rust":
            way, port = self._server.split(":")
            url = f"redis://127.0.0.1:{port}/"
            if way == "sentinel":
                url = f"redis-sentinel://127.0.0.1:{port}/main?replicas=1"
            words = [self._rust, url, f"redis://127.0.0.1:{self.recorder.port}/", str(count), SCRIPT]
        if kind == "node":
            words = ["node", str(NODE / "tests/ledger.mjs"), self._server, str(self.recorder.port), str(count), SCRIPT]
        return subprocess.Popen(words, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})

    def kill_one(self) -> None:
        number = random.randrange(len(self.kinds))
        self._assert_alive()
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start(*self.kinds[number])
        self.killed += 1

    def _assert_alive(self) -> None:
        for process in self._processes:
            assert process.poll() is None, "a worker ended by itself"

    def turns(self, kind: str = "turn") -> int:
        return int(self.recorder.client.hget("results", kind) or 0)

    def see_all_go_on(self) -> None:
        before = {kind: self.turns(f"{kind} turn") for kind, _ in self.kinds}
        until(lambda: all(self.turns(f"{kind} turn") > turns + 20 for kind, turns in before.items()), 40)
        self._assert_alive()

    def end(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._processes = []

    def assert_no_overlaps(self, **done: Any) -> None:
        def read(name: str) -> dict[str, int]:
            return {key.decode(): int(value) for key, value in self.recorder.client.hgetall(name).items()}
        results, passed = read("results"), read("passed")
        starts = sum(passed.values())
        print("\n", {"killed": self.killed, **done}, results)
        print(f" {passed.get('0', 0) / starts:.1%} of {starts} turns began before all that took their tickets later;",
              f"on average {sum(int(by) * turns for by, turns in passed.items()) / starts:.2f} passed a turn,",
              f"at most {max(map(int, passed))}")
        assert self.recorder.client.lrange("overlaps", 0, -1) == []
        assert results["turn"] > 100


def test_no_turns_overlap_while_a_server_restarts():
    server = Server("--appendonly", "yes")
    proxy = Proxy(server.port)
    workers = Workers(f"redis:{proxy.port}")
    cuts = restarts = 0
    try:
        workers.start()
        end, step = time.monotonic() + seconds(), 0
        while time.monotonic() < end:
            time.sleep(random.uniform(0.3, 0.7))
            step += 1
            if step % 8 == 0:
                server.kill()
                server.start()
                restarts += 1
            elif step % 2:
                proxy.cut()
                cuts += 1
            else:
                workers.kill_one()
        workers.see_all_go_on()
        workers.end()
        # Nothing is left over: holds end with their leases, places with their time.
        until(lambda: server.client.dbsize() == 0, LEASE + 20)
        workers.assert_no_overlaps(cut=cuts, restarted=restarts)
    finally:
        workers.end()
        workers.recorder.end()
        proxy.end()
        server.end()


class Group:
    """A primary, a replica and a Sentinel, with the failover profile of docs/failover.md."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="dlock-python-")
        profile = ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "5", "--appendonly", "yes",
                   "--repl-diskless-sync-delay", "0", "--dlock.restart-quarantine-ms", str(int(LEASE * 1000) + 500)]
        self.servers = [Server(*profile), Server(*profile)]
        first = self.servers[0].port
        self._follow(self.servers[1], first)
        self._watch = Server.__new__(Server)
        self._watch.port, self._watch.folder = free_port(), self._folder
        path = Path(self._folder, "sentinel.conf")
        path.write_text(f"sentinel monitor main 127.0.0.1 {first} 1\nsentinel down-after-milliseconds main 1000\n"
                        f"sentinel failover-timeout main 2000\ndir {self._folder}\n")
        self._watch._command = [SERVER, str(path), "--sentinel", "--port", str(self._watch.port)]
        self._watch.start()
        until(lambda: self._watch.ask("SENTINEL", "REPLICAS", "main"), 20)
        self.port = self._watch.port

    def _follow(self, server: Server, port: int) -> None:
        server.ask("REPLICAOF", "127.0.0.1", port)
        until(lambda: server.client.info("replication").get("master_link_status") == "up", 30)

    def primary(self) -> Server:
        port = int(self._watch.ask("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main")[1])
        return next(server for server in self.servers if server.port == port)

    def fail_over(self, is_kill: bool) -> None:
        """Kills the primary, or stops it, until the other has taken over. It comes back as a stale primary."""
        primary = self.primary()
        if is_kill:
            primary.kill()
        else:
            primary.pause()
        until(lambda: self.primary() is not primary, 30)
        time.sleep(random.uniform(0, 1))
        if is_kill:
            primary.start()
        else:
            primary.go_on()
        time.sleep(random.uniform(0, 1))
        self._follow(primary, self.primary().port)
        self._cut(primary)  # Sentinel would have done both, some 10 s later

    def cut(self) -> None:
        """Ends all connections of clients."""
        for server in self.servers:
            self._cut(server)

    def _cut(self, server: Server) -> None:
        try:
            with redis.Redis(port=server.port, socket_timeout=0.2, retry=Retry(NoBackoff(), 0)) as client:
                for kind in ("normal", "pubsub"):
                    client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        except redis.exceptions.RedisError:
            pass  # it is killed or stopped just now

    def end(self) -> None:
        for server in (self._watch, *self.servers):
            server.end()


def test_no_turns_overlap_through_failovers():
    group = Group()
    workers = Workers(f"sentinel:{group.port}")
    cuts, failovers = 0, {"killed": 0, "stopped": 0}
    try:
        workers.start()
        end, step, way = time.monotonic() + seconds(), 0, "killed"
        with ThreadPoolExecutor(1) as background:
            failing = background.submit(group.fail_over, True)
            while time.monotonic() < end or not failing.done():
                time.sleep(random.uniform(0.3, 0.7))
                step += 1
                if failing.done() and step % 12 == 0 and time.monotonic() < end:
                    failing.result()
                    failovers[way] += 1
                    way = random.choice(list(failovers))
                    failing = background.submit(group.fail_over, way == "killed")
                elif step % 2:
                    group.cut()
                    cuts += 1
                else:
                    workers.kill_one()
            failing.result()
            failovers[way] += 1
        workers.see_all_go_on()
        workers.end()
        until(lambda: all(server.client.dbsize() == 0 for server in group.servers), LEASE + 20)
        workers.assert_no_overlaps(cut=cuts, failovers=failovers)
    finally:
        workers.end()
        workers.recorder.end()
        group.end()


def seconds() -> float:
    return float(os.environ.get("SECONDS", "10"))


if __name__ == "__main__":
    kind, server, *numbers = sys.argv[1:]
    if kind == "threads":
        in_threads(server, *map(int, numbers))
    else:
        asyncio.run(in_tasks(server, *map(int, numbers)))
