/** Cancellations at random moments: afterwards nothing is held, queued, open, listened to or timed. */

import assert from "node:assert/strict";
import { createHook } from "node:async_hooks";
import { getEventListeners } from "node:events";
import { describe, test } from "node:test";
import { NotAcquired } from "redis-dlock";

import { ending, KINDS, make, newKey, ownServer } from "./clients.mjs";
import { kept, sleep, until } from "./servers.mjs";

const CANCELLATIONS = 2000;
const AT_ONCE = 25;
const seed = Number(process.env.DLOCK_SEED ?? Date.now() % 100_000);

/** Numbers from 0 to 1, the same for the same seed. */
function randomOf(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

/** Timers, other than those of tests, that were set since the call and neither ended nor were cleared. */
function watchTimers() {
  const timers = new Map();
  const hook = createHook({
    init(id, type) {
      const stack = type === "Timeout" ? new Error("set").stack : "/tests/servers.mjs";
      if (!stack.includes("/tests/servers.mjs")) timers.set(id, stack);
    },
    destroy: (id) => void timers.delete(id),
  }).enable();
  ending({ end: () => hook.disable() });
  return timers;
}

/** Calls by their names. Each gets a signal, and one of a few keys; what is below `taken` is never granted. */
function callsOf(locks, taken, random) {
  const work = () => sleep(random() * 4);
  const run = async (lock, options) => {
    const hold = await lock.acquire(options);
    await hold.release();
  };
  const calls = {};
  for (const [name, lockOf] of Object.entries({
    lock: (key) => locks.lock(key), fair: (key) => locks.fairLock(key), read: (key) => locks.readLock(key),
    write: (key) => locks.writeLock(key), semaphore: (key) => locks.semaphore(key, { limit: 1 }),
    multi: (key) => locks.multiLock([`${key}:1`, key]), any: (key) => locks.anyLock([key, `${key}:2`]),
  })) {
    calls[`${name}, free`] = (key, signal) => run(lockOf(`${key}:${name}`), { signal });
    calls[`using ${name}, free`] = (key, signal) => lockOf(`${key}:${name}`).using({ signal }, work);
    calls[`${name}, taken`] = (key, signal) => run(lockOf(`${taken}:${name}`), { signal });
  }
  delete calls["any, taken"]; // its second key is free
  calls["runOnce, free"] = (key, signal) => locks.lock(`${key}:once`, { signal }).runOnce(work);
  calls["runOnce, taken"] = (key, signal) => locks.lock(`${taken}:lock`, { signal }).runOnce(work);
  calls.latch = (key, signal) => locks.latch(`${taken}:latch`).wait({ signal });
  calls.try = async (key, signal) => (await locks.lock(`${key}:lock`).tryAcquire({ signal }))?.release();
  calls.campaign = (key, signal) => run({ acquire: (options) => locks.election(`${taken}:lock`).campaign(options) },
    { signal });
  calls.observe = (key, signal) => locks.election(`${key}:nobody`).observe({ signal }).next();
  return Object.entries(calls);
}

for (const [index, kind] of KINDS.entries()) {
  describe(`${kind}, seed ${seed + index}`, () => {
    test("a call that is cancelled leaves nothing", async (t) => {
      const [own, random, prefix] = [await ownServer(["--appendonly", "no"]), randomOf(seed + index), newKey()];
      const taken = `${prefix}:taken`;
      const timers = watchTimers();
      const connections = async () => (await own.ask("CLIENT", "LIST")).trim().split("\n").length;
      const before = await connections();
      const [rival, locks] = [await make(kind, { port: own.port }), await make(kind, { port: own.port })];
      kept.push(await rival.lock(`${taken}:lock`).acquire(), await rival.fairLock(`${taken}:fair`).acquire(),
        await rival.writeLock(`${taken}:read`).acquire(), await rival.readLock(`${taken}:write`).acquire(),
        await rival.semaphore(`${taken}:semaphore`, { limit: 1 }).acquire(), await rival.acquire(`${taken}:multi`));
      await rival.latch(`${taken}:latch`).init(1);

      const calls = callsOf(locks, taken, random);
      await (await locks.acquire(newKey())).release(); // connections are open
      const signals = new Set();
      const counts = { cancelled: 0, done: 0 };
      let left = Math.ceil(CANCELLATIONS / KINDS.length);
      let shared = new AbortController(); // of about ten calls
      const worker = async () => {
        while (left > 0) {
          const [name, call] = calls[Math.floor(random() * calls.length)];
          const controller = random() < 0.2 ? shared : new AbortController();
          if (random() < 0.02 || shared.signal.aborted) shared = new AbortController();
          signals.add(controller.signal);
          const cancel = () => controller.abort(new Error("cancelled"));
          const wait = random() * random() * 100;
          const timer = wait < 0.2 ? void queueMicrotask(cancel) : setTimeout(cancel, wait);
          try {
            await call(`${prefix}:${Math.floor(random() * 3)}`, controller.signal);
            counts.done += 1;
          } catch (error) {
            if (error instanceof NotAcquired) return;
            assert.equal(error, controller.signal.reason, `${name}: ${error.stack}`);
            counts.cancelled += 1;
            left -= 1;
          }
          clearTimeout(timer);
        }
      };
      await Promise.all(Array.from({ length: AT_ONCE }, worker));

      const listeners = [...signals].map((signal) => getEventListeners(signal, "abort").length);
      assert.deepEqual(listeners.filter((count) => count > 0), []);
      const families = { lock: "DLOCK", fair: "DFAIR", read: "DRW", write: "DRW", semaphore: "DSEM", multi: "DLOCK" };
      for (const [name, family] of Object.entries(families)) {
        await until(async () => (await own.waiters(`${taken}:${name}`, family)) === 0, 5000);
      }
      await until(async () => (await own.ask("DLOCK.INFO", `${taken}:multi:1`)) === null, 5000);
      await until(async () => {
        const keys = (await own.ask("KEYS", `${prefix}:*`)).filter((key) => !key.startsWith(taken));
        const isHeld = async (key) => (await own.ask("TYPE", key)) !== "none" && !key.endsWith(":semaphore");
        return (await Promise.all(keys.map(isHeld))).every((isIt) => !isIt);
      }, 5000);
      for (let number = 0; number < 3; number += 1) {
        const hold = await locks.semaphore(`${prefix}:${number}:semaphore`, { limit: 1 }).acquire({ timeout: 1000 });
        await hold.release();
      }
      t.diagnostic(`${counts.cancelled} cancelled, ${counts.done} done`);

      for (const hold of kept.splice(0)) {
        hold.check();
        await hold.release();
      }
      await locks.close();
      await rival.close();
      await until(async () => (await connections()) === before, 5000);
      await until(() => timers.size === 0, 5000).catch((error) => {
        throw new Error(`${timers.size} timers: ${[...timers.values()][0]}`, { cause: error });
      });
    });
  });
}
