"""Clusters, Sentinel groups, valkey-py, gevent: acquire, contend, renew, lose, release."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.sentinel
import redis.cluster
import redis.sentinel
import valkey
import valkey.asyncio
import valkey.cluster
from servers import SERVER, Cluster, Server, free_port, until

import redis_dlock
from redis_dlock import AsyncDLock, DLock, LockLost, NotAcquired, Unavailable


@pytest.fixture(scope="module")
def cluster():
    one = Cluster()
    yield one
    one.end()


@pytest.fixture
def sentinel(tmp_path):
    primary = Server("--appendonly", "no")
    replica = Server("--replicaof", "127.0.0.1", str(primary.port), "--appendonly", "no")
    until(lambda: replica.client.info("replication").get("master_link_status") == "up", 20)
    path = tmp_path / "sentinel.conf"
    path.write_text(f"sentinel monitor main 127.0.0.1 {primary.port} 1\nsentinel down-after-milliseconds main 500\n"
                    f"sentinel failover-timeout main 2000\ndir {tmp_path}\n")
    watch = Server.__new__(Server)
    watch.port, watch.folder = free_port(), str(tmp_path)
    watch._command = [SERVER, str(path), "--sentinel", "--port", str(watch.port)]
    watch.start()
    until(lambda: watch.ask("SENTINEL", "REPLICAS", "main"), 20)
    yield watch, primary, replica
    for one in (watch, primary, replica):
        one.end()


def is_primary(server: Server) -> bool:
    try:
        return server.client.info("replication")["role"] == "master"
    except redis.exceptions.ConnectionError:  # a promotion ends connections, and redis-py 5 does not try again
        return False


def contend(locks: DLock, key: str, break_lock) -> None:
    """What each kind of client has to do, with threads."""
    with locks.lock(key, lease=1.5) as hold:
        with pytest.raises(NotAcquired):
            locks.lock(key, timeout=0).acquire()
        got: list = []
        waiter = threading.Thread(target=lambda: got.append(locks.lock(key, timeout=10).acquire()))
        waiter.start()
        waiter.join(1.7)
        hold.check()  # renewed meanwhile
        assert not got
    waiter.join()
    assert got[0].token > hold.token
    break_lock(key)
    assert got[0].lost.wait(10)
    with pytest.raises(LockLost):
        got[0].release()
    with locks.multi_lock([f"{{{key}}}a", f"{{{key}}}b"], timeout=5) as both:
        assert len(both.tokens) == 2


async def contend_async(locks: AsyncDLock, key: str, break_lock) -> None:
    async with locks.lock(key, lease=1.5) as hold:
        with pytest.raises(NotAcquired):
            await locks.lock(key, timeout=0).acquire()
        waiter = asyncio.ensure_future(locks.lock(key, timeout=10, lease=3.0).acquire())
        await asyncio.sleep(1.7)
        hold.check()
        assert not waiter.done()
    second = await waiter
    assert second.token > hold.token
    await asyncio.get_running_loop().run_in_executor(None, break_lock, key)
    await asyncio.wait_for(second.lost.wait(), 10)
    with pytest.raises(LockLost):
        await second.release()
    async with locks.multi_lock([f"{{{key}}}a", f"{{{key}}}b"], timeout=5) as both:
        assert len(both.tokens) == 2


def test_a_cluster(cluster, key):
    client = redis.cluster.RedisCluster(port=cluster.port, host="127.0.0.1")
    with DLock(client) as locks:
        for number in range(3):
            contend(locks, f"{key}:{number}", lambda name: client.execute_command("DLOCK.BREAK", name))
    client.close()


async def test_a_cluster_with_asyncio(cluster, key):
    client = redis.asyncio.cluster.RedisCluster(port=cluster.port, host="127.0.0.1")
    other = redis.cluster.RedisCluster(port=cluster.port, host="127.0.0.1")
    async with AsyncDLock(client) as locks:
        for number in range(3):
            await contend_async(locks, f"{key}:{number}", lambda name: other.execute_command("DLOCK.BREAK", name))
    await client.aclose()
    other.close()


def test_valkey_py(server, key):
    client = valkey.Valkey(port=server.port)
    with DLock(client) as locks:
        contend(locks, key, lambda name: client.execute_command("DLOCK.BREAK", name))
        client.config_set("maxmemory", 1)
        try:
            with pytest.raises(NotAcquired, match=": OOM "):
                locks.lock(key, timeout=0.2).acquire()
        finally:
            client.config_set("maxmemory", 0)
    client.close()
    with DLock(valkey.Valkey(port=free_port()), retry_for=0.2) as locks, pytest.raises(Unavailable):
        locks.lock(key, timeout=5).acquire()


async def test_valkey_py_with_asyncio(server, key):
    client, other = valkey.asyncio.Valkey(port=server.port), redis.Redis(port=server.port)
    async with AsyncDLock(client) as locks:
        await contend_async(locks, key, lambda name: other.execute_command("DLOCK.BREAK", name))
    await client.aclose()
    other.close()


def test_valkey_py_in_a_cluster(cluster, key):
    client = valkey.cluster.ValkeyCluster(host="127.0.0.1", port=cluster.port)
    with DLock(client) as locks:
        contend(locks, key, lambda name: client.execute_command("DLOCK.BREAK", name))
    client.close()


def test_a_node_that_stands_still_does_not_stop_the_renewals_of_others(cluster, key):
    """Holds on one node are renewed, though another node answers nothing."""
    client = redis.cluster.RedisCluster(port=cluster.port, host="127.0.0.1", socket_timeout=0.5)
    ports = {}
    for number in range(100):
        name = f"{key}:{number}"
        ports.setdefault(client.get_node_from_key(name).port, name)
    with DLock(client, lease=4.0, response_timeout=0.5) as locks:
        holds = {port: locks.lock(name).acquire() for port, name in ports.items()}
        still, live = cluster.nodes[1], cluster.nodes[0]
        still.pause()
        try:
            assert holds[still.port].lost.wait(10)
            assert not holds[live.port].lost.wait(2), holds[live.port]._state.reason()
        finally:
            still.go_on()
        until(lambda: live.ask("CLUSTER INFO").get("cluster_state") == "ok", 20)
        holds[live.port].release()
    client.close()


def test_a_slot_that_moves(cluster, key):
    """MOVED during a wait and under a hold: both go on where the slot is."""
    client = redis.cluster.RedisCluster(port=cluster.port, host="127.0.0.1")
    slot = client.keyslot(key)
    source, target, _ = sorted(cluster.nodes, key=lambda node: node.port != client.get_node_from_key(key).port)
    ids = {node.port: node.ask("CLUSTER", "MYID") for node in (source, target)}
    with DLock(client, lease=3.0) as locks:
        hold = locks.lock(key).acquire()
        target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.port])
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.port])
        source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", ids[target.port])
        got: list = []
        waiter = threading.Thread(target=lambda: got.append(locks.lock(key, timeout=10).acquire()))
        waiter.start()
        until(lambda: target.waiters(key) == 1)
        assert not hold.lost.wait(1.5), hold._state.reason()
        hold.release()
        waiter.join()
        got[0].release()
    client.close()


def test_a_sentinel_group(sentinel, key):
    """The hold and the wait go on at the new primary."""
    watch, primary, replica = sentinel
    group = redis.sentinel.Sentinel([("127.0.0.1", watch.port)])
    client = group.master_for("main", socket_timeout=2)
    for server in (primary, replica):
        server.ask("CONFIG", "SET", "dlock.restart-quarantine-ms", 10000)  # as long as the lease
    with DLock(client, lease=10.0, replicas=1) as locks:
        contend(locks, key, lambda name: client.execute_command("DLOCK.BREAK", name))
        hold = locks.lock(key).acquire()
        got: list = []
        waiter = threading.Thread(target=lambda: got.append(DLock(client).lock(key, timeout=30).acquire()))
        waiter.start()
        until(lambda: primary.waiters(key) == 1)
        primary.kill()
        until(lambda: is_primary(replica), 20)
        until(lambda: replica.waiters(key) == 1, 20)
        hold.check()
        hold.release()
        waiter.join()
        assert got[0].token > hold.token
        got[0].release()


async def test_a_sentinel_group_with_asyncio(sentinel, key):
    watch, primary, replica = sentinel
    group = redis.asyncio.sentinel.Sentinel([("127.0.0.1", watch.port)])
    client = group.master_for("main", socket_timeout=2)
    other = redis.sentinel.Sentinel([("127.0.0.1", watch.port)]).master_for("main")
    async with AsyncDLock(client, lease=10.0) as locks:
        await contend_async(locks, key, lambda name: other.execute_command("DLOCK.BREAK", name))
        hold = await locks.lock(key).acquire()
        waiter = asyncio.ensure_future(locks.lock(key, timeout=30).acquire())
        while not primary.waiters(key):
            await asyncio.sleep(0.01)
        until(lambda: primary.ask("WAIT", 1, 100) == 1)
        primary.kill()
        limit = asyncio.get_running_loop().time() + 20
        while replica.client.info("replication")["role"] != "master" or not replica.waiters(key):
            await asyncio.sleep(0.05)
            assert asyncio.get_running_loop().time() < limit
        hold.check()
        await hold.release()
        second = await waiter
        assert second.token > hold.token
        await second.release()
    await client.aclose()


GEVENT = """
import gevent.monkey
gevent.monkey.patch_all()
import sys, time, gevent, redis
from redis_dlock import DLock, LockLost, NotAcquired
client, key = redis.Redis(port=int(sys.argv[1])), sys.argv[2]
locks = DLock(client)
ticks = []
def tick():
    while True:
        ticks.append(time.monotonic())
        gevent.sleep(0.01)
ticker = gevent.spawn(tick)
with locks.lock(key, lease=1.5) as hold:
    try:
        locks.lock(key, timeout=0.05).acquire()
        raise SystemExit("acquired twice")
    except NotAcquired:
        pass
    order, waiting = [], []
    def wait(number):
        with locks.lock(key, timeout=10):
            order.append(number)
    for number in range(20):
        waiting.append(gevent.spawn(wait, number))
        while int(dict(client.execute_command("DLOCK.INFO", key))[b"waiters"]) <= number:
            gevent.sleep(0.001)
    gevent.sleep(1.7)
    hold.check()
gevent.joinall(waiting)
assert order == list(range(20)), order
with gevent.Timeout(0.2, False):
    with locks.lock(key, timeout=5):
        locks.lock(key).acquire()
hold = locks.lock(key, timeout=2).acquire()
client.execute_command("DLOCK.BREAK", key)
assert hold.lost.wait(5)
try:
    hold.release()
    raise SystemExit("not lost")
except LockLost:
    pass
longest = max(b - a for a, b in zip(ticks, ticks[1:]))
assert longest < 0.5, longest
locks.close()
print("done")
"""


def test_gevent(server, key):
    """python-redis-lock#91: with monkey-patching, threads are greenlets, and no wait may stop all of them."""
    python = os.environ.get("DLOCK_GEVENT_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import gevent, redis"], capture_output=True).returncode:
        pytest.skip("no gevent: set DLOCK_GEVENT_PYTHON")
    environment = {**os.environ, "PYTHONPATH": str(Path(redis_dlock.__file__).parents[1])}
    done = subprocess.run([python, "-c", GEVENT, str(server.port), key], capture_output=True, text=True, timeout=60,
                          env=environment)
    assert done.stdout.strip().endswith("done"), done.stdout + done.stderr
