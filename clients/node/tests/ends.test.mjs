/** Ends: of a DLock, of a process, of a hold that nobody refers to any more. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import net from "node:net";
import { describe, test } from "node:test";
import { DLock, DLockError } from "redis-dlock";

import { clientOf, ending, KINDS, make, newKey, newProxy, ownServer, server } from "./clients.mjs";
import { kept, sleep, until } from "./servers.mjs";

/** Runs a script, and returns its status, what it printed, and how long it took after it printed "end". */
async function run(kind, port, script, { flags = [], env = {}, onLine } = {}) {
  const text = `
    import { clientOf } from "./libraries.mjs";
    import { DLock } from "redis-dlock";
    const make = (settings) => new DLock(clientOf("${kind}", ${port}), settings);
    const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
    ${script}
    console.log("end");`;
  const child = spawn(process.execPath, [...flags, "--input-type=module", "-e", text],
    { cwd: import.meta.dirname, env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "pipe"] });
  ending({ end: () => child.kill("SIGKILL") });
  let [said, endedAt] = ["", performance.now()];
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (data) => {
      said += data;
      if (String(data).includes("end\n")) endedAt = performance.now();
      onLine?.(String(data), child);
    });
  }
  const [status] = await once(child, "exit");
  return { status, said, after: performance.now() - endedAt };
}

/** A server that accepts, reads, and never answers. */
async function startSilent() {
  const sockets = new Set();
  const listener = net.createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).on("close", () => sockets.delete(socket)).resume();
  }).listen(0, "127.0.0.1");
  await once(listener, "listening");
  ending({ end: () => [listener.close(), ...[...sockets].map((socket) => socket.destroy())] });
  return { port: listener.address().port, sockets };
}

for (const kind of KINDS) {
  describe(kind, { concurrency: 4 }, () => {
    test("close() ends every wait at once, and twice is once", async () => {
      const [locks, others, key] = [await make(kind), await make(kind), newKey()];
      kept.push(await others.acquire(key));
      await others.latch(key + "l").init(1);
      await (await locks.acquire(newKey())).release();
      const waits = [locks.acquire(key), locks.multiLock([key, `${key}2`]).acquire(), locks.latch(`${key}l`).wait(),
        locks.lock(key).runOnce(() => {}), locks.lock(key).runOnce(() => {}),
        locks.election(`${key}e`).observe().next(), locks.election(key).campaign()];
      const all = Promise.allSettled(waits);
      await until(async () => (await (await server()).waiters(key)) === 3);
      const began = performance.now();
      const first = locks.close();
      assert.equal(locks.close(), first);
      for (const { reason } of await all) {
        assert(reason instanceof DLockError && reason.code === "CLOSED", String(reason));
      }
      await first;
      assert(performance.now() - began < 500, `${performance.now() - began} ms`);
      await until(async () => (await (await server()).waiters(key)) === 0);
      const calls = [() => locks.acquire(key), () => locks.latch(key).remaining(), () => locks.lock(key).tryAcquire(),
        () => locks.lock(key).runOnce(() => {}), () => locks.election(key).leader()];
      for (const call of calls) await assert.rejects(call, /closed/);
    });

    test("close() of a DLock with many holds takes the time of one reply, if none comes", async () => {
      const proxy = await newProxy();
      const locks = await make(kind, { port: proxy.port, responseTimeout: 400 });
      await Promise.all(Array.from({ length: 50 }, () => locks.acquire(newKey())));
      proxy.isSilent = true;
      const began = performance.now();
      await locks.close();
      assert(performance.now() - began < 700, `${performance.now() - began} ms`);
    });

    test("no socket stays at a server that accepts and never answers", async () => {
      const silent = await startSilent();
      const locks = await make(kind, { port: silent.port, retryFor: 300, responseTimeout: 300 });
      for (let turn = 0; turn < 3; turn += 1) await assert.rejects(locks.acquire(newKey()), { code: "UNAVAILABLE" });
      assert(silent.sockets.size <= 2, `${silent.sockets.size} sockets`);
      await locks.close();
      await until(() => silent.sockets.size === 0);
    });

    for (const [what, script] of [
      ["a hold", `await make().acquire(KEY);`],
      ["a hold, a wait that was given up, and a close", `const locks = make(); await locks.acquire(KEY);
        await locks.acquire(KEY, { timeout: 50 }).catch(() => {}); await locks.close();`],
      ["100 holds", `const locks = make(); for (let n = 0; n < 100; n += 1) await locks.acquire(KEY + ":" + n);
        await locks.acquire(KEY);`],
    ]) {
      test(`a process that ends with ${what} has released it`, async () => {
        const [one, key] = [await server(), newKey()];
        const { status, after } = await run(kind, one.port, script.replaceAll("KEY", `"${key}"`));
        assert.equal(status, 0);
        assert(after < 1000, `${after} ms`);
        assert.equal(await one.ask("EXISTS", key, `${key}:7`), 0);
      });
    }

    test("a process ends after the time of a reply, whatever the server does", async () => {
      const silent = await startSilent();
      const own = await ownServer(["--appendonly", "no"]);
      const given = `await locks.acquire("k", { timeout: 300 }).catch((error) => console.log(error.code));`;
      const settings = "{ responseTimeout: 500 }";
      const ends = await Promise.all([
        run(kind, silent.port, `const locks = make(${settings}); ${given}`),
        run(kind, silent.port, `const locks = make(${settings}); ${given} await locks.close();`),
        run(kind, own.port, `const locks = make(${settings}); await locks.acquire("held"); console.log("held");
          await sleep(200); ${given}`, { onLine: (line) => line.includes("held") && own.pause() }),
      ]);
      own.goOn();
      for (const { status, said, after } of ends) {
        assert.equal(status, 0, said);
        assert.match(said, /UNAVAILABLE/);
        assert(after < 1500, `${after} ms: ${said}`);
      }
    });

    test("a leadership whose end is awaited keeps the process alive, and a campaign ends by its signal", async () => {
      const [one, key] = [await server(), newKey()];
      const own = run(kind, one.port, `
        const election = make().election("${key}", "one");
        const leadership = await election.campaign();
        const waiting = make().election("${key}", "two").campaign({ signal: AbortSignal.timeout(300) });
        console.log(await waiting.catch((error) => error.name));
        await new Promise((resolve) => leadership.signal.addEventListener("abort", resolve));
        console.log(leadership.signal.reason.reason);`);
      await until(async () => (await one.holds(key)) === 1);
      await sleep(1000);
      await one.ask("DLOCK.BREAK", key);
      const { status, said } = await own;
      assert.equal(said, "TimeoutError\nbroken\nend\n");
      assert.equal(status, 0);
    });

    test("a hold that nobody refers to is released, with a warning that says where it was acquired", async () => {
      const [one, key] = [await server(), newKey()];
      const { said } = await run(kind, one.port, `
        const locks = make();
        const warnings = [];
        process.on("warning", (warning) => warnings.push(warning));
        async function forget() {
          for (let number = 0; number < 100; number += 1) await locks.acquire("${key}:" + number);
        }
        const kept = await locks.acquire("${key}:kept");
        const { signal } = await locks.acquire("${key}:signal");
        const inside = locks.using("${key}:using", () => sleep(1500));
        await forget();
        for (let turn = 0; turn < 20 && warnings.length < 100; turn += 1) {
          gc();
          await sleep(50);
        }
        console.log(warnings.length, warnings.every((warning) => warning.code === "DLOCK_DROPPED"));
        const isPlace = ({ message }) => message.includes("at forget") || message.includes("[eval1]");
        console.log(warnings.every(isPlace));
        for (const key of ["kept", "signal", "using", "7"]) {
          console.log(key, (await locks.lock("${key}:" + key).tryAcquire()) !== undefined);
        }
        await inside;
        console.log(kept.isLost, signal.aborted);`, { flags: ["--expose-gc"], env: { NODE_DEBUG: "redis-dlock" } });
      assert.match(said, /100 true\ntrue\n/);
      assert.match(said, /kept false\nsignal false\nusing false\n7 true\nfalse false\n/);
    });

    test("DLocks of one client share its connections, and end for themselves", async () => {
      const own = await ownServer(["--appendonly", "no"]);
      const count = async () => (await own.ask("CLIENT", "LIST")).trim().split("\n").length;
      const [client, before] = [clientOf(kind, own.port), await count()];
      for (let number = 0; number < 100; number += 1) await new DLock(client).using(`k:${number}`, () => {});
      assert(await count() <= before + 2, `${await count()} connections`);
      const [one, two] = [new DLock(client), new DLock(client, { lease: 5000 })];
      const [hold, other] = [await one.acquire("one"), await two.acquire("two")];
      const waiting = two.acquire("one");
      await until(async () => (await own.waiters("one")) === 1);
      await one.close();
      assert(hold.isLost && !other.isLost);
      await (await waiting).release();
      await two.close();
      assert.equal(await own.ask("EXISTS", "one", "two"), 0);
    });

    test("the last close() of a client leaves no connection", async () => {
      const own = await ownServer(["--appendonly", "no"]);
      const count = async () => (await own.ask("CLIENT", "LIST")).trim().split("\n").length;
      const [client, before] = [clientOf(kind, own.port), await count()];
      for (let turn = 0; turn < 3; turn += 1) {
        const [one, two] = [new DLock(client), new DLock(client)];
        await Promise.all([one.acquire("k"), two.multiLock(["a", "b"]).acquire()]);
        await Promise.all([one.close(), two.close()]);
        await until(async () => (await count()) === before);
      }
    });
  });
}
