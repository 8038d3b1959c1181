/** Lost replies, errors of servers, restarts, forged messages, and processes that stand still. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { describe, test } from "node:test";
import { Deadlock, LockLost, NotAcquired, Refused, ReleaseUnknown, Replaced, Unavailable } from "redis-dlock";

import { KINDS, lost, make, newKey, newProxy, ownServer, server } from "./clients.mjs";
import { freePort, sleep, until } from "./servers.mjs";

const code = (expected) => (error) => error instanceof Refused && expected.includes(error.code);

for (const kind of KINDS) {
  describe(kind, { concurrency: 6 }, () => {
    test("refusals of a server", async () => {
      const [own, key] = [await ownServer(), newKey()];
      const locks = await make(kind, { port: own.port });
      await own.ask("CONFIG", "SET", "maxmemory", 1);
      const isFull = (error) => error instanceof NotAcquired && error.cause.code === "OOM";
      await assert.rejects(locks.acquire(key, { timeout: 0 }), isFull);
      const waiting = locks.acquire(key);
      await sleep(100);
      await own.ask("CONFIG", "SET", "maxmemory", 0);
      await (await waiting).release();
      await own.ask("ACL", "SETUSER", "poor", "on", ">p", "~*", "&*", "+@all", "-dlock.acquire");
      const poor = await make(kind, { port: own.port, client: { username: "poor", password: "p" } });
      await assert.rejects(poor.acquire(key), code(["NOPERM"]));
      const stranger = await make(kind, { port: own.port, client: { username: "no", password: "p" }, retryFor: 5000 });
      await assert.rejects(stranger.acquire(key), code(["WRONGPASS", "NOAUTH"]));
    });

    test("a server that becomes a replica: the wait goes on until it is a primary", async () => {
      const [own, key] = [await ownServer(), newKey()];
      const locks = await make(kind, { port: own.port });
      const hold = await locks.acquire(key);
      await own.ask("REPLICAOF", "127.0.0.1", 1);
      await assert.rejects(locks.acquire(`${key}:2`, { timeout: 0 }), NotAcquired);
      let isOver = false;
      const waiting = locks.acquire(`${key}:2`, { timeout: 20_000 }).finally(() => (isOver = true));
      await sleep(100);
      assert(!isOver);
      await own.ask("REPLICAOF", "NO", "ONE");
      await (await waiting).release();
      await hold.release();
    });

    test("a server without the module, and none at all", async () => {
      const plain = await ownServer(["--appendonly", "no"], { module: false });
      const locks = await make(kind, { port: plain.port });
      await assert.rejects(locks.acquire(newKey()), /no module dlock/);
      const nowhere = await make(kind, { port: await freePort(), retryFor: 300 });
      await assert.rejects(nowhere.acquire(newKey(), { timeout: 0 }), Unavailable);
      await assert.rejects(nowhere.acquire(newKey()), Unavailable);
      await assert.rejects(nowhere.acquire(newKey(), { timeout: 50 }), Unavailable);
    });

    test("a lease counts from before the request", async () => {
      const [proxy, key] = [await newProxy(), newKey()];
      const locks = await make(kind, { port: proxy.port });
      await (await locks.acquire(newKey())).release();
      proxy.delay = 300;
      const hold = await locks.acquire(key, { lease: 5000 });
      assert(hold.validFor() < 5000 * 0.99 - 300);
      proxy.delay = 0;
      await hold.release();
    });

    test("a lost reply to an acquire: one hold", async () => {
      const [proxy, key, one] = [await newProxy(), newKey(), await server()];
      const locks = await make(kind, { port: proxy.port });
      await (await locks.acquire(newKey())).release();
      proxy.cutAfter = "DLOCK.ACQUIRE";
      const hold = await locks.acquire(key);
      assert.equal(proxy.cuts, 1);
      assert.equal(await one.holds(key), 1);
      await hold.release();
      assert.equal(await one.ask("EXISTS", key), 0);
    });

    test("a lost reply to a release: the repeat gets the answer of the first copy", async () => {
      const [proxy, key, one] = [await newProxy(), newKey(), await server()];
      const locks = await make(kind, { port: proxy.port });
      const hold = await locks.acquire(key);
      const other = locks.acquire(key);
      await until(async () => (await one.waiters(key)) === 1);
      proxy.cutAfter = "DLOCK.RELEASE";
      await hold.release();
      assert.equal(proxy.cuts, 1);
      await (await other).release();
    });

    test("a lost reply to a release of nothing is never a success", async () => {
      const [proxy, key, one] = [await newProxy(), newKey(), await server()];
      const locks = await make(kind, { port: proxy.port });
      const hold = await locks.acquire(key);
      proxy.muteAt = "broken ";
      await one.ask("DLOCK.BREAK", key);
      proxy.cutAfter = "DLOCK.RELEASE";
      const error = await hold.release().catch((error) => error);
      assert(error instanceof LockLost || error instanceof ReleaseUnknown, String(error));
      assert.equal(proxy.cuts, 1);
    });

    test("a spent request takes a new id", async () => {
      const [proxy, key, one] = [await newProxy(), newKey(), await server()];
      const locks = await make(kind, { port: proxy.port });
      await (await locks.acquire(newKey())).release();
      proxy.requests = "";
      proxy.cutAfter = "DLOCK.ACQUIRE";
      const waiting = locks.acquire(key, { lease: 2000 });
      await until(() => proxy.cuts === 1);
      proxy.holdBack = "DLOCK.ACQUIRE";
      await until(async () => (await one.ask("EXISTS", key)) === 0);
      proxy.holdBack = "";
      const hold = await waiting;
      assert.equal(await one.waiters(key), 0);
      const ids = new Set(proxy.requests.split("REQID\r\n").slice(1).map((part) => part.split("\r\n")[1]));
      assert(ids.size >= 2);
      await hold.release();
    });

    test("a wait that gives up after a lost reply holds nothing", async () => {
      const [proxy, key, one] = [await newProxy(), newKey(), await server()];
      const locks = await make(kind, { port: proxy.port, responseTimeout: 500 });
      await (await locks.acquire(newKey())).release();
      for (const how of ["timeout", "signal"]) {
        const controller = new AbortController();
        proxy.cutAfter = "DLOCK.ACQUIRE";
        const before = proxy.cuts;
        const options = how === "timeout" ? { timeout: 300 } : { signal: controller.signal };
        const waiting = locks.acquire(key, options);
        waiting.catch(() => {});
        await until(() => proxy.cuts > before);
        proxy.holdBack = "DLOCK.ACQUIRE";
        controller.abort();
        await assert.rejects(waiting, how === "timeout" ? Unavailable : { name: "AbortError" });
        proxy.holdBack = "";
        await until(async () => (await one.ask("EXISTS", key)) === 0);
      }
    });

    test("a wait leaves the queue when its signal is aborted", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const hold = await locks.acquire(key);
      for (const lock of [locks.lock(key), locks.multiLock([key, `${key}:2`])]) {
        const reason = new Error("enough");
        const controller = new AbortController();
        const waiting = lock.acquire({ signal: controller.signal });
        waiting.catch(() => {});
        await until(async () => (await one.waiters(key)) === 1);
        controller.abort(reason);
        await assert.rejects(waiting, reason);
        await until(async () => (await one.waiters(key)) === 0);
        await assert.rejects(lock.acquire({ signal: controller.signal }), reason);
      }
      await hold.release();
    });

    test("forged messages", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const hold = await locks.acquire(key);
      const waiting = locks.acquire(key);
      await until(async () => (await one.waiters(key)) === 1);
      const channels = await one.ask("PUBSUB", "CHANNELS", "dlock:notify:*");
      const { token, owner } = hold;
      for (const event of ["granted", "expired", "broken", "deleted", "replaced", "deadlock"]) {
        for (const told of [`${event} 0 ${token} ${owner.length} ${owner} 4 1234 ${key}`, `${event} 0 1 1 a 0  ${key}`,
          event, `${event} 0 ${token} 999999 ${owner} -7 ${key}`, `${event} x y z`, "", "\u00ff\u0000 0 0 0"]) {
          for (const channel of [...channels, "dlock:notify"]) await one.ask("PUBLISH", channel, told);
        }
      }
      await one.ask("PUBLISH", "dlock:notify", "flushed 0"); // also a lie: the client asks the server
      await sleep(100);
      hold.check();
      assert.equal(await one.waiters(key), 1);
      await hold.release();
      await (await waiting).release();
    });

    test("a grant by message is renewed in time, and is lost if it ended in the same packet", async () => {
      const [key, one] = [newKey(), await server()];
      const locks = await make(kind, { queue: 600 });
      for (const isBroken of [false, true]) {
        const before = await locks.acquire(key);
        const waiting = locks.acquire(key);
        await until(async () => (await one.waiters(key)) === 1);
        const release = one.client.multi().call("DLOCK.RELEASE", key, before.owner, "TOKEN", `${before.token}`);
        if (isBroken) release.call("DLOCK.BREAK", key);
        await release.exec();
        const hold = await waiting;
        assert.equal(await one.holds(key), 1);
        await sleep(isBroken ? 0 : 1500);
        hold.check();
        await hold.release();
        await before.release().catch(() => {});
      }
    });

    test("a grant by message needs no other request before the work", async () => {
      const proxy = await newProxy();
      const [locks, key] = [await make(kind, { port: proxy.port, queue: 60_000 }), newKey()];
      const [others, one] = [await make(kind), await server()];
      for (let turn = 1; ; turn += 1) { // a subscription that comes up makes waits ask once more
        const before = await others.acquire(key);
        const waiting = locks.acquire(key);
        await until(async () => (await one.waiters(key)) === 1);
        proxy.requests = "";
        await before.release();
        const hold = await waiting;
        const { requests } = proxy;
        await hold.release();
        if (requests === "") break;
        assert(turn < 20, requests);
      }
      assert.equal(proxy.count("DLOCK.RELEASE"), 1);
    });

    test("a waiter that stands still costs its time in the queue, not its lease", async () => {
      const [one, key] = [await server(), newKey()];
      const script = `
        import { clientOf } from "./libraries.mjs";
        import { DLock } from "redis-dlock";
        await new DLock(clientOf("${kind}", ${one.port}), { queue: 1500 }).acquire("${key}");`;
      const before = await (await make(kind)).acquire(key);
      const child = spawn(process.execPath, ["--input-type=module", "-e", script], { cwd: import.meta.dirname });
      await until(async () => (await one.waiters(key)) === 1);
      child.kill("SIGSTOP");
      const next = (await make(kind)).acquire(key);
      await until(async () => (await one.waiters(key)) === 2);
      const began = performance.now();
      await before.release();
      await (await next).release();
      const took = performance.now() - began;
      assert(took > 1000 && took < 4000, `${took} ms`);
      child.kill("SIGKILL");
    });

    test("a lease that ends under the release covered the work", async () => {
      const [proxy, key, one] = [await newProxy(), newKey(), await server()];
      const locks = await make(kind, { port: proxy.port, lease: 1000 });
      const hold = await locks.acquire(key);
      proxy.holdBack = "DLOCK.RE"; // RELEASE and RENEW
      const released = hold.release();
      await until(async () => (await one.ask("EXISTS", key)) === 0);
      proxy.holdBack = "";
      await released;
      assert(proxy.cuts >= 1);
    });

    test("a release without an answer is unknown, and comes later", async () => {
      const [proxy, key, one] = [await newProxy(), newKey(), await server()];
      const locks = await make(kind, { port: proxy.port, retryFor: 300 });
      const hold = await locks.acquire(key);
      proxy.holdBack = "DLOCK.RELEASE";
      await assert.rejects(hold.release(), ReleaseUnknown);
      assert.equal(await one.holds(key), 1);
      proxy.holdBack = "";
      await until(async () => (await one.ask("EXISTS", key)) === 0, 3000);
    });

    test("FLUSHALL", async () => {
      const [own, key] = [await ownServer(), newKey()];
      const locks = await make(kind, { port: own.port });
      const hold = await locks.acquire(key);
      await own.ask("FLUSHALL");
      assert(await lost(hold, 5000));
      assert(["refused", "deleted"].includes(hold.signal.reason.reason));
    });

    test("FLUSHALL right behind a grant", async () => {
      const [own, key] = [await ownServer(), newKey()];
      const locks = await make(kind, { port: own.port });
      await own.ask("DLOCK.ACQUIRE", key, "x");
      const waiting = locks.acquire(key);
      await until(async () => (await own.waiters(key)) === 1);
      const done = [own.ask("DLOCK.RELEASE", key, "x"), own.ask("FLUSHALL")];
      for (const at = performance.now(); performance.now() < at + 300;); // so that both messages come in one read
      const hold = await waiting;
      await Promise.all(done);
      assert.equal(await own.ask("DLOCK.CHECK", key, hold.token), 1);
      await hold.release();
    });

    test("after a wait the first renewal asks for the whole lease", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const before = await locks.acquire(key);
      const waiting = locks.acquire(key);
      await before.release();
      const hold = await waiting;
      assert(hold.validFor() < 10_000 && (await one.shown(key, "ttl-ms")) <= 10_000);
      await until(() => hold.validFor() > 15_000, 5000);
      await hold.release();
    });

    test("codes that pass and codes that end a wait", async () => {
      const [own, key] = [await ownServer(), newKey()];
      const locks = await make(kind, { port: own.port });
      const hold = await locks.acquire(key);
      for (const [lock, how, isOver] of [
        [locks.multiLock([key, `${key}2`]), ["DLOCK.UNBLOCK", "", "ERROR"], true],
        [locks.multiLock([key, `${key}2`]), ["CLIENT", "UNBLOCK", "", "ERROR"], false],
      ]) {
        let error;
        const waiting = lock.acquire({ owner: "waiter" }).catch((found) => (error = found));
        await until(async () => (await own.waiters(key)) === 1);
        const [shown] = await own.ask("DLOCK.WAITERS", key);
        const client = shown[shown.indexOf("client-id") + 1];
        await own.ask(...how.map((word) => word || client));
        await sleep(300);
        assert.equal(error?.code, isOver ? "STOPPED" : undefined);
        assert.equal(await own.waiters(key), isOver ? 0 : 1);
        if (!isOver) await hold.release();
        if (!isOver) await (await waiting).release();
      }
    });

    test("a hold and a wait survive a restart of the server", async () => {
      const [own, key] = [await ownServer(), newKey()];
      const locks = await make(kind, { port: own.port, lease: 20_000 });
      const hold = await locks.acquire(key);
      const waiting = locks.acquire(key);
      await until(async () => (await own.waiters(key)) === 1);
      await own.kill();
      await own.start();
      await until(async () => (await own.waiters(key)) === 1, 20_000);
      hold.check();
      await hold.release();
      const second = await waiting;
      assert(second.token > hold.token);
      await second.release();
    });

    test("a server that stands still", async () => {
      const [own, key] = [await ownServer(), newKey()];
      const locks = await make(kind, { port: own.port, lease: 600, responseTimeout: 300 });
      const hold = await locks.acquire(key);
      own.pause();
      assert(await lost(hold, 5000));
      own.goOn();
      await (await locks.acquire(key, { timeout: 10_000 })).release();
    });

    test("a reply that comes late is not taken for another", async () => {
      const [own, key] = [await ownServer(), newKey()];
      const locks = await make(kind, { port: own.port, responseTimeout: 200 });
      const latch = locks.latch(`${key}:latch`);
      await latch.init(7);
      for (let turn = 0; turn < 3; turn += 1) {
        own.pause();
        const asked = Promise.all([locks.acquire(key, { timeout: 9000 }), latch.remaining()]);
        await sleep(350); // longer than responseTimeout: the copies go over other connections
        own.goOn();
        const [hold, remaining] = await asked;
        assert.equal(remaining, 7);
        assert(hold.token > 1e15);
        await hold.release();
        await until(async () => (await own.ask("EXISTS", key)) === 0);
      }
    });

    test("cut connections keep the place", async () => {
      const [proxy, key, one] = [await newProxy(), newKey(), await server()];
      const locks = await make(kind, { port: proxy.port });
      const hold = await (await make(kind)).acquire(key);
      const first = locks.acquire(key);
      await until(async () => (await one.waiters(key)) === 1);
      const second = (await make(kind)).acquire(key);
      await until(async () => (await one.waiters(key)) === 2);
      const clientId = async () => {
        const [shown] = await one.ask("DLOCK.WAITERS", key);
        return shown[shown.indexOf("client-id") + 1];
      };
      const before = await clientId();
      proxy.cut();
      await until(async () => ![0, before].includes(await clientId()));
      await hold.release();
      await (await first).release();
      await (await second).release();
    });

    test("a silent subscription is replaced", async () => {
      const [proxy, key, one] = [await newProxy(), newKey(), await server()];
      const [locks, others] = [await make(kind, { port: proxy.port, queue: 1000 }), await make(kind)];
      let hold = await others.acquire(key);
      let waiting = locks.acquire(key);
      await until(async () => (await one.waiters(key)) === 1);
      await hold.release();
      await (await waiting).release(); // from now on the subscription stands, and a wait asks once
      hold = await others.acquire(key);
      waiting = locks.acquire(key);
      await until(async () => (await one.waiters(key)) === 1);
      proxy.muteAt = "granted ";
      await hold.release();
      const mine = await waiting; // asked again after half of the time in the queue
      proxy.muteAt = "";
      await until(() => proxy.count("subscribe\r\n") + proxy.count("SUBSCRIBE\r\n") >= 2);
      const other = others.acquire(key);
      await until(async () => (await one.waiters(key)) === 1);
      await mine.release();
      hold = await other;
      waiting = locks.acquire(key);
      await until(async () => (await one.waiters(key)) === 1);
      await hold.release();
      await (await waiting).release();
    });

    test("a released hold is not valid", async () => {
      const [locks, key] = [await make(kind), newKey()];
      const hold = await locks.acquire(key);
      await hold.release();
      await hold.release(); // the same outcome
      assert.equal(hold.validFor(), 0);
      assert.throws(() => hold.check(), /released/);
      assert(!hold.signal.aborted);
    });

    test("two tasks with one owner, and owners that wait for each other", async () => {
      const [locks, key, one] = [await make(kind), newKey(), await server()];
      const first = await locks.acquire(key, { owner: `${key}a` });
      const second = await locks.acquire(`${key}2`, { owner: `${key}b` });
      const waiting = locks.acquire(`${key}2`, { owner: `${key}a` });
      waiting.catch(() => {});
      await until(async () => (await one.waiters(`${key}2`)) === 1);
      await assert.rejects(locks.acquire(key, { owner: `${key}b` }), Deadlock);
      const again = locks.acquire(`${key}2`, { owner: `${key}a` });
      await assert.rejects(waiting, Replaced);
      await second.release();
      await (await again).release();
      await first.release();
    });

    test("a wait for several locks that is longer than the lease", async () => {
      const [locks, key, one] = [await make(kind, { lease: 400 }), newKey(), await server()];
      const hold = await (await make(kind)).acquire(key);
      const waiting = [locks.acquire(key), locks.multiLock([key, `${key}2`]).acquire()];
      await until(async () => (await one.waiters(key)) === 2);
      await sleep(500);
      await hold.release();
      await Promise.all(waiting.map(async (task) => { // in any order
        const mine = await task;
        assert(mine.validFor() > 200);
        await mine.release();
      }));
    });

    test("replies stay in step while connections end", async () => {
      const [proxy, key] = [await newProxy(), newKey()];
      const locks = await make(kind, { port: proxy.port });
      let turns = 0;
      const work = async (number) => {
        let last = 1e15;
        while (turns < 150) {
          const hold = await locks.acquire(`${key}:${number}`, { timeout: 20_000 });
          assert(hold.token > last, String(hold.token));
          last = hold.token;
          await hold.release();
          turns += 1;
        }
      };
      const cut = async () => {
        for (let next = 5; next < 150; next += 10) {
          await until(() => turns >= next);
          proxy.cut();
        }
      };
      await Promise.all([cut(), ...Array.from({ length: 20 }, (_, number) => work(number))]);
    });

    test("a process that stands still for longer than its lease knows it", async () => {
      const [one, key] = [await server(), newKey()];
      const script = `
        import { clientOf } from "./libraries.mjs";
        import { DLock } from "redis-dlock";
        const locks = new DLock(clientOf("${kind}", ${one.port}), { lease: 500 });
        await locks.using("${key}", (signal) => {
          console.log("held");
          return new Promise((resolve) => signal.addEventListener("abort", resolve));
        }).catch((error) => console.log("lost", error.reason));
        process.exit();`;
      const child = spawn(process.execPath, ["--input-type=module", "-e", script], { cwd: import.meta.dirname,
        stdio: ["ignore", "pipe", "inherit"] });
      const heard = [];
      child.stdout.on("data", (data) => heard.push(String(data).trim()));
      await until(() => heard.length === 1);
      child.kill("SIGSTOP");
      await until(async () => (await one.ask("EXISTS", key)) === 0);
      child.kill("SIGCONT");
      await once(child, "exit");
      assert.match(heard.join(" "), /^held lost (expired|refused)$/);
    });

    test("an idle DLock does not keep the process alive, a wait does", async () => {
      const [one, key] = [await server(), newKey()];
      const script = `
        import { clientOf } from "./libraries.mjs";
        import { DLock } from "redis-dlock";
        const locks = new DLock(clientOf("${kind}", ${one.port}));
        const hold = await locks.acquire("${key}", { lease: 60000 });
        console.log("held");
        const other = await locks.acquire("${key}:2", { timeout: 10000 });
        console.log("held, too");`;
      const two = await (await make(kind)).acquire(`${key}:2`);
      const child = spawn(process.execPath, ["--input-type=module", "-e", script], { cwd: import.meta.dirname,
        stdio: ["ignore", "pipe", "inherit"] });
      await until(async () => (await one.waiters(`${key}:2`)) === 1);
      await sleep(300);
      assert.equal(child.exitCode, null);
      await two.release();
      const [status] = await once(child, "exit");
      assert.equal(status, 0);
      assert.equal(await one.ask("EXISTS", key, `${key}:2`), 0); // released at the end
    });
  });
}
