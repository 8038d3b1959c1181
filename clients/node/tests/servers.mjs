/** Servers with the module for tests, each in a process of its own, and a proxy that cuts and delays. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import net from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Redis } from "ioredis";

export const SERVER = process.env.DLOCK_SERVER ?? "redis-server";
const BUILT = new URL("../../../target/debug/libdlock.so", import.meta.url).pathname;
export const MODULE = resolve(process.env.DLOCK_MODULE ?? BUILT);

/** Holds that a test holds to its end: one that nothing refers to is released. */
export const kept = [];

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

/** Waits for a state, and returns what `isSo` returned. */
export async function until(isSo, ms = 10_000) {
  const end = performance.now() + ms;
  for (;;) {
    const value = await isSo();
    if (value) return value;
    if (performance.now() > end) throw new Error(`not so within ${ms} ms: ${isSo}`);
    await sleep(5);
  }
}

async function listening(server, port = 0) {
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return server.address().port;
}

/** A port that is free, as is the one 10,000 above: the bus of a cluster uses that. */
export async function freePort() {
  for (;;) {
    const [one, other] = [net.createServer(), net.createServer()];
    try {
      const port = await listening(one);
      if (port > 55_000) continue;
      await listening(other, port + 10_000);
      return port;
    } catch {
      // the other port is in use
    } finally {
      one.close();
      other.close();
    }
  }
}

const running = new Set();
process.once("exit", () => {
  for (const server of running) {
    server.process.kill("SIGKILL");
    rmSync(server.folder, { recursive: true, force: true });
  }
});
process.once("SIGTERM", () => process.exit(143)); // the runner sends it to a file that hangs

/** A server that can be stopped, killed and started again with its data. */
export class Server {
  static async start(options = [], { module = true, port, words } = {}) {
    const server = new Server();
    server.port = port ?? (await freePort());
    server.folder = mkdtempSync(join(tmpdir(), "dlock-node-"));
    server.words = words ?? [...(module ? ["--loadmodule", MODULE] : []), "--port", `${server.port}`, "--save", "",
      "--dir", server.folder, "--bind", "127.0.0.1", "--appendfsync", "always", ...options];
    running.add(server);
    await server.start();
    return server;
  }

  async start() {
    const log = openSync(join(this.folder, "log"), "a");
    this.process = spawn(SERVER, this.words, { stdio: ["ignore", log, log] });
    this.ended = new Promise((done) => this.process.once("exit", done));
    this.client?.disconnect();
    this.client = new Redis({ port: this.port, retryStrategy: () => 20, maxRetriesPerRequest: null,
      enableReadyCheck: false });
    this.client.on("error", () => {});
    await until(async () => {
      if (this.process.exitCode !== null) {
        this.client.disconnect();
        throw new Error(readFileSync(join(this.folder, "log"), "utf8"));
      }
      return this.client.ping().catch((error) => error.name === "ReplyError");
    }, 30_000);
  }

  async kill() {
    this.process.kill("SIGKILL");
    await this.ended;
  }

  pause() {
    this.process.kill("SIGSTOP");
  }

  goOn() {
    this.process.kill("SIGCONT");
  }

  ask(...words) {
    return this.client.call(...words.map(String));
  }

  async shown(key, field, family = "DLOCK") {
    const info = (await this.ask(`${family}.INFO`, key)) ?? [];
    return Number(info[info.indexOf(field) + 1] ?? 0) || 0;
  }

  waiters(key, family) {
    return this.shown(key, "waiters", family);
  }

  holds(key) {
    return this.shown(key, "holds");
  }

  async end() {
    this.client.disconnect();
    this.process.kill("SIGKILL");
    await this.ended;
    running.delete(this);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Nodes of a cluster that share the slots evenly. */
export async function startCluster(count = 3) {
  const options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
  options.push("--cluster-require-full-coverage", "no");
  const nodes = await Promise.all(Array.from({ length: count }, () => Server.start(options)));
  const share = Math.floor(16384 / count);
  for (const [index, node] of nodes.entries()) {
    const last = index === count - 1 ? 16383 : (index + 1) * share - 1;
    await node.ask("CLUSTER", "ADDSLOTSRANGE", index * share, last);
    await node.ask("CLUSTER", "SET-CONFIG-EPOCH", index + 1);
  }
  for (const node of nodes.slice(1)) await node.ask("CLUSTER", "MEET", "127.0.0.1", nodes[0].port);
  for (const node of nodes) {
    await until(async () => {
      const info = await node.ask("CLUSTER", "INFO");
      return info.includes("cluster_state:ok") && info.includes(`cluster_known_nodes:${count}`);
    }, 30_000);
  }
  return nodes;
}

/** A TCP proxy. It notes requests, and can hold them back, or lose replies. */
export class Proxy {
  requests = "";
  delay = 0; // of replies
  cutAfter = ""; // a request that contains this goes through, and its connection ends before the reply
  holdBack = ""; // a request that contains this does not go through: its connection ends
  muteAt = ""; // a connection whose replies contain this stays open, and brings no more of them
  isSilent = false; // nothing passes, and connections stay open
  isHalf = false; // of the next reply on each connection only the beginning passes, and nothing later
  cuts = 0;
  #pairs = new Set();

  static async start(to) {
    const proxy = new Proxy();
    proxy.server = net.createServer((client) => proxy.#accept(client, to));
    proxy.port = await listening(proxy.server);
    return proxy;
  }

  #accept(client, to) {
    const server = net.connect(to, "127.0.0.1");
    const end = () => {
      client.destroy();
      server.destroy();
      this.#pairs.delete(end);
    };
    this.#pairs.add(end);
    let isMute = false;
    let isCut = false;
    client.on("data", (data) => {
      if (this.isSilent) return;
      const text = data.toString("latin1");
      if (this.holdBack && text.includes(this.holdBack)) {
        this.cuts += 1;
        return end();
      }
      this.requests += text;
      if (this.cutAfter && text.includes(this.cutAfter)) {
        this.cutAfter = "";
        isCut = true;
        server.once("data", () => { // the request was carried out
          this.cuts += 1;
          end();
        });
      }
      server.write(data);
    });
    server.on("data", (data) => {
      isMute ||= Boolean(this.muteAt) && data.toString("latin1").includes(this.muteAt);
      if (isCut || isMute || this.isSilent) return;
      if (this.isHalf) {
        isMute = true;
        data = data.subarray(0, 1);
      }
      if (this.delay) setTimeout(() => client.write(data), this.delay);
      else client.write(data);
    });
    client.on("error", () => {}).on("close", end);
    server.on("error", () => {}).on("close", end);
  }

  count(text) {
    return this.requests.split(text).length - 1;
  }

  /** Ends all connections. */
  cut() {
    for (const end of [...this.#pairs]) end();
  }

  end() {
    this.server.close();
    this.cut();
  }
}
