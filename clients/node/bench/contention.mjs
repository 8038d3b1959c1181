/**
 * Workers that take one lock in turns: this client over both libraries, redlock, redis-semaphore, and a list with
 * BLPOP; then many holds and many waits.
 *
 *     npm run build && node bench/contention.mjs [seconds for each contender and round] [rounds] [workers …]
 *     node bench/contention.mjs many [holds and waits] [seconds]
 *
 * The contenders run one after the other in this process, in several rounds, so compare within one run only. The server
 * is the one of the tests (DLOCK_SERVER, DLOCK_MODULE). BLPOP is the floor: a lock without leases, tokens and renewal.
 */

import { readFileSync } from "node:fs";
import { Redis } from "ioredis";
import { DLock } from "redis-dlock";
import { Mutex } from "redis-semaphore";
import { default as redlock } from "redlock";

import { clientOf } from "../tests/libraries.mjs";
import { Server, sleep } from "../tests/servers.mjs";

const KEY = "bench";
const Redlock = redlock.default ?? redlock; // its types and its files differ

/** Each returns what takes a turn, and what ends it. */
const CONTENDERS = {
  async "BLPOP (floor)"(port, workers) {
    const clients = Array.from({ length: workers }, () => new Redis({ port }));
    await clients[0].rpush(KEY, "free");
    const turn = async (worker, took) => {
      await clients[worker].blpop(KEY, 60);
      took();
      await clients[worker].rpush(KEY, "free");
    };
    return [turn, () => clients.forEach((client) => client.disconnect())];
  },
  "dlock, ioredis": (port) => ours("ioredis", port),
  "dlock, node-redis": (port) => ours("redis", port),
  async redlock(port) {
    const client = new Redis({ port });
    const locks = new Redlock([client], { retryCount: -1 }).on("error", () => {});
    const turn = async (_, took) => {
      const lock = await locks.acquire([KEY], 30_000);
      took();
      await lock.release();
    };
    return [turn, () => client.disconnect()];
  },
  async "redis-semaphore"(port) {
    const client = new Redis({ port });
    const turn = async (_, took) => {
      const lock = new Mutex(client, KEY, { lockTimeout: 30_000, acquireTimeout: 60_000 });
      await lock.acquire();
      took();
      await lock.release();
    };
    return [turn, () => client.disconnect()];
  },
};

async function ours(kind, port) {
  const locks = new DLock(clientOf(kind, port));
  return [(_, took) => locks.using(KEY, took), () => locks.close()];
}

function serverTime(pid) { // in seconds
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1].split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

async function measure(server, contender, workers, seconds) {
  await server.client.flushall();
  const [turn, end] = await CONTENDERS[contender](server.port, workers);
  const waits = [];
  const turns = new Array(workers).fill(0);
  let isOver = false;
  const [began, before] = [performance.now(), serverTime(server.process.pid)];
  const work = async (worker) => {
    while (!isOver) {
      const started = performance.now();
      await turn(worker, () => {
        waits.push(performance.now() - started);
        turns[worker] += 1;
      });
    }
  };
  const all = Promise.all(turns.map((_, worker) => work(worker)));
  await sleep(seconds * 1000);
  isOver = true;
  await all;
  const [took, used] = [(performance.now() - began) / 1000, serverTime(server.process.pid) - before];
  await end();
  waits.sort((one, other) => one - other);
  const at = (part) => waits[Math.floor(waits.length * part)];
  return [waits.length / took, at(0.5), at(0.99), Math.max(...turns) / Math.max(1, Math.min(...turns)),
    (used / waits.length) * 1e6];
}

const median = (numbers) => numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)];

async function contention(server, [seconds = 2, rounds = 5, ...sizes]) {
  for (const workers of sizes.length > 0 ? sizes : [10, 50]) {
    const rows = Object.fromEntries(Object.keys(CONTENDERS).map((name) => [name, []]));
    for (let round = 0; round < rounds; round += 1) {
      for (const name of Object.keys(rows)) rows[name].push(await measure(server, name, workers, seconds));
    }
    console.log(`\n${workers} workers, medians of ${rounds} rounds of ${seconds} s\n`);
    console.log("| contender | turns/s | of the floor | p50 ms | p99 ms | most/fewest turns | server µs/turn |");
    console.log("|---|---|---|---|---|---|---|");
    for (const [name, measured] of Object.entries(rows)) {
      const columns = measured[0].map((_, column) => median(measured.map((row) => row[column])));
      const [rate, p50, p99, fairness, cpu] = columns;
      const ratio = median(measured.map(([mine], round) => mine / rows["BLPOP (floor)"][round][0]));
      console.log(`| ${name} | ${rate.toFixed()} | ${ratio.toFixed(2)} | ${p50.toFixed(1)} | ${p99.toFixed(1)} | ` +
        `${fairness.toFixed(2)} | ${cpu.toFixed()} |`);
    }
  }
}

async function many(server, [count = 5000, seconds = 120]) {
  const locks = new DLock(clientOf("ioredis", server.port), { lease: 10_000 });
  const holds = await Promise.all(Array.from({ length: count }, (_, number) => locks.acquire(`many:${number}`)));
  const before = process.cpuUsage();
  await sleep(seconds * 1000);
  const { user, system } = process.cpuUsage(before);
  const lost = holds.filter((hold) => hold.isLost).length;
  console.log(`${count} holds, lease 10 s, ${seconds} s: ${lost} lost, ` +
    `${((user + system) / 1e4 / seconds).toFixed(1)} % of a core`);
  const empty = process.memoryUsage().heapUsed;
  const held = await locks.acquire(KEY);
  const waiting = holds.map(() => locks.using(KEY, () => {}));
  while (Number((await server.client.call("DLOCK.WAITERS", KEY)).length) < count) await sleep(50);
  const each = (process.memoryUsage().heapUsed - empty) / count / 1024;
  const connections = (await server.client.call("CLIENT", "LIST")).trim().split("\n").length - 1;
  const began = performance.now();
  await held.release();
  await Promise.all(waiting);
  console.log(`${count} waits: ${each.toFixed(1)} KiB each, ${connections} connections; ` +
    `served in ${((performance.now() - began) / 1000).toFixed(1)} s`);
  await locks.close();
}

const isMany = process.argv[2] === "many";
const numbers = process.argv.slice(isMany ? 3 : 2).map(Number);
const server = await Server.start(["--appendonly", "no"]);
try {
  await (isMany ? many : contention)(server, numbers);
} finally {
  await server.end();
}
