// One lock that takes a node-redlock lock and a dlock lock. For the days on which old and new clients run side by side.
// docs/migrate/node-redlock.md says when to use it, and why it takes the old lock first.

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

// `redlock` is a Redlock (4.2 or 5.0.0-beta) with `retryCount: 0`: the bridge retries. `redis` is an ioredis client of
// the server with dlock. `acquire` returns null after `timeout` ms. Otherwise it returns the lock: its fencing `token`,
// and `until`, the moment (performance.now) at which the holder must have released or extended.
export function bridge(redlock, redis, { resource, key, lease, block = Math.min(1000, Math.floor(lease / 3)) }) {
  const isRefusal = (error) => error.name === "ExecutionError" || error.name === "LockError";

  async function acquireOld(end) {
    for (;;) {
      try {
        return await redlock.acquire([resource], lease);
      } catch (error) {
        if (!isRefusal(error)) throw error;
      }
      if (performance.now() >= end) return null;
      await sleep(50 + Math.random() * 50);
    }
  }

  async function acquireNew(lock, end) {
    // A blocked call stops all later commands of its connection, so it has a connection of its own.
    const waiting = redis.duplicate();
    waiting.on("error", () => {}); // the call below fails
    try {
      for (;;) {
        const start = performance.now();
        const left = Math.floor(end - start);
        const wait = left > 0 ? ["BLOCK", Math.min(block, left), "QUEUE", Math.max(3 * block, 10_000)] : [];
        const request = ["DLOCK.ACQUIRE", key, lock.owner, "PX", lease, "REQID", "acquire", ...wait];
        const token = await waiting.call(...request);
        lock.old = await redlock.extend(lock.old, lease); // the old lease restarts, also while this waits for dlock
        if (token !== null) return Object.assign(lock, { token, until: start + lease });
        if (left <= 0) return null;
      }
    } finally {
      waiting.disconnect();
    }
  }

  async function undo(lock) {
    try {
      // It also ends a copy of the request that is still under way.
      await redis.call("DLOCK.RELEASE", key, lock.owner, "REQID", "acquire");
    } catch (error) {
      if (!/^(UNKNOWN|LOST) /.test(error.message)) throw error;
    } finally {
      await redlock.release(lock.old).catch(() => {}); // it has expired
    }
  }

  return {
    async acquire(timeout) {
      const end = performance.now() + timeout;
      for (;;) {
        const old = await acquireOld(end);
        if (old === null) return null;
        const lock = { old, owner: randomUUID() };
        try {
          const held = await acquireNew(lock, end);
          if (held !== null) return held;
        } catch (error) {
          await undo(lock);
          if (!isRefusal(error)) throw error;
          continue; // the old lease ended while this waited for dlock: start again
        }
        await undo(lock);
        return null;
      }
    },

    // Both leases start again in full. Throws when one of the locks is lost: then stop the work, and release.
    async extend(lock) {
      const start = performance.now();
      lock.old = await redlock.extend(lock.old, lease);
      await redis.call("DLOCK.RENEW", key, lock.owner, "PX", lease, "TOKEN", lock.token);
      lock.until = start + lease;
    },

    // Releases dlock, then the old lock, also when the first one fails. Throws when one of them was lost.
    async release(lock) {
      try {
        await redis.call("DLOCK.RELEASE", key, lock.owner, "TOKEN", lock.token, "REQID", "acquire");
      } finally {
        await redlock.release(lock.old);
      }
    },
  };
}
