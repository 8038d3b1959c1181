/** Parts of the client, without a server: belief, releases, codes, replicas, the clock, slots, and what is read. */

import assert from "node:assert/strict";
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { describe, test } from "node:test";
import { LockLost, NotAcquired, Refused, ReleaseUnknown, Replaced, Unavailable } from "redis-dlock";

import { after, ioOf as realIoOf } from "./fake.mjs";

const inside = (name) => import(new URL(`../dist/cjs/${name}.js`, import.meta.url));
const { acquire, ask, release } = await inside("programs");
const { HoldState, Registry, RenewalBatch } = await inside("holds");
const { Batch, message, newId, Replicas, Request, Target } = await inside("requests");
const { afterReads, atMostOnceIn, createClock, now } = await inside("clock");
const { slotOf } = await inside("cluster");
const { fromLibrary, isFinal, Disconnected, ServerError } = await inside("errors");

// The tests make time pass.
let time = performance.now();
const ahead = Date.now() - time;
performance.now = () => time;
Date.now = () => time + ahead;
const sleep = async (ms) => void (time += ms);
const ioOf = (replies, options) => realIoOf(replies, { sleep, ...options });
const near = (actual, expected) => assert(Math.abs(actual - expected) < 0.01, `${actual}, not ${expected}`);

const FINAL = ("SPENT NOTHELD LOST UNKNOWN REENTRY REPLACED DEADLOCK LIMIT DIVERGED STOPPED BROKEN STALE " +
  "WRONGTYPE NOPERM NOAUTH WRONGPASS CROSSSLOT ERR").split(" ");
const PASSING = ("QUARANTINE MOVING UNBLOCKED READONLY LOADING MASTERDOWN CLUSTERDOWN TRYAGAIN NOREPLICAS MISCONF " +
  "OOM BUSY MOVED ASK NEVERSEEN").split(" ");
const NONE = new Disconnected("cut");
const LATE = new Disconnected("the time was over before a reply came", true);
const code = (name, text = "text") => new ServerError(name, text);

const info = (left, age = 60_000, length = 30_000) => "# dlock_keys\r\n" +
  Object.entries({ left, age, length }).map(([name, ms]) => `dlock_quarantine_${name}_ms:${ms}\r\n`).join("");

function requestOf({ target = new Target("DLOCK", ["k"]), lease = 10_000, firstLease = lease } = {}) {
  return new Request(target, "me", lease, firstLease, "channel", undefined, "id");
}

function settingsOf({ queue = 10_000, replicas: count = 0, retryFor = 10_000, responseTimeout = 3000 } = {}) {
  const replicas = Object.assign(new Replicas(count, 500), { safeLease: 30_000 });
  return { queue, retryFor, responseTimeout, replicas };
}

/** Runs an acquire until a second reply would be needed, or more. */
const acquired = (io, request, { limit = Infinity, maxHold = Infinity, ...settings } = {}) =>
  acquire(io, request, limit, settingsOf(settings), maxHold).catch((error) => error);

const verbs = (io) => io.sent.flatMap(({ commands }) => commands.flatMap(([verb]) => verb.split(".").slice(1)));

/** The commands that programs in the background send first. */
async function given(io) {
  const commands = [];
  for (const program of io.given) {
    const other = ioOf([1]);
    await program(other);
    commands.push(...other.sent.flatMap((batch) => batch.commands));
  }
  return commands;
}

describe("belief", () => {
  test("a reply counts from the sending of its own copy", async () => {
    const late = async () => (await sleep(200), 7);
    const io = ioOf([NONE, late]);
    const state = await acquired(io, requestOf());
    near(state.until, now() - 200 + 9898);
  });

  test("a message counts from the sending of the first copy", async () => {
    const io = ioOf([null], { messages: [[200], [200, "granted"]] });
    const began = now();
    const state = await acquired(io, requestOf({ lease: 30_000, firstLease: 2000 }), { queue: 2000 });
    assert.deepEqual(state.grants, [{ key: "k", token: 7 }]);
    near(state.until, began + 1978);
    near(state.renewAt, now() + (state.until - now()) / 3);
    assert.deepEqual(verbs(io), ["ACQUIRE", "ACQUIRE"]);
    assert.equal(new Set(io.sent.map(({ commands: [copy] }) => copy.join(" "))).size, 1); // PX, too
  });

  test("a message counts after a copy whose reply was lost, and for an owner with a name", async () => {
    const io = ioOf([NONE, null], { messages: [[50, "granted"]] });
    const began = now();
    const state = await acquired(io, requestOf());
    assert.equal(state.grants[0].token, 7);
    near(state.until, began + 9898);
  });

  for (const [what, settings, messages] of [
    ["less than half of it is left", { queue: 400 }, [[150], [100, "granted"]]],
    ["nothing of it is left", { queue: 100 }, [[50], [80, "granted"]]],
    ["replicas must have it", { queue: 10_000, replicas: 1 }, [[10, "granted"]]],
  ]) {
    test(`a message is followed by a renewal if ${what}`, async () => {
      const renewal = (batch) => [after(batch.commands[0], "TOKEN"), 1, info(0)];
      const io = ioOf([null, ...(messages.length > 1 ? [null] : []), renewal], { messages });
      const firstLease = Math.min(settings.queue, 30_000);
      const state = await acquired(io, requestOf({ lease: 30_000, firstLease }), settings);
      assert.equal(verbs(io).at(-1), "RENEW");
      const [renew] = io.sent.at(-1).commands;
      assert.equal(after(renew, "PX"), 30_000);
      assert.equal(after(renew, "TOKEN"), 7);
      near(state.until, now() + 29_698);
      assert.equal(state.reason(), undefined);
      assert.deepEqual(io.given, []);
    });
  }

  test("a call that was granted after half of the lease is followed by a renewal", async () => {
    const target = new Target("DLOCK", ["a", "b"], "all");
    for (const [wait, expected] of [[600, ["MACQUIRE", "RENEW", "RENEW"]], [10, ["MACQUIRE"]]]) {
      const io = ioOf([async () => (await sleep(wait), [[7, 8]]), 7]);
      const state = await acquired(io, requestOf({ target, lease: 1000 }));
      assert.deepEqual(verbs(io), expected);
      near(state.until, now() + 988 - (wait > 500 ? 0 : wait));
    }
  });

  for (const refusal of [code("NOTHELD"), code("WRONGTYPE"), code("READONLY"), NONE]) {
    test(`a renewal before the work gets ${refusal.code || "no reply"}: given up, and begun again`, async () => {
      const io = ioOf([null, refusal, 9], { messages: [[60, "granted"]] });
      const state = await acquired(io, requestOf({ firstLease: 100 }), { queue: 100 });
      assert.deepEqual(verbs(io), ["ACQUIRE", "RENEW", "ACQUIRE"]);
      assert.equal(state.grants[0].token, 9);
      const ids = io.sent.map(({ reqid }) => reqid);
      assert.equal(ids[0], "id");
      assert.notEqual(ids[2], "id");
      assert.deepEqual(await given(io), [["DLOCK.RELEASE", "k", "me", "REQID", "id"]]);
    });
  }

  test("an acquire returns no hold that is over already: it begins again", async () => {
    const late = async () => (await sleep(120), 7);
    const io = ioOf([late, late, 9]); // the second is the reply to the renewal
    const state = await acquired(io, requestOf({ lease: 100 }));
    assert.deepEqual(verbs(io), ["ACQUIRE", "RENEW", "ACQUIRE"]);
    assert.equal(state.grants[0].token, 9);
    assert.deepEqual(await given(io), [["DLOCK.RELEASE", "k", "me", "REQID", "id"]]);
    const error = await acquired(ioOf([late]), requestOf({ lease: 100 }), { limit: 0 });
    assert(error instanceof NotAcquired && /was over/.test(error.message), String(error));
  });

  test("a try whose renewal fails is given up, and ends", async () => {
    const io = ioOf([async () => (await sleep(60), 7), code("READONLY")]);
    const error = await acquired(io, requestOf({ lease: 100 }), { limit: 0 });
    assert(error instanceof NotAcquired && error.cause.code === "READONLY", String(error));
    assert.equal((await given(io)).length, 1);
  });

  test("nothing makes a promise shorter, and maxHold ends it", () => {
    const state = new HoldState(requestOf(), [{ key: "k", token: 7 }], now(), Infinity);
    const before = state.until;
    state.renewed(now(), 100);
    state.renewed(now() - 20_000, 10_000);
    assert.equal(state.until, before);
    state.renewed(now(), 20_000);
    assert(state.until > before + 9000);
    const limited = new HoldState(requestOf(), [{ key: "k", token: 7 }], now(), 500);
    limited.renewed(now(), 10_000);
    near(limited.until, now() + 500);
    near(limited.lease(now()), 500);
  });

  test("a loss that was told stays told", () => {
    const state = new HoldState(requestOf({ lease: 100 }), [{ key: "k", token: 7 }], now() - 200, Infinity);
    assert.equal(state.reason(), "expired");
    state.renewed(now(), 10_000);
    assert.equal(state.reason(), "expired");
    assert.equal(state.validFor(), 0);
  });

  test("a renewal ends a hold by NOTHELD and WRONGTYPE only", () => {
    for (const reply of [7, NONE, ...[...FINAL, ...PASSING].map((name) => code(name))]) {
      const state = new HoldState(requestOf({ firstLease: 1000 }), [{ key: "k", token: 7 }], now(), Infinity);
      const before = state.until;
      const renewal = new RenewalBatch([state], new Replicas(0, 1));
      void sleep(300);
      renewal.apply([reply]);
      assert.equal(state.reason(), ["NOTHELD", "WRONGTYPE"].includes(reply.code) ? "refused" : undefined);
      near(state.until, reply === 7 ? now() - 300 + 9898 : before);
    }
  });

  test("a renewal refused for good comes again at the next third of the lease, another one sooner", async () => {
    for (const [reply, pause] of [[code("NOPERM"), 10_000], [code("LOADING"), 1000], [NONE, 1000]]) {
      const registry = new Registry();
      const state = new HoldState(requestOf({ lease: 30_000 }), [{ key: "k", token: 7 }], now(), Infinity);
      registry.add(state);
      await sleep(10_000);
      const [[renewal]] = registry.due(new Replicas(0, 1), () => "");
      renewal.apply([reply]);
      near(state.renewAt, now() + pause);
      const again = () => registry.due(new Replicas(0, 1), () => "")[0].length;
      await sleep(pause - 1001);
      assert.equal(again(), 0);
      await sleep(1001);
      assert.equal(again(), 1);
    }
  });

  test("what has arrived is read before a timer calls a hold expired", async () => {
    for (const isAnswered of [false, true]) {
      const registry = new Registry();
      const state = new HoldState(requestOf({ lease: 300 }), [{ key: "k", token: 7 }], now(), Infinity);
      registry.add(state);
      await sleep(200);
      const [[renewal]] = registry.due(new Replicas(0, 1), () => "");
      assert(renewal.batch.isUrgent);
      await sleep(200); // a computation
      registry.due(new Replicas(0, 1), () => "");
      if (isAnswered) renewal.apply([7]);
      await sleep(isAnswered ? 300 : 0); // another one, before the timer's judgement
      await new Promise((done) => afterReads(done));
      assert.equal(state.reason(-Infinity), isAnswered ? undefined : "expired");
    }
  });
});

describe("an acquire", () => {
  for (const name of FINAL.filter((name) => name !== "SPENT")) {
    test(`${name} ends it`, async () => {
      const io = ioOf([code(name), 7]);
      const error = await acquired(io, requestOf());
      const isNamed = name === "DEADLOCK" || name === "REPLACED"; // by its class
      assert(error instanceof Error && error.message === (isNamed ? "text" : `${name} text`), String(error));
      assert.equal(io.sent.length, 1);
      assert.deepEqual(await given(io), [["DLOCK.RELEASE", "k", "me", "REQID", "id"]]);
    });
  }

  for (const name of PASSING) {
    test(`${name} passes, and a try carries it`, async () => {
      const io = ioOf([code(name), 7]);
      assert.equal((await acquired(io, requestOf())).grants[0].token, 7);
      assert.deepEqual(io.given, []);
      const error = await acquired(ioOf([code(name)]), requestOf(), { limit: 0 });
      assert(error instanceof NotAcquired && error.message.includes(`${name} text`), String(error));
      const late = await acquired(ioOf([code(name)]), requestOf(), { limit: 60 });
      assert(late instanceof NotAcquired && late.cause.code === name, String(late));
    });
  }

  test("codes that pass do not end a wait, however long they come; no reply does", async () => {
    for (const name of PASSING) {
      const io = ioOf([...Array.from({ length: 40 }, () => code(name)), 7]);
      const began = now();
      assert.equal((await acquired(io, requestOf(), { retryFor: 2000 })).grants[0].token, 7);
      assert(now() - began > 10_000);
    }
    assert((await acquired(ioOf([NONE]), requestOf(), { retryFor: 2000 })) instanceof Unavailable);
  });

  test("a timeout bounds each request", async () => {
    const silent = async (batch) => (await sleep(batch.within), LATE);
    for (const [limit, replies, kind] of [[300, [silent], Unavailable], [300, [NONE, silent], Unavailable],
      [300, [null, silent], NotAcquired], [300, [code("OOM"), silent], NotAcquired], [300, [null, NONE], Unavailable],
      [40, [silent], Unavailable]]) {
      const began = now();
      const error = await acquired(ioOf(replies), requestOf(), { limit });
      assert(error instanceof kind, String(error));
      assert(now() - began >= limit && now() - began <= limit + 100, `${now() - began} ms of ${limit}`);
    }
  });

  test("several locks are asked for without waiting at first", async () => {
    const target = new Target("DLOCK", ["a", "b"], "all");
    const io = ioOf([NONE, null, [7, 8]]);
    await acquired(io, requestOf({ target }));
    assert.deepEqual(io.sent.map(({ block }) => block > 0), [false, true, true]);
    const once = ioOf([[7, 8]]);
    await acquired(once, requestOf({ target }));
    assert.deepEqual(once.sent.map(({ block, commands: [copy] }) => [block, copy.includes("BLOCK")]), [[0, false]]);
  });

  test("a spent request is given up, and begins again with a new id", async () => {
    const io = ioOf([NONE, code("SPENT"), 7]);
    const state = await acquired(io, requestOf());
    const ids = io.sent.map(({ commands: [copy] }) => after(copy, "REQID"));
    assert.deepEqual(ids.slice(0, 2), ["id", "id"]);
    assert.notEqual(ids[2], "id");
    assert.equal(state.request.reqid, ids[2]);
    assert.deepEqual(await given(io), [["DLOCK.RELEASE", "k", "me", "REQID", "id"]]);
  });

  test("a message counts from the first copy of the new id", async () => {
    const io = ioOf([async () => (await sleep(150), code("SPENT")), null], { messages: [[10, "granted"]] });
    const state = await acquired(io, requestOf());
    near(state.until, now() - 10 + 9898);
  });

  for (const [what, replies, limit, count] of [
    ["a try that was answered", [null], 0, 0], ["a try that was refused", [code("LIMIT")], 0, 0],
    ["a try that gets a passing error", [code("OOM")], 0, 0], ["a try without an answer", [NONE], 0, 1],
    ["a wait", [null], 30, 1], ["a wait that was refused", [code("DEADLOCK")], 30, 1],
  ]) {
    test(`the end of ${what} sends ${count} release`, async () => {
      const io = ioOf(replies);
      const error = await acquired(io, requestOf(), { limit });
      assert(error instanceof Error);
      assert.equal(error instanceof Unavailable, what.includes("without"));
      assert.deepEqual(await given(io), count ? [["DLOCK.RELEASE", "k", "me", "REQID", "id"]] : []);
    });
  }

  test("'replaced' ends it; another message has it ask again, after 100 ms at the earliest", async () => {
    const error = await acquired(ioOf([null], { messages: [[0, "replaced"]] }), requestOf());
    assert(error instanceof Replaced);
    for (const event of ["expired", "deleted", "deadlock", "offered", "disconnected"]) {
      const io = ioOf([null, 7], { messages: [[0, event]] });
      assert.equal((await acquired(io, requestOf())).grants[0].token, 7);
      assert.equal(io.sent.length, 2);
      near(io.pauses.at(-1), 100);
    }
  });

  test("a release that gives up is repeated until it is answered, or the time of the request is over", async () => {
    const io = ioOf([null]);
    const request = requestOf({ lease: 1000, firstLease: 50 });
    await acquired(io, request, { limit: 1, queue: 300 });
    const [program] = io.given;
    const answered = ioOf([NONE, code("LOADING"), null]);
    await program(answered);
    assert.equal(answered.sent.length, 3);
    for (const reply of [code("UNKNOWN"), code("LOST", "broken"), code("ERR")]) {
      const refused = ioOf([reply]);
      await assert.rejects(program(refused), Refused);
      assert.equal(refused.sent.length, 1);
    }
    const silent = ioOf([NONE]);
    const began = now();
    await assert.rejects(program(silent), Unavailable);
    assert(now() - began >= 290 && now() - began < 400, `${now() - began} ms`); // the longer of both, and LAST
  });
});

describe("a release", () => {
  const held = (options, lease = 10_000) => {
    const request = requestOf({ lease, ...options });
    const key = request.target.form === "any" ? request.target.keys[1] : request.target.key;
    const token = request.target.family === "DSEM" ? "permit" : 7;
    return new HoldState(request, [{ key, token }], now(), Infinity);
  };
  const outcome = async (state, replies, settings) => {
    const io = ioOf(replies);
    return [await release(io, state, settingsOf(settings)).then(() => "released", (error) => error), io];
  };

  for (const [what, replies, expected, sent = 1] of [
    ["an Integer", [0], "released"],
    ["an Integer to a second copy", [NONE, 3], "released", 2],
    ["LOST expired", [code("LOST", "expired after 10 s")], "released"],
    ["LOST expired to a second copy", [NONE, code("LOST", "expired after 10 s")], "released", 2],
    ...["broken", "deleted", "disconnected", "released"].map((why) =>
      [`LOST ${why}`, [code("LOST", `${why} text`)], `lost ${why}`]),
    ["LOST broken to a second copy", [NONE, code("LOST", "broken text")], "lost broken", 2],
    ["Null", [null], "unknown"],
    ...["UNKNOWN", "SPENT", "NOTHELD", "WRONGTYPE", "NOPERM", "ERR"].map((name) => [name, [code(name)], "unknown"]),
    ...PASSING.map((name) => [name, [code(name), 0], "released", 2]),
  ]) {
    test(`gets ${what}: ${expected}`, async () => {
      const [error, io] = await outcome(held(), replies);
      if (expected === "released") assert.equal(error, "released");
      else if (expected === "unknown") assert(error instanceof ReleaseUnknown, String(error));
      else assert(error instanceof LockLost && `lost ${error.reason}` === expected, String(error));
      assert.equal(io.sent.length, sent);
      assert.equal(new Set(io.sent.map(({ commands }) => commands.join(" "))).size, 1);
      assert.deepEqual(io.given, []);
    });
  }

  test("of a hold that was not certain any more is a loss, whatever the server says", async () => {
    for (const reply of [0, null, code("LOST", "expired"), code("UNKNOWN"), code("LOST", "broken"), NONE]) {
      const state = new HoldState(requestOf({ lease: 100 }), [{ key: "k", token: 7 }], now() - 200, Infinity);
      const [error, io] = await outcome(state, [reply]);
      assert(error instanceof LockLost && error.reason === "expired", String(error));
      assert.equal(io.sent.length, 1);
      assert.equal(io.given.length, reply === NONE ? 1 : 0);
    }
  });

  test("says DONE only of a hold that was certain when its work ended", async () => {
    for (const [ago, isCertain] of [[50, true], [200, false]]) {
      const state = new HoldState(requestOf({ lease: 100 }), [{ key: "k", token: 7 }], now() - ago, Infinity);
      const io = ioOf([0]);
      await release(io, state, settingsOf(), true).catch(() => {});
      assert.equal(io.sent[0].commands[0].includes("DONE"), isCertain);
    }
  });

  test("without an answer is unknown, and goes on in the background", async () => {
    const [error, io] = await outcome(held(), [NONE], { retryFor: 80 });
    assert(error instanceof ReleaseUnknown && /cut/.test(error.message), String(error));
    assert(io.sent.length > 1);
    assert.deepEqual(await given(io), [io.sent[0].commands[0]]);
  });

  for (const [target, words, gaveUp] of [
    [new Target("DLOCK", ["k"]), "DLOCK.RELEASE k me TOKEN 7 REQID id", "DLOCK.RELEASE k me REQID id"],
    [new Target("DFAIR", ["k"]), "DFAIR.RELEASE k me TOKEN 7 REQID id", "DFAIR.RELEASE k me REQID id"],
    [new Target("DRW", ["k"], "one", ["READ"]), "DRW.RELEASE k me READ TOKEN 7 REQID id",
      "DRW.RELEASE k me READ REQID id"],
    [new Target("DSEM", ["k"], "one", [], ["COUNT", 2]), "DSEM.RELEASE k me REQID id", "DSEM.RELEASE k me REQID id"],
    [new Target("DLOCK", ["k", "l"], "all"), "DLOCK.MRELEASE 2 k l me REQID id", "DLOCK.MRELEASE 2 k l me REQID id"],
    [new Target("DLOCK", ["k", "l"], "any"), "DLOCK.RELEASE l me TOKEN 7 REQID id", "DLOCK.MRELEASE 2 k l me REQID id"],
  ]) {
    test(`names the acquire: ${words}`, async () => {
      const [, io] = await outcome(held({ target }), [0]);
      assert.equal(io.sent[0].commands[0].join(" "), words);
      const other = ioOf([NONE]);
      await acquired(other, requestOf({ target }), { limit: 0 });
      assert.deepEqual((await given(other)).map((command) => command.join(" ")), [gaveUp]);
    });
  }
});

test("final codes end a command, all others do not", async () => {
  for (const name of [...FINAL, ...PASSING]) {
    assert.equal(isFinal(code(name)), FINAL.includes(name));
    const io = ioOf([code(name), 5]);
    const reply = await ask(io, ["DLATCH.AWAIT", "k"], "k", 1000).catch((error) => error);
    assert.equal(reply instanceof Error, FINAL.includes(name));
    assert.equal(io.sent.length, FINAL.includes(name) ? 1 : 2);
  }
});

for (const [count, left, age, passed, isConfirmed] of [[1, 0, 60_000, 50, true], [1, 0, 49, 50, false],
  [0, 0, 60_000, 50, false], [1, 900, 100, 50, true], [1, 900, 50, 50, true], [1, 900, 49, 50, false],
  [2, 900, 0, 0.5, false], [0, 900, 100, 50, false]]) {
  test(`docs/failover.md, rule 5: ${count} replicas, ${left} ms left, ${age} ms old after ${passed}`, async () => {
    const state = new HoldState(requestOf(), [{ key: "k", token: 7 }], now(), Infinity);
    const before = state.until;
    await sleep(100);
    const renewal = new RenewalBatch([state], new Replicas(1, 500));
    await sleep(passed);
    renewal.apply([7, count, info(left, age)]);
    near(state.until, isConfirmed ? now() - passed + 9898 : before);
  });
}

test("replicas have a sixth of the lease of the lock, and the server a quarantine of at least that", async () => {
  const replicas = new Replicas(1, 1000);
  const wait = (lease) => replicas.requests(lease)[0][2];
  assert.deepEqual([wait(600), wait(3000), wait(60_000)], [100, 500, 1000]);
  const grant = (replies, lease) => acquire(ioOf([...replies, [7, 1, info(0)]]), requestOf({ lease }), 0,
    { ...settingsOf(), replicas }, Infinity).catch((error) => error);
  const refused = await grant([info(0, 0, 2000)], 2001); // nothing is acquired
  assert(refused instanceof Refused && /quarantine/.test(refused.message), String(refused));
  assert.equal((await grant([info(0, 0, 3000)], 3000)).grants[0].token, 7);
  assert.equal((await grant([], 3000)).grants[0].token, 7); // it is known
  assert.equal((await grant(["# dlock_keys"], 30_000)).grants[0].token, 7); // it is not told
});

for (const [acknowledged, left, isGranted, age = 60_000] of [[1, 0, true], [2, 0, true], [0, 0, false],
  [null, 0, false], [code("ERR"), 0, false], [0, 700, false], [1, 700, false], [1, 0, false, -1]]) {
  test(`docs/failover.md, rule 4: ${acknowledged} replicas, quarantine of ${left} ms for ${age} ms`, async () => {
    for (const isMessage of [false, true]) {
      const confirmed = [7, acknowledged, info(left, age)];
      const io = ioOf([...(isMessage ? [[null, 1, info(0)]] : []), confirmed, [9, 1, info(0)]],
        { messages: isMessage ? [[0, "granted"]] : [] });
      const state = await acquired(io, requestOf(), { replicas: 1 });
      for (const batch of io.sent) {
        assert.deepEqual(batch.commands.slice(1, 3), [["WAIT", 1, 500], ["INFO", "dlock_keys"]]);
      }
      assert.equal(state.grants[0].token, isGranted ? 7 : 9);
      assert.deepEqual(verbs(io), ["ACQUIRE", ...(isMessage ? ["RENEW"] : []), ...(isGranted ? [] : ["ACQUIRE"])]);
      assert.equal((await given(io)).length, isGranted ? 0 : 1);
      const ended = await acquired(ioOf([confirmed]), requestOf(), { replicas: 1, limit: 0 });
      if (!isGranted) assert.equal(ended.cause.code, acknowledged === 1 ? "QUARANTINE" : "NOREPLICAS");
    }
  });
}

test("an id comes from the kernel when it is needed", () => {
  const { closeSync, openSync, readSync } = fs;
  const files = [];
  try {
    fs.openSync = (name) => files.push(name);
    fs.readSync = (file, bytes) => bytes.fill(7).length;
    fs.closeSync = () => {};
    syncBuiltinESMExports();
    assert.equal(newId(), "07".repeat(16));
    assert.deepEqual(files, ["/dev/urandom"]);
    fs.openSync = () => {
      throw new Error("there is none"); // Windows
    };
    syncBuiltinESMExports();
    assert.notEqual(newId(), newId());
  } finally {
    Object.assign(fs, { openSync, readSync, closeSync });
    syncBuiltinESMExports();
  }
});

test("work runs at most once in a time, and once more at its end", async () => {
  let count = 0;
  const run = atMostOnceIn(100, () => (count += 1));
  for (let turn = 0; turn < 50; turn += 1) run();
  assert.equal(count, 1);
  await sleep(50);
  run();
  assert.equal(count, 1);
  while (count < 2) await new Promise((resolve) => setTimeout(resolve, 5));
  await sleep(150);
  run();
  assert.equal(count, 3);
});

test("the clock counts a suspend, and no step of the wall clock", () => {
  const clocks = { monotonic: 0, wall: 1e12, boot: 5e6 };
  const now = createClock(() => clocks.monotonic, () => clocks.wall, () => clocks.boot);
  const pass = (ms, suspended = 0) => {
    clocks.monotonic += ms;
    clocks.wall += ms + suspended;
    clocks.boot += ms + suspended;
  };
  pass(100);
  assert.equal(now(), 100);
  clocks.wall += 3_600_000; // set
  assert.equal(now(), 100);
  clocks.wall -= 7_200_000;
  pass(50);
  assert.equal(now(), 150);
  pass(10, 6000);
  assert.equal(now(), 6160);
  pass(10, 2000);
  assert.equal(now(), 8170);
});

test("slots of keys", () => {
  for (const [key, slot] of [["foo", 12182], ["{user1000}.following", 3443], ["{}x", 10595], ["123456789", 12739],
    ["foo{{bar}}zap", slotOf("{bar")]]) {
    if (key !== "{}x") assert.equal(slotOf(key), slot);
  }
});

test("messages, and what is none", () => {
  assert.deepEqual(message("granted 0 17 2 me 4 abcd some key"), { event: "granted", token: "17", reqid: "abcd" });
  assert.deepEqual(message("broken 0 17 3 \u00fcx 4 abcd k"), { event: "broken", token: "17", reqid: "abcd" });
  assert.equal(message("flushed 0").event, "flushed");
  for (const text of ["", "granted", "a b c d", "\u0000"]) assert.equal(message(text), undefined);
});

test("error replies are told from errors of connections", () => {
  for (const [text, code] of [["OOM command not allowed", "OOM"], ["READONLY You can't write", "READONLY"],
    ["ERR unknown command 'x'", "ERR"], ["NOTHELD a does not hold b", "NOTHELD"], ["MOVED 1 h:1", "MOVED"],
    ["EXECABORT Transaction discarded", "EXECABORT"], ["ERR PX must be an integer", "ERR"],
    ["NEW_CODE2 text", "NEW_CODE2"], ["WRONGPASS invalid", "WRONGPASS"]]) {
    assert.equal(fromLibrary(new Error(text)).code, code);
  }
  for (const text of ["connect ECONNREFUSED 127.0.0.1:1", "Connection is closed.", "Socket closed unexpectedly",
    "The client is closed", "All sentinels are unreachable", ""]) {
    assert(fromLibrary(new Error(text)) instanceof Disconnected);
  }
  assert(new Batch([], "k") !== undefined);
});
