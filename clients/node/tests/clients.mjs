/** Both client libraries, in their current and previous major versions, behind one interface. */

import { createRequire } from "node:module";
import { after } from "node:test";
import { DLock, fromSentinel } from "redis-dlock";

import { Proxy, Server, until } from "./servers.mjs";

const require = createRequire(import.meta.url);

export const KINDS = (process.env.DLOCK_CLIENTS ?? "ioredis ioredis5 redis redis5").split(" ");

const noop = () => {};

/** A client that is not connected. `options` are `username`, `password` and others that both libraries know. */
export function clientOf(kind, port, options = {}) {
  const library = require(kind);
  if (kind.startsWith("ioredis")) {
    return new library.Redis({ port, lazyConnect: true, ...options }).on("error", noop);
  }
  return library.createClient({ socket: { port, host: "127.0.0.1" }, ...options }).on("error", noop);
}

export async function clusterOf(kind, port) {
  const library = require(kind);
  if (kind.startsWith("ioredis")) return new library.Cluster([{ host: "127.0.0.1", port }]).on("error", noop);
  return library.createCluster({ rootNodes: [{ url: `redis://127.0.0.1:${port}` }] }).on("error", noop).connect();
}

/** What a DLock takes, and what ends it. */
export async function sentinelOf(kind, port, name) {
  const library = require(kind);
  if (kind.startsWith("ioredis")) {
    const client = new library.Redis({ sentinels: [{ host: "127.0.0.1", port }], name, lazyConnect: true });
    return [client.on("error", noop), noop];
  }
  const sentinel = library.createSentinel({ name, sentinelRootNodes: [{ host: "127.0.0.1", port }] }).on("error", noop);
  await sentinel.connect();
  return [fromSentinel(sentinel, library.createClient().on("error", noop)), () => sentinel.destroy()];
}

export function endClient(client) {
  try {
    (client.disconnect ?? client.destroy).call(client)?.catch?.(noop);
  } catch {
    // it was never connected
  }
}

const ends = [];
let number = 0;

export const newKey = () => `t:${process.pid}:${(number += 1)}`;

/** Ends it after all tests of the file. */
export function ending(one) {
  ends.push(one);
  return one;
}

after(async () => {
  for (const one of ends.reverse()) await one.end();
});

/** A server that all tests of a file share: none may end it, or delete what is not its own. */
let shared;
export const server = () => (shared ??= Server.start(["--appendonly", "no"]).then(ending));
export const ownServer = async (options = ["--appendonly", "yes"], more = {}) => ending(await Server.start(options, more));
export const newProxy = async (port) => ending(await Proxy.start(port ?? (await server()).port));

/** A DLock on the shared server, or on a port. */
export async function make(kind, { port, client = {}, ...settings } = {}) {
  const locks = new DLock(clientOf(kind, port ?? (await server()).port, client), settings);
  ending({ end: () => locks.close() });
  return locks;
}

/** Whether the hold tells of its loss in this time. */
export async function lost(hold, ms = 10_000) {
  return until(() => hold.signal.aborted, ms).catch(() => false);
}

/** A server that sees the messages of a DLock: the DLock has subscribed. */
export async function subscribed(one, count = 1) {
  await until(async () => (await one.ask("CLIENT", "LIST")).split("\n").filter((line) => / sub=[1-9]/.test(line)).length
    >= count);
}
