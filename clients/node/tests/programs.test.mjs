/** Parts of the client, without a server: replicas, the clock, slots, and what is read. */

import assert from "node:assert/strict";
import { test } from "node:test";

const inside = (name) => import(new URL(`../dist/esm/${name}.js`, import.meta.url));
const { acquire } = await inside("programs");
const { Batch, message, Replicas, Request, Target } = await inside("requests");
const { createClock, now } = await inside("clock");
const { slotOf } = await inside("cluster");
const { fromLibrary, Disconnected } = await inside("errors");

const info = (left) => `# dlock_keys\r\ndlock_keys:3\r\ndlock_quarantine_left_ms:${left}\r\n`;

for (const [acknowledged, left, outcome] of [[1, 0, "granted"], [2, 0, "granted"], [0, 0, "refused"],
  [null, 0, "refused"], [0, 700, "refused"], [1, 700, "asked again"]]) {
  test(`docs/failover.md, rule 4: ${acknowledged} replicas, quarantine of ${left} ms: ${outcome}`, async () => {
    const request = new Request(new Target("DLOCK", ["k"]), "me", 10_000, "channel", undefined, "id");
    const settings = { queue: 10_000, retryFor: 10_000, replicas: new Replicas(1, 500) };
    const sent = [];
    const rolledBack = [];
    const stop = new Error("enough");
    const io = {
      async send(batch) {
        sent.push(batch);
        assert.deepEqual(batch.toSend().slice(1), [["WAIT", 1, 500], ["INFO", "dlock_keys"]]);
        if (sent.length > 1) throw stop;
        return [7, acknowledged, info(left)];
      },
      pause: async () => undefined,
      background: (program) => rolledBack.push(program),
    };
    const result = await acquire(io, request, Infinity, settings, Infinity).catch((error) => error);
    if (outcome === "granted") assert.equal(result.grants[0].token, 7);
    else if (outcome === "refused") assert.equal(result.code, "NOREPLICAS");
    else assert.notEqual(sent[1].reqid, "id");
    assert.equal(rolledBack.length > 0, outcome !== "granted");
  });
}

for (const [what, isCertain, { event = "granted", named, replicas = 0, copies = 1, late = 0, queue = 10_000 }] of [
  ["the id of a request that was sent once", true, {}],
  ["a queue of 60 s: the server may keep a grant for 10 s only", true, { queue: 60_000 }],
  ["another event", false, { event: "deadlock" }],
  ["an owner with a name", false, { named: true }],
  ["a grant that replicas must have", false, { replicas: 1 }],
  ["a request that was sent twice", false, { copies: 2 }],
  ["a message that is late", false, { queue: 60, late: 50 }],
]) {
  test(`a message about a grant is ${isCertain ? "believed" : "checked"}: ${what}`, async () => {
    const request = new Request(new Target("DLOCK", ["k"]), "me", 30_000, "channel", undefined, "id", !named);
    const settings = { queue, retryFor: 10_000, replicas: new Replicas(replicas, 500) };
    const stop = new Error("enough");
    let [sent, paused] = [0, 0];
    const io = {
      async send() {
        if (sent === copies) throw stop;
        sent += 1;
        return [null, 1, info(0)];
      },
      async pause() {
        if ((paused += 1) < copies) return undefined;
        await new Promise((resolve) => setTimeout(resolve, late));
        return { event, token: "7", reqid: "id" };
      },
      background() {},
    };
    const began = now();
    const state = await acquire(io, request, Infinity, settings, Infinity).catch((error) => error);
    if (!isCertain) return assert.equal(state, stop);
    assert.deepEqual(state.grants, [{ key: "k", token: 7 }]);
    assert(state.until <= began + 9910 && state.renewAt <= began + 3400, `${state.until - began} ms`);
  });
}

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
    ["EXECABORT Transaction discarded", "EXECABORT"], ["WRONGPASS invalid", "WRONGPASS"]]) {
    assert.equal(fromLibrary(new Error(text)).code, code);
  }
  for (const text of ["connect ECONNREFUSED 127.0.0.1:1", "Connection is closed.", "Socket closed unexpectedly",
    "The client is closed", "All sentinels are unreachable", ""]) {
    assert(fromLibrary(new Error(text)) instanceof Disconnected);
  }
  assert(new Batch([], "k") !== undefined);
});
