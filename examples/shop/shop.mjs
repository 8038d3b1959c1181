// Sells pieces of one stock until none is left: node shop.mjs redis://127.0.0.1:6379
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { DLock } from "redis-dlock";

const [PAYMENT, LEASE] = [2, 3000]; // milliseconds; a seller that is killed holds the others up for at most a lease
const shop = new Redis(process.argv[2]);
shop.defineCommand("sell", { numberOfKeys: 2, lua: readFileSync(new URL("sell.lua", import.meta.url), "utf8") });
const locks = new DLock(new Redis(process.argv[2], { lazyConnect: true }), { lease: LEASE });
let sold = 0;
for (let isOpen = true; isOpen;) {
  try {
    await locks.using("shop:lock", async (signal, hold) => {
      const left = Number(await shop.hget("shop", "left"));
      isOpen = left > 0;
      if (!isOpen) return;
      await sleep(PAYMENT, undefined, { signal });
      sold += await shop.sell("shop", "shop:sales", hold.token, left, "node");
    });
  } catch (error) {
    console.error("again:", error.message); // the lock was lost, or a connection: look at the stock again
  }
}
console.log("sold", sold);
await locks.close();
shop.disconnect();
