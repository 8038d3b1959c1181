/** Timers that a test fakes, in a process of its own: they are those of all other tests, too. */

import { describe, test } from "node:test";

import { KINDS, make, newKey, server } from "./clients.mjs";

// node-redis itself writes from setImmediate.
for (const kind of KINDS.filter((kind) => kind.startsWith("ioredis"))) {
  describe(kind, () => {
    test("faked timers hold no request back", async (t) => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      await (await locks.acquire(key)).release();
      t.mock.timers.enable();
      const hold = await locks.acquire(key);
      const waiting = locks.acquire(key);
      while ((await one.waiters(key)) === 0);
      await hold.release();
      await (await waiting).release();
    });
  });
}
