"""Exceptions of signal handlers at any point (redis-py#2624), and replies that are not those to a request."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading

import pytest
import redis
import redis.asyncio
from servers import until

from redis_dlock import AsyncDLock, DLock, NotAcquired, Unavailable
from redis_dlock._requests import Target, read_replies
from redis_dlock.errors import Disconnected, DLockError, ServerError


class SoftTimeLimit(Exception):
    """As Celery's."""


def interrupted(work, number: int) -> bool:
    """Whether ``work`` was interrupted at its call of that number, of any function in Python."""
    left = number

    def trace(frame, event, argument):
        nonlocal left
        left -= 1
        if left == 0:
            sys.settrace(None)
            raise SoftTimeLimit

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except SoftTimeLimit:
        return True
    except DLockError:
        pass  # redis-py or the client dropped it, as it drops errors while it ends a connection
    finally:
        sys.settrace(before)
    return left <= 0


@pytest.mark.parametrize("what", ["acquire", "release", "renew", "all"])
def test_no_interruption_leaves_a_reply_for_another_request(server, key, what):
    """A rival's lock is never believed, wherever the exception came."""
    locks, rival = DLock(redis.Redis(port=server.port), retry_for=2.0), DLock(redis.Redis(port=server.port))
    locks.lock(f"{key}:warm").acquire().release()
    theirs = rival.lock(f"{key}:rival").acquire()

    def work(number: int) -> None:
        name = f"{key}:{number}"
        if what == "acquire":
            locks._engine.io.clear()  # a new connection
        hold = locks.lock(name, timeout=0).acquire() if what == "all" else None
        if what == "acquire":
            assert interrupted(lambda: locks.lock(name, timeout=0).acquire().release(), number)
        elif what == "renew":
            hold = locks.lock(name, timeout=0).acquire()
            rounds, _ = (hold._state.ask(), locks._engine.registry.due(str))[1]
            interrupted(lambda: [locks._engine._send(one) for one in rounds], number)
        elif what == "release":
            hold = locks.lock(name, timeout=0).acquire()
            interrupted(hold.release, number)
        else:
            interrupted(lambda: locks.lock(f"{name}:2", timeout=0).acquire().release(), number)
        for _ in range(3):
            with pytest.raises(NotAcquired):
                locks.lock(theirs.key, timeout=0).acquire()
            mine = locks.lock(f"{name}:free", timeout=0).acquire()
            assert server.shown(mine.key, "token") == mine.token
            mine.release()
        if hold is not None and not hold._state.is_released:
            hold.release()

    numbers = list(range(1, 60)) if what != "acquire" else sorted(random.sample(range(1, 180), 60))
    for number in numbers:
        try:
            work(number)
        except AssertionError:
            if what == "acquire" and number > 100:
                continue  # it has fewer calls
            raise
    theirs.check()
    locks.close()
    rival.close()


def test_a_connection_of_the_application_is_not_used(server, key):
    """Its own interrupted call leaves replies to come in the pool."""
    client, rival = redis.Redis(port=server.port), DLock(redis.Redis(port=server.port))
    theirs, locks = rival.lock(key).acquire(), DLock(client)
    client.ping()
    connection = client.connection_pool.get_connection()
    connection.send_command("DLOCK.ACQUIRE", f"{key}:other", "application")
    client.connection_pool.release(connection)
    for _ in range(3):
        with pytest.raises(NotAcquired):
            locks.lock(key, timeout=0).acquire()
    theirs.release()
    locks.close()
    rival.close()


@pytest.mark.parametrize("blocks", [False, True])
async def test_a_cancelled_opening_leaves_no_reply(proxy, server, key, blocks):
    client, rival = redis.asyncio.Redis(port=proxy.port), DLock(redis.Redis(port=server.port))
    theirs, locks = rival.lock(key).acquire(), AsyncDLock(client, block=1.0 if blocks else None)
    proxy.delay = 0.02
    for step in range(1, 12):
        task = asyncio.ensure_future(locks.lock(f"{key}:free").acquire())
        await asyncio.sleep(step * 0.01)
        task.cancel()
        (hold,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(hold, asyncio.CancelledError):
            await hold.release()
        if locks._engine.io._link is not None:
            locks._engine.io._link.end(Disconnected("the next one is opened"))
    proxy.delay = 0
    for _ in range(3):
        with pytest.raises(NotAcquired):
            await locks.lock(key, timeout=0.05).acquire()
        hold = await locks.lock(f"{key}:free", timeout=5).acquire()
        assert server.shown(hold.key, "token") == hold.token
        await hold.release()
    theirs.release()
    await locks.close()
    await client.aclose()
    rival.close()


@pytest.mark.parametrize("reply", [b"OK", b"7", 0, -1, True, [], [7], {"a": 1}, 1.5])
@pytest.mark.parametrize("form", ["one", "all", "any"])
def test_what_no_grant_looks_like(form, reply):
    """It is the reply to something else, so the connection ends."""
    target = Target("DLOCK", ("a", "b"), form=form) if form != "one" else Target("DLOCK", ("a",))
    with pytest.raises(Disconnected):
        target.grants(reply)


def test_replies_are_read_as_they_arrive():
    whole = (b":7\r\n$-1\r\n*-1\r\n_\r\n+OK\r\n-NEW text of it\r\n>2\r\n$3\r\nabc\r\n:1\r\n$2\r\n\r\n\r\n"
             b"*2\r\n:1\r\n*1\r\n$1\r\na\r\n%1\r\n$1\r\nk\r\n:5\r\n=7\r\ntxt:abc\r\n#t\r\n")
    wanted = [7, None, None, None, b"OK", None, b"\r\n", [1, [b"a"]], [b"k", 5], b"txt:abc", b"t"]
    for size in (1, 2, 3, 7, len(whole)):
        found, rest = [], b""
        for at in range(0, len(whole), size):
            some, rest = read_replies(rest + whole[at : at + size])
            found += some
        error = found[5]
        assert isinstance(error, ServerError) and (error.code, error.text) == ("NEW", "text of it")
        assert rest == b"" and [*found[:5], None, *found[6:]] == wanted
    for garbage in (b"HTTP/1.1 400\r\n", b":x\r\n", b"$a\r\n"):
        with pytest.raises(Disconnected):
            read_replies(garbage)


@pytest.mark.parametrize("error", [TimeoutError, ConnectionError, OSError, SoftTimeLimit, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["wait", "opening"])
def test_an_error_of_a_handler_is_its_own(server, key, error, where):
    """SIGALRM with a TimeoutError is the usual recipe; it looks like a lost connection."""
    def handler(*_):
        raise error("limit")

    locks, other = DLock(redis.Redis(port=server.port), retry_for=5.0), DLock(redis.Redis(port=server.port))
    mute = socket.create_server(("127.0.0.1", 0))  # it accepts, and says nothing
    hold = other.lock(key).acquire()
    before = signal.signal(signal.SIGALRM, handler)
    try:
        try:
            raise error("an earlier one, with the frame of a handler") from None
        except BaseException:
            if where == "opening":
                locks = DLock(redis.Redis(port=mute.getsockname()[1]), retry_for=5.0)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(error, match="limit"):
                locks.lock(key, timeout=4.0).acquire()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        mute.close()
    hold.release()
    other.close()


def test_an_earlier_error_of_a_handler_is_not_taken_for_a_new_one(key):
    def handler(*_):
        raise TimeoutError("limit")

    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        threading.Event().wait(5)
        raise AssertionError("no signal")
    except TimeoutError:
        with pytest.raises(Unavailable):
            DLock(redis.Redis(port=1), retry_for=0.1).lock(key).acquire()
    finally:
        signal.signal(signal.SIGALRM, before)


CLONES = """
import ctypes, os, sys, redis
from redis_dlock import DLock, NotAcquired
locks = DLock(redis.Redis(port=int(sys.argv[1])))
clones = []
for _ in range(3):
    if (pid := ctypes.CDLL(None).fork()) == 0:
        try:
            hold = locks.lock(sys.argv[2], timeout=0).acquire()  # kept: a dropped one is released
            os.write(1, b"%d\\n" % hold.token)
        except NotAcquired:
            os.write(1, b"no\\n")
        finally:
            os._exit(0)
    clones.append(pid)
for pid in clones:
    os.waitpid(pid, 0)
"""


def test_clones_of_a_process_have_ids_of_their_own(server, key):
    """SnapStart, snapshots of machines, CRIU: the same memory goes on several times, and no hook of a fork runs."""
    done = subprocess.run([sys.executable, "-c", CLONES, str(server.port), key], capture_output=True, text=True,
                          timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)})
    assert sorted(done.stdout.split())[1:] == ["no", "no"], done
    server.client.delete(key)


def test_half_a_reply_does_not_hang(server, key):
    """Each read has a limit, whatever that of the application's client."""
    from servers import Proxy
    proxy = Proxy(server.port)
    locks = DLock(redis.Redis(port=proxy.port, socket_timeout=None), response_timeout=0.3, retry_for=5.0)
    locks.lock(f"{key}:warm").acquire().release()
    proxy.half_at = True
    hold = locks.lock(key, timeout=5).acquire()
    assert not proxy.half_at
    hold.release()
    locks.close()
    proxy.end()
    until(lambda: not server.client.exists(key))
