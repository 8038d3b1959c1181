"""Holds that nobody has any more, and interruptions at any point: nothing outlives its lease.

Run as a program with a number, it makes as many signals and cancellations at random points: 2000 take some minutes.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import signal
import sys
import threading
import time
import warnings

import pytest
import redis
import redis.asyncio
from servers import Server, until

from redis_dlock import AsyncDLock, DLock, LockLost, NotAcquired, ReleaseUnknown


class SoftTimeLimit(Exception):
    """As Celery's."""


async def test_a_dropped_hold_is_released(make, server, key, caplog):
    api = make(lease=20.0)
    for how, keys in (("lock", key), ("multi_lock", [key, f"{key}:2"]), ("any_lock", [key])):
        with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.WARNING, "redis_dlock"):
            warnings.simplefilter("always")
            await api.acquire(keys, how)
            gc.collect()
            await api.until(lambda: not server.client.exists(key), 3)
            assert any(one.category is ResourceWarning and key in str(one.message) for one in caught)
        assert "dropped" in caplog.text
        caplog.clear()


async def test_what_refers_to_a_hold_keeps_it(api, server, key):
    """Also `lost`, which others watch."""
    lost = (await api.acquire(key, lease=0.5)).lost
    gc.collect()
    await asyncio.sleep(1.0)
    assert not lost.is_set() and server.holds(key) == 1
    del lost
    gc.collect()
    await api.until(lambda: not server.client.exists(key), 3)


async def test_the_place_of_the_acquire_is_logged_in_debug_mode(api, server, key, caplog):
    with caplog.at_level(logging.DEBUG, "redis_dlock"):
        await api.acquire(key)
        gc.collect()
        await api.until(lambda: not server.client.exists(key), 3)
        await api.until(lambda: "dropped" in caplog.text)
    assert "acquired here" in caplog.text and "conftest.py" in caplog.text


def test_a_block_that_is_interrupted_before_its_body_ends(server, key):
    """Between the end of ``__enter__`` and the first step of the body no ``__exit__`` is due."""
    with DLock(redis.Redis(port=server.port), lease=20.0) as locks:
        shared = locks.lock(key)

        def enter():
            type(shared).__enter__(shared)  # the exit is looked up, and never called

        pair = type(shared).__exit__
        enter()
        del pair
        gc.collect()
        until(lambda: not server.client.exists(key) or shared._entered, 3)
        shared._entered.clear()
        gc.collect()
        until(lambda: not server.client.exists(key), 3)


async def test_the_result_of_finished_work_is_kept(make, server, key):
    """Of a decorated function and of ``run_once``: the loss is told with it."""
    api, asked = make(), []

    def lose(hold=None):
        for state in api.locks._engine.registry.all():
            asked.append(state.lose("broken"))
        return 7

    async def lose_async(hold=None):
        return lose()

    work = lose if api.kind == "threads" else lose_async
    for call in (api.locks.lock(key)(work), lambda: api.locks.lock(key).run_once(work)):
        with pytest.raises(LockLost) as error:
            await api.do(call)
        assert error.value.result == 7 and error.value.reason == "broken"
        await api.until(lambda: not server.client.exists(key), 3)


async def test_the_result_is_kept_if_the_release_is_unknown(make, own_server, key):
    api = make(own_server.port, retry_for=0.5, response_timeout=0.3)

    def stop(hold=None):
        own_server.pause()
        return 7

    async def stop_async(hold=None):
        return stop()

    with pytest.raises(ReleaseUnknown) as error:
        await api.do(api.locks.lock(key)(stop if api.kind == "threads" else stop_async))
    own_server.go_on()
    assert error.value.result == 7


def nothing_is_left(server, locks, prefix, lease) -> None:
    """No place now; and no hold after a lease, though the client goes on."""
    engine = locks._engine
    keys = server.client.keys(f"{prefix}*")
    for key in keys:
        until(lambda key=key: server.waiters(key.decode()) == 0, lease + 2)
    until(lambda: not server.client.keys(f"{prefix}*"), lease + 2)
    until(lambda: not engine.registry.all() and not engine.waiters and not engine.registry.open, lease + 2)


def interrupt_threads(server, prefix, count, seed=1) -> None:
    """A signal handler raises at random points of a loop of acquires and releases."""
    draw, lease = random.Random(seed), 3.0
    threads, before = threading.enumerate(), server.connections()
    locks = DLock(redis.Redis(port=server.port), lease=lease)
    rival = DLock(redis.Redis(port=server.port))
    held = rival.lock(f"{prefix}:held", lease=60).acquire()

    def handler(*_):
        raise SoftTimeLimit

    def work(number):
        how = number % 4
        if how == 0:
            with locks.lock(f"{prefix}:{number % 7}", timeout=1):
                pass
        elif how == 1:
            locks.lock(f"{prefix}:{number % 7}").acquire().release()
        elif how == 2:
            locks.lock(held.key, timeout=0.02).acquire()
        else:
            with locks.multi_lock([f"{prefix}:{number % 7}", f"{prefix}:8"], timeout=1):
                pass

    previous = signal.signal(signal.SIGALRM, handler)
    interrupted = 0
    try:
        for number in range(count):
            try:
                # Again, because Python drops what is raised in a finalizer.
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.00001, 0.004), 0.05)
                while True:
                    try:
                        work(number)
                    except NotAcquired:
                        pass
            except SoftTimeLimit:
                interrupted += 1
            except ReleaseUnknown:
                pass
            finally:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except SoftTimeLimit:
                    signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, previous)
    held.release()
    gc.collect()
    nothing_is_left(server, locks, prefix, lease)
    opened = server.connections() - before
    print(f"{interrupted} of {count} signals interrupted a call; {opened} connections", flush=True)
    assert opened < 110
    locks.close()
    rival.close()
    until(lambda: not [one for one in threading.enumerate() if one not in threads])
    until(lambda: server.connections() <= before)


async def cancel_tasks(server, prefix, count, seed=1) -> None:
    """Tasks that acquire and release are cancelled at random points."""
    draw, lease = random.Random(seed), 3.0
    before, client = server.connections(), redis.asyncio.Redis(port=server.port)
    locks = AsyncDLock(client, lease=lease)

    async def work(number):
        while True:
            if number % 3 == 0:
                async with locks.lock(f"{prefix}:{number % 7}"):
                    await asyncio.sleep(0)
            elif number % 3 == 1:
                await (await locks.lock(f"{prefix}:{number % 7}").acquire()).release()
            else:
                async with locks.multi_lock([f"{prefix}:{number % 7}", f"{prefix}:8"], timeout=1):
                    pass

    for number in range(count):
        both = [asyncio.ensure_future(work(number)), asyncio.ensure_future(work(number))]
        if number % 2:
            await asyncio.sleep(draw.uniform(0, 0.004))
        else:
            for _ in range(draw.randrange(40)):
                await asyncio.sleep(0)
        for one in both:
            one.cancel()
        for one in await asyncio.gather(*both, return_exceptions=True):
            assert isinstance(one, (asyncio.CancelledError, NotAcquired)), one
    gc.collect()
    engine, end = locks._engine, time.monotonic() + lease + 2
    while server.client.keys(f"{prefix}*") or engine.registry.open:
        assert time.monotonic() < end, (server.client.keys(f"{prefix}*"), engine.registry.open)
        await asyncio.sleep(0.01)
    assert not engine.registry.all() and not engine.waiters and server.connections() - before < 70
    await locks.close()
    await client.aclose()
    while server.connections() > before:
        assert time.monotonic() < end + 10
        await asyncio.sleep(0.01)
    assert len(asyncio.all_tasks()) == 1


def test_signals_at_random_points(server, key):
    interrupt_threads(server, key, 100)


async def test_cancellations_at_random_points(server, key):
    await cancel_tasks(server, key, 150)


def main(count: int) -> None:
    one = Server("--appendonly", "no")
    try:
        interrupt_threads(one, "signals", count, int(time.time()))
        asyncio.run(cancel_tasks(one, "cancels", count, int(time.time())))
        print(f"{count} cancellations: nothing is left")
    finally:
        one.end()


if __name__ == "__main__":
    main(int(sys.argv[1]))
