/** How much a process needs for many calls, and what is refused by name. */

import assert from "node:assert/strict";
import { getEventListeners } from "node:events";
import { createRequire } from "node:module";
import { describe, test } from "node:test";
import { DLock, LockLost, NotAcquired, Refused, ReleaseUnknown } from "redis-dlock";

import { clientOf, KINDS, make, newKey, newProxy, ownServer, server } from "./clients.mjs";
import { sleep, until } from "./servers.mjs";

const require = createRequire(import.meta.url);

for (const kind of KINDS) {
  describe(kind, { concurrency: 4 }, () => {
    test("1,000 callers of runOnce share two connections, the run and its value", async () => {
      const own = await ownServer(["--appendonly", "no"]);
      const locks = await make(kind, { port: own.port });
      let [runs, most] = [0, 0];
      const ends = await Promise.all(Array.from({ length: 1000 }, () => locks.lock("k").runOnce(async () => {
        runs += 1;
        most = (await own.ask("CLIENT", "LIST")).trim().split("\n").length;
        await sleep(100);
        return { value: 7 };
      })));
      assert.equal(runs, 1);
      assert(most <= 3, `${most} connections`);
      assert.equal(ends.filter(({ ran }) => ran).length, 1);
      assert.equal(new Set(ends.map(({ value }) => value)).size, 1);
    });

    test("callers of runOnce get the error of the run, and lead when the first one gives up", async () => {
      const [locks, key, others] = [await make(kind), newKey(), await make(kind)];
      const failure = new Error("of the work");
      const run = () => locks.lock(key).runOnce(() => sleep(50).then(() => Promise.reject(failure)));
      for (const { reason } of await Promise.allSettled([run(), run(), run()])) assert.equal(reason, failure);
      const hold = await others.acquire(key);
      const controller = new AbortController();
      const first = locks.lock(key, { signal: controller.signal }).runOnce(() => "first");
      const rest = [locks.lock(key).runOnce(() => "second"), locks.lock(key).runOnce(() => "third"),
        locks.lock(key, { timeout: 50 }).runOnce(() => "late")];
      await assert.rejects(rest[2], NotAcquired);
      controller.abort(failure);
      await assert.rejects(first, failure);
      await hold.release();
      const value = "second";
      assert.deepEqual(await Promise.all(rest.slice(0, 2)), [{ ran: true, value }, { ran: false, value }]);
    });

    test("a run of another process is waited for, also over a connection that ends", async () => {
      const proxy = await newProxy();
      const [locks, others, key] = [await make(kind, { port: proxy.port }), await make(kind), newKey()];
      let end;
      const run = others.lock(key).runOnce(() => new Promise((resolve) => (end = resolve)));
      await until(() => end);
      const waiting = locks.lock(key).runOnce(() => assert.fail("it ran twice"));
      const observers = async () => (await (await server()).shown(key, "observers"));
      await until(async () => (await observers()) === 1);
      proxy.holdBack = "AWAIT";
      proxy.cut();
      end();
      await run;
      proxy.holdBack = "";
      assert.deepEqual(await waiting, { ran: false, value: undefined });
    });

    test("200 waits for several locks, latches and runs of others share a few connections", async () => {
      const own = await ownServer(["--appendonly", "no"]);
      const [locks, others] = [await make(kind, { port: own.port }), await make(kind, { port: own.port })];
      const hold = await others.multiLock(["m1", "m2"]).acquire();
      await others.latch("latch").init(1);
      const [order, ends] = [[], []];
      const runs = Array.from({ length: 40 }, (_, number) =>
        others.lock(`once:${number}`).runOnce(() => new Promise((resolve) => ends.push(resolve))));
      await until(() => ends.length === 40);
      const waits = [
        ...Array.from({ length: 80 }, (_, number) => locks.multiLock(["m1", "m2"]).using(() => order.push(number))),
        ...Array.from({ length: 80 }, () => locks.latch("latch").wait()),
        ...runs.map((_, number) => locks.lock(`once:${number}`).runOnce(() => assert.fail("it ran twice")))];
      await sleep(2500); // longer than a wait for a connection
      const count = (await own.ask("CLIENT", "LIST")).trim().split("\n").length;
      assert(count <= 1 + 2 + 16 + 2, `${count} connections`);
      for (const end of ends) end();
      await Promise.all(runs);
      await others.latch("latch").countDown();
      await hold.release();
      await Promise.all(waits);
      assert.equal(order.length, 80);
    });

    test("one signal serves many waits without a warning, and no listener stays", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const warnings = [];
      const note = (warning) => warnings.push(warning);
      process.on("warning", note);
      const controller = new AbortController();
      const hold = await locks.acquire(key);
      const options = { signal: controller.signal };
      const waits = Array.from({ length: 40 }, () => locks.acquire(key, options));
      const all = Promise.allSettled(waits);
      await until(async () => (await one.waiters(key)) === 40);
      await hold.release();
      await (await waits[0]).release();
      controller.abort();
      assert.equal((await all).filter(({ reason }) => reason?.name === "AbortError").length, 39);
      for (let turn = 0; turn < 30; turn += 1) {
        await assert.rejects(locks.acquire(key, options), { name: "AbortError" });
      }
      const other = new AbortController();
      await Promise.all(Array.from({ length: 30 }, () => locks.using(newKey(), { signal: other.signal }, () => {})));
      await sleep(10);
      process.off("warning", note);
      assert.deepEqual(warnings, []);
      assert.equal(getEventListeners(controller.signal, "abort").length, 0);
      assert.equal(getEventListeners(other.signal, "abort").length, 0);
    });

    test("work that is done is never thrown away", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const carries = (kind) => (error) => error instanceof kind && error.result === "done";
      const broken = async () => {
        await one.ask("DLOCK.BREAK", key);
        return "done";
      };
      await assert.rejects(locks.using(key, broken), carries(LockLost));
      await assert.rejects(locks.lock(key).runOnce(broken), carries(LockLost));
      const proxy = await newProxy();
      const away = await make(kind, { port: proxy.port, retryFor: 400 });
      await assert.rejects(away.using(key, () => {
        proxy.holdBack = "DLOCK.RELEASE";
        return "done";
      }), carries(ReleaseUnknown));
      proxy.holdBack = "";
    });

    test("a semaphore says if it is another one, or none", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const refuses = (text) => (error) => error instanceof Refused && text.test(error.message);
      for (const timeout of [0, 100, undefined]) {
        await assert.rejects(locks.semaphore(key, { timeout }).acquire(), refuses(/does not exist/));
      }
      await until(async () => (await one.waiters(key, "DSEM")) === 0);
      const hold = await locks.semaphore(key, { limit: 2 }).acquire();
      for (const timeout of [0, 100, undefined]) {
        await assert.rejects(locks.semaphore(key, { limit: 3, timeout }).acquire(), refuses(/has 2 permits, not .* 3/));
      }
      await until(async () => (await one.shown(key, "leased", "DSEM")) === 1); // nothing of the refused ones
      await (await locks.semaphore(key).acquire()).release();
      await hold.release();
      await (await server()).ask("ACL", "SETUSER", "noinfo", "on", ">p", "~*", "&*", "+@all", "-dsem.info");
      const poor = await make(kind, { client: { username: "noinfo", password: "p" } });
      await (await poor.semaphore(key, { limit: 2 }).acquire()).release();
    });

    test("values that cannot be are refused by name", async () => {
      const locks = await make(kind);
      const client = clientOf(kind, 1);
      const values = { responseTimeout: [Infinity, NaN, 0, -1, 2 ** 31], retryFor: [0, NaN], queue: [5, 1e9, Infinity],
        lease: [0, NaN, Infinity], maxHold: [1, NaN], replicas: [-1, 0.5] };
      for (const [name, refused] of Object.entries(values)) {
        for (const value of refused) {
          assert.throws(() => new DLock(client, { [name]: value }), { name: "RangeError", message: new RegExp(name) });
        }
        assert.throws(() => new DLock(client, { [name]: "1000" }), { message: new RegExp(name) });
      }
      for (const timeout of [-1, NaN]) {
        await assert.rejects(locks.acquire("k", { timeout }), { name: "RangeError", message: /timeout/ });
        await assert.rejects(locks.latch("k").wait({ timeout }), { name: "RangeError", message: /timeout/ });
      }
      for (const call of [() => locks.using("k", 5000, () => {}), () => locks.lock("k").using(5000, () => {}),
        () => locks.acquire("k", 5000), () => locks.lock("k").acquire(5000), () => locks.acquire("k", null)]) {
        await assert.rejects(async () => call(), { name: "TypeError", message: /options must be an object/ });
      }
      await assert.rejects(locks.acquire("k", { signal: 1 }), { name: "TypeError", message: /signal/ });
      for (const options of [{ limit: 0 }, { limit: 1.5 }, { count: 0 }, { limit: "2" }]) {
        const [name] = Object.keys(options);
        assert.throws(() => locks.semaphore("k", options), { name: "RangeError", message: new RegExp(name) });
      }
      for (const work of [function* () {}, async function* () {}, undefined, 7]) {
        await assert.rejects(locks.using("k", work), TypeError);
        await assert.rejects(locks.lock("k").runOnce(work), TypeError);
      }
      assert.throws(() => new DLock(client, 5000), /settings must be an object/);
      for (const none of [undefined, null, 7, {}, "redis://localhost"]) {
        assert.throws(() => new DLock(none), { name: "TypeError", message: /the client must be/ });
      }
      await (await locks.acquire(newKey(), { timeout: 2 ** 31 })).release(); // no timer is that long
    });
  });
}

test("pools and legacy clients of node-redis are refused by name", () => {
  for (const library of KINDS.filter((kind) => kind.startsWith("redis"))) {
    const { createClient, createClientPool } = require(library);
    assert.throws(() => new DLock(createClientPool({})), { name: "TypeError", message: /not a pool/ });
    for (const client of [createClient().legacy(), createClient().multi()]) {
      assert.throws(() => new DLock(client), { name: "TypeError", message: /not a legacy client or a pipeline/ });
    }
  }
});

test("import and require give the same classes", () => {
  const required = require("redis-dlock");
  assert.equal(required.NotAcquired, NotAcquired);
  assert.equal(required.DLock, DLock);
  assert(new required.LockLost(["k"], "broken") instanceof LockLost);
});

test("each error has a code", () => {
  const { DLockError, Deadlock, Replaced, Unavailable } = require("redis-dlock");
  const codes = [new NotAcquired("x"), new Unavailable("x"), new LockLost(["k"], "broken"), new ReleaseUnknown("x"),
    new Deadlock("x"), new Replaced("x"), new Refused("OOM", "x"), new DLockError("x")].map(({ code }) => code);
  assert.deepEqual(codes, ["NOT_ACQUIRED", "UNAVAILABLE", "LOCK_LOST", "RELEASE_UNKNOWN", "DEADLOCK", "REPLACED", "OOM",
    "CLOSED"]);
});
