/** What users of other clients complained of. Each title names the thread. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, test } from "node:test";
import { LockLost, NotAcquired } from "redis-dlock";
import { default as redlock } from "redlock";

import { clientOf, endClient, KINDS, lost, make, newKey, newProxy, server } from "./clients.mjs";
import { sleep, until } from "./servers.mjs";

const Redlock = redlock.default ?? redlock; // its types and its files differ

for (const kind of KINDS) {
  describe(kind, { concurrency: 8 }, () => {
    test("node-redlock#185: not acquired and lost are two errors", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const hold = await locks.acquire(key);
      await assert.rejects(locks.acquire(key, { timeout: 20 }), NotAcquired);
      await one.ask("DLOCK.BREAK", key);
      await assert.rejects(hold.release(), LockLost);
      assert(!(new LockLost([key], "broken") instanceof NotAcquired));
    });

    test("node-redlock#309: a release is not repeated after a loss", async () => {
      const proxy = await newProxy();
      const [locks, key, one] = [await make(kind, { port: proxy.port }), newKey(), await server()];
      const hold = await locks.acquire(key);
      await one.ask("DLOCK.BREAK", key);
      await assert.rejects(hold.release(), LockLost);
      await assert.rejects(hold.release(), LockLost);
      assert(proxy.count("DLOCK.RELEASE") <= 1);
    });

    test("redis-semaphore#24, #175: a lost lock is not acquired again in silence", async () => {
      const [locks, key, one] = [await make(kind, { lease: 400 }), newKey(), await server()];
      const hold = await locks.acquire(key);
      const { token } = hold;
      await one.ask("DEL", key);
      assert(await lost(hold));
      await sleep(400);
      assert.equal(await one.ask("EXISTS", key), 0);
      assert.equal(hold.token, token);
      assert(hold.isLost);
    });

    test("redis-semaphore#199: renewals throw nowhere", async () => {
      const proxy = await newProxy();
      const thrown = [];
      const note = (error) => thrown.push(error);
      process.on("unhandledRejection", note).on("uncaughtException", note);
      const [locks, key] = [await make(kind, { port: proxy.port, lease: 3000 }), newKey()];
      const hold = await locks.acquire(key);
      proxy.holdBack = "DLOCK.RENEW";
      await until(() => proxy.cuts >= 2);
      proxy.holdBack = "";
      const before = hold.validFor();
      await until(() => hold.validFor() > before);
      await hold.release();
      process.off("unhandledRejection", note).off("uncaughtException", note);
      assert.deepEqual(thrown, []);
    });

    test("a hold is renewed, and its token stays", async () => {
      const [locks, key, one] = [await make(kind, { lease: 4000 }), newKey(), await server()];
      const hold = await locks.acquire(key);
      const { token } = hold;
      await sleep(5000);
      hold.check();
      assert.equal(hold.token, token);
      assert.equal(await one.ask("DLOCK.CHECK", key, token), 1);
      await hold.release();
      assert.equal(await one.ask("EXISTS", key), 0);
    });

    test("a task that hangs is renewed for maxHold only", async () => {
      const [locks, key] = [await make(kind, { lease: 8000, maxHold: 10_000 }), newKey()];
      const hold = await locks.acquire(key);
      const next = locks.acquire(key, { timeout: 20_000 });
      assert(await lost(hold, 20_000));
      assert.equal(hold.signal.reason.reason, "max-hold");
      await (await next).release();
      await assert.rejects(hold.release(), LockLost);
    });

    test("waiters are served in order of arrival, without polling", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const hold = await locks.acquire(key);
      const order = [];
      const waiting = [];
      for (let number = 0; number < 8; number += 1) {
        waiting.push(locks.using(key, { timeout: 20_000 }, () => order.push(number)));
        await until(async () => (await one.waiters(key)) === number + 1);
      }
      await hold.release();
      await Promise.all(waiting);
      assert.deepEqual(order, [0, 1, 2, 3, 4, 5, 6, 7]);
    });
  });
}

test("the end of maxHold has its reason, also if the message of the server comes before the timer", async () => {
  const { HoldState, Registry, RenewalBatch } = await import("../dist/cjs/holds.js");
  const { Replicas, Request, Target } = await import("../dist/cjs/requests.js");
  const { ServerError } = await import("../dist/cjs/errors.js");
  const { now } = await import("../dist/cjs/clock.js");
  const heard = (maxHold, event) => {
    const request = new Request(new Target("DLOCK", ["k"]), "o", 100, 100, "channel", undefined, "r");
    const [holds, hold] = [new Registry(), new HoldState(request, [{ key: "k", token: 7 }], now(), maxHold)];
    for (const end = now() + 100; now() < end;);
    holds.add(hold);
    assert(holds.onMessage({ event, token: "7", reqid: "another" }));
    holds.takeHints();
    if (event === "broken") new RenewalBatch([hold], new Replicas(0, 1)).apply([new ServerError("NOTHELD", "")]);
    else holds.due(new Replicas(0, 1), () => "");
    return hold.reason();
  };
  assert.equal(heard(60, "expired"), "max-hold");
  assert.equal(heard(20_000, "expired"), "expired");
  assert.equal(heard(60, "broken"), "broken");
});

describe("the clients that were complained of", () => {
  test("node-redlock#185, #309: one error for both, and a release that is repeated", async () => {
    const proxy = await newProxy();
    const client = clientOf("ioredis5", proxy.port);
    const redlock = new Redlock([client], { retryCount: 3, retryDelay: 20 }).on("error", () => {});
    const key = newKey();
    const lock = await redlock.acquire([key], 5000);
    const refused = await redlock.acquire([key], 5000).catch((error) => error);
    await (await server()).ask("DEL", key);
    const before = proxy.count("evalsha");
    const gone = await lock.release().catch((error) => error);
    assert.equal(refused.constructor, gone.constructor);
    assert(proxy.count("evalsha") - before > 1);
    endClient(client);
  });

  test("redis-semaphore#199: a renewal that fails ends the process", async () => {
    const proxy = await newProxy();
    const script = `
      import { Redis } from "ioredis";
      import { Mutex } from "redis-semaphore";
      const client = new Redis({ port: ${proxy.port}, maxRetriesPerRequest: 0, retryStrategy: () => 10 });
      client.on("error", () => {});
      const mutex = new Mutex(client, "${newKey()}", { lockTimeout: 5000, refreshInterval: 50, onLockLost: () => {} });
      await mutex.acquire();
      console.log("acquired");
      setTimeout(() => process.exit(0), 5000);`;
    const child = spawn(process.execPath, ["--input-type=module", "-e", script], { cwd: import.meta.dirname });
    await once(child.stdout, "data");
    proxy.end();
    assert.deepEqual(await once(child, "exit"), [1, null]);
  });
});
