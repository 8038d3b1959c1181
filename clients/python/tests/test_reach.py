"""Holds and requests while servers, connections and event loops are slow, or lead elsewhere."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
import redis
import redis.asyncio
from programs import LOST, Run, hold, info, settings, start
from servers import Proxy, Server, until

from redis_dlock import AsyncDLock, DLock, Refused, ReleaseUnknown
from redis_dlock._holds import RenewalBatch
from redis_dlock._programs import release
from redis_dlock._requests import Replicas
from redis_dlock.errors import Disconnected, ServerError


def compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@pytest.mark.parametrize("pause", ["step", "ping"])
async def test_computing_in_chunks_below_the_lease_keeps_the_lock(server, key, pause):
    """bullmq#3183: each timer is late then, and replies that have arrived are not read."""
    client = redis.asyncio.Redis(port=server.port)
    async with AsyncDLock(client) as locks:
        async with locks.lock(key, lease=1.0) as mine:
            for _ in range(20):
                compute(0.3)
                mine.check()
                await (asyncio.sleep(0) if pause == "step" else client.ping())
        assert mine.token
    await client.aclose()


async def test_a_reply_that_arrived_is_read_before_a_hold_is_called_lost(server, key):
    client = redis.asyncio.Redis(port=server.port)
    async with AsyncDLock(client) as locks:
        mine = await locks.lock(key, lease=0.6).acquire()
        while mine._state.renew_at - mine._state._sent > 0.19:  # until a renewal is sent
            await asyncio.sleep(0)
        compute(0.5)
        mine.check()
        await mine.release()
    await client.aclose()


@pytest.mark.parametrize("lease", [1.5, 4.0])
async def test_a_half_open_connection_is_replaced_in_time(make, proxy, key, lease):
    """The reply timeout is 3 s, but of a renewal a third of the lease."""
    api = make(proxy.port)
    mine = await api.acquire(key, lease=lease)
    await api.until(lambda: api.locks._engine.generation)
    proxy.mute_all()
    assert not await api.lost(mine, lease * 1.5)
    await api.release(mine)


@pytest.fixture
def pair():
    servers = [Server("--appendonly", "no"), Server("--appendonly", "no")]
    yield servers
    for one in servers:
        one.end()


async def test_the_connection_of_a_former_primary_is_not_kept(make, pair, key):
    old, new = pair
    address = Proxy(old.port)  # DNS, a virtual IP: new connections lead to another server, old ones stay
    api = make(address.port, lease=20.0)
    for number in range(3):
        await api.release(await api.acquire(f"{key}:{number}"))
    mine = await api.acquire(key)
    await api.until(lambda: api.locks._engine.generation)
    new.ask("REPLICAOF", "127.0.0.1", old.port)
    until(lambda: new.client.info("replication").get("master_link_status") == "up" and new.holds(key), 20)
    new.ask("REPLICAOF", "NO", "ONE")
    address._to = new.port
    old.ask("REPLICAOF", "127.0.0.1", new.port)
    await api.release(mine)
    for number in range(3):
        await api.release(await api.acquire(f"{key}:{number}", timeout=5))
    # Messages come from there, too.
    await api.until(lambda: int(new.ask("PUBSUB", "NUMSUB", api.locks._engine.channel)[1]))
    address.end()


def test_a_reply_that_came_after_the_lease_is_no_grant(clock):
    """`acquire` never returns a hold that is lost."""
    run = start(replicas=Replicas(1, 0.5)).reply(7)
    clock.now += 31
    run.reply(7, 1, info())
    assert run.result is None and len(run.background) == 1
    run = start()
    clock.now += 6
    run.reply(7)
    clock.now += 31
    run.reply(7)
    assert run.result is None and len(run.background) == 1


@pytest.mark.parametrize("code", ["BUSY", "READONLY", "OOM", "UNBLOCKED", "NOREPLICAS", "MOVING", "NEW"])
def test_a_code_that_passes_ends_neither_an_acquire_nor_a_release(clock, code):
    run = start().reply(ServerError(code, "text")).wake().reply(7)
    assert run.result is not None and run.sent[0] == run.sent[1]
    state = run.result
    run = Run(release, state, settings()).reply(ServerError(code, "text")).wake().reply(0)
    assert run.error is None and state.outcome is None
    state = hold(clock)
    until_, sent = state.until, clock.now
    assert state.is_due(clock.now + 9)
    RenewalBatch([state], Replicas()).apply([ServerError(code, "text")])
    assert state.until == until_ and state.reason() is None and state.renew_at < sent + 10.1


def test_a_release_that_nobody_answers_says_so(clock):
    """"Goes on" only if something does."""
    state = hold(clock)
    run = Run(release, state, settings(retry_for=1.0)).reply(ServerError("READONLY", ""))
    clock.now += 2
    run.wake().reply(ServerError("READONLY", ""))
    assert type(run.error) is ReleaseUnknown and "goes on" not in str(run.error) and len(run.background) == 1
    state = hold(clock)
    run = Run(release, state, settings()).reply(KeyboardInterrupt())
    assert "goes on" in str(state.outcome) and run.registry.is_ending()
    clock.now += 50
    run.registry.due(str)[0][0].end(LOST)
    assert "goes on" not in str(state.outcome) and not run.registry.is_ending()
    assert type(state.outcome) is ReleaseUnknown


def test_refused_renewals_are_logged_once(clock, caplog):
    states = [hold(clock) for _ in range(3)]
    refuse = ServerError("NOPERM", "no permission")
    with caplog.at_level(logging.WARNING, "redis_dlock"):
        for _ in range(3):
            RenewalBatch(states, Replicas()).apply([refuse] * 3)
            assert states[0].renew_at == clock.now + 10  # the next third
            clock.now += 0.1
        assert len(caplog.records) == 1 and "NOPERM" in caplog.text
        RenewalBatch(states, Replicas()).apply([7] * 3)
        RenewalBatch(states, Replicas()).apply([refuse] * 3)
    assert len(caplog.records) == 2


def test_a_renewal_is_answered_by_its_token(clock):
    batch = RenewalBatch([hold(clock), hold(clock)], Replicas()).batch
    batch.check([7, 7])
    batch.check([7, ServerError("OOM", "")])
    for replies in ([7, 8], [b"OK", 7], [None, 7]):
        with pytest.raises(Disconnected):
            batch.check(replies)


def test_the_code_of_an_error_of_the_arguments(server, key):
    locks = DLock(redis.Redis(port=server.port))
    with pytest.raises(Refused) as refused:
        locks.lock(key, lease=1e9).acquire(timeout=0)
    assert refused.value.code == "ERR"
    locks.close()
