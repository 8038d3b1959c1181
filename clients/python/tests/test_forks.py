"""Forks (python-redis-lock#91), and waits that a signal interrupts. The parents are processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest
import redis
from servers import until

from redis_dlock import DLock, NotAcquired

PARENT = """
import asyncio, os, signal, sys, threading, time
import redis, redis.asyncio
from redis_dlock import AsyncDLock, DLock, LockLost

port, key, kind, scene = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
pools = {"pool": {}, "blocking": {"connection_pool": redis.BlockingConnectionPool(port=port, client_name=key)}}

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def check_in_child(hold):
    try:
        hold.check()
    except LockLost as error:
        say(error.reason, bool(hold.lost), hold.valid_for())

def threads(options={}):
    locks = DLock(redis.Redis(port=port, client_name=key, **options))
    with locks.lock(key) as hold:
        while not locks._engine.generation:
            time.sleep(0.005)
        if os.fork():
            say("parent", os.getpid())
            time.sleep(600)
        say("child", os.getpid())
        check_in_child(hold)
        hold.release()
    say("quiet")
    sys.stdin.readline()
    with locks.lock(key + ":child", timeout=5, lease=1.0) as mine:
        say(mine.token)
        sys.stdin.readline()
    say("end")
    sys.stdin.readline()

async def tasks():
    locks = AsyncDLock(redis.asyncio.Redis(port=port, client_name=key))
    async def child():
        async with locks.lock(key + ":child", timeout=5, lease=1.0) as mine:
            say(mine.token)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    async with locks.lock(key) as hold:
        while not locks._engine.generation:
            await asyncio.sleep(0.005)
        if not os.fork():
            say("child", os.getpid())
            check_in_child(hold)
            hold.release().close()
            release = hold.release()
            try:
                release.send(None)
            except StopIteration:
                pass
            say("quiet")
            sys.stdin.readline()
            asyncio.run(child())
            say("end")
            sys.stdin.readline()
            os._exit(0)
        say("parent", os.getpid())
        await asyncio.sleep(600)

def naive():
    lock = redis.Redis(port=port).lock(key, timeout=60)
    with lock:
        if os.fork():
            say("parent", os.getpid())
            time.sleep(600)
        say("child", os.getpid())
        lock.release()
        say("quiet")
        sys.stdin.readline()

def busy():
    # Other threads hold locks of the pool and of the client at the moment of the fork.
    locks = DLock(redis.Redis(**pools.get(scene, {}), port=port) if scene == "pool" else redis.Redis(**pools[scene]))
    def work(number):
        while True:
            with locks.lock(f"{key}:{number}"):
                pass
    with locks.lock(key):
        pass  # all is imported: an import lock that is held at a fork is Python's own trouble
    for number in range(8):
        threading.Thread(target=work, args=(number,), daemon=True).start()
    children = []
    for number in range(15):
        time.sleep(0.01)
        child = os.fork()
        if not child:
            signal.alarm(20)
            with locks.lock(f"{key}:c{number}", timeout=20) as hold:
                hold.check()
            os._exit(0)
        children.append(child)
    say(*(os.waitpid(child, 0)[1] for child in children))
    os._exit(0)

if scene == "naive":
    naive()
elif kind == "busy":
    busy()
elif kind == "threads":
    threads(pools[scene])
else:
    asyncio.run(tasks())
"""


class Parent:
    def __init__(self, port: int, key: str, kind: str, scene: str = "pool") -> None:
        words = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PARENT, str(port), key, kind, scene]
        self.process = subprocess.Popen(words, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
        self.child = 0

    def line(self) -> str:
        while (line := self.process.stdout.readline().strip()).startswith("parent"):
            pass
        return line

    def start(self) -> list[str]:
        """Reads until the child has said that it is quiet; returns what else it said."""
        said = []
        while (line := self.line()) != "quiet" or not self.child:
            assert line or self.process.poll() is None, said
            if line.startswith("child"):
                self.child = int(line.split()[1])
            else:
                said.append(line)
        return said

    def go_on(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.child:
            try:
                os.kill(self.child, signal.SIGKILL)
            except OSError:
                pass
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def parent(request):
    made = []

    def new(*arguments):
        made.append(Parent(*arguments))
        return made[-1]

    yield new
    for one in made:
        one.end()


@pytest.mark.parametrize("kind, scene", [("threads", "pool"), ("threads", "blocking"), ("asyncio", "pool")])
def test_a_child_leaves_the_hold_to_its_parent(server, proxy, key, parent, kind, scene):
    """python-redis-lock#91: a child of a fork released the lock of its parent, or wrote to its connection."""
    client = server.client
    port = server.port if scene == "blocking" else proxy.port
    one = parent(port, key, kind, scene)
    sent = len(proxy.requests) if scene == "blocking" else until(lambda: len(proxy.requests))
    said = one.start()
    assert said == ["forked True 0.0"]
    if scene != "blocking":
        assert len(proxy.requests) >= sent
    token = server.shown(key, "token")
    assert token and server.holds(key) == 1
    after_fork, connections = len(proxy.requests), [it["id"] for it in client.client_list() if it["name"] == key]
    one.go_on()
    assert int(one.line()) > 0  # a lock of its own, over connections of its own
    assert len([it for it in client.client_list() if it["name"] == key]) > len(connections)
    assert scene == "blocking" or len(proxy.requests) > after_fork
    # The child renews its own hold, and the parent still has its own.
    child = DLock(redis.Redis(port=server.port))
    with pytest.raises(NotAcquired):
        child.lock(f"{key}:child", timeout=1.2).acquire()
    child.close()
    one.go_on()
    assert one.line() == "end"
    assert not client.exists(f"{key}:child")
    assert server.shown(key, "token") == token
    # The child lives, and has closed its copies: the server sees the end of the parent.
    one.process.kill()
    one.process.wait()
    until(lambda: not set(connections) & {it["id"] for it in client.client_list()})
    os.kill(one.child, 0)
    client.delete(key)


def test_a_child_writes_nothing_to_the_connections_of_its_parent(server, proxy, key, parent):
    """Not a byte between the fork and the end of the child's look at the hold."""
    one = parent(proxy.port, key, "threads")
    until(lambda: b"DLOCK.ACQUIRE" in proxy.requests and b"SUBSCRIBE" in proxy.requests)
    one.start()
    assert proxy.requests.count(b"DLOCK.ACQUIRE") == 1
    assert proxy.requests.count(b"DLOCK.RENEW") <= 1  # by the parent, after its subscription
    for word in (b"DLOCK.RELEASE", b"UNSUBSCRIBE", b"QUIT"):
        assert word not in proxy.requests
    server.client.delete(key)


def test_a_child_of_redis_py_releases_the_lock_of_its_parent(server, key, parent):
    """python-redis-lock#91: what happens with redis-py's lock."""
    parent(server.port, key, "threads", "naive").start()
    assert not server.client.exists(key)


@pytest.mark.parametrize("scene", ["pool", "blocking"])
def test_a_fork_while_other_threads_hold_locks(server, key, parent, scene):
    """A lock that was held at the fork stays so in the child forever."""
    one = parent(server.port, key, "busy", scene)
    assert set(one.line().split()) == {"0"}
    until(lambda: not server.client.keys(f"{key}:c*"))


WORKER = """
import os, sys, time, redis
from redis_dlock import DLock
port, key = int(sys.argv[1]), sys.argv[2]
client = redis.Redis(port=port)
locks = DLock(client, lease=0.5)
with locks.lock(key):
    pass
for _ in range(3):
    if not os.fork():
        break
os.write(1, b"%d\\n" % os.getpid())
while True:
    with locks.lock(key) as hold:
        client.rpush(key + ":log", f"{os.getpid()} {hold.token}")
        time.sleep(0.002)
"""


def test_a_prefork_server(server, key):
    """Workers and their parent are killed one after the other: those that live take turns on."""
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(server.port), key], stdout=subprocess.PIPE,
                               text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    pids = [int(process.stdout.readline()) for _ in range(4)]
    client, log = server.client, f"{key}:log"

    def all_work() -> None:
        client.delete(log)
        until(lambda: {int(line.split()[0]) for line in client.lrange(log, 0, -1)} == set(pids), 20)

    try:
        all_work()
        while len(pids) > 1:
            victim = process.pid if process.pid in pids and len(pids) == 3 else next(
                pid for pid in pids if pid != process.pid or len(pids) < 3)
            os.kill(victim, signal.SIGKILL)
            pids.remove(victim)
            all_work()
        tokens = [int(line.split()[1]) for line in client.lrange(log, 0, -1)]
        assert tokens == sorted(set(tokens))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        process.stdout.close()
    until(lambda: not client.exists(key), 5)
    client.delete(log)


def test_keyboard_interrupt_leaves_the_queue(server, key):
    """The next waiter gets the lock at once, not after the time of a place in the queue."""
    locks = DLock(redis.Redis(port=server.port))
    hold = locks.lock(key).acquire()

    def interrupt() -> None:
        until(lambda: server.waiters(key) == 1)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        locks.lock(key).acquire()
    assert server.waiters(key) == 0
    hold.release()
    locks.lock(key, timeout=0).acquire().release()
    locks.close()


def test_a_soft_time_limit_leaves_the_queue(server, key):
    """Celery ends a task with an exception from a signal handler, in any line: also while it waits for a reply."""
    class SoftTimeLimit(Exception):
        pass

    def limit(*_):
        raise SoftTimeLimit

    locks = DLock(redis.Redis(port=server.port))
    other = DLock(redis.Redis(port=server.port))
    hold = other.lock(key).acquire()
    locks.lock(f"{key}:before").acquire().release()  # threading makes a KeyError of an interrupted start of a thread
    before = signal.signal(signal.SIGALRM, limit)
    try:
        for attempt in range(40):
            with pytest.raises(SoftTimeLimit):
                # Again and again: redis-py drops what is raised while it ends a connection.
                signal.setitimer(signal.ITIMER_REAL, 0.0005 + attempt * 0.0003, 0.5)
                locks.lock(key).acquire()
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    until(lambda: server.waiters(key) == 0, 5)
    hold.release()
    other.lock(key, timeout=0).acquire().release()
    locks.close()
    other.close()
