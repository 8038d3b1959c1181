"""What users of other clients complained of. Each docstring names the thread."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import redis
from servers import Proxy

from redis_dlock import LockLost, NotAcquired
from redis_dlock._clock import now
from redis_dlock._holds import HoldState, Registry, RenewalBatch
from redis_dlock._requests import Grant, Message, Replicas, Request, Target
from redis_dlock.errors import ServerError

redis_lock = None
try:
    import redis_lock
except ImportError:
    pass


async def test_a_hold_is_renewed(make, server, key):
    """redis-py#2604, redsync#153: a lock ended under its work, because nothing renewed it."""
    api = make(lease=0.4)
    naive = server.client.lock(f"{key}:naive", timeout=0.4)
    assert naive.acquire()
    hold = await api.acquire(key)
    first, started = hold.token, time.monotonic()
    # The lock of redis-py is free for others by now; this one was renewed at least twice.
    await api.until(lambda: server.client.lock(f"{key}:naive", timeout=9).acquire(blocking=False))
    await api.until(lambda: time.monotonic() - started > 0.9)
    assert hold.valid_for() > 0 and hold.token == first
    assert server.ask("DLOCK.CHECK", key, first) == 1
    hold.check()
    await api.release(hold)


@pytest.mark.parametrize("end", ["BREAK", "DEL"])
async def test_a_loss_is_signalled(make, server, key, end):
    """Redisson#4698, kazoo#565: the holder was not told that its lock was lost."""
    api = make()
    hold = await api.acquire(key)
    await api.until(lambda: api.locks._engine.generation)
    assert not hold.lost.is_set()
    assert not await api.lost(hold, 0.01)
    server.ask("DLOCK.BREAK" if end == "BREAK" else "DEL", key)
    assert await api.lost(hold)
    with pytest.raises(LockLost) as lost:
        hold.check()
    assert lost.value.reason == ("broken" if end == "BREAK" else "deleted")
    assert hold.valid_for() == 0
    with pytest.raises(LockLost):
        await api.release(hold)
    # redis-py's lock believes in what it was told once.
    naive = server.client.lock(f"{key}:naive", timeout=30)
    naive.acquire()
    server.client.delete(f"{key}:naive")
    assert naive.local.token is not None


async def test_a_loss_is_signalled_though_its_message_was_missed(make, proxy, server, key):
    """Redisson#4698, kazoo#565: while nobody listened, a message went by; so the server is asked afterwards."""
    api = make(proxy.port)
    hold = await api.acquire(key)  # the subscription may come later than this
    server.ask("DLOCK.BREAK", key)
    assert await api.lost(hold, 5)
    hold = await api.acquire(key)
    await api.until(lambda: api.locks._engine.generation)
    proxy.hold_back = b"SUBSCRIBE"
    proxy.cut()
    server.ask("DLOCK.BREAK", key)
    proxy.hold_back = b""
    assert await api.lost(hold, 5)


async def test_a_loss_is_signalled_without_a_server(make, server, key):
    """Redisson#4698, kazoo#565: a holder that reaches no server learns by its own clock that its lease is over."""
    proxy = Proxy(server.port)
    api = make(proxy.port, lease=0.4)
    hold = await api.acquire(key)
    proxy.end()
    assert await api.lost(hold)
    with pytest.raises(LockLost, match="expired"):
        hold.check()


async def test_not_acquired_is_not_lost(api, server, key):
    """node-redlock#185: one error stood for a lock that was never granted, and for one that was lost."""
    hold = await api.acquire(key)
    with pytest.raises(NotAcquired):
        await api.acquire(key, timeout=0.02)
    server.ask("DLOCK.BREAK", key)
    with pytest.raises(LockLost):
        await api.release(hold)
    assert not issubclass(LockLost, NotAcquired) and not issubclass(NotAcquired, LockLost)
    assert issubclass(redis.exceptions.LockNotOwnedError, redis.exceptions.LockError)  # redis-py: one in the other


async def test_a_release_is_not_repeated_after_a_loss(make, proxy, server, key):
    """node-redlock#309: a release of a lost lock was tried again and again."""
    api = make(proxy.port)
    hold = await api.acquire(key)
    server.ask("DLOCK.BREAK", key)
    for _ in range(2):
        with pytest.raises(LockLost):
            await api.release(hold)
    assert proxy.requests.count(b"DLOCK.RELEASE") <= 1


async def test_renewals_raise_nowhere(make, proxy, server, key, monkeypatch):
    """redis-semaphore#199: an error of a renewal was thrown from a timer, where nobody could catch it."""
    raised: list = []
    monkeypatch.setattr(threading, "excepthook", lambda it: raised.append(it.exc_value))
    asyncio.get_running_loop().set_exception_handler(lambda _, it: raised.append(it))
    api = make(proxy.port, lease=1.0)
    hold = await api.acquire(key)
    proxy.hold_back = b"DLOCK.RENEW"
    await api.until(lambda: proxy.cuts >= 2)
    proxy.hold_back = b""
    before = hold.valid_for()
    await api.until(lambda: hold.valid_for() > before)
    await api.release(hold)
    assert raised == []


async def test_a_lost_lock_is_not_acquired_again_in_silence(make, server, key):
    """redis-semaphore#175: a renewal that found no lock acquired it again, over the holder meanwhile."""
    api = make(lease=0.4)
    hold = await api.acquire(key)
    token = hold.token
    server.ask("DEL", key)
    assert await api.lost(hold)
    ended = time.monotonic()
    await api.until(lambda: time.monotonic() - ended > 0.4)
    assert not server.client.exists(key)
    assert hold.token == token and hold.lost.is_set()


@pytest.mark.parametrize(("max_hold", "event", "reason"), [
    (0.0, "expired", "max_hold"), (20.0, "expired", "expired"), (0.0, "broken", "broken")])
def test_the_end_of_max_hold_has_its_reason_also_if_the_message_comes_first(max_hold, event, reason):
    request = Request(Target("DLOCK", ("k",)), "o", "r", 8.0, 8.0, "c", None)
    holds, hold = Registry(), HoldState(request, (Grant("k", 7),), now(), max_hold)
    holds.add(hold)
    renewal = RenewalBatch([hold], Replicas())
    holds.on_message(Message(event, "7", "r"))
    renewal.apply([ServerError("NOTHELD", "")])
    assert hold.reason() == reason


async def test_max_hold_limits_the_renewal(make, server, key):
    """python-redis-lock#114: a task that hangs kept its lock, because it was renewed without a limit."""
    api = make(lease=1.0, max_hold=2.0)
    started = time.monotonic()
    hold = await api.acquire(key)
    next_one = api.start(key, timeout=10)
    assert await api.lost(hold)
    with pytest.raises(LockLost, match="max_hold"):
        hold.check()
    assert time.monotonic() - started > 0.9
    await api.release(await next_one)
    with pytest.raises(LockLost):
        await api.release(hold)


async def test_with_does_not_wait(api, server, key):
    """python-redis-lock#121: ``with`` always waited, so a second process could not just go on."""
    hold = await api.acquire(key)
    lock = api.locks.lock(key, timeout=0)
    started = time.monotonic()
    with pytest.raises(NotAcquired):
        if api.kind == "threads":
            with lock:
                pass
        else:
            async with lock:
                pass
    assert time.monotonic() - started < 1
    assert await api.do(lock.try_acquire) is None
    assert server.waiters(key) == 0
    await api.release(hold)
    if redis_lock and api.kind == "threads":
        one, other = (redis_lock.Lock(server.client, f"{key}:naive", expire=5) for _ in range(2))
        assert one.acquire()
        waiting = threading.Thread(target=other.__enter__, daemon=True)
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
        one.release()
        waiting.join()
        other.release()


async def test_first_come_first_served(api, server, key):
    """python-redis-lock#58: waiters were served in no order."""
    hold = await api.acquire(key)
    order: list = []

    async def wait(number: int) -> None:
        mine = await api.acquire(key, timeout=20)
        order.append(number)
        await api.release(mine)

    waiting = []
    for number in range(8):
        waiting.append(asyncio.ensure_future(wait(number)))
        await api.until(lambda number=number: server.waiters(key) == number + 1)
    await api.release(hold)
    with pytest.raises(NotAcquired):  # the lock has gone to the first: nobody can slip in
        await api.acquire(key, timeout=0)
    await asyncio.gather(*waiting)
    assert order == list(range(8))
    # One that waits with redis-py's lock is passed by one that comes later.
    naive = [server.client.lock(f"{key}:naive", timeout=9, sleep=0.3, thread_local=False) for _ in range(3)]
    naive[0].acquire()
    first = threading.Thread(target=naive[1].acquire, daemon=True)
    first.start()
    first.join(0.05)
    naive[0].release()
    assert naive[2].acquire(blocking=False)
    naive[2].release()
    first.join()


async def test_tokens_rise_and_nothing_is_left(api, server, key):
    """bsm/redislock#94, Redisson#6510: no fencing tokens; or their counters stayed in the server forever."""
    tokens = []
    for _ in range(20):
        hold = await api.acquire(key)
        tokens.append(hold.token)
        await api.release(hold)
    assert tokens == sorted(set(tokens))
    assert server.client.keys(f"*{key}*") == []
    if redis_lock:
        with redis_lock.Lock(server.client, f"{key}:naive", expire=5):
            pass
        assert server.client.keys(f"*{key}:naive*") != []


async def test_a_release_wakes_one(make, server, key):
    """redis-py#2604 and others: all waiters poll. Here waiters send nothing while they wait."""
    api, waiters = make(), make()
    await waiters.release(await waiters.acquire(key))
    await api.until(lambda: waiters.locks._engine.generation)  # later, it would wake the waiters, which ask again
    hold = await api.acquire(key)
    waiting = [waiters.start(key, timeout=20) for _ in range(10)]
    await api.until(lambda: server.waiters(key) == 10)
    stats = "dlock.acquire"

    def calls() -> int:
        found = server.client.info("commandstats")
        return sum(value["calls"] for name, value in found.items() if stats in name.lower())

    before = calls()
    await asyncio.sleep(0.2)
    assert calls() == before
    await api.release(hold)
    while waiting:
        done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        waiting = list(rest)
        for one in done:
            await waiters.release(one.result())
    assert calls() - before <= 2 * 10 + 2
