"""A Celery app. The lease is shorter than the work, so each task is renewed in its child of the prefork pool."""

from __future__ import annotations

import os
import time

import redis
from celery import Celery

from redis_dlock import DLock

URL = os.environ["DLOCK_URL"]
app = Celery("tasks", broker=f"{URL}/1", backend=f"{URL}/1")
store = redis.Redis.from_url(URL)
locks = DLock(store, lease=1)
with locks.lock("import"):  # the parent has connections and threads before it forks
    pass


@app.task
def one_at_a_time(key):
    with locks.lock(key) as hold:
        began = time.time()
        time.sleep(1.5)
        hold.check()
        return os.getpid(), hold.token, began, time.time()


@app.task
def die(key):
    locks.lock(key).acquire()
    os.kill(os.getpid(), 9)


@app.task(soft_time_limit=1)
def wait(key):
    with locks.lock(key):
        pass


@app.task
def once(day):
    def work(hold):
        if store.exists(f"report:{day}"):  # a copy that came after the end of the run
            return
        time.sleep(1.2)
        store.incr(f"runs:{day}")
        store.set(f"report:{day}", hold.token, ex=86400)

    return locks.lock(f"lock:report:{day}").run_once(work).ran
