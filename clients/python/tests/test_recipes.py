"""The recipes of docs/python, with the real packages: Django, Celery and APScheduler."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import redis
from servers import Server, until

from redis_dlock import DLock, compat

HERE = Path(__file__).parent
SOURCES = os.pathsep.join([str(HERE / "recipes"), str(HERE.parent / "src")])


@pytest.fixture(scope="module")
def store():
    server = Server("--appendonly", "no")
    yield server.client
    server.end()


def port_of(store: redis.Redis) -> int:
    return store.connection_pool.connection_kwargs["port"]


# django-redis


@pytest.fixture(scope="module")
def cache(store):
    pytest.importorskip("django_redis")
    from django.conf import settings
    from django.core.cache import cache

    settings.configure(CACHES={"default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": f"redis://127.0.0.1:{port_of(store)}/2",
        "OPTIONS": {"REDIS_CLIENT_CLASS": "redis_dlock.compat.Redis"},
    }})
    return cache


def test_cache_lock_of_django_redis(cache, store):
    lock = cache.lock("orders:7", timeout=10)
    assert isinstance(lock, compat.Lock)
    inside, most = [], []

    def work():
        with cache.lock("orders:8", timeout=10):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.01)
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(10)]
    with lock:
        assert not cache.lock("orders:7", blocking=False).acquire()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert lock.owned()
    assert most == [1] * 10
    cache.set("a", 1)
    assert cache.get("a") == 1


# Celery


@pytest.fixture(scope="module")
def tasks(store, tmp_path_factory):
    pytest.importorskip("celery")
    log = tmp_path_factory.mktemp("celery") / "log"
    url = os.environ["DLOCK_URL"] = f"redis://127.0.0.1:{port_of(store)}"
    words = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "-P", "prefork", "-c", "4", "-l", "info"]
    environment = {**os.environ, "DLOCK_URL": url, "PYTHONPATH": SOURCES}
    with log.open("w") as output:
        worker = subprocess.Popen(words, stdout=output, stderr=output, env=environment)
    sys.path.insert(0, str(HERE / "recipes"))
    import tasks

    try:
        until(lambda: " ready." in log.read_text() or worker.poll() is not None, 60)
        assert worker.poll() is None, log.read_text()
        yield tasks
    finally:
        sys.path.remove(str(HERE / "recipes"))
        del os.environ["DLOCK_URL"]
        tasks.locks.close()
        worker.terminate()
        worker.wait(30)


def test_a_task_that_runs_once_at_a_time(tasks):
    results = [tasks.one_at_a_time.delay("index") for _ in range(4)]
    runs = sorted(result.get(timeout=60) for result in results)
    assert len({pid for pid, *_ in runs}) > 1, "several children took part"
    runs.sort(key=lambda run: run[1])
    for (_, _, _, ended), (_, _, began, _) in zip(runs, runs[1:]):
        assert began >= ended


def test_a_child_that_dies_frees_its_lock(tasks, store):
    tasks.die.delay("killed")
    until(lambda: store.execute_command("DLOCK.INFO", "killed"), 30)
    began = time.time()
    assert tasks.one_at_a_time.delay("killed").get(timeout=60)[1] > 0
    assert time.time() - began < 20


def test_a_task_that_is_out_of_time_leaves_the_queue(tasks, store):
    from celery.exceptions import SoftTimeLimitExceeded

    with DLock(store) as locks, locks.lock("busy"):
        result = tasks.wait.delay("busy")
        with pytest.raises(SoftTimeLimitExceeded):
            result.get(timeout=60)
        assert store.execute_command("DLOCK.WAITERS", "busy") == []


def test_a_task_that_runs_once(tasks, store):
    results = [tasks.once.delay("monday") for _ in range(8)]
    assert any([result.get(timeout=60) for result in results])
    assert store.get("runs:monday") == b"1"


# APScheduler


def test_one_of_three_schedulers_runs_each_tick(store):
    pytest.importorskip("apscheduler")
    environment = {**os.environ, "PYTHONPATH": SOURCES}
    words = [sys.executable, str(HERE / "recipes" / "replica.py"), str(port_of(store))]
    replicas = {name: subprocess.Popen([*words, name], env=environment) for name in ("a", "b", "c")}

    def ticks():
        """When, by which replica, and in which term of its leadership."""
        return [line.decode().split() for line in store.lrange("ticks", 0, -1)]

    try:
        until(lambda: len(ticks()) >= 4, 60)
        replicas[ticks()[-1][1]].kill()
        until(lambda: len({token for _, _, token in ticks()}) >= 2, 60)
        count = len(ticks())
        until(lambda: len(ticks()) >= count + 3, 60)
    finally:
        for replica in replicas.values():
            replica.kill()
            replica.wait()
    terms: dict[str, list[int]] = {}
    for at, _, token in ticks():
        terms.setdefault(token, []).append(int(at))
    assert len({at for at, _, _ in ticks()}) == len(ticks()), f"a tick ran twice: {ticks()}"
    for own in map(sorted, terms.values()):
        assert own == list(range(own[0], own[0] + len(own))), f"a tick is missing: {ticks()}"
