"""A ledger of a hundred workers on ten locks, while processes are killed, connections cut and the server restarted.

    SECONDS=60 python -m pytest tests/ledger.py

The default is 10 s.

50 threads in five processes, 50 tasks of asyncio in two. Each notes start and end of
its turns with its token in a second server, the recorder, which notes nothing for a token that is not the largest of
its lock. A turn whose release says that its hold stood, but one of whose notes was refused, is an overlap.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import redis  # noqa: E402
import redis.asyncio  # noqa: E402
from servers import Proxy, Server, until  # noqa: E402

from redis_dlock import AsyncDLock, DLock, DLockError  # noqa: E402

LOCKS, LEASE = 10, 1.5
#: KEYS: the lock; ARGV: event, token, kind. Start and end reply whether no larger token was seen.
SCRIPT = """
local event, token = ARGV[1], tonumber(ARGV[2])
if event ~= 'start' and event ~= 'end' then
    redis.call('HINCRBY', 'results', event, 1)
    redis.call('HINCRBY', 'results', ARGV[3] .. ' ' .. event, 1)
    if event == 'overlap' then redis.call('RPUSH', 'overlaps', KEYS[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3]) end
    return 1
end
local largest = tonumber(redis.call('GET', KEYS[1]) or '0')
if event == 'start' and token > largest then
    redis.call('SET', KEYS[1], ARGV[2])
    return 1
end
return event == 'end' and token == largest and 1 or 0
"""


def in_threads(port: int, recorder: int, threads: int) -> None:
    record = redis.Redis(port=recorder)
    locks = DLock(redis.Redis(port=port), lease=LEASE)

    def work(turn: int) -> None:
        while True:
            turn += 1
            key = f"ledger:{turn % LOCKS}"

            def note(event: str, token: int) -> bool:
                return bool(record.eval(SCRIPT, 1, key, event, token, "threads"))  # noqa: B023
            try:
                hold = locks.lock(key).acquire()
            except DLockError:
                time.sleep(0.05)
                continue
            began = note("start", hold.token)
            time.sleep(0.001)
            ended = note("end", hold.token)
            try:
                hold.release()
                note("turn" if began and ended else "overlap", hold.token)
            except DLockError:
                note("lost", hold.token)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


async def in_tasks(port: int, recorder: int, tasks: int) -> None:
    record = redis.asyncio.Redis(port=recorder)
    locks = AsyncDLock(redis.asyncio.Redis(port=port), lease=LEASE)

    async def work(turn: int) -> None:
        while True:
            turn += 1
            key = f"ledger:{turn % LOCKS}"

            async def note(event: str, token: int) -> bool:
                return bool(await record.eval(SCRIPT, 1, key, event, token, "asyncio"))  # noqa: B023
            try:
                hold = await locks.lock(key).acquire()
            except DLockError:
                await asyncio.sleep(0.05)
                continue
            began = await note("start", hold.token)
            await asyncio.sleep(0.001)
            ended = await note("end", hold.token)
            try:
                await hold.release()
                await note("turn" if began and ended else "overlap", hold.token)
            except DLockError:
                await note("lost", hold.token)

    await asyncio.gather(*(work(number) for number in range(tasks)))


def test_no_turns_overlap():
    seconds = float(os.environ.get("SECONDS", "10"))
    server, recorder = Server("--appendonly", "yes", "--appendfsync", "everysec"), Server("--appendonly", "no")
    proxy = Proxy(server.port)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def start(kind: str, count: int) -> subprocess.Popen:
        words = [sys.executable, __file__, kind, str(proxy.port), str(recorder.port), str(count)]
        return subprocess.Popen(words, env=environment)

    kinds = [("threads", 10)] * 5 + [("asyncio", 25)] * 2
    processes = [start(*kind) for kind in kinds]
    done = {"killed": 0, "cut": 0, "restarted": 0}
    try:
        until(lambda: int(recorder.client.hget("results", "turn") or 0) > 50, 60)
        end, step = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            time.sleep(random.uniform(0.3, 0.7))
            step += 1
            if step % 8 == 0:
                server.kill()
                server.start()
                done["restarted"] += 1
            elif step % 2:
                proxy.cut()
                done["cut"] += 1
            else:
                number = random.randrange(len(kinds))
                processes[number].kill()
                processes[number].wait()
                processes[number] = start(*kinds[number])
                done["killed"] += 1
        before = int(recorder.client.hget("results", "turn"))
        until(lambda: int(recorder.client.hget("results", "turn")) > before + 100, 30)  # all goes on
        for process in processes:
            assert process.poll() is None, "a worker ended by itself"
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
    results = {name.decode(): int(count) for name, count in recorder.client.hgetall("results").items()}
    print("\n", done, results)
    overlaps = recorder.client.lrange("overlaps", 0, -1)
    until(lambda: server.client.dbsize() == 0, LEASE + 20)  # holds end with their leases, places with their time
    proxy.end()
    server.end()
    recorder.end()
    assert overlaps == []
    assert results["turn"] > 100


if __name__ == "__main__":
    kind, *numbers = sys.argv[1:]
    if kind == "threads":
        in_threads(*map(int, numbers))
    else:
        asyncio.run(in_tasks(*map(int, numbers)))
