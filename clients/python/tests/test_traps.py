"""Lost replies, errors of servers, restarts, forged messages, clocks, and processes that stand still."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest
import redis
from servers import Proxy, Server, until

from redis_dlock import LockLost, NotAcquired, Refused, Unavailable
from redis_dlock._requests import fields
from redis_dlock.errors import ServerError, from_redis


@pytest.mark.parametrize("reply, code", [
    ("OOM command not allowed when used memory > 'maxmemory'.", "OOM"),
    ("READONLY You can't write against a read only replica.", "READONLY"),
    ("LOADING Redis is loading the dataset in memory", "LOADING"),
    ("NOPERM User x has no permissions to run the 'dlock.acquire' command", "NOPERM"),
    ("NOAUTH Authentication required.", "NOAUTH"),
    ("WRONGPASS invalid username-password pair or user is disabled.", "WRONGPASS"),
    ("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", "MASTERDOWN"),
    ("CLUSTERDOWN Hash slot not served", "CLUSTERDOWN"),
    ("TRYAGAIN Multiple keys request during rehashing of slot", "TRYAGAIN"),
    ("MOVED 1 127.0.0.1:7000", "MOVED"),
    ("ASK 1 127.0.0.1:7000", "ASK"),
    ("NOREPLICAS Not enough good replicas to write.", "NOREPLICAS"),
    ("MISCONF Redis is configured to save RDB snapshots", "MISCONF"),
    ("MOVING the slot moved", "MOVING"),
    ("NOTHELD a does not hold b", "NOTHELD"),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE"),
    ("EXECABORT Transaction discarded because of previous errors.", "EXECABORT"),
    ("ERR unknown command 'dlock.acquire', with args beginning with: 'a'", "ERR"),
    ("ERR internal error, please report", "ERR"),
])
def test_codes_of_errors_survive_redis_py(reply, code):
    """redis-py makes classes of some errors and cuts their codes off; decisions need the code."""
    error = redis.connection.DefaultParser(65536).parse_error(reply)
    told = from_redis(error)
    assert isinstance(told, ServerError)
    assert told.code == code or (code == "WRONGPASS" and told.code == "NOAUTH")  # before redis-py 8
    assert "Disconnected" in repr(from_redis(redis.exceptions.ConnectionError("x")))
    assert "Disconnected" in repr(from_redis(redis.exceptions.TimeoutError("x")))


async def test_refusals_of_a_real_server(make, own_server, key):
    api = make(own_server.port)
    own_server.ask("CONFIG SET", "maxmemory", 1)
    for timeout in (0, 0.2):  # it passes, and what ends the wait carries it
        with pytest.raises(NotAcquired, match="OOM "):
            await api.acquire(key, timeout=timeout)
    waiting = api.start(key)
    await asyncio.sleep(0.1)
    own_server.ask("CONFIG SET", "maxmemory", 0)
    await api.release(await waiting)
    own_server.ask("ACL SETUSER", "poor", "on", ">p", "~*", "&*", "+@all", "-dlock.acquire")
    poor = make(own_server.port, client={"username": "poor", "password": "p"})
    with pytest.raises(Refused) as refused:
        await poor.acquire(key)
    assert refused.value.code == "NOPERM"
    stranger = make(own_server.port, client={"username": "stranger", "password": "p"}, retry_for=5)
    with pytest.raises(Refused) as refused:
        await stranger.acquire(key)
    assert refused.value.code in ("WRONGPASS", "NOAUTH")


async def test_a_server_that_becomes_a_replica(make, own_server, key):
    """READONLY: the wait goes on, until the server is a primary again."""
    api = make(own_server.port)
    hold = await api.acquire(key)
    own_server.ask("REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(NotAcquired):
        await api.acquire(f"{key}:other", timeout=0)
    waiting = api.start(f"{key}:other", timeout=20)
    await asyncio.sleep(0.1)
    assert not waiting.done()
    own_server.ask("REPLICAOF", "NO", "ONE")
    await api.release(await waiting)
    await api.release(hold)


async def test_a_server_without_the_module(make, key):
    plain = Server("--appendonly", "no", module=False)
    try:
        api = make(plain.port)
        with pytest.raises(Refused, match="no module dlock"):
            await api.acquire(key)
    finally:
        plain.end()


async def test_no_server(make, key):
    api = make(1, retry_for=0.3)
    with pytest.raises(Unavailable):
        await api.acquire(key, timeout=0)
    with pytest.raises(Unavailable):
        await api.acquire(key)


async def test_a_lease_counts_from_before_the_request(make, proxy, server, key):
    """The reply came late, so less than the lease is left. redis-py's lock does not count at all."""
    api = make(proxy.port)
    await api.release(await api.acquire(f"{key}:warm"))
    proxy.delay = 0.3
    hold = await api.acquire(key, lease=5.0)
    assert hold.valid_for() < 5.0 * 0.99 - 0.3
    proxy.delay = 0
    await api.release(hold)


async def test_a_lost_reply_to_acquire_locks_once(make, proxy, server, key):
    api = make(proxy.port)
    await api.release(await api.acquire(f"{key}:warm"))
    proxy.cut_after = b"DLOCK.ACQUIRE"
    hold = await api.acquire(key)
    assert proxy.cuts == 1 and server.holds(key) == 1
    await api.release(hold)
    assert not server.client.exists(key)


async def test_a_lost_reply_to_release(make, proxy, server, key):
    """The repeat gets the answer of the first copy, though another holds the lock meanwhile."""
    api = make(proxy.port)
    hold = await api.acquire(key)
    other = api.start(key)
    await api.until(lambda: server.waiters(key) == 1)
    proxy.cut_after = b"DLOCK.RELEASE"
    await api.release(hold)
    assert proxy.cuts == 1
    await api.release(await other)


async def test_a_lost_reply_to_a_release_of_nothing(make, proxy, server, key):
    """However many copies are sent: the server says that the hold was lost, and why."""
    api = make(proxy.port)
    hold = await api.acquire(key)
    api.locks._engine.registry.remove(hold._state)  # so that messages about it are not heard
    server.ask("DLOCK.BREAK", key)
    proxy.cut_after = b"DLOCK.RELEASE"
    with pytest.raises(LockLost, match="broken"):
        await api.release(hold)
    assert proxy.cuts == 1


async def test_a_spent_request_takes_a_new_id(make, proxy, server, key):
    """The hold ended before its reply came: the repeat gets SPENT, and another request begins."""
    api = make(proxy.port)
    await api.release(await api.acquire(f"{key}:warm"))
    proxy.requests.clear()
    proxy.cut_after = b"DLOCK.ACQUIRE"
    waiting = api.start(key, lease=0.1)
    await api.until(lambda: proxy.cuts == 1)
    proxy.hold_back = b"DLOCK.ACQUIRE"
    await api.until(lambda: not server.client.exists(key))
    proxy.hold_back = b""
    hold = await waiting
    assert server.holds(key) == 1 and server.waiters(key) == 0
    ids = {part.split(b"\r\n")[2] for part in bytes(proxy.requests).split(b"REQID")[1:]}
    assert len(ids) >= 2
    await api.release(hold)


async def test_an_interrupted_wait_after_a_lost_reply_holds_nothing(make, proxy, server, key):
    """The call gave up before it learned that it was granted: what it was granted is given back."""
    api = make(proxy.port, response_timeout=0.5)
    await api.release(await api.acquire(f"{key}:warm"))
    proxy.cut_after = b"DLOCK.ACQUIRE"
    waiting = api.start(key, timeout=0.2)
    await api.until(lambda: proxy.cuts == 1)
    proxy.hold_back = b"DLOCK.ACQUIRE"
    with pytest.raises(Unavailable):
        await waiting
    proxy.hold_back = b""
    await api.until(lambda: not server.client.exists(key))


async def test_forged_messages(api, server, key):
    """Any client that may publish can say anything; only the server knows the id of the request."""
    hold = await api.acquire(key)
    waiting = api.start(key)
    await api.until(lambda: server.waiters(key) == 1)
    channel, owner = api.locks._engine.channel, hold.owner
    for event in ("granted", "expired", "broken", "deleted", "replaced", "deadlock"):
        for told in (f"{event} 0 {hold.token} {len(owner)} {owner} 4 1234 {key}", f"{event} 0 1 1 a 0  {key}", event,
                     f"{event} 0 {hold.token} 999999 {owner} -7 {key}", f"{event} x y z", "", "\xff\x00 0 0 0"):
            server.client.publish(channel, told)
            server.client.publish("dlock:notify", told)
    server.client.publish("dlock:notify", "flushed 0")  # also a lie: the client asks the server
    await asyncio.sleep(0.1)
    hold.check()
    assert not waiting.done() and server.waiters(key) == 1
    await api.release(hold)
    await api.release(await waiting)


async def test_flushall(make, own_server, key):
    api = make(own_server.port)
    hold = await api.acquire(key)
    await api.until(lambda: api.locks._engine.generation)
    own_server.ask("FLUSHALL")
    assert await api.lost(hold, 5)
    with pytest.raises(LockLost, match="refused|deleted"):
        hold.check()


async def test_a_restart_of_the_server(make, own_server, key):
    """A hold and a wait survive that the server is killed and started again."""
    api = make(own_server.port, lease=20.0)
    hold = await api.acquire(key)
    waiting = api.start(key)
    await api.until(lambda: own_server.waiters(key) == 1)
    own_server.kill()
    own_server.start()
    await api.until(lambda: own_server.waiters(key) == 1, 20)
    hold.check()
    await api.release(hold)
    second = await asyncio.wait_for(waiting, 20)
    assert second.token > hold.token
    await api.release(second)


async def test_a_server_that_stands_still(make, own_server, key):
    """No reply comes, and the connection stays: the client does not wait for its timeout to end by itself."""
    api = make(own_server.port, lease=0.6, response_timeout=0.3)
    hold = await api.acquire(key)
    own_server.pause()
    assert await api.lost(hold, 5)
    own_server.go_on()
    await api.release(await api.acquire(key, timeout=10))


async def test_cut_connections_keep_the_place(make, proxy, server, key):
    api = make(proxy.port)
    hold = await make().acquire(key)
    first = api.start(key)
    await api.until(lambda: server.waiters(key) == 1)
    second = make().start(key)
    await api.until(lambda: server.waiters(key) == 2)
    # A cut before the first subscription is confirmed would leave no second one to wait for.
    await api.until(lambda: api.locks._engine.generation == 1)
    subscription = api.locks._engine._messages
    proxy.cut()

    def client_of_first() -> int:
        shown = server.ask("DLOCK.WAITERS", key)[0]
        return int(fields(shown)["client-id"])

    await api.until(lambda: api.locks._engine._messages is not subscription)
    await api.until(lambda: api.locks._engine.generation and client_of_first())
    await api.release(hold)
    await api.release(await asyncio.wait_for(first, 10))
    await api.release(await second)


async def test_a_silent_subscription_is_replaced(make, proxy, server, key):
    """It may stay open and bring nothing: of a server that became a replica, or through a firewall that forgot it."""
    api = make(proxy.port, client={"max_connections": 5}, queue=6.0)  # too few for threads to wait in blocked calls
    await api.release(await api.acquire(key))
    await api.until(lambda: api.locks._engine.generation == 1)  # later, it would wake the waiter, which asks again
    hold = await make().acquire(key)
    waiting = api.start(key)
    await api.until(lambda: server.waiters(key) == 1)
    proxy.mute_at = b"granted "
    await api.release(hold)
    mine = await asyncio.wait_for(waiting, 10)  # asked again after half of the time in the queue
    proxy.mute_at = b""
    await api.until(lambda: api.locks._engine.generation == 1)
    other = make().start(key)
    await api.until(lambda: server.waiters(key) == 1)
    await api.release(mine)
    hold, waiting = await other, api.start(key)
    await api.until(lambda: server.waiters(key) == 1)
    await api.release(hold)
    await api.release(await asyncio.wait_for(waiting, 2))


async def test_the_wall_clock_does_not_count(api, server, key, monkeypatch):
    hold = await api.acquire(key, lease=10)
    real = time.time
    for jump in (86400, -86400):
        monkeypatch.setattr(time, "time", lambda jump=jump: real() + jump)
        hold.check()
        assert 8 < hold.valid_for() <= 10
    monkeypatch.undo()
    await api.release(hold)


STILL = """
import asyncio, sys, time, redis, redis.asyncio
from redis_dlock import DLock, AsyncDLock, LockLost
port, key, kind = int(sys.argv[1]), sys.argv[2], sys.argv[3]
def threads():
    locks = DLock(redis.Redis(port=port), lease=0.5)
    hold = locks.lock(key).acquire()
    print("held", flush=True)
    try:
        while True:
            hold.check()
            time.sleep(0.01)
    except LockLost as error:
        print("lost", error.reason, flush=True)
async def tasks():
    locks = AsyncDLock(redis.asyncio.Redis(port=port), lease=0.5)
    try:
        async with locks.lock(key):
            print("held", flush=True)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                print("cancelled", flush=True)
                raise
    except LockLost as error:
        print("lost", error.reason, flush=True)
threads() if kind == "threads" else asyncio.run(tasks())
"""


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_process_that_stands_still(server, key, kind):
    """A process that was stopped for longer than its lease sees at its next look that the hold is lost."""
    child = subprocess.Popen([sys.executable, "-c", STILL, str(server.port), key, kind], stdout=subprocess.PIPE,
                             text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        assert child.stdout.readline() == "held\n"
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: not server.client.exists(key))
        os.kill(child.pid, signal.SIGCONT)
        rest = child.communicate(timeout=10)[0].split()
        assert rest[:1] == (["lost"] if kind == "threads" else ["cancelled"]) and "lost" in rest
    finally:
        child.kill()
        child.wait()


async def test_a_released_hold_is_not_valid(api, key):
    """A task that goes on after another one released its hold is told so."""
    hold = await api.acquire(key)
    await api.release(hold)
    assert hold.valid_for() == 0
    with pytest.raises(LockLost, match="released"):
        hold.check()


async def test_replaced_and_deadlock(make, server, key):
    """Two tasks with one owner, and two owners that wait for each other, are told apart from a timeout."""
    from redis_dlock import Deadlock, Replaced
    api = make()
    first, second = await api.acquire(key, owner=f"{key}a"), await api.acquire(f"{key}2", owner=f"{key}b")
    waiting = api.start(f"{key}2", owner=f"{key}a")
    await api.until(lambda: server.waiters(f"{key}2") == 1)
    with pytest.raises(Deadlock):
        await api.acquire(key, owner=f"{key}b")
    again = api.start(f"{key}2", owner=f"{key}a")
    with pytest.raises(Replaced):
        await waiting
    await api.release(second)
    await api.release(await again)
    await api.release(first)


def test_a_proxy_loses_replies(server, key):
    """What the tests above rely on."""
    proxy = Proxy(server.port)
    client = redis.Redis(port=proxy.port, retry=None)
    client.ping()
    proxy.cut_after = b"INCR"
    with pytest.raises(redis.exceptions.RedisError):
        client.incr(key)
    until(lambda: server.client.get(key) == b"1")
    server.client.delete(key)
    proxy.end()


async def test_a_wait_that_is_longer_than_the_lease(make, server, key):
    """The lease of a grant to a blocked call began during the wait: it is renewed before the work begins."""
    hold = await make().acquire(key, lease=20)
    api = make(lease=0.4)
    one, several = api.start(key), api.start([key, f"{key}2"], "multi_lock")
    blocking = make(lease=0.4, block=5.0).start(key)
    await api.until(lambda: server.waiters(key) == 3)
    await asyncio.sleep(0.5)
    await api.release(hold)
    for task in asyncio.as_completed([one, several, blocking]):
        mine = await asyncio.wait_for(task, 10)
        mine.check()
        assert mine.valid_for() > 0.2
        await api.release(mine)


async def test_replies_stay_in_step_while_connections_end(make, proxy, key):
    """A reply must never be taken for that of another request: then a lock would count as held that is not."""
    api = make(proxy.port)
    end = time.monotonic() + 2
    turns = 0

    async def work(number: int) -> None:
        nonlocal turns
        last = 0
        while time.monotonic() < end or turns < 50:
            hold = await api.acquire(f"{key}:{number}", timeout=20)
            assert hold.token > max(last, 1_000_000), hold.token
            last = hold.token
            await api.release(hold)
            turns += 1

    async def cut() -> None:
        while time.monotonic() < end:
            await asyncio.sleep(0.03)
            proxy.cut()

    await asyncio.gather(cut(), *(work(number) for number in range(20)))


async def test_a_lost_connection_makes_its_waits_ask_again(make, server, key):
    """Their places are without a connection, so others are served first; the one for messages may be up."""
    if make.kind == "threads":
        pytest.skip("threads wait in calls, which end with their connections")
    api = make(queue=60.0)
    await api.release(await api.acquire(key))
    await api.until(lambda: api.locks._engine.generation)  # later, it would wake the waiter, which asks again
    hold = await make().acquire(key)
    waiting = api.start(key)
    await api.until(lambda: server.waiters(key) == 1)
    name = "{}:{}".format(*api.locks._engine.io._link.socket.getsockname())
    server.client.execute_command("CLIENT", "KILL", "ADDR", name)
    await api.until(lambda: not any(name == one["addr"] for one in server.client.client_list()))
    await api.release(await api.acquire(f"{key}:other"))  # which finds the connection closed
    await api.until(lambda: fields(server.ask("DLOCK.WAITERS", key)[0])["client-id"])
    await api.release(hold)
    await api.release(await asyncio.wait_for(waiting, 10))
