"""Cancellation: by the caller, by its timeouts, and by a lost hold."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest
import redis.asyncio
from servers import until

from redis_dlock import AsyncDLock, LockLost

needs_uncancel = pytest.mark.skipif(sys.version_info < (3, 11), reason="Task.uncancel is new in 3.11")


@pytest.fixture
async def locks(server):
    client = redis.asyncio.Redis(port=server.port)
    async with AsyncDLock(client) as one:
        yield one
    await client.aclose()


async def reached(is_so):
    for _ in range(2000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("not so within 10 s")


def nothing_is_left():
    task = asyncio.current_task()
    assert not hasattr(task, "cancelling") or task.cancelling() == 0


@pytest.mark.parametrize("how", ["cancel", "wait_for", "timeout"])
async def test_a_wait_that_is_interrupted_leaves_the_queue(locks, server, key, how):
    """The next waiter gets the lock at once, not after the time of a place in the queue."""
    hold = await locks.lock(key).acquire()

    async def wait():
        if how == "wait_for":
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(locks.lock(key).acquire(), 0.1)
        elif how == "timeout":
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1), locks.lock(key):
                    raise AssertionError("not acquired")
            nothing_is_left()
        else:
            await locks.lock(key).acquire()

    if how == "timeout" and sys.version_info < (3, 11):
        pytest.skip("asyncio.timeout is new in 3.11")
    waiting = asyncio.ensure_future(wait())
    await reached(lambda: server.waiters(key) == 1)
    behind = asyncio.ensure_future(locks.lock(key).acquire())
    await reached(lambda: server.waiters(key) == 2)
    if how == "cancel":
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    else:
        await waiting
    await hold.release()
    await (await asyncio.wait_for(behind, 1)).release()
    assert server.waiters(key) == 0


async def test_cancelled_at_any_moment_holds_nothing(locks, server, key):
    """An acquire that is cancelled after any number of steps leaves neither a hold nor a place."""
    for steps in range(25):
        task = asyncio.ensure_future(locks.lock(key).acquire())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await (await task).release()
        except asyncio.CancelledError:
            pass
    # What was granted is given back.
    await reached(lambda: not locks._engine.registry.is_ending() and not server.client.exists(key))
    hold = await locks.lock(key, timeout=0).acquire()
    assert server.holds(key) == 1 and server.waiters(key) == 0
    await hold.release()


async def test_a_lost_hold_cancels_its_body(locks, server, key):
    """kazoo#565, Redisson#4698: the body goes on, though another client may hold the lock."""
    seen = []
    with pytest.raises(LockLost, match="broken"):
        async with locks.lock(key):
            await reached(lambda: locks._engine.generation)
            server.ask("DLOCK.BREAK", key)
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                seen.append("cancelled")
                raise
    assert seen == ["cancelled"]
    nothing_is_left()
    await asyncio.sleep(0)


async def lose(hold, reason="broken"):
    """The loss, as the task sees it that renews, in its next step."""
    hold._state.lose(reason)


@pytest.mark.parametrize("way", ["before", "same step", "check", "error"])
async def test_a_loss_in_the_last_step(locks, server, key, way):
    """The cancellation never leaks out of ``async with``: it has no body to end any more."""
    error = ValueError if way == "error" else LockLost
    with pytest.raises(error):
        async with locks.lock(key) as hold:
            server.ask("DLOCK.BREAK", key)
            if way == "before":
                asyncio.get_running_loop().call_soon(hold._state.lose, "broken")
                await asyncio.sleep(0)
            else:
                hold._state.lose("broken")
            if way == "check":
                hold.check()
            if way == "error":
                raise ValueError
    nothing_is_left()
    await asyncio.sleep(0)  # nothing arrives late
    await asyncio.sleep(0.01)


async def test_a_body_that_swallows_the_cancellation(locks, server, key):
    with pytest.raises(LockLost):
        async with locks.lock(key) as hold:
            await lose(hold)
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                pass
    nothing_is_left()
    await asyncio.sleep(0)


@needs_uncancel
async def test_a_cancellation_by_the_user_wins(locks, server, key):
    """Both at once: the task ends as cancelled, not with LockLost."""
    entered = asyncio.Event()

    async def work(step):
        async with locks.lock(key) as hold:
            entered.set()
            if step == "sleeping":
                await asyncio.sleep(20)
            hold._state.lose("broken")
            asyncio.current_task().cancel()
            if step == "error":
                raise ValueError

    for step in ("last step", "error"):
        task = asyncio.ensure_future(work(step))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert task.cancelled() and task.cancelling() == 1
    entered.clear()
    task = asyncio.ensure_future(work("sleeping"))
    await entered.wait()
    hold = next(hold for hold in locks._engine.registry.all() if hold.keys == (key,))
    hold.lose("broken")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@needs_uncancel
async def test_a_timeout_around_a_lost_hold(locks, server, key):
    with pytest.raises(LockLost):
        async with asyncio.timeout(20), locks.lock(key) as hold:
            await lose(hold)
            await asyncio.sleep(20)
    nothing_is_left()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), locks.lock(f"{key}2"):
            await asyncio.sleep(20)
    nothing_is_left()
    assert not server.client.exists(f"{key}2")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05) as limit, locks.lock(f"{key}3") as hold:
            limit.reschedule(asyncio.get_running_loop().time())
            asyncio.get_running_loop().call_soon(hold._state.lose, "broken")
            await asyncio.sleep(20)
    nothing_is_left()


async def test_two_holds_lost_at_once(locks, server, key):
    with pytest.raises(LockLost):
        async with locks.lock(key) as one, locks.lock(f"{key}2") as two:
            await lose(one)
            await lose(two)
            await asyncio.sleep(20)
    nothing_is_left()
    await asyncio.sleep(0)


@needs_uncancel
async def test_a_task_that_was_cancelled_before(locks, server, key):
    """Clean-up after a cancellation may lock, too: an earlier cancellation is not taken for one of the body."""
    async def work():
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            with pytest.raises(LockLost):
                async with locks.lock(key) as hold:
                    await lose(hold)
                    await asyncio.sleep(20)
            raise

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelling() == 1


async def test_a_release_goes_on_if_its_caller_is_cancelled(locks, server, key):
    hold = await locks.lock(key).acquire()
    releasing = asyncio.ensure_future(hold.release())
    await asyncio.sleep(0)
    releasing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await releasing
    await reached(lambda: not server.client.exists(key))


async def test_many_tasks_share_two_connections(locks, server, key):
    before = server.connections()
    hold = await locks.lock(key).acquire()
    waiting = [asyncio.ensure_future(locks.lock(key).acquire()) for _ in range(200)]
    await reached(lambda: server.waiters(key) == 200)
    assert server.connections() - before <= 2
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    await reached(lambda: server.waiters(key) == 0)
    await hold.release()


def test_made_outside_of_a_loop(server, key):
    """Also in Python 3.9, where asyncio.Event belongs to the loop of the thread that made it."""
    locks = AsyncDLock(redis.asyncio.Redis(port=server.port))

    async def work():
        async with locks.lock(key):
            pass
        await locks.close()
        await locks.client.aclose()

    asyncio.run(work())
    until(lambda: not server.client.exists(key))


INTERRUPTED = """
import asyncio, sys, redis.asyncio
from redis_dlock import AsyncDLock
async def main():
    locks = AsyncDLock(redis.asyncio.Redis(port=int(sys.argv[1])))
    async with locks.lock(sys.argv[2]):
        print("held", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


def test_control_c_releases(server, key):
    """asyncio.run cancels the main task: its hold is released before the loop ends."""
    import os
    import signal
    child = subprocess.Popen([sys.executable, "-c", INTERRUPTED, str(server.port), key], stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    try:
        assert child.stdout.readline() == b"held\n"
        child.send_signal(signal.SIGINT)
        until(lambda: not server.client.exists(key), 5)
        child.wait(10)
    finally:
        child.kill()
        child.wait()


async def test_a_request_behind_a_computation_has_time_for_its_reply(server, key):
    """However far the call has come: the computation may keep its request from being written."""
    client = redis.asyncio.Redis(port=server.port)
    async with AsyncDLock(client, response_timeout=0.5) as locks:
        await (await locks.lock(key).acquire()).release()
        for turns in range(4):
            asked = asyncio.ensure_future(locks.lock(key).try_acquire())
            for _ in range(turns):
                await asyncio.sleep(0)
            time.sleep(0.6)
            await (await asked).release()
    await client.aclose()
