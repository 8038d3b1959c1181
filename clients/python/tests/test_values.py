"""Wrong values are refused by name, and what cannot be guarded is not decorated."""

from __future__ import annotations

import asyncio
import datetime
import functools
import math
import re
from pathlib import Path

import pytest
import redis
import redis.asyncio

import redis_dlock
from redis_dlock import AsyncDLock, DLock, Hold, Refused

SETTINGS = [(name, value) for name in ("lease", "queue", "response_timeout")
            for value in (0, -1, math.inf, math.nan, True, "5", None)]


@pytest.mark.parametrize(("name", "value"), [
    *SETTINGS, ("retry_for", -1), ("retry_for", "9"), ("retry_for", True), ("max_hold", 0), ("max_hold", "9"),
    ("replicas", -1), ("block", -1), ("block", True)])
async def test_settings_are_refused_by_name(make, name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        make(**{name: value})


@pytest.mark.parametrize(("name", "value"), [
    ("timeout", -1), ("timeout", "5"), ("timeout", True), ("timeout", math.nan),
    ("timeout", datetime.timedelta(seconds=1)), ("lease", 0), ("lease", "5"), ("lease", None), ("lease", True),
    ("max_hold", "9"), ("label", 7), ("owner", 7), ("owner", "")])
async def test_options_are_refused_by_name(api, key, name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        await api.acquire(key, **{name: value})
    assert not api.locks._engine.registry.open
    if name == "timeout":
        with pytest.raises((TypeError, ValueError), match=name):
            await api.do(api.locks.lock(key).acquire, value)
        with pytest.raises((TypeError, ValueError), match=name):
            await api.do(api.locks.latch(key).wait, value)


async def test_an_unknown_option_is_refused_when_the_lock_is_made(api, key):
    with pytest.raises(TypeError, match="timout"):
        api.locks.lock(key, timout=1)


async def test_infinity_is_a_timeout(api, key):
    await api.release(await api.acquire(key, timeout=math.inf))


def test_clients_of_the_other_kind_are_refused():
    for client in (None, "localhost", redis.asyncio.Redis(), redis.ConnectionPool(), object):
        with pytest.raises(TypeError, match="DLock needs a client"):
            DLock(client)
    for client in (None, redis.Redis(), redis.asyncio.ConnectionPool()):
        with pytest.raises(TypeError, match="AsyncDLock needs a client"):
            AsyncDLock(client)


async def test_a_pool_that_is_too_small_is_refused(make):
    with pytest.raises(ValueError, match="max_connections=3"):
        make(client={"max_connections": 3})


async def test_a_semaphore_says_what_it_has(make, server, key):
    api = make()
    with pytest.raises(Refused, match="does not exist"):
        await api.acquire(key, "semaphore", timeout=1)
    for wrong in (0, -1, True, "5", 1.5):
        for name in ("limit", "count"):
            with pytest.raises((TypeError, ValueError), match=name):
                await api.acquire(key, "semaphore", **{name: wrong})
    hold = await api.acquire(key, "semaphore", limit=2)
    await api.release(await api.acquire(key, "semaphore"))  # it exists now
    with pytest.raises(Refused, match="has 2 permits, not 3"):
        await api.acquire(key, "semaphore", limit=3, timeout=1)
    await api.release(hold)


def generator():
    yield 1


async def async_generator():
    yield 1


async def coroutine():
    return 7


class Call:
    async def __call__(self):
        return 7


def plain():
    return 7


@pytest.mark.parametrize("work", [generator, async_generator, coroutine, Call(), Call,
                                  functools.partial(coroutine), functools.partial(generator)])
def test_threads_decorate_what_they_guard(work):
    with pytest.raises(TypeError):
        DLock(redis.Redis(port=1)).lock("k")(work)


@pytest.mark.parametrize("work", [lambda: coroutine(), lambda: generator(), lambda: async_generator()])
def test_threads_refuse_what_runs_later(server, key, work):
    with DLock(redis.Redis(port=server.port)) as locks, pytest.raises(TypeError, match="before the body runs"):
        locks.lock(key)(work)()
    assert not server.client.exists(key)


@pytest.mark.parametrize("work", [generator, async_generator, Call])
async def test_asyncio_decorates_what_it_guards(work):
    with pytest.raises(TypeError):
        AsyncDLock(redis.asyncio.Redis(port=1)).lock("k")(work)


async def test_asyncio_awaits_what_is_returned(server, key):
    client, held = redis.asyncio.Redis(port=server.port), []

    async def work(number):
        held.append(server.holds(key))
        return number

    class Callable:
        async def __call__(self, number):
            return await work(number)

    async with AsyncDLock(client) as locks:
        for one in (work, Callable(), lambda number: work(number), functools.partial(work)):
            assert await locks.lock(key)(one)(7) == 7
        with pytest.raises(TypeError, match="DLock"):
            await locks.lock(key)(plain)()
        assert not server.client.exists(key) and held == [1] * 4
    await client.aclose()


@pytest.mark.parametrize("client", [{"decode_responses": True}, {"encoding": "latin-1", "decode_responses": True}])
async def test_the_encoding_of_the_client_does_not_matter(make, server, key, client):
    api = make(client=client)
    hold = await api.acquire(key, owner="jürgen", label="straße")
    waiting = api.start(key, timeout=10, owner="björn")
    await api.until(lambda: server.waiters(key) == 1)
    leader = await api.do(api.locks.election(key).leader)
    assert leader.value == "straße"
    await api.release(hold)
    await api.release(await waiting)
    async with AsyncDLock(redis.asyncio.Redis(port=server.port)) as locks:
        leads = await locks.election(key, "straße").campaign(timeout=5)
        await leads.release()


def test_texts_and_version():
    for kind in (DLock, Hold, AsyncDLock):
        for name in dir(kind):
            assert "key_tuple" not in (getattr(getattr(kind, name), "__doc__", None) or ""), name
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    assert redis_dlock.__version__ == re.search(r'^version = "(.*)"', project, re.M)[1]


def test_a_bool_is_no_blocking(key):
    """As `acquire(True)` of other locks."""
    locks = DLock(redis.Redis(port=1))
    with pytest.raises(TypeError, match="timeout"):
        locks.lock(key).acquire(True)
    with pytest.raises(TypeError, match="timeout"):
        asyncio.run(AsyncDLock(redis.asyncio.Redis(port=1)).lock(key).acquire(True))
