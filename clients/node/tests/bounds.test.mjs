/**
 * Every call ends with its timeout, whatever the server does, and says whether the lock is busy or no server is there.
 * With DLOCK_TABLE=1 the times are printed.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NotAcquired, Unavailable } from "redis-dlock";

import { KINDS, make, newKey, newProxy, ownServer, server } from "./clients.mjs";
import { freePort, kept, sleep, until } from "./servers.mjs";

const [TIMEOUT, RESPONSE, RETRY, OVER] = [300, 900, 1200, 100];

/** Each call with what may bound it: its timeout, the time of a reply, or how long it repeats. */
const CALLS = {
  acquire: [TIMEOUT, (locks, key) => locks.acquire(key, { timeout: TIMEOUT })],
  fair: [TIMEOUT, (locks, key) => locks.fairLock(`${key}f`).acquire({ timeout: TIMEOUT })],
  read: [TIMEOUT, (locks, key) => locks.readLock(`${key}r`).acquire({ timeout: TIMEOUT })],
  write: [TIMEOUT, (locks, key) => locks.writeLock(`${key}r`).acquire({ timeout: TIMEOUT })],
  semaphore: [TIMEOUT, (locks, key) => locks.semaphore(`${key}s`, { limit: 1, timeout: TIMEOUT }).acquire()],
  multi: [TIMEOUT, (locks, key) => locks.multiLock([key, `${key}2`]).acquire({ timeout: TIMEOUT })],
  any: [TIMEOUT, (locks, key) => locks.anyLock([key, `${key}a`]).acquire({ timeout: TIMEOUT })],
  using: [TIMEOUT, (locks, key) => locks.using(key, { timeout: TIMEOUT }, () => {})],
  runOnce: [TIMEOUT, (locks, key) => locks.lock(key, { timeout: TIMEOUT }).runOnce(() => {})],
  "runOnce of another": [TIMEOUT, (locks, key) => locks.lock(key, { timeout: TIMEOUT }).runOnce(() => {})],
  campaign: [TIMEOUT, (locks, key) => locks.election(key, "me").campaign({ timeout: TIMEOUT })],
  "latch.wait": [TIMEOUT, (locks, key) => locks.latch(`${key}l`).wait({ timeout: TIMEOUT })],
  tryAcquire: [RESPONSE, (locks, key) => locks.lock(key).tryAcquire()],
  "acquire without a timeout": [RETRY, (locks, key) => locks.acquire(key)],
  "latch.remaining": [RETRY, (locks, key) => locks.latch(`${key}l`).remaining()],
  "latch.countDown": [RETRY, (locks, key) => locks.latch(`${key}c`).countDown()],
  leader: [RETRY, (locks, key) => locks.election(key).leader()],
};

/** Runs all calls at the same time. Returns how each ended, and for how long this process was kept from running. */
async function endsOf(locks, key, calls) {
  let [kept, last] = [0, performance.now()];
  const watch = setInterval(() => {
    kept = Math.max(kept, performance.now() - last - 5);
    last = performance.now();
  }, 5);
  const ends = await Promise.all(calls.map(async (name) => {
    const [bound, call] = CALLS[name];
    const began = performance.now();
    const outcome = await call(locks, key).catch((error) => error);
    return { name, bound, outcome, took: performance.now() - began };
  }));
  clearInterval(watch);
  return ends.map((end) => ({ ...end, kept }));
}

function shown(state, ends) {
  if (!process.env.DLOCK_TABLE) return;
  for (const { name, bound, outcome, took, kept } of ends) {
    const row = [state, name, bound, Math.round(took), Math.round(kept), outcome?.name ?? outcome];
    console.log(row.join(" | "));
  }
}

function assertBounded(ends) {
  for (const { name, bound, took, kept } of ends) {
    assert(took <= bound + OVER + 2 * kept, `${name}: ${took} ms of ${bound}, kept for ${kept} ms`);
  }
}

const STATES = {
  "a server that is stopped, over new connections": async () => {
    const own = await ownServer(["--appendonly", "no"]);
    own.pause();
    return { port: own.port };
  },
  "a server that is stopped, over connections that worked": async () => {
    const own = await ownServer(["--appendonly", "no"]);
    return { port: own.port, begin: () => own.pause() };
  },
  "a server that accepts, and never answers": async () => {
    const proxy = await newProxy();
    proxy.isSilent = true;
    return { port: proxy.port };
  },
  "half a reply": async () => {
    const proxy = await newProxy();
    return { port: proxy.port, begin: () => (proxy.isHalf = true) };
  },
  "no server": async () => ({ port: await freePort() }),
  "no host": async () => ({ client: { host: "no-such-host.invalid", socket: { host: "no-such-host.invalid" } } }),
};

for (const kind of KINDS) {
  describe(kind, () => { // one after the other: they measure times
    for (const [state, begun] of Object.entries(STATES)) {
      test(`${state}: Unavailable, in time`, async () => {
        const { begin, ...where } = await begun();
        const locks = await make(kind, { ...where, responseTimeout: RESPONSE, retryFor: RETRY });
        const key = newKey();
        if (begin !== undefined) {
          // A busy machine may need longer than these times.
          const warm = async () => {
            await (await locks.acquire(newKey())).release();
            await locks.latch(`${key}l`).init(1);
          };
          await until(() => warm().then(() => true, () => false));
          begin();
        }
        const ends = await endsOf(locks, key, Object.keys(CALLS));
        shown(`${kind}, ${state}`, ends);
        for (const { name, outcome } of ends) assert(outcome instanceof Unavailable, `${name}: ${outcome}`);
        assertBounded(ends);
      });
    }

    test("a server whose locks are held: NotAcquired, in time, also if it stops to answer meanwhile", async () => {
      const own = await ownServer(["--appendonly", "no"]);
      for (const isStopped of [false, true]) {
        const [locks, others] = [await make(kind, { port: own.port }), await make(kind, { port: own.port })];
        const key = newKey();
        const plain = [others.lock(key), others.lock(`${key}a`), others.fairLock(`${key}f`)];
        for (const lock of [...plain, others.writeLock(`${key}r`), others.semaphore(`${key}s`, { limit: 1 })]) {
          kept.push(await lock.acquire());
        }
        await others.latch(`${key}l`).init(1);
        await (await locks.acquire(newKey())).release();
        const calls = Object.keys(CALLS).filter((name) => CALLS[name][0] === TIMEOUT);
        const ending = endsOf(locks, key, calls);
        if (isStopped) {
          await until(async () => (await own.waiters(key)) >= 5);
          own.pause();
        }
        const ends = await ending;
        own.goOn();
        shown(`${kind}, held${isStopped ? ", then stopped" : ""}`, ends);
        for (const { name, outcome } of ends) {
          assert(name === "latch.wait" ? outcome === false : outcome instanceof NotAcquired, `${name}: ${outcome}`);
        }
        assertBounded(ends);
        assert.equal(await locks.lock(key).tryAcquire(), undefined);
        for (const [where, family] of [[key], [`${key}f`, "DFAIR"], [`${key}r`, "DRW"], [`${key}s`, "DSEM"]]) {
          await until(async () => (await own.waiters(where, family)) === 0); // rolled back in the background
        }
      }
    });

    test("after an answer a connection that fails makes it Unavailable", async () => {
      const [proxy, key] = [await newProxy(), newKey()];
      const locks = await make(kind, { port: proxy.port });
      kept.push(await (await make(kind)).acquire(key));
      const waiting = locks.acquire(key, { timeout: 2000 });
      waiting.catch(() => {});
      await until(async () => (await (await server()).waiters(key)) === 1);
      proxy.end();
      const error = await waiting.catch((error) => error);
      assert(error instanceof Unavailable && error.cause instanceof Error, String(error));
      assert.equal(error.code, "UNAVAILABLE");
    });

    test("one connection that ends fails neither a try nor runOnce", async () => {
      const proxy = await newProxy();
      const locks = await make(kind, { port: proxy.port });
      await (await locks.acquire(newKey())).release();
      for (const call of [(lock) => lock.tryAcquire(), (lock) => lock.runOnce(() => {})]) {
        proxy.cutAfter = "DLOCK.ACQUIRE";
        const before = proxy.cuts;
        assert(await call(locks.lock(newKey())));
        assert.equal(proxy.cuts, before + 1);
      }
    });

    test("what a call may have got is rolled back, and no longer than it may last", async () => {
      const proxy = await newProxy();
      const locks = await make(kind, { port: proxy.port, queue: 400, lease: 900, responseTimeout: 100 });
      await (await locks.acquire(newKey())).release();
      proxy.isSilent = true;
      proxy.requests = "";
      await assert.rejects(locks.acquire(newKey(), { timeout: 50 }), Unavailable);
      proxy.isSilent = false;
      proxy.holdBack = "DLOCK.RELEASE";
      await sleep(700); // longer than `queue`, which is what the acquire asked for
      const { cuts } = proxy;
      await sleep(1200);
      assert(cuts > 0 && proxy.cuts === cuts, `${proxy.cuts} after ${cuts}`);
    });
  });
}
