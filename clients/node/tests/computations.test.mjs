/** Computations keep the event loop of a process from all else, so these tests have a process of their own. */

import { describe, test } from "node:test";

import { KINDS, make, newKey } from "./clients.mjs";

for (const kind of KINDS) {
  describe(kind, () => {
    test("a long computation behind a request", async () => {
      const [locks, key] = [await make(kind, { responseTimeout: 1000 }), newKey()];
      await (await locks.acquire(key)).release();
      const asked = locks.lock(key).tryAcquire();
      for (let turn = 0; turn < 5; turn += 1) await null; // until the request is with the library
      for (const at = performance.now(); performance.now() < at + 1100;);
      const hold = await asked;
      hold.check();
      await hold.release();
    });

    test("computing in chunks, with a turn of the event loop between", async () => {
      const [locks, key] = [await make(kind, { lease: 1000 }), newKey()];
      const hold = await locks.acquire(key);
      for (let turn = 0; turn < 8; turn += 1) {
        for (const at = performance.now(); performance.now() < at + 400;);
        await new Promise(setImmediate);
        hold.check();
      }
      await hold.release();
    });
  });
}
