"""Fixtures: a server, and the client for threads and for asyncio behind one interface."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import os
import time

import pytest
import pytest_asyncio
import redis
import redis.asyncio
import redis.asyncio.retry
from redis.backoff import NoBackoff
from servers import Proxy, Server

from redis_dlock import AsyncDLock, DLock, _holds, _programs

_numbers = itertools.count()


@pytest.fixture(scope="session")
def server():
    """One server for all tests: no test may end it, or delete what is not its own."""
    one = Server("--appendonly", "no")
    yield one
    assert one.process.poll() is None, "the server ended"
    one.end()


@pytest.fixture
def own_server():
    one = Server("--appendonly", "yes")
    yield one
    one.end()


@pytest.fixture
def proxy(server):
    one = Proxy(server.port)
    yield one
    one.end()


@pytest.fixture
def key():
    return f"t:{os.getpid()}:{next(_numbers)}"


_threads = concurrent.futures.ThreadPoolExecutor(200)


class Api:
    """The client of one kind, with coroutines, so that one test serves both."""

    def __init__(self, kind: str, port: int, settings: dict, client: dict) -> None:
        self.kind = kind
        backoff = redis.retry.Retry if kind == "threads" else redis.asyncio.retry.Retry
        options = {"port": port, "retry": backoff(NoBackoff(), 0), **client}
        if kind == "threads":
            self.redis = redis.Redis(**options)
            self.locks = DLock(self.redis, **settings)
        else:
            self.redis = redis.asyncio.Redis(**options)
            self.locks = AsyncDLock(self.redis, **settings)

    async def do(self, work, *arguments, **named):
        """Calls a function of the client: in a thread, or as a coroutine."""
        if self.kind == "threads":
            call = lambda: work(*arguments, **named)  # noqa: E731
            return await asyncio.get_running_loop().run_in_executor(_threads, call)
        return await work(*arguments, **named)

    def start(self, key: str, how: str = "lock", **options):
        """An acquire that goes on beside the test."""
        return asyncio.ensure_future(self.acquire(key, how, **options))

    async def acquire(self, key, how: str = "lock", **options):
        return await self.do(getattr(self.locks, how)(key, **options).acquire)

    async def release(self, hold, **named):
        return await self.do(hold.release, **named)

    async def lost(self, hold, seconds: float = 10.0) -> bool:
        """Whether the hold tells of its loss in this time."""
        if self.kind == "threads":
            return await self.do(hold.lost.wait, seconds)
        try:
            await asyncio.wait_for(hold.lost.wait(), seconds)
            return True
        except asyncio.TimeoutError:
            return False

    async def until(self, is_so, seconds: float = 10.0):
        """Waits for a state without blocking the loop."""
        end = time.monotonic() + seconds
        while not (value := is_so()):
            assert time.monotonic() < end, f"not so within {seconds:g} s"
            await asyncio.sleep(0.005)
        return value

    async def close(self) -> None:
        await self.do(self.locks.close)
        await self.do(self.redis.close if self.kind == "threads" else self.redis.aclose)


@pytest_asyncio.fixture(params=["threads", "asyncio"])
async def make(request, server):
    """Makes clients, of both kinds in turn: ``make(lease=1.0)``."""
    made = []

    def new(port: int = 0, client: dict = {}, **settings) -> Api:  # noqa: B006
        api = Api(request.param, port or server.port, settings, client)
        made.append(api)
        return api

    new.kind = request.param
    yield new
    for api in made:
        await api.close()


@pytest.fixture
def api(make):
    return make()


@pytest.fixture
def clock(monkeypatch):
    """The time of the client: ``clock.now`` is set by the test."""
    class Clock:
        now = 1000.0

    for module in (_holds, _programs):
        monkeypatch.setattr(module, "now", lambda: Clock.now)
    return Clock
