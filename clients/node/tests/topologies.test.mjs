/** Clusters and Sentinel groups: acquire, contend, renew, lose, release. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { before, describe, test } from "node:test";
import { DLock, LockLost, NotAcquired } from "redis-dlock";

import { clusterOf, endClient, ending, KINDS, lost, newKey, ownServer, sentinelOf } from "./clients.mjs";
import { freePort, sleep, startCluster, until } from "./servers.mjs";

/** What each kind of client has to do. */
async function contend(locks, key, ask) {
  const hold = await locks.acquire(key, { lease: 1500 });
  await assert.rejects(locks.acquire(key, { timeout: 0 }), NotAcquired);
  let isOver = false;
  const waiting = locks.acquire(key, { timeout: 10_000, lease: 3000 }).finally(() => (isOver = true));
  await sleep(1700);
  hold.check(); // renewed meanwhile
  assert(!isOver);
  await hold.release();
  const second = await waiting;
  assert(second.token > hold.token);
  await ask("DLOCK.BREAK", key);
  assert(await lost(second));
  await assert.rejects(second.release(), LockLost);
  const both = await locks.multiLock([`{${key}}a`, `{${key}}b`], { timeout: 5000 }).acquire();
  assert.equal(both.tokens.size, 2);
  await both.release();
}

describe("cluster", () => {
  let nodes;
  before(async () => {
    nodes = await startCluster();
    for (const node of nodes) ending(node);
  });

  /** Asks the node that has the slot. */
  const ask = async (...words) => {
    for (const node of nodes) {
      const reply = await node.ask(...words).catch((error) => error);
      if (!(reply instanceof Error)) return reply;
      if (!reply.message.startsWith("MOVED")) throw reply;
    }
  };
  const ownerOf = async (key) => {
    for (const node of nodes) {
      if (await node.ask("EXISTS", key).then(() => true, () => false)) return node;
    }
  };

  for (const kind of KINDS) {
    test(`${kind}: keys of all nodes, and a slot that moves during a wait and under a hold`, async () => {
      const client = await clusterOf(kind, nodes[0].port);
      await using_(new DLock(client, { lease: 3000, queue: 4000 }), async (locks) => {
        const key = newKey();
        await Promise.all([0, 1, 2].map((number) => contend(locks, `${key}:${number}`, ask)));
        const hold = await locks.acquire(key);
        const waiting = locks.acquire(key, { timeout: 20_000 });
        const source = await ownerOf(key);
        const target = nodes.find((node) => node !== source);
        await until(async () => (await source.waiters(key)) === 1);
        const slot = await source.ask("CLUSTER", "KEYSLOT", key);
        const [from, to] = [await source.ask("CLUSTER", "MYID"), await target.ask("CLUSTER", "MYID")];
        await target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", from);
        await source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to);
        await source.ask("MIGRATE", "127.0.0.1", target.port, key, 0, 5000);
        for (const node of [target, source]) await node.ask("CLUSTER", "SETSLOT", slot, "NODE", to);
        await until(async () => (await target.waiters(key).catch(() => 0)) === 1);
        await sleep(1500);
        hold.check(); // renewed at the target
        await hold.release();
        await (await waiting).release();
      });
      endClient(client);
    });
  }

  test("a node that stands still does not stop the renewals of others", async () => {
    const client = await clusterOf(KINDS[0], nodes[0].port);
    await using_(new DLock(client, { lease: 4000, responseTimeout: 500 }), async (locks) => {
      const keys = new Map();
      for (let number = 0; keys.size < nodes.length; number += 1) {
        const key = `${newKey()}:${number}`;
        const owner = await ownerOf(key);
        if (!keys.has(owner)) keys.set(owner, await locks.acquire(key));
      }
      nodes[1].pause();
      assert(await lost(keys.get(nodes[1])));
      await sleep(1500);
      keys.get(nodes[0]).check();
      nodes[1].goOn();
      await until(async () => (await nodes[0].ask("CLUSTER", "INFO")).includes("cluster_state:ok"), 20_000);
      await keys.get(nodes[0]).release();
    });
    endClient(client);
  });
});

async function using_(locks, work) {
  try {
    await work(locks);
  } finally {
    await locks.close();
  }
}

async function startGroup() {
  const options = ["--appendonly", "no", "--dlock.restart-quarantine-ms", "10000"];
  const primary = await ownServer(options);
  const replica = await ownServer([...options, "--replicaof", "127.0.0.1", `${primary.port}`]);
  await until(async () => (await replica.ask("INFO", "replication")).includes("master_link_status:up"), 20_000);
  const folder = mkdtempSync(join(tmpdir(), "dlock-node-"));
  const file = join(folder, "sentinel.conf");
  writeFileSync(file, `sentinel monitor main 127.0.0.1 ${primary.port} 1\nsentinel down-after-milliseconds main 500\n` +
    `sentinel failover-timeout main 2000\ndir ${folder}\n`);
  const port = await freePort();
  const watch = await ownServer([], { port, words: [file, "--sentinel", "--port", `${port}`] });
  await until(async () => (await watch.ask("SENTINEL", "REPLICAS", "main")).length > 0, 20_000);
  return [watch, primary, replica];
}

describe("Sentinel", { concurrency: 2 }, () => {
  for (const kind of KINDS) {
    test(`${kind}: a hold and a wait go on at the new primary`, async () => {
      const [watch, primary, replica] = await startGroup();
      const [client, end] = await sentinelOf(kind, watch.port, "main");
      await using_(new DLock(client, { lease: 10_000, replicas: 1 }), async (locks) => {
        const key = newKey();
        await contend(locks, key, (...words) => primary.ask(...words));
        const hold = await locks.acquire(key);
        const other = new DLock(client);
        const waiting = other.acquire(key, { timeout: 40_000 });
        await until(async () => (await primary.waiters(key)) === 1);
        await until(async () => (await primary.ask("WAIT", 1, 100)) === 1);
        await primary.kill();
        await until(async () => (await replica.ask("INFO", "replication")).includes("role:master"), 20_000);
        await until(async () => (await replica.waiters(key)) === 1, 20_000);
        hold.check();
        await hold.release();
        const second = await waiting;
        assert(second.token > hold.token);
        await second.release();
        await other.close();
      });
      end();
    });
  }
});
