"""A timeout bounds a call, whatever the server does; and each error says whether a server answered.

Run as a program, it prints a table: what was asked, and what it took.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time

import pytest
from conftest import Api
from servers import Server, free_port

from redis_dlock import (
    Closed,
    Deadlock,
    DLockError,
    LockLost,
    NotAcquired,
    Refused,
    ReleaseUnknown,
    Replaced,
    Unavailable,
)

TIMEOUT = 0.4
OVER = {"threads": 0.3, "asyncio": 0.1}
STATES = ("stopped", "silent", "refusing", "busy")


def calls(api, key, timeout):
    """Each call that may wait, by its name."""
    async def nothing_async(hold=None):
        pass

    locks, nothing = api.locks, (lambda hold=None: None) if api.kind == "threads" else nothing_async
    found = {how: getattr(locks, how)(key, timeout=timeout).acquire
             for how in ("lock", "fair_lock", "read_lock", "write_lock")}
    found["semaphore"] = locks.semaphore(key, limit=1, timeout=timeout).acquire
    found["multi_lock"] = locks.multi_lock([f"{key}:1", key], timeout=timeout).acquire
    found["any_lock"] = locks.any_lock([key], timeout=timeout).acquire
    found["decorator"] = locks.lock(key, timeout=timeout)(nothing)
    found["run_once"] = lambda: locks.lock(key, timeout=timeout).run_once(nothing)
    found["campaign"] = lambda: locks.election(key).campaign(timeout=timeout)
    found["latch.wait"] = lambda: locks.latch(key).wait(timeout)
    return found


def unbounded(api, key):
    """Calls without a timeout: each attempt has the time of a reply, all together ``retry_for``."""
    latch, election = api.locks.latch(key), api.locks.election(key)
    return {"try_acquire": api.locks.lock(key).try_acquire, "latch.init": lambda: latch.init(1),
            "latch.count_down": latch.count_down, "latch.remaining": latch.remaining, "leader": election.leader}


async def timed(api, call):
    began = time.monotonic()
    try:
        outcome = await api.do(call)
    except Exception as error:
        outcome = error
    return outcome, time.monotonic() - began


class World:
    """A server in one of the states."""

    def __init__(self, state: str) -> None:
        self.state, self.server, self.listening = state, None, None
        if state in ("stopped", "busy"):
            self.server = Server("--appendonly", "no")
            self.port = self.server.port
        elif state == "silent":
            self.listening = socket.create_server(("127.0.0.1", 0), backlog=500)
            self.port = self.listening.getsockname()[1]
        else:
            self.port = free_port()

    async def warm(self, api) -> None:
        """The client has connections, and the server comes into its state."""
        if self.server is not None:
            await api.release(await api.acquire("warm"))
        if self.state == "stopped":
            self.server.pause()

    def end(self) -> None:
        if self.server is not None:
            self.server.end()
        if self.listening is not None:
            self.listening.close()


def occupy(server, name, key):
    """Another owner has what the call of this name asks for."""
    family = {"fair_lock": "DFAIR", "read_lock": "DRW", "write_lock": "DRW", "semaphore": "DSEM"}.get(name, "DLOCK")
    if name == "latch.wait":
        server.ask("DLATCH.INIT", key, 1)
    else:
        more = {"DRW": ["WRITE"], "DSEM": ["LIMIT", 1]}.get(family, [])
        server.ask(f"{family}.ACQUIRE", key, "other", *more, "PX", 60000)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("is_warm", [True, False])
async def test_no_call_takes_longer_than_its_timeout(make, key, state, is_warm):
    world = World(state)
    try:
        api = make(world.port, response_timeout=2.0)
        if is_warm:
            await world.warm(api)
        elif state == "stopped":
            world.server.pause()
        names = list(calls(api, key, TIMEOUT))
        if state == "busy":
            for name in names:
                occupy(world.server, name, f"{key}:{name}")
        found = await asyncio.gather(*(timed(api, calls(api, f"{key}:{name}", TIMEOUT)[name]) for name in names))
        late = {name: took for name, (_, took) in zip(names, found) if took > TIMEOUT + OVER[api.kind] + 0.2}
        assert not late
        wanted = NotAcquired if state == "busy" else Unavailable
        wrong = {name: outcome for name, (outcome, _) in zip(names, found)
                 if not (outcome is False if (name, state) == ("latch.wait", "busy") else isinstance(outcome, wanted))}
        assert not wrong
    finally:
        world.end()


@pytest.mark.parametrize("state", ["stopped", "silent", "refusing"])
async def test_calls_without_a_timeout_end_too(make, key, state):
    world = World(state)
    try:
        api = make(world.port, response_timeout=0.3, retry_for=0.9)
        hold = await api.acquire(f"{key}:hold") if state == "stopped" else None
        await world.warm(api)
        for name, call in unbounded(api, key).items():
            outcome, took = await timed(api, call)
            assert isinstance(outcome, Unavailable), name
            assert took < (0.3 if name == "try_acquire" else 0.9) + OVER[api.kind] + 0.3, name
        if hold is not None:
            outcome, took = await timed(api, hold.release)
            assert isinstance(outcome, ReleaseUnknown) and took < 0.9 + OVER[api.kind] + 0.3
    finally:
        world.end()


async def test_what_a_silent_server_may_have_granted_is_given_up(make, own_server, key):
    """In the background, as soon as the server answers; and no longer than it can be there."""
    api = make(own_server.port, lease=2.0, queue=1.0)
    await api.release(await api.acquire(f"{key}:warm"))
    own_server.pause()
    with pytest.raises(Unavailable):
        await api.acquire(key, timeout=0.2)
    registry = api.locks._engine.registry
    assert registry.is_ending()
    own_server.go_on()
    await api.until(lambda: not registry.is_ending() and not own_server.client.exists(key), 5)
    own_server.pause()
    with pytest.raises(Unavailable):
        await api.acquire(key, timeout=0.2)
    await api.until(lambda: not registry.is_ending(), 6)
    own_server.go_on()


async def test_half_a_reply_has_an_end(make, proxy, key):
    api = make(proxy.port, client={"socket_timeout": None})
    await api.release(await api.acquire(f"{key}:warm"))
    for _ in range(5):
        proxy.half_at = True
        outcome, took = await timed(api, api.locks.lock(key, timeout=0.5).acquire)
        assert took < 0.5 + OVER[api.kind] + 0.2
        if isinstance(outcome, Unavailable):
            return
        await api.release(outcome)  # the half was that of another reply
    raise AssertionError(outcome)


async def test_one_stale_connection_fails_no_try(make, server, key):
    """The server, or a firewall, ended it while nobody used it."""
    api = make(client={"client_name": f"stale{key}"})
    for turn in range(3):
        hold = await api.do(api.locks.lock(key).try_acquire)
        assert hold is not None
        await api.release(hold)

        async def work_async(hold):
            return 7

        once = await api.do(api.locks.lock(key).run_once, (lambda hold: 7) if api.kind == "threads" else work_async)
        assert once.value == 7
        if turn < 2:
            assert server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") > 0


async def test_codes_and_classes(api, key):
    """Busy and unreachable differ; and code that waits for anything may catch the usual classes."""
    assert issubclass(NotAcquired, TimeoutError) and issubclass(Unavailable, ConnectionError)
    kinds = (NotAcquired, LockLost, ReleaseUnknown, Deadlock, Replaced, Unavailable, Closed)
    codes = {kind: kind.code for kind in kinds}
    assert codes == {NotAcquired: "NOT_ACQUIRED", LockLost: "LOCK_LOST", ReleaseUnknown: "RELEASE_UNKNOWN",
                     Deadlock: "DEADLOCK", Replaced: "REPLACED", Unavailable: "UNAVAILABLE", Closed: "CLOSED"}
    assert Refused("LIMIT", "x").code == "LIMIT" and all(issubclass(kind, DLockError) for kind in codes)
    hold = await api.acquire(key)
    with pytest.raises(TimeoutError):
        await api.acquire(key, timeout=0.01)
    await api.release(hold)


def main() -> None:
    """The table. Each call has a client of its own, which had connections before."""
    async def measure(kind: str, state: str) -> None:
        world = World(state)
        api = Api(kind, world.port, {"response_timeout": 0.5, "retry_for": 1.0}, {})
        try:
            await world.warm(api)
            for timeout, some in ((1.0, calls(api, "k", 1.0)), (None, unbounded(api, "k"))):
                for name, call in some.items():
                    if state == "busy":
                        if timeout is None:
                            continue
                        occupy(world.server, name, f"k:{name}")
                        call = calls(api, f"k:{name}", timeout)[name]
                    outcome, took = await timed(api, call)
                    asked = timeout or (0.5 if name == "try_acquire" else 1.0)
                    print(f"{kind:8} {state:9} {name:17} {asked:.1f} {took:.3f} {type(outcome).__name__}", flush=True)
        finally:
            await api.close()
            world.end()

    for kind in ("threads", "asyncio"):
        for state in STATES:
            asyncio.run(measure(kind, state))


if __name__ == "__main__":
    sys.exit(main())
