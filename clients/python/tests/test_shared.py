"""Holds that share something: an owner with several holds of a key, repeated releases, clients that close."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from redis_dlock import LockLost, NotAcquired, Refused, ReleaseUnknown, Unavailable


async def test_a_cancelled_release_gives_back_one_hold(make, server, key):
    """A release names its acquire, so no copy of it can take the outer hold."""
    if make.kind == "threads":
        pytest.skip("a thread is not cancelled")
    api = make()
    outer, inner = await api.acquire(key, owner="task"), await api.acquire(key, owner="task")
    releasing = asyncio.ensure_future(inner.release())
    await asyncio.sleep(0)  # sent, or about to be
    await asyncio.sleep(0)
    releasing.cancel()
    await asyncio.gather(releasing, return_exceptions=True)
    await api.until(lambda: not api.locks._engine.registry.is_ending() and server.holds(key) == 1)
    outer.check()
    await api.release(outer)


async def test_a_lost_hold_is_given_back_once(api, server, key):
    """A second release, by the end of the block, must not take another hold of the owner."""
    outer = await api.acquire(key, owner="task")
    inner = await api.acquire(key, owner="task")
    inner._state.lose("expired")  # as the clock says after an outage
    for _ in range(2):
        with pytest.raises(LockLost, match="expired"):
            await api.release(inner)
    assert server.holds(key) == 1
    await api.release(outer)


async def test_a_short_lease_does_not_cut_that_of_the_outer_hold(api, server, key):
    """All holds of an owner share one lease on the server."""
    outer = await api.acquire(key, owner="task", lease=20.0)
    inner = await api.acquire(key, owner="task", lease=0.5)
    before = inner._state.renew_at
    await api.until(lambda: inner._state.renew_at > before + 1 or inner._state.until > before + 1)
    assert server.shown(key, "ttl-ms") > 5_000
    await api.release(inner)
    outer.check()
    await api.release(outer)


async def test_several_locks_do_not_cut_the_lease_of_one(api, server, key):
    """A hold of several keys shares a lease with that of one of them."""
    outer = await api.acquire(key, owner="task", lease=20.0)
    several = await api.acquire([key, f"{key}:2"], "multi_lock", owner="task", lease=0.5)
    before = several._state.renew_at
    await api.until(lambda: several._state.renew_at > before + 1 or several._state.until > before + 1)
    assert server.shown(key, "ttl-ms") > 5_000
    await api.release(several)
    await api.release(outer)


async def test_an_acquire_that_waits_ends_with_its_client(make, server, key):
    """close() wakes it: it holds nothing, and leaves the queue."""
    api, other = make(), make()
    hold = await other.acquire(key)
    waiting = api.start(key, timeout=30)
    await api.until(lambda: len(server.client.execute_command("DLOCK.WAITERS", key)) == 1)
    await api.do(api.locks.close)
    with pytest.raises(RuntimeError, match="closed"):
        await waiting
    await api.until(lambda: not server.client.execute_command("DLOCK.WAITERS", key))
    await other.release(hold)


async def test_close_gives_back_no_connection_with_replies_to_come(make, server, key):
    """The user's next command would get the reply of another one."""
    api = make()
    pending = [api.start(f"{key}:{n}", timeout=0) for n in range(20)]
    await asyncio.sleep(0)
    await api.do(api.locks.close)
    for n in range(20):
        assert await api.do(api.redis.echo, f"e{n}") == f"e{n}".encode()
    for hold in await asyncio.gather(*pending, return_exceptions=True):
        assert isinstance(hold, (RuntimeError, Unavailable)) or hold.lost.is_set() or hold._state.is_released
    await api.until(lambda: not any(server.client.exists(f"{key}:{n}") for n in range(20)))


async def test_options_are_checked(make):
    for settings in ({"queue": 0.0}, {"queue": 0.019}):
        with pytest.raises(ValueError, match="queue"):
            make(**settings)
    api = make()
    for options in ({"timout": 1}, {"lease": 0.0}, {"max_hold": -1.0}, {"owner": "\ud800"}):
        with pytest.raises((TypeError, ValueError)):
            await api.acquire("k", **options)
    for keys in ("abc", [], ["a", None], ["\ud800"]):
        with pytest.raises((TypeError, ValueError)):
            await api.acquire(keys, "multi_lock")


def test_errors_travel_between_processes():
    for error in (LockLost(("a", "b"), "broken"), Refused("LIMIT", "text"), NotAcquired("x"), ReleaseUnknown("y")):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), copy.__dict__) == (type(error), str(error), error.__dict__)
