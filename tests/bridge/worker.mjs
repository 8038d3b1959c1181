// A client of the check: `worker.mjs old|bridged|new TURNS OLD_PORT NEW_PORT LEASE_MS REDLOCK`. Prints JSON.
// REDLOCK is the name of the package: redlock4 or redlock5. NODE_PATH has the packages. New clients acquire with the
// code of docs/migrate/node-redlock.md. The kind `page` runs the page's example once.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import { bridge } from "../../contrib/bridge/bridge.mjs";

const require = createRequire(import.meta.url);
const { Redis } = require("ioredis");
const OLD_KEY = "orders:7";
const NEW_KEY = "dlock:{orders:7}";

const [kind, turnsText, oldPort, newPort, leaseText, redlockName] = process.argv.slice(2);
const [turns, lease] = [Number(turnsText), Number(leaseText)];
const [old, fresh] = [new Redis(Number(oldPort)), new Redis(Number(newPort))];

const exported = require(redlockName);
const Redlock = exported.default ?? exported;
const redlock = new Redlock([old], { retryCount: 0 });
redlock.on?.("error", () => {});

const page = readFileSync(new URL("../../docs/migrate/node-redlock.md", import.meta.url), "utf8");
const blocks = [...page.matchAll(/```js\n(.*?)```/gs)].map((block) => block[1]);
const acquire = new Function(`return ${blocks[0]}`)();

const kinds = {
  bridged: () => bridge(redlock, fresh, { resource: OLD_KEY, key: NEW_KEY, lease }),
  old: () => ({
    async acquire(timeout) {
      const patient = new Redlock([old], { retryCount: timeout / 20, retryDelay: 20, retryJitter: 10 });
      return await patient.acquire([OLD_KEY], lease);
    },
    release: (lock) => redlock.release(lock),
  }),
  new: () => ({
    async acquire(timeout) {
      const owner = randomUUID();
      return (await acquire(fresh, NEW_KEY, owner, lease, timeout)) === null ? null : owner;
    },
    release: (owner) => fresh.call("DLOCK.RELEASE", NEW_KEY, owner, "REQID", "r"),
  }),
};

if (kind === "page") {
  const [, body] = blocks[1].split(/^import .*$/m);
  const AsyncFunction = (async () => {}).constructor;
  const run = AsyncFunction("bridge", "Redlock", "oldRedis", "newRedis", "ship", body);
  let shipped;
  await run(bridge, Redlock, old, fresh, (token) => (shipped = token));
  if (!(shipped > 0)) throw new Error("the example did not ship");
  old.disconnect();
  fresh.disconnect();
  process.exit();
}
const lock = kinds[kind]();
let overlaps = 0;
let longest = 0;
for (let turn = 0; turn < turns; turn++) {
  const start = performance.now();
  const held = await lock.acquire(60_000);
  if (held === null) throw new Error("not granted in a minute");
  longest = Math.max(longest, performance.now() - start);
  overlaps += (await old.incr("inside")) !== 1;
  const value = Number((await old.get("total")) ?? 0);
  await sleep(Math.random() * 3);
  await old.set("total", value + 1);
  await old.decr("inside");
  await lock.release(held);
}
console.log(JSON.stringify({ turns, overlaps, longest_wait_s: Number((longest / 1000).toFixed(2)) }));
old.disconnect();
fresh.disconnect();
