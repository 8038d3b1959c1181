/** docs/node.md: its blocks run, and it names what the package has. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { describe, test } from "node:test";
import * as dlock from "redis-dlock";
import { startServer } from "redis-dlock/testing";
import ts from "typescript";

import { make } from "./clients.mjs";
import { MODULE, SERVER, sleep } from "./servers.mjs";

const PAGE = readFileSync(new URL("../../../docs/node.md", import.meta.url), "utf8");
const BLOCK = /```js run\n(.*?)```\n\n```output\n(.*?)```/gs;
const BLOCKS = [...PAGE.matchAll(BLOCK)].map(([, code, output]) => [code, output]);
const masked = (text) => text.replace(/\b\d{16}\b/g, "<token>").trim();

process.env.DLOCK_MODULE = MODULE;
process.env.DLOCK_SERVER = SERVER;
const noTest = Object.fromEntries(Object.entries(process.env).filter(([name]) => name !== "NODE_TEST_CONTEXT"));

/** Writes a program into this folder, where the packages are. The runs for other servers write theirs here, too. */
function write(code, kind = "mjs") {
  const file = new URL(`./block-${Math.random().toString(36).slice(2)}.${kind}`, import.meta.url);
  writeFileSync(file, code);
  return file;
}

/** Runs a program: what it said, and its exit status. */
async function run(code, environment = noTest) {
  const file = write(code);
  const child = spawn(process.execPath, [file.pathname], { env: environment, stdio: ["ignore", "pipe", "pipe"] });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (said += data));
  const status = await new Promise((resolve) => child.once("close", resolve));
  rmSync(file);
  return { said, status };
}

describe("docs/node.md", { concurrency: 4 }, () => {
  for (const [index, [code, output]] of BLOCKS.entries()) {
    test(`block ${index + 1}`, async () => {
      const server = await startServer();
      const { said, status } = await run(code.replaceAll("6379", new URL(server.url).port));
      await server.close();
      assert.equal(masked(said), masked(output));
      assert.equal(status, 0);
    });
  }

  for (const [, language, code] of PAGE.matchAll(/```(js|ts) cron\n(.*?)```/gs)) {
    test(`the block for cron in ${language}`, async () => {
      const server = await startServer();
      const compilerOptions = { target: "es2022", module: "esnext", experimentalDecorators: true };
      const text = language === "ts" ? ts.transpileModule(code, { compilerOptions }).outputText : code;
      const file = write(text.replaceAll("6379", new URL(server.url).port));
      const reports = [];
      const replicas = Array.from({ length: 3 }, () => {
        const replica = spawn(process.execPath, [file.pathname], { stdio: ["ignore", "pipe", "inherit"] });
        replica.stdout.on("data", (data) => reports.push([replica, ...String(data).trim().split(" ")]));
        return replica;
      });
      try {
        const until = async (count) => {
          for (; reports.length < count; await sleep(20)) {
            assert(replicas.every((replica) => replica.exitCode === null), "a replica has ended");
          }
        };
        await until(2);
        const [[leader, , , token]] = reports;
        leader.kill("SIGKILL");
        await until(reports.length + 3);
        const of = (who) => new Set(reports.filter(([replica]) => replica === who).map(([, , tick]) => tick));
        const [first, second, ...more] = [...new Set(reports.map(([replica]) => replica))].map(of);
        assert.deepEqual([...first].filter((tick) => second.has(tick)), [], "a tick of two replicas");
        assert.deepEqual(more, []);
        assert(Number(reports.at(-1)[3]) > Number(token), "a later token");
      } finally {
        for (const replica of replicas) replica.kill("SIGKILL");
        rmSync(file);
        await server.close();
      }
    });
  }

  test("the block for node:test", async () => {
    const [, code] = /## Tests\n.*?```js\n(.*?)```/s.exec(PAGE);
    const { said, status } = await run(code);
    assert.equal(status, 0, said);
    assert.match(said, /pass 1/);
  });

  test("names each class, method, option and setting", async () => {
    const reference = PAGE.split("\n## Reference\n")[1];
    const words = new Set(PAGE.match(/\w+/g));
    for (const name of Object.keys(dlock)) assert(name === "__esModule" || words.has(name), name);
    const instances = { DLock: await make("ioredis"), Lock: (await make("ioredis")).lock("k") };
    for (const name of ["DLock", "Lock", "Hold", "Latch", "Election"]) {
      const row = reference.split("\n").find((line) => line.startsWith(`| \`${name}\``));
      const { constructor } = instances[name] ?? { constructor: dlock[name] };
      const methods = Object.getOwnPropertyNames(constructor.prototype);
      for (const method of methods.filter((method) => !["constructor", "run", "asLeadership"].includes(method))) {
        assert(new RegExp(`\\b${method}\\b`).test(row), `${name}.${method}`);
      }
    }
    const types = readFileSync(new URL("../src/engine.ts", import.meta.url), "utf8");
    for (const [, option] of types.matchAll(/^ {2}(\w+)\?: /gm)) assert(words.has(option), option);
  });
});

test("await using", async () => {
  const server = await startServer();
  const source = `
    import { createClient } from "redis";
    import { DLock } from "redis-dlock";
    await using locks = new DLock(createClient({ url: "${server.url}" }));
    {
      await using hold = await locks.acquire("orders:7", { timeout: 1000 });
      console.log(await locks.lock("orders:7").tryAcquire() === undefined);
    }
    await using hold = await locks.acquire("orders:7", { timeout: 0 });
    console.log(hold.isLost);`;
  const { outputText } = ts.transpileModule(source, { compilerOptions: { target: "ES2022", module: "ESNext" } });
  assert.deepEqual(await run(outputText), { said: "true\nfalse\n", status: 0 });
  await server.close();
});

test("types", () => {
  const file = write(`
    import { Cluster, Redis } from "ioredis";
    import { createClient, createCluster } from "redis";
    import { DLock } from "redis-dlock";
    for (const client of [new Redis(), new Cluster([]), createClient(), createCluster({ rootNodes: [] })]) {
      new DLock(client);
    }
    // @ts-expect-error: no client
    new DLock({ url: "redis://localhost" });
    // @ts-expect-error: internal
    new DLock(new Redis()).lock("k").engine;`, "mts");
  const options = { module: ts.ModuleKind.NodeNext, target: ts.ScriptTarget.ES2022, noEmit: true, skipLibCheck: true };
  const found = ts.getPreEmitDiagnostics(ts.createProgram([file.pathname], { ...options, strict: true }));
  rmSync(file);
  assert.deepEqual(found.map(({ messageText }) => messageText), []);
});

describe("redis-dlock/testing", { concurrency: 3 }, () => {
  const use = `
    import { startServer } from "redis-dlock/testing";
    const server = await startServer().catch((error) => console.log(error.message));
    if (server) console.log(server.url);
    await server?.close();`;
  const bare = Object.fromEntries(Object.entries(noTest).filter(([name]) => !name.startsWith("DLOCK_")));

  test("a given server", async () => {
    assert.deepEqual(await run(use, { ...bare, DLOCK_URL: "redis://h:1/3" }), { said: "redis://h:1/3\n", status: 0 });
  });

  test("a server of its own", async () => {
    const { said, status } = await run(use, { ...bare, DLOCK_MODULE: MODULE, DLOCK_SERVER: SERVER });
    assert.match(said, /^redis:\/\/127.0.0.1:\d+\n$/);
    assert.equal(status, 0);
  });

  test("no server, and one that does not start", async () => {
    assert.match((await run(use, { PATH: "/nowhere" })).said, /set DLOCK_URL, or DLOCK_MODULE/);
    const { said } = await run(use, { ...bare, DLOCK_MODULE: "/nowhere/libdlock.so", DLOCK_SERVER: SERVER });
    assert.match(said, /did not start a server/);
  });
});
