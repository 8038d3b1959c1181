"""5,000 holds of one process that are renewed for two minutes, and 5,000 tasks of asyncio that wait.

    python bench/many.py [holds] [seconds]
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "src")]

import redis  # noqa: E402
import redis.asyncio  # noqa: E402
from servers import Server  # noqa: E402

from redis_dlock import AsyncDLock, DLock  # noqa: E402


def memory() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def used() -> float:
    times = os.times()
    return times.user + times.system


def hold_threads(port: int, count: int, seconds: float) -> None:
    with DLock(redis.Redis(port=port), lease=10.0) as locks:
        holds = [locks.lock(f"hold:{number}").acquire() for number in range(count)]
        before, started = used(), time.monotonic()
        time.sleep(seconds)
        share = (used() - before) / (time.monotonic() - started)
        lost = sum(hold.lost.is_set() for hold in holds)
        print(f"threads: {count} holds, lease 10 s, {seconds:g} s: {lost} lost, {share:.1%} of a core", flush=True)
        for hold in holds:
            hold.release()


async def hold_asyncio(port: int, count: int, seconds: float) -> None:
    client = redis.asyncio.Redis(port=port)
    async with AsyncDLock(client, lease=10.0) as locks:
        holds = await asyncio.gather(*(locks.lock(f"hold:{number}").acquire() for number in range(count)))
        before, started = used(), time.monotonic()
        await asyncio.sleep(seconds)
        share = (used() - before) / (time.monotonic() - started)
        lost = sum(hold.lost.is_set() for hold in holds)
        print(f"asyncio: {count} holds, lease 10 s, {seconds:g} s: {lost} lost, {share:.1%} of a core", flush=True)
        await asyncio.gather(*(hold.release() for hold in holds))
    await client.aclose()


async def wait_asyncio(server: Server, count: int) -> None:
    client = redis.asyncio.Redis(port=server.port)
    async with AsyncDLock(client) as locks:
        hold = await locks.lock("wait").acquire()
        await asyncio.sleep(1)
        before = memory()

        async def wait() -> None:
            async with locks.lock("wait"):
                pass

        tasks = [asyncio.ensure_future(wait()) for _ in range(count)]
        while server.waiters("wait") < count:
            await asyncio.sleep(0.1)
        each, connections = (memory() - before) / count, server.connections()
        started = time.monotonic()
        await hold.release()
        await asyncio.gather(*tasks)
        took = time.monotonic() - started
        print(f"asyncio: {count} tasks wait: {each / 1024:.1f} KiB each, {connections - 1} connections; "
              f"served in {took:.1f} s", flush=True)
    await client.aclose()


def main() -> None:
    count, seconds = int((sys.argv[1:] or ["5000"])[0]), float((sys.argv[2:] or ["120"])[0])
    server = Server("--appendonly", "no")
    try:
        asyncio.run(wait_asyncio(server, count))
        hold_threads(server.port, count, seconds)
        asyncio.run(hold_asyncio(server.port, count, seconds))
    finally:
        server.end()


if __name__ == "__main__":
    main()
