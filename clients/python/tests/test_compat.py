"""compat.Lock beside redis-py's own Lock: the same steps, the same results."""

from __future__ import annotations

import dataclasses
import threading
import time

import pytest
import redis
from redis.exceptions import LockError, LockNotOwnedError
from redis.lock import Lock as PollingLock
from servers import Server, free_port, until

from redis_dlock import compat


@pytest.fixture(params=["redis-py", "dlock"])
def make(request, server, key):
    """Makes locks of one key with one client, each time of the class under test."""
    client = redis.Redis(port=server.port)
    lock_class = {"redis-py": PollingLock, "dlock": compat.Lock}[request.param]

    def new(name: str = key, **options):
        options = {"sleep": 0.01, **options}
        return client.lock(name, lock_class=lock_class, **options)

    new.kind, new.client, new.key = request.param, client, key
    yield new
    client.close()


CALLS = [lambda lock: lock.release(), lambda lock: lock.extend(1), lambda lock: lock.reacquire()]


def expire(make, lock) -> None:
    """Ends the hold from outside."""
    if make.kind == "redis-py":
        make.client.delete(make.key)
    else:
        make.client.execute_command("DLOCK.BREAK", make.key)
    assert not lock.locked()


def rest(make) -> float:
    """The rest of the lease in seconds."""
    if make.kind == "redis-py":
        return make.client.pttl(make.key) / 1000
    info = make.client.execute_command("DLOCK.INFO", make.key)
    return (info if isinstance(info, dict) else dict(zip(info[::2], info[1::2])))[b"ttl-ms"] / 1000


def test_acquire_and_release(make):
    lock, other = make(), make()
    assert not lock.locked() and not lock.owned()
    assert lock.acquire() is True
    assert lock.locked() and lock.owned() and other.locked() and not other.owned()
    assert lock.release() is None
    assert not lock.locked() and not lock.owned()


def test_an_acquire_that_does_not_wait_returns_false(make):
    lock, other = make(), make(blocking=False)
    lock.acquire()
    assert other.acquire() is False
    assert make().acquire(blocking=False) is False
    assert make(blocking_timeout=0.05).acquire() is False
    assert make().acquire(blocking_timeout=0) is False
    lock.release()
    assert other.acquire() is True
    other.release()


def test_an_acquire_waits_for_a_release(make):
    lock, other = make(), make(blocking_timeout=10)
    lock.acquire()
    token = lock.local.token
    began = time.monotonic()
    releases = threading.Timer(0.2, lambda: lock.do_release(token))
    releases.start()
    assert other.acquire() is True
    assert time.monotonic() - began > 0.1
    other.release()
    releases.join()


def test_a_second_acquire_of_one_object_is_no_reentry(make):
    lock = make(timeout=1)
    lock.acquire()
    assert lock.acquire(blocking=False) is False
    assert lock.acquire(blocking_timeout=20) is True  # once the first has expired
    lock.release()
    assert not lock.locked()


def test_the_lease_ends_after_the_timeout(make):
    lock = make(timeout=1)
    lock.acquire()
    assert 0 < rest(make) <= 1
    until(lambda: not lock.locked())
    assert not lock.owned()
    with pytest.raises(LockNotOwnedError):
        lock.release()
    with pytest.raises(LockError) as second:
        lock.release()
    assert not isinstance(second.value, LockNotOwnedError)


def test_a_lock_without_timeout_stays(make, monkeypatch):
    lock = make()
    if make.kind == "dlock":
        monkeypatch.setattr(lock._locks, "lease", 1)
    lock.acquire()
    time.sleep(2)
    assert lock.owned()
    lock.release()


@pytest.mark.parametrize("call", CALLS)
def test_what_nobody_acquired_raises_lock_error(make, call):
    with pytest.raises(LockError) as raised:
        call(make(timeout=5))
    assert not isinstance(raised.value, LockNotOwnedError)
    assert getattr(raised.value, "lock_name", make.key) == make.key  # redis-py 5.0 has no such field


@pytest.mark.parametrize("call", CALLS)
def test_what_was_lost_raises_lock_not_owned(make, call):
    lock = make(timeout=5)
    lock.acquire()
    expire(make, lock)
    with pytest.raises(LockNotOwnedError):
        call(lock)


def test_another_owner_keeps_the_lock(make):
    lock, other = make(timeout=5), make(timeout=5)
    lock.acquire()
    expire(make, lock)
    other.acquire()
    with pytest.raises(LockNotOwnedError):
        lock.release()
    assert other.owned()
    other.release()


def test_extend_adds_to_the_rest_or_replaces_it(make):
    lock = make(timeout=5)
    lock.acquire()
    assert lock.extend(10) is True
    assert 14 < rest(make) <= 15
    # The promise of the first call stays: dlock shortens no lease.
    assert lock.extend(10, replace_ttl=True) is True
    assert (9 < rest(make) <= 10) if make.kind == "redis-py" else (14 < rest(make) <= 15)
    assert lock.reacquire() is True
    assert (4 < rest(make) <= 5) if make.kind == "redis-py" else (14 < rest(make) <= 15)
    assert lock.extend(20, replace_ttl=True) is True
    assert 19 < rest(make) <= 20
    lock.release()


def test_a_lock_without_timeout_has_nothing_to_extend(make):
    lock = make()
    lock.acquire()
    for call in (lambda: lock.extend(1), lock.reacquire):
        with pytest.raises(LockError):
            call()
    lock.release()


def test_the_lease_after_a_wait_is_the_timeout(make):
    """Also if it is longer than the time that a dead waiter may cost; and nothing renews it."""
    first, lock = make(timeout=60), make(timeout=60)
    first.acquire()
    token = first.local.token
    releases = threading.Timer(0.2, lambda: first.do_release(token))
    releases.start()
    assert lock.acquire() is True
    assert 55 < rest(make) <= 60
    lock.release()
    releases.join()


def test_with(make):
    with make(timeout=5) as lock:
        assert lock.owned()
        with pytest.raises(LockError), make(blocking=False):
            pytest.fail("not acquired")
        with pytest.raises(LockError), make(blocking_timeout=0.05):
            pytest.fail("not acquired")
    assert not make().locked()


def test_with_raises_if_the_hold_was_lost(make):
    with pytest.raises(LockNotOwnedError), make(timeout=5) as lock:
        expire(make, lock)


def test_with_may_ignore_a_loss(make):
    try:
        quiet = make(timeout=5, raise_on_release_error=False)
    except TypeError:
        pytest.skip("this redis-py does not know raise_on_release_error")
    with quiet as lock:
        expire(make, lock)


def test_a_token_is_the_owner(make):
    lock, other = make(timeout=5), make(timeout=5)
    assert lock.acquire(token="job-7") and lock.local.token == b"job-7"
    assert other.acquire(token="job-7", blocking=False) is False
    other.do_release(b"job-7")  # a token that was passed to another process
    assert not lock.owned()


def test_a_thread_sees_its_own_token_only(make):
    lock, seen = make(timeout=5), []
    lock.acquire()

    def other():
        try:
            seen.append(lock.owned())
        except AttributeError:  # redis-py has no token at all in other threads
            seen.append(False)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert seen == [False]
    lock.release()


def test_threads_may_share_a_token(make):
    lock = make(timeout=5, thread_local=False)
    lock.acquire()
    thread = threading.Thread(target=lock.release)
    thread.start()
    thread.join()
    assert not lock.locked()


def test_one_at_a_time(make):
    inside, most, entered = [], [], []

    def work():
        lock = make(timeout=10)
        for _ in range(5):
            with lock:
                inside.append(1)
                most.append(len(inside))
                entered.append(1)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(most) == 1 and len(entered) == 40


# What redis-py's Lock does not have.


def test_fencing_tokens_rise(server, key):
    lock = compat.Redis(port=server.port).lock(key, timeout=5)
    assert isinstance(lock, compat.Lock) and lock.fencing_token is None
    with lock:
        first = lock.fencing_token
    with lock:
        assert lock.fencing_token > first
    assert lock.fencing_token is None


def test_a_lost_reply_to_release_is_no_error(server, proxy, key):
    """A release names its acquire, so it is repeated. redis-py's may have worked and raises an error."""
    lock = redis.Redis(port=proxy.port).lock(key, timeout=60, lock_class=compat.Lock)
    lock.acquire()
    proxy.cut_after = b"DLOCK.RELEASE"
    lock.release()
    assert proxy.cuts == 1 and not server.client.exists(key)


def test_a_name_may_be_bytes(server, key):
    client = compat.Redis(port=server.port)
    with client.lock(key.encode(), timeout=5) as lock:
        assert lock.owned() and lock.extend(5) and client.lock(key).locked()


def test_a_missing_module_is_an_error_of_redis_py(key):
    plain = Server(module=False)
    try:
        with pytest.raises(redis.ResponseError, match="module"):
            redis.Redis(port=plain.port).lock(key, lock_class=compat.Lock).acquire()
    finally:
        plain.end()


def test_a_server_that_is_gone_is_an_error_of_redis_py(key):
    lock = redis.Redis(port=free_port()).lock(key, lock_class=compat.Lock)
    lock._locks._settings = dataclasses.replace(lock._locks._settings, retry_for=0.1)
    with pytest.raises(redis.ConnectionError):
        lock.acquire()
