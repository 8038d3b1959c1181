"""``run_once``: of the callers at the same time one runs the work, and its run counts only if the hold lasted."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from programs import LOST, Run, hold, request, settings
from servers import Proxy

from redis_dlock import LockLost, NotAcquired, Unavailable
from redis_dlock._programs import acquire, release
from redis_dlock.errors import ServerError


def run_once(api, key, work, **options):
    """The call of either kind; ``work`` gets the hold."""
    async def as_coroutine(hold):
        return work(hold)

    lock = api.locks.lock(key, **options)
    return asyncio.ensure_future(api.do(lock.run_once, work if api.kind == "threads" else as_coroutine))


@pytest.mark.parametrize("reason", ["broken", "expired", None])
def test_a_release_says_done_only_if_the_hold_is_certain(clock, reason):
    state = hold(clock)
    if reason == "expired":
        clock.now += 9.9
    elif reason:
        state.lose(reason)
    run = Run(release, state, settings(), done=True).reply(0)
    assert ("DONE" in run.sent[0]) == (reason is None)
    assert isinstance(run.error, LockLost) == (reason is not None)


async def test_a_lost_run_does_not_count(make, server, key):
    """It raises LockLost, and one of the others runs."""
    api, other, runs = make(), make(), []

    def work(mine):
        runs.append("done")
        return 7

    mine = await api.acquire(key)
    waiting = run_once(other, key, work, timeout=20)
    await api.until(lambda: server.shown(key, "observers") == 1)
    mine._state.lose("expired")
    with pytest.raises(LockLost):
        await api.release(mine, done=True)
    once = await waiting
    assert once.ran and once.value == 7 and runs == ["done"]


async def test_a_run_whose_hold_is_lost_in_its_last_step(make, server, key):
    """The error is LockLost, and no CancelledError reaches a task that nobody cancelled."""
    api = make()
    for _ in range(3):
        with pytest.raises(LockLost):
            await run_once(api, key, lambda mine: setattr(mine._state, "until", 0.0), timeout=5)
        with pytest.raises(LockLost):
            await run_once(api, key, lambda mine: mine._state.lose("broken"), timeout=5)
    task = asyncio.current_task()
    assert not hasattr(task, "cancelling") or not task.cancelling()


async def test_a_lost_connection_is_no_end(make, server, key):
    proxy = Proxy(server.port)
    api = make(proxy.port)
    await api.release(await api.acquire(key))
    proxy.cut_after = b"DLOCK.ACQUIRE"
    once = await run_once(api, key, lambda mine: 7, timeout=20)
    assert once.ran and once.value == 7 and proxy.cuts == 1
    await api.until(lambda: not server.client.exists(key))
    proxy.end()


async def test_a_quarantine_is_waited_for(make, own_server, key):
    """Not 40 requests a second."""
    own_server.ask("CONFIG", "SET", "dlock.restart-quarantine-ms", 2000)
    own_server.kill()
    own_server.start()
    proxy = Proxy(own_server.port)
    api = make(proxy.port)
    once = await run_once(api, key, lambda mine: 7, timeout=20)
    assert once.ran
    assert proxy.requests.count(b"DLOCK.ACQUIRE") + proxy.requests.count(b"DLOCK.AWAIT") < 10
    proxy.end()


def test_a_try_that_goes_on_until_it_is_answered(clock):
    """Without a place in the queue: the answer decides."""
    run = Run(acquire, request(px=30.0), 5.0, settings(), None, waits=False).reply(LOST).wake()
    assert run.sent[0] == run.sent[1] and "QUEUE" not in run.sent[0] and "BLOCK" not in run.sent[0]
    run.reply(ServerError("QUARANTINE", "700 ms")).wake().reply(None)
    assert isinstance(run.error, NotAcquired)
    assert len(run.background) == 1  # the lost copy may arrive yet
    run = Run(acquire, request(px=30.0), None, settings(), None, waits=False).reply(None)
    assert isinstance(run.error, NotAcquired) and not run.background
    run = Run(acquire, request(px=30.0), None, settings(retry_for=1.0), None, waits=False)
    while run.error is None:
        run.reply(LOST)
        clock.now += 1
        run = run if run.error else run.wake()
    assert isinstance(run.error, Unavailable)


async def test_others_wait_for_the_run(make, key):
    api, runs = make(), []

    def work(mine):
        runs.append(threading.get_ident())
        time.sleep(0.2)

    found = await asyncio.gather(*(run_once(api, key, work, timeout=20) for _ in range(5)))
    assert len(runs) == sum(one.ran for one in found) >= 1
