/** Both client libraries, in their current and previous major versions, behind one interface. */

import { createRequire } from "node:module";
import { fromSentinel } from "redis-dlock";

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
