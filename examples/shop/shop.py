"""Sells pieces of one stock until none is left: python shop.py redis://127.0.0.1:6379"""

import sys
import time
from pathlib import Path

import redis

from redis_dlock import DLock, DLockError

PAYMENT, LEASE = 0.002, 3.0  # seconds; a seller that is killed holds the others up for at most a lease
url = sys.argv[1]
shop = redis.Redis.from_url(url)
sell = shop.register_script(Path(__file__).with_name("sell.lua").read_text())
sold = 0
with DLock(redis.Redis.from_url(url), lease=LEASE) as locks:
    while True:
        try:
            with locks.lock("shop:lock") as hold:
                left = int(shop.hget("shop", "left"))
                if left == 0:
                    break
                time.sleep(PAYMENT)
                sold += sell(keys=["shop", "shop:sales"], args=[hold.token, left, "python"])
        except (DLockError, redis.ConnectionError) as error:
            print("again:", error, file=sys.stderr)  # the lock was lost, or a connection: look at the stock again
print("sold", sold)
