"""One of several replicas with a scheduler: python replica.py PORT NAME."""

from __future__ import annotations

import sys

import redis
from apscheduler.events import EVENT_JOB_EXECUTED
from apscheduler.schedulers.background import BackgroundScheduler

from redis_dlock import DLock

port, name = int(sys.argv[1]), sys.argv[2]
store = redis.Redis(port=port)
election = DLock(store, lease=1.5).election("scheduler", value=name)


def tick(leadership):
    leadership.check()


while True:
    leadership = election.campaign()
    scheduler = BackgroundScheduler()
    # However slow the machine is: the test wants each tick.
    scheduler.add_job(tick, "cron", second="*", args=[leadership], misfire_grace_time=60, coalesce=False,
                      max_instances=60)

    def note(event, token=leadership.token):
        store.rpush("ticks", f"{event.scheduled_run_time.timestamp():.0f} {name} {token}")

    scheduler.add_listener(note, EVENT_JOB_EXECUTED)
    scheduler.start()
    leadership.lost.wait()
    scheduler.shutdown()
