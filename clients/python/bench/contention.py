"""Workers that take one lock in turns: this client, redis-py's lock, python-redis-lock, and a list with BLPOP.

    python bench/contention.py [seconds for each contender and round] [rounds] [workers …]

The contenders run one after the other in this process, in several rounds, so compare within one run only. The server is
the one of the tests (DLOCK_SERVER, DLOCK_MODULE). BLPOP is the floor: a lock without leases, tokens and renewal.
"""

from __future__ import annotations

import asyncio
import functools
import os
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "src")]

import redis  # noqa: E402
import redis.asyncio  # noqa: E402
from servers import Server  # noqa: E402

from redis_dlock import AsyncDLock, DLock  # noqa: E402

try:
    import redis_lock
except ImportError:
    redis_lock = None

KEY = "bench"


class Count:
    """What the workers of one contender did."""

    def __init__(self, workers: int) -> None:
        self.turns, self.waits, self.is_over = [0] * workers, [], False

    def took(self, worker: int, started: float) -> None:
        self.waits.append(time.perf_counter() - started)
        self.turns[worker] += 1


def in_threads(count: Count, seconds: float, turn) -> None:
    """``turn(worker, took)`` acquires, calls ``took`` under the lock, and releases."""
    def work(worker: int) -> None:
        while not count.is_over:
            started = time.perf_counter()
            turn(worker, lambda: count.took(worker, started))  # noqa: B023

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(count.turns))]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    count.is_over = True
    for thread in threads:
        thread.join()


def dlock_threads(port: int, count: Count, seconds: float) -> None:
    with DLock(redis.Redis(port=port, max_connections=1000)) as locks:
        def turn(_: int, took) -> None:
            with locks.lock(KEY):
                took()
        in_threads(count, seconds, turn)


def dlock_asyncio(port: int, count: Count, seconds: float, block: float | None = None) -> None:
    async def main() -> None:
        client = redis.asyncio.Redis(port=port, max_connections=1000)
        async with AsyncDLock(client, block=block) as locks:
            async def work(worker: int) -> None:
                while not count.is_over:
                    started = time.perf_counter()
                    async with locks.lock(KEY):
                        count.took(worker, started)
            workers = [asyncio.ensure_future(work(number)) for number in range(len(count.turns))]
            await asyncio.sleep(seconds)
            count.is_over = True
            await asyncio.gather(*workers)
        await client.aclose()
    asyncio.run(main())


def redis_py(port: int, count: Count, seconds: float) -> None:
    client = redis.Redis(port=port, max_connections=1000)

    def turn(_: int, took) -> None:
        with client.lock(KEY, timeout=30):
            took()
    in_threads(count, seconds, turn)


def python_redis_lock(port: int, count: Count, seconds: float) -> None:
    client = redis.Redis(port=port, max_connections=1000)

    def turn(_: int, took) -> None:
        with redis_lock.Lock(client, KEY, expire=30):
            took()
    in_threads(count, seconds, turn)


def blpop(port: int, count: Count, seconds: float) -> None:
    client = redis.Redis(port=port, max_connections=1000)
    client.rpush(KEY, "free")

    def turn(_: int, took) -> None:
        client.blpop(KEY, 60)
        took()
        client.rpush(KEY, "free")
    in_threads(count, seconds, turn)


def blpop_asyncio(port: int, count: Count, seconds: float) -> None:
    async def main() -> None:
        client = redis.asyncio.Redis(port=port, max_connections=1000)
        await client.rpush(KEY, "free")

        async def work(worker: int) -> None:
            while not count.is_over:
                started = time.perf_counter()
                await client.blpop(KEY, 60)
                count.took(worker, started)
                await client.rpush(KEY, "free")
        workers = [asyncio.ensure_future(work(number)) for number in range(len(count.turns))]
        await asyncio.sleep(seconds)
        count.is_over = True
        await asyncio.gather(*workers)
        await client.aclose()
    asyncio.run(main())


CONTENDERS = {"BLPOP, threads (floor)": blpop, "dlock, threads": dlock_threads, "BLPOP, asyncio (floor)": blpop_asyncio,
              "dlock, asyncio": dlock_asyncio, "dlock, asyncio, block=2": functools.partial(dlock_asyncio, block=2.0),
              "redis-py Lock": redis_py}
if redis_lock:
    CONTENDERS["python-redis-lock"] = python_redis_lock


def processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    seconds, rounds = float(sys.argv[1]) if sys.argv[1:] else 3.0, int(sys.argv[2]) if sys.argv[2:] else 3
    server = Server("--appendonly", "no")
    try:
        for workers in map(int, sys.argv[3:] or ("10", "50")):
            rows: dict = {name: [] for name in CONTENDERS}
            for _ in range(rounds):
                for name, contender in CONTENDERS.items():
                    server.client.flushall()
                    count, before, started = Count(workers), processor_time(server.process.pid), time.perf_counter()
                    contender(server.port, count, seconds)
                    took, used = time.perf_counter() - started, processor_time(server.process.pid) - before
                    waits = sorted(count.waits)
                    rows[name].append((len(waits) / took, waits[len(waits) // 2] * 1e3,
                                       waits[len(waits) * 99 // 100] * 1e3, max(count.turns) / max(1, min(count.turns)),
                                       used / len(waits) * 1e6))
            print(f"\n{workers} workers, medians of {rounds} rounds of {seconds:g} s\n")
            print("| contender | turns/s | of its floor | p50 ms | p99 ms | most/fewest turns | server µs/turn |")
            print("|---|---|---|---|---|---|---|")
            for name, measured in rows.items():
                rate, p50, p99, fairness, cpu = (statistics.median(column) for column in zip(*measured))
                floor = rows["BLPOP, asyncio (floor)" if "asyncio" in name else "BLPOP, threads (floor)"]
                ratio = statistics.median(mine[0] / its[0] for mine, its in zip(measured, floor))
                print(f"| {name} | {rate:.0f} | {ratio:.2f} | {p50:.1f} | {p99:.1f} | {fairness:.2f} | {cpu:.0f} |",
                      flush=True)
    finally:
        server.end()


if __name__ == "__main__":
    main()
