"""``close()``, the end of a loop and the end of a process: each ends every wait, and frees all."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import redis
import redis.asyncio
from servers import until

from redis_dlock import AsyncDLock, Closed, DLock, DLockError, NotAcquired, ReleaseUnknown


def own_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dlock")]


async def nothing_async(hold):
    pass


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_close_ends_every_wait_at_once(make, own_server, key, is_stopped):
    api, other = make(own_server.port), make(own_server.port)
    hold = await other.acquire(key)
    several = await other.acquire([f"{key}:1"], "multi_lock")
    locks, work = api.locks, (lambda hold: None) if api.kind == "threads" else nothing_async
    await api.do(locks.latch(f"{key}:latch").init, 1)
    calls = [locks.lock(key).acquire, locks.multi_lock([f"{key}:1", f"{key}:2"]).acquire,
             locks.any_lock([key]).acquire, locks.latch(f"{key}:latch").wait, locks.election(key).campaign,
             lambda: locks.lock(key).run_once(work), lambda: locks.lock(key).run_once(work)]
    waiting = [asyncio.ensure_future(api.do(call)) for call in calls]
    await api.until(lambda: own_server.waiters(key) == 3 and own_server.shown(key, "observers") == 1)
    if is_stopped:
        own_server.pause()
    began = time.monotonic()
    closing = [asyncio.ensure_future(api.do(locks.close)) for _ in range(2)]  # twice is once
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert time.monotonic() - began < 1.5 and all(isinstance(one, Closed) for one in found), found
    await asyncio.gather(*closing)
    assert time.monotonic() - began < 4.5
    await api.do(locks.close)
    own_server.go_on()
    with pytest.raises(Closed):
        await api.acquire(key)
    if not is_stopped:
        await api.until(lambda: own_server.waiters(key) == 0)
    await other.release(hold)
    await other.release(several)


async def test_nothing_is_left_after_close(make, server, key):
    """No socket, no thread, no task."""
    before, threads = server.connections(), own_threads()
    for _ in range(3):
        api = make()
        holds = [await api.acquire(f"{key}:{number}") for number in range(3)]
        await api.do(api.locks.latch(f"{key}:latch").wait)
        await api.do(api.locks.close)
        await api.do(api.redis.close if api.kind == "threads" else api.redis.aclose)
        assert all(hold.lost.is_set() for hold in holds)
    await api.until(lambda: server.connections() <= before and own_threads() == threads)
    tasks = [task for task in asyncio.all_tasks() if "redis_dlock" in str(task.get_coro())]
    assert not tasks and not server.client.keys(f"{key}*")


async def test_close_sends_releases_that_wait_for_their_next_attempt(make, proxy, server, key):
    """Nothing sends them later."""
    api = make(proxy.port, retry_for=1.0)
    hold = await api.acquire(key)
    proxy.hold_back = b"RELEASE"
    with pytest.raises(ReleaseUnknown):
        await api.release(hold)
    before = proxy.cuts
    await api.until(lambda: proxy.cuts > before + 6)  # now the attempts are half a second apart
    proxy.hold_back = b""
    await api.do(api.locks.close)
    assert not server.client.exists(key)


def test_a_call_that_ends_after_close_releases_by_itself(proxy, server, key):
    """close() does not wait for the thread that it interrupts, nor long for one that a busy machine does not run."""
    locks = DLock(redis.Redis(port=proxy.port))
    locks.lock(key).acquire().release()
    proxy.delay = 5.0  # the grant is on its way when close() begins, and is never read

    def close(number, frame):
        proxy.delay = 0.0
        locks.close()
        assert server.client.exists(key)

    def interrupt():
        until(lambda: server.client.exists(key))
        os.kill(os.getpid(), signal.SIGALRM)

    before = signal.signal(signal.SIGALRM, close)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(Closed):
            locks.lock(key, timeout=0).acquire()
    finally:
        signal.signal(signal.SIGALRM, before)
    until(lambda: not server.client.exists(key), 2)


async def test_close_leaves_the_locks_of_another_dlock(make, server, key):
    """They share the connections of their client."""
    api = make()
    other = (DLock if api.kind == "threads" else AsyncDLock)(api.redis)
    mine, theirs = await api.acquire(f"{key}:1"), await api.do(other.lock(f"{key}:2", lease=0.6).acquire)
    waiting = asyncio.ensure_future(api.do(other.lock(f"{key}:1").acquire))
    await api.until(lambda: server.waiters(f"{key}:1") == 1)
    await api.do(api.locks.close)
    second = await asyncio.wait_for(waiting, 5)
    assert mine.lost.is_set() and second.token > mine.token
    assert not await api.lost(theirs, 1.5)
    await api.do(theirs.release)
    await api.do(second.release)
    await api.do(other.close)


async def test_a_loop_of_another_is_refused(server, key):
    client = redis.asyncio.Redis(port=server.port)
    locks, found = AsyncDLock(client), []
    await (await locks.lock(key).acquire()).release()

    def elsewhere():
        try:
            asyncio.run(locks.lock(key).acquire())
        except DLockError as error:
            found.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    while thread.is_alive():
        await asyncio.sleep(0.01)
    assert found and "event loop" in str(found[0])
    await locks.close()
    await client.aclose()


def test_a_later_loop_gets_an_engine_of_its_own(server, key):
    """A client of the module, and asyncio.run() for each job."""
    client = redis.asyncio.Redis(port=server.port)

    async def job():
        async with AsyncDLock(client).lock(key, timeout=5):
            pass

    for _ in range(3):
        asyncio.run(job())
    assert not server.client.exists(key)


@pytest.mark.parametrize("stops", ["before", "later"])
async def test_a_campaign_can_be_stopped(make, server, key, stops):
    api = make()
    leads = await api.acquire(key)
    event = threading.Event() if api.kind == "threads" else asyncio.Event()
    if stops == "before":
        event.set()
    campaign = asyncio.ensure_future(api.do(api.locks.election(key).campaign, stop=event))
    if stops == "later":
        await api.until(lambda: server.waiters(key) == 1)
        event.set()
    began = time.monotonic()
    with pytest.raises(NotAcquired, match="stopped"):
        await campaign
    assert time.monotonic() - began < 1
    await api.until(lambda: server.waiters(key) == 0)
    await api.release(leads)


PROGRAM = """
import asyncio, os, signal, sys, redis, redis.asyncio
from redis_dlock import AsyncDLock, DLock
kind, port, key, server, cut = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
async def main():
    locks = AsyncDLock(redis.asyncio.Redis(port=port))
    hold = await locks.lock(key).acquire()
    if server:
        os.kill(server, signal.SIGSTOP)
    waiting = asyncio.ensure_future(locks.lock(key).acquire())
    for _ in range(cut):
        await asyncio.sleep(0)
    if cut % 2:
        waiting.cancel()
if kind == "asyncio":
    asyncio.run(main())
else:
    locks = DLock(redis.Redis(port=port))
    hold = locks.lock(key).acquire()
    if server:
        os.kill(server, signal.SIGSTOP)
"""


def ended(kind, server, key, stops=0, cut=0):
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", PROGRAM, kind, str(server.port), key, str(stops), str(cut)],
                          capture_output=True, text=True, timeout=30,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.returncode == 0, done.stderr
    return time.monotonic() - began


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_process_that_ends_releases_what_it_holds(server, key, kind):
    ended(kind, server, key)
    until(lambda: not server.client.exists(key), 2)


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_a_process_ends_though_the_server_does_not_answer(own_server, key, kind):
    try:
        assert ended(kind, own_server, key, own_server.process.pid) < 6
    finally:
        own_server.go_on()


@pytest.mark.parametrize("cut", range(12))
def test_a_loop_ends_in_any_step_of_an_acquire(server, key, cut):
    """12 of 80 never ended: a task that listened dropped its cancellation."""
    ended("asyncio", server, key, cut=cut)
    until(lambda: not server.client.exists(key), 2)
