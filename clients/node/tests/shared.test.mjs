/** The forms of locks, and holds that share something: an owner with several holds of a key, clients that close. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { DLockError, LockLost, NotAcquired, Refused, Unavailable } from "redis-dlock";

import { KINDS, lost, make, newKey, newProxy, server } from "./clients.mjs";
import { sleep, until } from "./servers.mjs";

for (const kind of KINDS) {
  describe(kind, { concurrency: 6 }, () => {
    test("using ends with the result of the work, and releases", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const result = await locks.using(key, { timeout: 5000 }, async (signal, hold) => {
        assert(!signal.aborted);
        assert.equal(hold.signal, signal);
        assert.equal(typeof hold.token, "number");
        assert(Number.isSafeInteger(hold.token));
        assert.equal(await one.ask("DLOCK.CHECK", key, hold.token), 1);
        return "done";
      });
      assert.equal(result, "done");
      assert.equal(await locks.using(key, () => 7), 7);
      await locks.lock(key).using({ label: "at work" }, async () => {
        await assert.rejects(locks.lock(key).using({ timeout: 0 }, () => {}), NotAcquired);
      });
      await assert.rejects(locks.lock(key).using({}), TypeError);
      assert.equal(await one.ask("EXISTS", key), 0);
      const failure = new Error("of the work");
      await assert.rejects(locks.using(key, () => Promise.reject(failure)), failure);
      assert.equal(await one.ask("EXISTS", key), 0);
    });

    test("using tells the work of a loss, and rejects with it", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const before = await locks.acquire(key);
      const next = locks.acquire(key);
      await before.release();
      await (await next).release(); // from now on messages come: they say why
      for (const end of [(resolve) => resolve(), (_, reject, signal) => reject(signal.reason),
        (_, reject) => reject(new DOMException("aborted by a library", "AbortError"))]) {
        const running = locks.using(key, (signal) => {
          void one.ask("DLOCK.BREAK", key);
          return new Promise((resolve, reject) => signal.addEventListener("abort", () => end(resolve, reject, signal)));
        });
        await assert.rejects(running, (error) => error instanceof LockLost && error.reason === "broken");
      }
      const failure = new Error("of the work");
      const failing = locks.using(key, async (signal) => {
        void one.ask("DLOCK.BREAK", key);
        await until(() => signal.aborted);
        throw failure;
      });
      await assert.rejects(failing, failure);
    });

    test("each form of a lock", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const fair = await locks.fairLock(`${key}f`).acquire();
      assert.equal(await locks.fairLock(`${key}f`).tryAcquire(), undefined);
      await fair.release();
      const readers = [await locks.readLock(`${key}r`).acquire(), await locks.readLock(`${key}r`).acquire()];
      assert.equal(await locks.writeLock(`${key}r`).tryAcquire(), undefined);
      for (const reader of readers) await reader.release();
      await (await locks.writeLock(`${key}r`).acquire()).release();
      const permits = locks.semaphore(`${key}s`, { limit: 2 });
      const [first, second] = [await permits.acquire(), await permits.acquire()];
      assert.match(first.token, /^[0-9a-f-]{36}$/);
      assert.equal(await permits.tryAcquire(), undefined);
      const third = permits.acquire({ timeout: 5000 });
      await until(async () => (await one.waiters(`${key}s`, "DSEM")) === 1);
      await first.release();
      await (await third).release();
      await second.release();
      const both = await locks.multiLock([`${key}a`, `${key}b`]).acquire();
      assert.deepEqual([...both.tokens.keys()], [`${key}a`, `${key}b`]);
      assert.equal(await locks.multiLock([`${key}b`, `${key}c`]).tryAcquire(), undefined);
      const either = await locks.anyLock([`${key}a`, `${key}c`], { timeout: 1000 }).acquire();
      assert.equal(either.key, `${key}c`);
      await either.release();
      await both.release();
    });

    test("latches, elections, runOnce", async () => {
      const [locks, other, key, server_] = [await make(kind), await make(kind), newKey(), await server()];
      const latch = locks.latch(`${key}l`);
      assert(await latch.init(2));
      assert(!(await latch.init(5)));
      assert(!(await latch.wait({ timeout: 50 })));
      const open = other.latch(`${key}l`).wait();
      assert.equal(await latch.countDown(), 1);
      assert.equal(await latch.remaining(), 1);
      assert.equal(await latch.countDown(), 0);
      assert(await open);
      const controller = new AbortController();
      await latch.init(1);
      const waiting = assert.rejects(latch.wait({ signal: controller.signal }), { name: "AbortError" });
      controller.abort();
      await waiting;

      const [one, two] = [locks.election(`${key}e`, "one"), other.election(`${key}e`, "two")];
      assert.equal(await one.leader(), undefined);
      const first = await one.campaign({ timeout: 1000 });
      assert.deepEqual(await two.leader(), { value: "one", token: first.token });
      const leaders = two.observe();
      assert.equal((await leaders.next()).value.value, "one");
      const [second, next] = [two.campaign(), leaders.next()];
      await first.release();
      assert.equal((await next).value.value, "two");
      await (await second).release();
      await leaders.return();

      let runs = 0;
      const once = async (who) => (await who.lock(`${key}o`, { timeout: 9000 }).runOnce(async () => {
        runs += 1;
        await until(async () => (await server_.shown(`${key}o`, "observers")) === 1);
        return "value";
      }));
      const results = await Promise.all([once(locks), once(locks), once(other)]);
      assert.equal(runs, 1);
      assert.equal(results.filter((result) => result.ran).length, 1);
      assert.equal(results.filter((result) => result.value === "value").length, results[2].ran ? 1 : 2); // a process
      await assert.rejects(locks.readLock(key).runOnce(() => {}), TypeError);
    });

    test("a repeated release gives back one hold of an owner", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const [outer, inner] = [await locks.acquire(key, { owner: key }), await locks.acquire(key, { owner: key })];
      await Promise.all([inner.release(), inner.release(), inner[Symbol.asyncDispose]()]);
      await inner.release();
      assert.equal(await one.holds(key), 1);
      outer.check();
      await outer.release();
      assert.equal(await one.ask("EXISTS", key), 0);
    });

    test("a repeated release of a lost hold leaves the others", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const outer = await locks.acquire(key, { owner: key });
      const inner = await locks.acquire(key, { owner: key });
      assert.equal(await one.ask("DLOCK.RELEASE", key, key), 1); // as people type it: the youngest
      const isLost = (error) => error instanceof LockLost && error.reason === "released";
      for (let turn = 0; turn < 2; turn += 1) await assert.rejects(inner.release(), isLost);
      assert.equal(await one.holds(key), 1);
      outer.check();
      await outer.release();
      assert.equal(await one.ask("EXISTS", key), 0);
    });

    test("a task of an owner that gives up takes nothing from another one", async () => {
      const proxy = await newProxy();
      const [locks, key, one] = [await make(kind, { port: proxy.port }), newKey(), await server()];
      const owner = key;
      await (await locks.acquire(newKey())).release();
      for (const lock of [locks.lock(key, { owner }), locks.writeLock(`${key}w`, { owner }),
        locks.multiLock([key, `${key}2`], { owner })]) {
        const hold = await lock.acquire();
        const controller = new AbortController();
        const verb = { DLOCK: "ACQUIRE", DRW: "DRW.ACQUIRE" }[lock.target.family];
        [proxy.cutAfter, proxy.cuts] = [verb, 0]; // a re-entry whose reply is lost
        const waiting = lock.acquire({ signal: controller.signal });
        waiting.catch(() => {});
        await until(() => proxy.cuts === 1);
        proxy.holdBack = verb;
        controller.abort();
        await assert.rejects(waiting, { name: "AbortError" });
        proxy.holdBack = "";
        const { key: first, token } = hold;
        const { family } = lock.target;
        await until(async () => (await one.shown(first, family === "DRW" ? "write-holds" : "holds", family)) <= 1);
        assert.equal(await one.ask(`${family}.CHECK`, first, token), 1);
        hold.check();
        await hold.release();
        // The server may read the request whose reply is lost only now, and its release after it.
        await until(async () => (await one.ask("EXISTS", ...hold.tokens.keys())) === 0);
      }
    });

    test("permits: lost replies, and a task of an owner that gives up", async () => {
      const proxy = await newProxy();
      const [locks, key, one] = [await make(kind, { port: proxy.port }), newKey(), await server()];
      await (await locks.acquire(newKey())).release();
      const permits = locks.semaphore(key, { limit: 5, count: 2, owner: key });
      proxy.cutAfter = "DSEM.ACQUIRE";
      const first = await permits.acquire();
      assert.equal(await one.shown(key, "leased", "DSEM"), 2);
      const second = await permits.acquire();
      assert.notEqual(first.token, second.token);
      await assert.rejects(permits.acquire({ timeout: 1000 }), NotAcquired);
      await until(async () => (await one.waiters(key, "DSEM")) === 0);
      assert.equal(await one.shown(key, "leased", "DSEM"), 4);
      proxy.cutAfter = "DSEM.RELEASE";
      await first.release();
      assert.equal(await one.shown(key, "leased", "DSEM"), 2);
      second.check();
      await second.release();
      assert.equal(await one.shown(key, "leased", "DSEM"), 0);
    });

    test("several locks: one was broken, and the reply is lost", async () => {
      const proxy = await newProxy();
      const [locks, key, one] = [await make(kind, { port: proxy.port }), newKey(), await server()];
      const both = await locks.multiLock([`${key}a`, `${key}b`]).acquire();
      proxy.muteAt = "broken 0 ";
      await one.ask("DLOCK.BREAK", `${key}b`);
      proxy.cutAfter = "DLOCK.MRELEASE";
      await assert.rejects(both.release(), (error) => error instanceof LockLost && error.reason === "broken");
      assert.equal(await one.ask("EXISTS", `${key}a`, `${key}b`), 0);
    });

    test("a short lease does not cut that of another hold of the owner", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const outer = await locks.acquire(key, { owner: key, lease: 20_000 });
      const inner = [await locks.acquire(key, { owner: key, lease: 3000 }),
        await locks.multiLock([key, `${key}2`], { owner: key, lease: 3000 }).acquire()];
      await sleep(1200);
      assert(await one.shown(key, "ttl-ms") > 8000);
      assert(outer.validFor() > 8000);
      for (const hold of inner) await hold.release();
      outer.check();
      await outer.release();
    });

    test("close() ends waits, and gives back what is held", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const hold = await locks.acquire(`${key}2`);
      const other = await (await make(kind)).acquire(key);
      const waiting = [locks.acquire(key), locks.multiLock([key, `${key}3`]).acquire()];
      for (const one of waiting) one.catch(() => {});
      await until(async () => (await one.waiters(key)) === 2);
      await locks.close();
      for (const one of waiting) {
        await assert.rejects(one, (error) => error instanceof DLockError && /closed/.test(error.message));
      }
      await until(async () => (await one.waiters(key)) === 0 && (await one.ask("EXISTS", `${key}2`)) === 0);
      assert.equal(hold.signal.reason.reason, "closed");
      await assert.rejects(hold.release(), LockLost);
      await assert.rejects(locks.acquire(key), /closed/);
      await locks.close();
      await other.release();
    });

    test("close() while requests are on their way leaves nothing", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const asked = Array.from({ length: 20 }, (_, number) => locks.acquire(`${key}:${number}`, { timeout: 0 }));
      const all = Promise.allSettled(asked);
      await locks.close();
      for (const { status, value, reason } of await all) {
        if (status === "fulfilled") assert(value.isLost);
        else assert(reason instanceof DLockError, String(reason));
      }
      const keys = asked.map((_, number) => `${key}:${number}`);
      await until(async () => (await one.ask("EXISTS", ...keys)) === 0);
    });

    test("options are checked", async () => {
      const locks = await make(kind);
      for (const options of [{ timout: 1 }, { lease: 0 }, { maxHold: -1 }, { owner: "\ud800" }, { timeout: NaN }]) {
        const isExpected = (error) => error instanceof TypeError || error instanceof RangeError;
        assert.throws(() => locks.lock("k", options), isExpected);
      }
      for (const keys of ["abc", [], ["a", null], ["\ud800"]]) assert.throws(() => locks.multiLock(keys), TypeError);
      await assert.rejects(locks.acquire(""), TypeError);
      await assert.rejects(locks.using("k", {}), TypeError);
      assert((await locks.using("k\u00e9\u{1f512}", { owner: "\u00fc", label: "\u{1f512}" }, () => true)));
    });

    test("1,000 waits and 1,000 holds share two connections", async () => {
      const [locks, key, one] = [await make(kind, { lease: 9000 }), newKey(), await server()];
      const before = (await one.ask("CLIENT", "LIST")).split("\n").length;
      const holds = await Promise.all(Array.from({ length: 1000 }, (_, number) => locks.acquire(`${key}:${number}`)));
      const waiting = holds.map(({ key }) => locks.acquire(key, { timeout: 20_000 }));
      await until(async () => (await one.waiters(`${key}:999`)) === 1);
      await sleep(3500); // all are renewed
      for (const hold of holds) hold.check();
      assert((await one.ask("CLIENT", "LIST")).split("\n").length <= before + 30); // those of other tests
      await Promise.all(holds.map((hold) => hold.release()));
      await Promise.all((await Promise.all(waiting)).map((hold) => hold.release()));
    });
  });
}

test("errors have names that bundlers keep", () => {
  assert.equal(new NotAcquired("x").name, "NotAcquired");
  assert.equal(`${new LockLost(["a", "b"], "broken")}`, "LockLost: lost 'a', 'b': broken");
  assert.equal(new Refused("OOM", "text").code, "OOM");
  assert.deepEqual(Object.keys(new Unavailable("x")), []);
});
