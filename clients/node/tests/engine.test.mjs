/** A whole DLock on a server in this process: what is sent when, messages, and connections that end. */

import assert from "node:assert/strict";
import { after as afterAll, describe, test } from "node:test";
import { LockLost, NotAcquired, Refused, Unavailable } from "redis-dlock";

import { after, error, Fake, NOTHING } from "./fake.mjs";
import { sleep, until } from "./servers.mjs";

afterAll(() => Promise.all(Fake.all.map((locks) => locks.close()))); // those of tests that fail, too

const verb = ([name]) => name.split(".")[1];

/** Answers as a server whose locks are free. `special` may answer instead. */
const fakeOf = (special = () => undefined) => new Fake((command, earlier) => {
  const reply = special(command, earlier);
  if (reply !== undefined) return reply;
  const count = Number(command[1]);
  return {
    ACQUIRE: command[0].startsWith("DSEM") ? "permit" : 7, RENEW: 7, RELEASE: 0, MRELEASE: count,
    INFO: ["capacity", 1], MACQUIRE: Array.from({ length: count }, (_, at) => 7 + at), ANYACQUIRE: [command[2], 7],
  }[verb(command)];
});

/** A server whose locks are held by others. */
const taken = (special = () => undefined) => fakeOf((command) =>
  special(command) ?? (verb(command) === "ACQUIRE" ? null : undefined));

const idOf = (command) => after(command, "REQID");

/** The ids of waits, when they are in the queue. */
async function idsOf(fake, count = 1) {
  await until(() => new Set(fake.named("DLOCK.ACQUIRE").map(idOf)).size === count);
  await sleep(20); // their replies, and the subscription
  return [...new Set(fake.named("DLOCK.ACQUIRE").map(idOf))];
}

describe("what is sent", { concurrency: 4 }, () => {
  test("a wait asks for no more than the time in the queue, and its renewals for the lease", async () => {
    const fake = fakeOf();
    const locks = fake.locks({ lease: 9000, queue: 3000 });
    const waiting = await locks.acquire("k");
    await locks.lock("k").tryAcquire();
    await locks.acquire("k", { lease: 2000 });
    const both = await locks.multiLock(["a", "b"]).acquire();
    const px = fake.sent.filter((command) => verb(command).endsWith("ACQUIRE")).map((command) => after(command, "PX"));
    assert.deepEqual(px, [3000, 9000, 2000, 9000]);
    await until(() => fake.named("DLOCK.RENEW").some((renew) => after(renew, "PX") === 9000));
    await sleep(20);
    assert(waiting.validFor() > 6000 && both.validFor() > 5000);
    await locks.close();
  });

  test("all copies of a wait ask for the same, the last one without a place", async () => {
    const fake = taken();
    const locks = fake.locks({ lease: 5000, queue: 400 });
    await assert.rejects(locks.acquire("k", { timeout: 900 }), NotAcquired);
    const copies = fake.named("DLOCK.ACQUIRE");
    assert(copies.length >= 2, String(copies.length));
    assert.equal(new Set(copies.map((copy) => `${idOf(copy)} ${after(copy, "PX")}`)).size, 1);
    assert(copies.slice(0, -1).every((copy) => copy.includes("QUEUE")) && !copies.at(-1).includes("QUEUE"));
    await until(() => fake.named("DLOCK.RELEASE").length === 1);
    assert.equal(idOf(fake.named("DLOCK.RELEASE")[0]), idOf(copies[0]));
    await locks.close();
  });

  test("one id from the acquire to the release, and no CANCEL", async () => {
    const fake = fakeOf();
    const locks = fake.locks();
    for (const lock of [locks.lock("k"), locks.fairLock("k"), locks.readLock("k"), locks.semaphore("k"),
      locks.multiLock(["a", "b"]), locks.anyLock(["a", "b"])]) {
      await (await lock.acquire()).release();
      const [acquire, release] = fake.sent.splice(0).filter((command) => verb(command) !== "INFO");
      assert.equal(idOf(release), idOf(acquire));
      assert.equal(acquire.includes("TOKEN"), false);
    }
    const hold = await locks.acquire("k");
    const controller = new AbortController();
    fake.answer = ([name]) => (name.endsWith("ACQUIRE") ? null : 0);
    const waiting = locks.acquire("l", { signal: controller.signal });
    waiting.catch(() => {});
    await until(() => fake.named("DLOCK.ACQUIRE").length === 2);
    controller.abort();
    await assert.rejects(waiting, { name: "AbortError" });
    await until(() => fake.named("DLOCK.RELEASE").length === 1);
    await locks.close();
    assert.equal(fake.named("DLOCK.RELEASE").length, 2);
    assert.equal(fake.sent.filter(([name]) => name.includes("CANCEL")).length, 0);
    await assert.rejects(hold.release(), LockLost);
    const { length } = fake.sent;
    await sleep(50);
    assert.equal(fake.sent.length, length); // nothing after close()
  });

  test("an acquire that is aborted while it is asked is given up, and its reply is not used", async () => {
    const fake = fakeOf(([name]) => (name === "DLOCK.ACQUIRE" ? sleep(100).then(() => 7) : undefined));
    const locks = fake.locks();
    await assert.rejects(locks.acquire("k", { signal: AbortSignal.timeout(50) }), { name: "TimeoutError" });
    await until(() => fake.named("DLOCK.RELEASE").length === 1);
    await sleep(150);
    assert.equal(fake.named("DLOCK.RENEW").length, 0);
    await locks.close();
  });

  test("inner acquires of an owner ask for their own lease", async () => {
    const fake = fakeOf();
    const locks = fake.locks();
    await locks.acquire("k", { owner: "me", lease: 9000 });
    await locks.acquire("k", { owner: "me", lease: 2000 });
    assert.deepEqual(fake.named("DLOCK.ACQUIRE").map((copy) => after(copy, "PX")), [9000, 2000]);
    await locks.close();
  });

  test("a renewal that fails is tried again, until NOTHELD", async () => {
    const replies = [error("NOPERM no"), 7, error("LOST broken"), error("NOTHELD x")];
    const fake = fakeOf(([name]) => (name === "DLOCK.RENEW" ? replies.shift() ?? 7 : undefined));
    const locks = fake.locks({ lease: 2000 });
    const hold = await locks.acquire("k");
    await until(() => replies.length === 0);
    await until(() => hold.isLost, 1000);
    assert.equal(hold.signal.reason.reason, "refused");
    await locks.close();
  });
});

describe("messages", { concurrency: 4 }, () => {
  test("'granted' with the id is a grant, without another request", async () => {
    const fake = taken();
    const locks = fake.locks({ lease: 30_000 });
    const waiting = locks.acquire("k");
    const [id] = await idsOf(fake);
    const { length } = fake.sent;
    fake.publish("granted", 7, "another");
    fake.publish("granted", 9, id);
    const hold = await waiting;
    assert.equal(hold.token, 9);
    assert.equal(fake.sent.length, length);
    assert(hold.validFor() < 9898);
    await hold.release();
    await locks.close();
  });

  test("of a hold that was broken: it is renewed at once, and the reason is that of the message", async () => {
    for (const event of ["broken", "deleted", "expired", "disconnected"]) {
      let isOver = false;
      const fake = fakeOf(([name]) => (name === "DLOCK.RENEW" && isOver ? error("NOTHELD gone") : undefined));
      const locks = fake.locks();
      const hold = await locks.acquire("k");
      await until(() => fake.opened === 2);
      await sleep(30); // all is checked after the subscription
      const { length } = fake.named("DLOCK.RENEW");
      isOver = true;
      fake.publish(event, 7); // with the id of an outer acquire, or none
      await until(() => hold.isLost, 2000);
      assert.equal(hold.signal.reason.reason, event);
      assert.equal(fake.named("DLOCK.RENEW").length, length + 1);
      await locks.close();
    }
  });

  test("that are forged end nothing, and cost one renewal each 100 ms", async () => {
    const fake = fakeOf();
    const locks = fake.locks();
    const [hold, other] = [await locks.acquire("k"), await locks.acquire("k")];
    await sleep(50);
    const { length } = fake.named("DLOCK.RENEW");
    const began = performance.now();
    let count = 0;
    for (; performance.now() < began + 450; await sleep(1)) {
      for (const event of ["broken", "expired", "deleted", "granted", "replaced", "nonsense"]) {
        fake.publish(event, 7);
        fake.publish(event, 8);
        count += 1;
      }
    }
    const renewals = (fake.named("DLOCK.RENEW").length - length) / 2;
    const most = (performance.now() - began) / 100 + 1.5;
    assert(count > 100 && renewals >= 2 && renewals <= most, `${count} messages, ${renewals} rounds of ${most}`);
    hold.check();
    other.check();
    await locks.close();
  });

  test("'flushed' has every wait asked again and every hold renewed, at most once a second", async () => {
    const fake = fakeOf((command) => (command[1].startsWith("w") && verb(command) === "ACQUIRE" ? null : undefined));
    const locks = fake.locks();
    await Promise.all(["a", "b"].map((key) => locks.acquire(key)));
    const waiting = ["w1", "w2"].map((key) => locks.acquire(key));
    for (const one of waiting) one.catch(() => {});
    await idsOf(fake, 4);
    const count = () => [fake.named("DLOCK.ACQUIRE").length - before[0], fake.named("DLOCK.RENEW").length - before[1]];
    let before = [0, 0];
    before = count();
    for (let turn = 0; turn < 100; turn += 1) {
      fake.publish("flushed");
      await sleep(3);
    }
    assert.deepEqual(count(), [2, 2]);
    await until(() => count().join() === "4,4", 1500); // the last of them is not forgotten
    await sleep(100);
    assert.deepEqual(count(), [4, 4]);
    await locks.close();
  });
});

describe("connections", { concurrency: 4 }, () => {
  for (const isForMessages of [true, false]) {
    test(`that for ${isForMessages ? "messages" : "commands"} ends: waits ask again, holds are renewed`, async () => {
      const fake = fakeOf((command) => (command[1] === "w" && verb(command) === "ACQUIRE" ? null : undefined));
      const locks = fake.locks();
      const hold = await locks.acquire("k");
      const waiting = locks.acquire("w");
      waiting.catch(() => {});
      await idsOf(fake, 2);
      await sleep(30);
      const { opened, sent: { length } } = fake;
      fake.cut(isForMessages);
      await until(() => fake.opened === opened + 1 && fake.sent.length === length + 2, 1000);
      assert.deepEqual(fake.sent.slice(length).map(verb).sort(), ["ACQUIRE", "RENEW"]);
      hold.check();
      await locks.close();
    });
  }

  test("with a replica: holds are not renewed over and over", async () => {
    let isReplica = false;
    const fake = fakeOf(([name]) => (isReplica && name === "DLOCK.RENEW" ? error("READONLY You can't") : undefined));
    const locks = fake.locks();
    const hold = await locks.acquire("k");
    await sleep(50);
    const { opened } = fake;
    isReplica = true;
    fake.publish("deleted", 7);
    await sleep(700);
    assert(fake.opened - opened <= 4, `${fake.opened - opened} connections`);
    hold.check();
    await locks.close();
  });

  test("only NOPERM, NOAUTH and WRONGPASS end one that is being opened for good", async () => {
    for (const name of ["NOPERM", "NOAUTH", "WRONGPASS"]) {
      const fake = fakeOf();
      const locks = fake.locks();
      fake.connect = () => Promise.reject(error(`${name} text`));
      await assert.rejects(locks.acquire("k"), (found) => found instanceof Refused && found.code === name);
      await locks.close();
    }
    for (const text of ["ERR max number of clients reached", "LOADING text", "DENIED text", "ERR Client sent AUTH"]) {
      const fake = fakeOf();
      const locks = fake.locks();
      fake.refusals = Array.from({ length: 4 }, () => error(text));
      await (await locks.acquire("k")).release();
      fake.connect = () => Promise.reject(error(text));
      fake.cut(false);
      await assert.rejects(locks.acquire("k", { timeout: 0 }), Unavailable);
      await locks.close();
    }
  });

  test("a release without an answer goes on in the background, also of a hold that is lost", async () => {
    let isSilent = true;
    const fake = fakeOf(([name]) => (isSilent && name === "DLOCK.RELEASE" ? NOTHING : undefined));
    const locks = fake.locks({ responseTimeout: 60, lease: 300 });
    const hold = await locks.acquire("k", { maxHold: 100 });
    await until(() => hold.isLost);
    await assert.rejects(hold.release(), LockLost);
    await sleep(150);
    const { length } = fake.named("DLOCK.RELEASE");
    assert(length >= 2);
    isSilent = false;
    await sleep(500);
    const after = fake.named("DLOCK.RELEASE");
    assert(after.length <= length + 2);
    assert.equal(new Set(after.map((command) => command.join(" "))).size, 1);
    await locks.close();
  });

  test("close() ends what is repeated in the background", async () => {
    const fake = taken(([name]) => (name === "DLOCK.RELEASE" ? error("LOADING") : undefined));
    const locks = fake.locks({ responseTimeout: 100 });
    await assert.rejects(locks.acquire("k", { timeout: 30 }), NotAcquired);
    await until(() => fake.named("DLOCK.RELEASE").length >= 2);
    await locks.close();
    const { opened, sent: { length } } = fake;
    await sleep(400);
    assert.deepEqual([fake.opened, fake.sent.length], [opened, length]);
  });
});

test("a request that a computation kept from being written has time for its reply", async () => {
  const fake = fakeOf();
  const { answer } = fake;
  fake.answer = async (command) => {
    await new Promise(setImmediate); // as libraries write: behind the computation
    await sleep(10);
    return answer(command);
  };
  const locks = fake.locks({ responseTimeout: 100 });
  await (await locks.acquire("k")).release(); // it is connected
  const asked = locks.lock("k").tryAcquire();
  for (let turn = 0; turn < 10; turn += 1) await null;
  for (const at = performance.now(); performance.now() < at + 150;);
  await (await asked).release();
  await locks.close();
});
