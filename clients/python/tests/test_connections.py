"""Few connections: all DLocks of a client share them, and so do callers of ``run_once``, latches and several locks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time

import pytest
import redis
import redis.asyncio

from redis_dlock import AsyncDLock, DLock, NotAcquired


def run_once(api, key, work, **options):
    async def as_coroutine(hold):
        return work(hold)

    lock = api.locks.lock(key, **options)
    return asyncio.ensure_future(api.do(lock.run_once, work if api.kind == "threads" else as_coroutine))


async def test_callers_in_one_process_share_a_run_and_its_value(make, server, key):
    api, other = make(), make()
    before, runs = server.connections(), []
    held = await other.acquire(key)

    def work(hold):
        runs.append(hold.token)
        return {"rows": 7}

    calls = [run_once(api, key, work, timeout=20) for _ in range(150)]
    await api.until(lambda: server.shown(key, "observers") == 1)
    assert server.connections() - before < 6
    await api.release(held)
    found = await asyncio.gather(*calls)
    assert [one.value for one in found] == [{"rows": 7}] * 150
    assert sum(one.ran for one in found) == len(runs) == 1
    again = await run_once(api, key, work)
    assert again.ran and len(runs) == 2


async def test_callers_share_the_error_of_the_work(make, key):
    api = make()

    def fail(hold):
        time.sleep(0.1)
        raise ValueError("no rows")

    calls = [run_once(api, key, fail, timeout=20) for _ in range(3)]
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(one, ValueError) for one in found)


async def test_one_that_gives_up_does_not_end_the_others(make, server, key):
    """The first has the shortest timeout; the next one asks the server."""
    api, other = make(), make()
    held = await other.acquire(key)
    first = run_once(api, key, lambda hold: 1, timeout=0.3)
    await api.until(lambda: server.shown(key, "observers") == 1)
    second = run_once(api, key, lambda hold: 2, timeout=20)
    with pytest.raises(NotAcquired):
        await first
    await api.release(held)
    assert (await second).value == 2


@pytest.mark.parametrize("what", ["multi_lock", "latch", "run_once"])
async def test_more_waits_than_connections(make, server, key, what):
    """Beyond the calls that may block, waits ask now and then."""
    api, other, count = make(client={"max_connections": 10}), make(), 20
    before = server.connections()
    if what == "latch":
        await other.do(other.locks.latch(key).init, 1)
        calls = [asyncio.ensure_future(api.do(api.locks.latch(key).wait, 10)) for _ in range(count)]
    elif what == "multi_lock":
        held = [await other.acquire(f"{key}:{number}") for number in range(count)]
        calls = [api.start([f"{key}:{number}"], "multi_lock", timeout=10) for number in range(count)]
    else:
        held = [await other.acquire(f"{key}:{number}") for number in range(count)]
        calls = [run_once(api, f"{key}:{number}", lambda hold: 7, timeout=10) for number in range(count)]
    await asyncio.sleep(0.5)
    assert not any(call.done() for call in calls)
    assert server.connections() - before <= 12
    if what == "latch":
        await other.do(other.locks.latch(key).count_down)
        assert await asyncio.gather(*calls) == [True] * count
        return
    for hold in held:
        await other.release(hold)
    for one in await asyncio.gather(*calls):
        assert one.ran if what == "run_once" else await api.release(one) is None


async def test_a_dlock_for_each_call_shares_the_connections_of_its_client(make, server, key):
    """The habit of redis-py: no more connections, threads or subscriptions for each."""
    api = make()
    await api.release(await api.acquire(key))
    await api.until(lambda: api.locks._engine.generation)
    before = server.connections()
    kind = DLock if api.kind == "threads" else AsyncDLock
    for number in range(50):
        lock = kind(api.redis, lease=2.0 + number / 10).lock(f"{key}:{number}")
        hold = await api.do(lock.acquire)
        assert server.shown(hold.key, "lease-ms") == 2000 + 100 * number  # the options are its own
        await api.do(hold.release)
    assert server.connections() == before


async def test_threads_share_the_connections_for_short_calls(server, key):
    client, before, count = redis.Redis(port=server.port), server.connections(), 150
    with DLock(client) as locks, concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(lambda number: locks.lock(f"{key}:{number}").acquire().release(), range(count)))
        assert server.connections() - before <= 40
