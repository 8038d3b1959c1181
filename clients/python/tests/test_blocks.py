"""``with`` blocks of one shared lock that end elsewhere than they began: generators, helpers, decorators."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
import redis.asyncio
from servers import until

from redis_dlock import AsyncDLock, DLock, LockLost


@pytest.fixture
def locks(server):
    with DLock(redis.Redis(port=server.port)) as one:
        yield one


@pytest.fixture
def threads():
    pools = [ThreadPoolExecutor(1) for _ in range(3)]
    yield [lambda work, *given, pool=pool: pool.submit(work, *given).result(20) for pool in pools]
    for pool in pools:
        pool.shutdown()


def used(server, key):
    return len(server.ask("DSEM.PERMITS", key) or ())


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("ends", [(0, 1), (1, 0), (1, 1), (2, 2)])
def test_a_generator_ends_its_own_block(locks, server, key, threads, order, ends):
    """FastAPI's dependencies with `yield` begin and end in any thread of a pool."""
    shared = locks.semaphore(key, limit=2)

    def dependency():
        with shared as hold:
            yield hold

    requests = [dependency(), dependency()]
    holds = [threads[number](next, request) for number, request in enumerate(requests)]
    for left, number in zip((1, 0), order):
        threads[ends[number]](requests[number].close)
        assert holds[number]._state.is_released and used(server, key) == left
        if left:
            holds[1 - number].check()
    assert not locks._engine.registry.all() and not shared._entered


def test_a_loss_is_told_to_the_block_that_lost(locks, server, key, threads):
    shared = locks.lock(key)

    def dependency():
        with shared as hold:
            yield hold

    first, second = dependency(), dependency()
    lost = threads[0](next, first)
    server.ask("DLOCK.BREAK", key)
    assert lost.lost.wait(10)
    hold = threads[1](next, second)
    with pytest.raises(LockLost):
        threads[1](first.close)
    hold.check()
    threads[0](second.close)
    assert not server.client.exists(key)


def test_helpers_enter_and_exit_from_frames_of_their_own(locks, server, key, threads):
    shared = locks.semaphore(key, limit=9)

    def generator():
        with shared as hold:
            yield hold

    with contextlib.ExitStack() as stack, shared as outer:
        first, second = stack.enter_context(shared), stack.enter_context(shared)
        suspended = generator()
        inner = next(suspended)
        stack.close()
        assert first._state.is_released and second._state.is_released
        outer.check()
        inner.check()
        suspended.close()
        outer.check()
        shared.__enter__()
        shared.__exit__(None, None, None)
        outer.check()
    assert used(server, key) == 0
    stack = contextlib.ExitStack()
    threads[0](stack.enter_context, shared)
    threads[1](stack.close)  # the only one
    assert used(server, key) == 0


def test_helpers_end_their_own_blocks_in_any_thread(locks, server, key, threads):
    shared = locks.semaphore(key, limit=9)
    stacks = [contextlib.ExitStack(), contextlib.ExitStack()]
    holds = [threads[number](stack.enter_context, shared) for number, stack in enumerate(stacks)]
    with shared as outer:
        threads[2](stacks[0].close)
        assert holds[0]._state.is_released
        holds[1].check()
        threads[2](stacks[1].close)
        assert holds[1]._state.is_released
        outer.check()
    assert used(server, key) == 0
    with pytest.raises(RuntimeError, match="not entered"):
        shared.__exit__(None, None, None)
    assert not locks._engine.registry.all()


async def test_generators_of_asyncio(server, key):
    """Consumers that leave `async for` early: the loop closes their generators in other tasks."""
    client = redis.asyncio.Redis(port=server.port)
    errors: list = []
    asyncio.get_running_loop().set_exception_handler(lambda _, it: errors.append(it))
    async with AsyncDLock(client) as locks:
        shared = locks.semaphore(key, limit=3)

        async def rows():
            async with shared:
                yield 1

        opened = [rows(), rows()]
        for one in opened:
            await one.__anext__()
        async with shared as mine:
            del one
            opened.clear()
            gc.collect()
            while used(server, key) > 1:
                await asyncio.sleep(0.01)
            mine.check()
            async with contextlib.AsyncExitStack() as stack:
                await stack.enter_async_context(shared)
            mine.check()
        assert not errors and not locks._engine.registry.all()

        async def enter(stack):
            await stack.enter_async_context(shared)

        stacks = [contextlib.AsyncExitStack(), contextlib.AsyncExitStack()]
        for stack in stacks:
            await asyncio.ensure_future(enter(stack))
        async with shared as mine:
            for stack in stacks:
                await asyncio.ensure_future(stack.aclose())
            mine.check()
            assert used(server, key) == 1
    await client.aclose()


async def test_thousands_of_tasks_in_one_lock(server, key):
    client = redis.asyncio.Redis(port=server.port)
    async with AsyncDLock(client) as locks:
        shared = locks.semaphore(key, limit=3000)
        entered = 0

        async def work():
            nonlocal entered
            async with shared:
                entered += 1
                while entered < 2000:
                    await asyncio.sleep(0.05)

        await asyncio.gather(*(work() for _ in range(2000)))
        assert not shared._entered
    await client.aclose()


async def test_a_body_that_closes_its_client_is_not_cancelled(server, key):
    client = redis.asyncio.Redis(port=server.port)
    locks = AsyncDLock(client)
    async with locks.lock(key) as hold:
        await locks.close()
        with pytest.raises(LockLost, match="closed"):
            hold.check()
    assert not hasattr(asyncio.current_task(), "cancelling") or not asyncio.current_task().cancelling()
    await client.aclose()
    until(lambda: not server.client.exists(key))


class AsyncCall:
    async def __call__(self):
        pass


async def async_generator():
    yield


def test_decorators_refuse_what_runs_later(locks, key):
    async def coroutine():
        pass

    lock = locks.lock(key)
    for work in (coroutine, async_generator, AsyncCall(), lambda: (yield)):
        with pytest.raises(TypeError):
            lock(work)
    with pytest.raises(TypeError):
        late = coroutine()
        try:
            lock(lambda: late)()
        finally:
            late.close()
    assert lock(lambda: 7)() == 7
