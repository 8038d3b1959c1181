"""The driver of the Python client, for threads and with --asyncio for asyncio. README.md describes the protocol."""

import asyncio
import os
import queue
import signal
import sys
import threading
from urllib.parse import urlparse

import redis.asyncio.cluster
import redis.asyncio.sentinel
from redis.backoff import NoBackoff
from redis_dlock import AsyncDLock, DLock, LockLost, NotAcquired, Refused, ReleaseUnknown, errors

METHODS = {"lock": "lock", "semaphore": "semaphore",
           **{mode: f"{mode}_lock" for mode in ("fair", "read", "write", "multi", "any")}}
SETTINGS = {"lease": "lease", "queue": "queue", "retry-for": "retry_for", "response-timeout": "response_timeout",
            "wait": "timeout", "max-hold": "max_hold"}
CODES = {errors.Deadlock: "DEADLOCK", errors.Replaced: "REPLACED", errors.Unavailable: "UNAVAILABLE"}


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # one write: other threads say something, too


def granted(name, hold):
    say(name, "granted", ",".join(map(str, hold.tokens.values())))


def done(name, count, found, options):
    """The end of `waiters`. Of a run: how many ran it, and how many values they got."""
    if len(found) < count:
        return say(name, "failed", count - len(found))
    if options.get("as") != "once":
        return say(name, "done")
    say(name, "done", sum(one.ran for one in found), len({one.value for one in found}))


def failure(error, lost):
    """The event for an exception."""
    for kind, event in ((NotAcquired, "not-acquired"), (LockLost, lost), (ReleaseUnknown, "unknown")):
        if isinstance(error, kind):
            return event
    code = "CLOSED" if "closed" in str(error) else type(error).__name__.upper()
    return f"failed {error.code if isinstance(error, Refused) else CODES.get(type(error), code)}"


def connect(url, root, limit):
    """A client of redis-py for one server, a cluster or Sentinels. Its own limits hold for new connections."""
    parts = urlparse(url)
    if parts.scheme == "redis":
        limits = {"socket_timeout": limit, "retry": root.retry.Retry(NoBackoff(), 0)} if limit else {}
        return root.Redis.from_url(url, **limits)
    hosts = [(host, int(port)) for host, port in (pair.split(":") for pair in parts.netloc.split(","))]
    if parts.scheme == "redis-cluster":
        return root.cluster.RedisCluster(startup_nodes=[root.cluster.ClusterNode(*host) for host in hosts])
    return root.sentinel.Sentinel(hosts, socket_timeout=1).master_for(parts.path[1:], socket_timeout=2)


class Driver:
    """What threads and asyncio share."""

    def __init__(self):
        self.locks, self.holds = {}, {}

    def opened(self, name, url, options, make, root):
        settings = {SETTINGS[option]: int(value) / 1000 for option, value in options.items() if option in SETTINGS}
        client, replicas = connect(url, root, settings.get("response_timeout")), int(options.get("replicas", 0))
        self.locks[name] = make(client, replicas=replicas, **settings)
        return self.locks[name].client.ping()

    def handle(self, name, client, mode, key, options):
        """The lock that a command is about; None if there is no such thing."""
        settings = {SETTINGS[option]: int(value) / 1000 for option, value in options.items() if option in SETTINGS}
        settings.update({of: kind(options[of]) for of, kind in (("owner", str), ("limit", int)) if of in options})
        unknown = {*options, mode} - {*SETTINGS, "owner", "limit", "work", *METHODS}
        if unknown:
            return say(name, "unsupported", *unknown)
        key = key.split(",") if mode in ("multi", "any") else key
        return getattr(self.locks[client], METHODS[mode])(key, **settings)

    def command(self, line):
        verb, *words = line.split(" ")
        name = words.pop(0) if words else "driver"
        options = dict(word.split("=", 1) for word in words if "=" in word)
        if verb == "quit":
            os._exit(0)
        elif verb == "suspend":
            say("driver", "ready")
        elif verb == "open":
            self.start(name, self.open, words[0], options)
        elif verb == "check":
            say(name, "is", "lost" if self.holds[name].lost.is_set() else "held")
        elif verb == "release":
            self.start(name, self.release, self.holds.pop(name))
        elif verb in ("acquire", "run", "once"):
            handle = self.handle(name, *words[:3], options)
            if handle is not None:
                run = (self.run, handle, int(options.get("work", 0)) / 1000, verb == "once")
                self.start(name, *((self.acquire, handle) if verb == "acquire" else run))
        elif verb == "await":
            wait = int(options["wait"]) / 1000 if "wait" in options else None
            self.start(name, self.open_latch, self.locks[words[0]].latch(words[1]), wait)
        elif verb == "close":
            self.start(name, self.close, self.locks[name])
        elif verb == "cancel":
            self.cancel(name)
        elif verb == "fork":
            if os.fork() == 0:
                say(name, "child-lost" if self.holds[name].lost.is_set() else "child-held")
                os._exit(0)
        elif verb == "waiters":
            self.start(name, self.waiters, self.locks[words[0]], int(words[1]), words[2], options)
        else:
            say(name, "unsupported", verb)


class Threads(Driver):
    """A thread for each command. One acquire runs in the main thread: only there Python interrupts a wait."""

    def main(self):
        self.queue, self.on_main = queue.SimpleQueue(), None  # the task that runs in this thread
        threading.Thread(target=self.read, daemon=True).start()
        while True:
            self.work(*self.queue.get())
            self.on_main = None

    def read(self):
        for line in sys.stdin:
            self.command(line.strip())
        os._exit(0)

    def start(self, name, work, *arguments):
        if work == self.acquire and self.on_main is None:
            self.on_main = name
            self.queue.put((name, work, arguments))
        else:
            threading.Thread(target=self.work, args=(name, work, arguments), daemon=True).start()

    def work(self, name, work, arguments):
        try:
            work(name, *arguments)
        except KeyboardInterrupt:
            say(name, "cancelled")
        except Exception as error:
            say(name, failure(error, "lost" if work == self.run else "was-lost"))

    def open(self, name, url, options):
        self.opened(name, url, options, DLock, redis)
        say(name, "opened")

    def acquire(self, name, lock):
        hold = self.holds[name] = lock.acquire()
        granted(name, hold)
        self.start(name, self.watch, hold)

    def watch(self, name, hold):
        hold.lost.wait()
        if self.holds.get(name) is hold:
            say(name, "lost")

    def cancel(self, name):
        if self.on_main == name:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        else:
            say(name, "unsupported", "cancel")

    def release(self, name, hold):
        hold.release()
        say(name, "released")

    def run(self, name, lock, seconds, is_once):
        def work(hold):
            granted(name, hold)
            hold.lost.wait(seconds)
        if is_once:
            return say(name, "finished" if lock.run_once(work).ran else "not-run")
        with lock as hold:
            work(hold)
        say(name, "finished")

    def waiters(self, name, locks, count, key, options):
        def work(hold):
            hold.lost.wait(int(options["work"]) / 1000)
            return hold.token
        def one():
            if options["as"] == "once":
                found.append(locks.lock(key).run_once(work))
            elif options["as"] == "await":
                found.append(locks.latch(key).wait())
            else:
                found.append(locks.multi_lock(key.split(",")).acquire().release())
        if "as" not in options:
            return say(name, "unsupported", "waiters")  # a thread for each of thousands
        found, threads = [], [threading.Thread(target=one, daemon=True) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done(name, count, found, options)

    def open_latch(self, name, latch, wait):
        say(name, "open" if latch.wait(wait) else "not-open")

    def close(self, name, locks):
        locks.close()
        locks.client.close()  # the pool is the driver's
        say(name, "closed")


class Tasks(Driver):
    """A task for each command."""

    async def main(self):
        self.tasks, lines, loop = {}, asyncio.Queue(), asyncio.get_running_loop()
        def read():
            for line in sys.stdin:
                loop.call_soon_threadsafe(lines.put_nowait, line.strip())
            os._exit(0)
        threading.Thread(target=read, daemon=True).start()
        while True:
            self.command(await lines.get())

    def start(self, name, work, *arguments):
        self.tasks[name, work] = asyncio.ensure_future(self.work(name, work, arguments))

    async def work(self, name, work, arguments):
        try:
            await work(name, *arguments)
        except Exception as error:
            say(name, failure(error, "lost" if work == self.run else "was-lost"))

    async def open(self, name, url, options):
        await self.opened(name, url, options, AsyncDLock, redis.asyncio)
        say(name, "opened")

    async def acquire(self, name, lock):
        hold = self.holds[name] = await lock.acquire()
        granted(name, hold)
        self.start(name, self.watch, hold)

    async def watch(self, name, hold):
        await hold.lost
        if self.holds.get(name) is hold:
            say(name, "lost")

    def cancel(self, name):
        task = self.tasks[name, self.acquire]
        task.add_done_callback(lambda task: say(name, "cancelled") if task.cancelled() else None)
        task.cancel()

    async def release(self, name, hold):
        await hold.release()
        say(name, "released")

    async def run(self, name, lock, seconds, is_once):
        async def work(hold):
            granted(name, hold)
            await asyncio.sleep(seconds)
        if is_once:
            return say(name, "finished" if (await lock.run_once(work)).ran else "not-run")
        async with lock as hold:
            await work(hold)
        say(name, "finished")

    async def waiters(self, name, locks, count, key, options):
        async def work(hold):
            await asyncio.sleep(int(options["work"]) / 1000)
            return hold.token
        async def one():
            if options.get("as") == "once":
                return await locks.lock(key).run_once(work)
            if options.get("as") == "await":
                return await locks.latch(key).wait()
            lock = locks.multi_lock(key.split(",")) if "as" in options else locks.lock(key)
            return await (await lock.acquire()).release()
        done(name, count, await asyncio.gather(*(one() for _ in range(count))), options)

    async def open_latch(self, name, latch, wait):
        say(name, "open" if await latch.wait(wait) else "not-open")

    async def close(self, name, locks):
        await locks.close()
        await locks.client.aclose()  # the pool is the driver's
        say(name, "closed")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background processes ignore it
    asyncio.run(Tasks().main()) if "--asyncio" in sys.argv else Threads().main()
