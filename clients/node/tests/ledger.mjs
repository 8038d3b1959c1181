/**
 * Workers of `clients/python/tests/ledger.py`, until they are killed: see there. Each takes turns at ten locks, and
 * notes start and steps of each turn with its token in a second server, the recorder. The script takes the notes.
 *
 *     node tests/ledger.mjs redis:6379 6380 20 "$SCRIPT"
 */

import { setTimeout as sleep } from "node:timers/promises";
import { Redis } from "ioredis";
import { DLock, DLockError } from "redis-dlock";

const [LOCKS, LEASE, STEP] = [10, 1500, 10];
const [server, recorder, workers, script] = process.argv.slice(2);
const [kind, port] = server.split(":");
const group = { sentinels: [{ host: "127.0.0.1", port: Number(port) }], name: "main" };
const client = new Redis({ ...(kind === "sentinel" ? group : { port: Number(port) }), lazyConnect: true });
const locks = new DLock(client, { lease: LEASE, replicas: kind === "sentinel" ? 1 : 0 });
const record = new Redis({ port: Number(recorder) });

async function work(turn) {
  for (;;) {
    turn += 1;
    const key = `ledger:${turn % LOCKS}`;
    const note = (event, token, ticket = 0) => record.eval(script, 1, key, event, token, "node", ticket);
    const ticket = await note("ask", 0);
    let hold;
    try {
      hold = await locks.acquire(key);
    } catch (error) {
      if (!(error instanceof DLockError)) throw error;
      await sleep(50);
      continue;
    }
    const { token } = hold;
    let isNoted = await note("start", token, ticket);
    // Now and then so long that the hold is renewed.
    for (let left = token % 100 === 0 ? LEASE / STEP : 1; isNoted && left > 0 && !hold.isLost; left -= 1) {
      await sleep(STEP);
      isNoted = await note("step", token);
    }
    const isBelieved = !hold.isLost;
    let hasStood = true;
    try {
      await hold.release();
    } catch (error) {
      if (!(error instanceof DLockError)) throw error;
      hasStood = false;
    }
    await note(!isNoted && (isBelieved || hasStood) ? "overlap" : hasStood ? "turn" : "lost", token);
  }
}

await Promise.all(Array.from({ length: Number(workers) }, (_, number) => work(number)));
