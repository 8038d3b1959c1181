/**
 * Adapters of ioredis and node-redis. Both libraries repeat commands and reconnect by themselves. Here each connection
 * is one of its own, with the settings of the client, which does neither: then it is known what was sent how often, and
 * a reply that comes late is never taken for another.
 */

import { once } from "node:events";

import type { Cluster, Redis } from "ioredis";
import type { createClient, createCluster, createSentinel } from "redis";

import { afterReads } from "./clock.js";
import { logged, type Adapter, type Address, type Connection } from "./connections.js";
import type { Command } from "./requests.js";

type NodeRedis = ReturnType<typeof createClient>;
type NodeRedisCluster = ReturnType<typeof createCluster>;
type NodeRedisSentinel = ReturnType<typeof createSentinel>;
type OnEnd = (error: Error) => void;

const NO_NODE = "no node of the cluster is known; has its client been connected?";

const words = (command: Command) => command.map(String) as [string, ...string[]];

/** Opens a connection of ioredis. */
async function openIoRedis(template: Redis, onEnd: OnEnd, node?: Address, signal?: AbortSignal): Promise<Connection> {
  const redis = template.duplicate({
    ...node, lazyConnect: true, retryStrategy: null, sentinelRetryStrategy: null, reconnectOnError: null,
    autoResendUnfulfilledCommands: false, autoResubscribe: false, enableOfflineQueue: false, maxRetriesPerRequest: null,
    enableAutoPipelining: false, commandTimeout: undefined, socketTimeout: undefined, blockingTimeout: undefined,
    keyPrefix: "", readOnly: false, monitor: false, scripts: undefined, stringNumbers: false, replyMapping: "legacy",
    disconnectTimeout: 1, // its timer keeps the process alive
    // It asks for INFO: for the role; and ioredis 5 is "ready" before it knows that a password is wrong.
    enableReadyCheck: Boolean(template.options.sentinels || template.options.password),
    ...(template.options.sentinels ? { role: "master" } : {}),
  } as object);
  let failure: Error | undefined;
  redis.on("error", (error: Error) => {
    failure ??= error;
    logged(error);
  });
  const stream = () => (redis as unknown as { stream?: import("node:net").Socket }).stream;
  const close = () => {
    redis.disconnect();
    stream()?.destroy();
  };
  signal?.addEventListener("abort", close, { once: true });
  const unref = () => void stream()?.unref();
  redis.once("connect", unref);
  afterReads(unref); // while it connects, too
  await redis.connect().catch((error: unknown) => { throw failure ?? error; });
  redis.on("end", () => onEnd(failure ?? new Error("the connection ended")));
  return {
    send(commands, isUrgent) {
      const socket = stream();
      socket?.cork(); // one write for all that is sent before the loop waits again
      const replies = commands.map((command) => redis.call(...words(command)));
      if (!isUrgent) afterReads(() => socket?.uncork());
      while (isUrgent && socket !== undefined && socket.writableCorked > 0) socket.uncork();
      return replies;
    },
    subscribe(channels, onMessage) {
      redis.on("message", (_channel: string, message: string) => onMessage(message));
      return redis.subscribe(...channels);
    },
    close,
  };
}

/** node-redis writes from setImmediate, behind all that waits there, also computations: here it writes at once. */
function atOnce<T>(send: () => T): T {
  const later = globalThis.setImmediate;
  const writes: (() => void)[] = [];
  globalThis.setImmediate = ((write: () => void) => void writes.push(write)) as unknown as typeof setImmediate;
  try {
    return send();
  } finally {
    globalThis.setImmediate = later;
    for (const write of writes) write();
  }
}

/** Opens a connection of node-redis. */
async function openNodeRedis(
  template: NodeRedis, onEnd: OnEnd, node?: Address, signal?: AbortSignal,
): Promise<Connection> {
  const client = template.duplicate({
    ...(node === undefined ? {} : { url: undefined }),
    socket: { ...template.options?.socket, ...node, reconnectStrategy: false, socketTimeout: undefined },
    // Without its own limit, which it measures with an AbortSignal and a timer for each command.
    commandOptions: { timeout: undefined },
    disableOfflineQueue: true, pingInterval: undefined, commandsQueueMaxLength: undefined,
    clientSideCache: undefined, readonly: false, maintNotifications: "disabled", keyPrefix: undefined,
  } as never) as NodeRedis;
  const close = () => {
    try {
      client.destroy();
    } catch (error) {
      logged(error); // it was closed before
    }
  };
  signal?.addEventListener("abort", close, { once: true });
  let isOpen = false;
  client.on("error", (error: Error) => {
    logged(error);
    if (isOpen) onEnd(error);
  });
  client.on("end", () => isOpen && onEnd(new Error("the connection ended")));
  client.unref();
  await client.connect();
  isOpen = true;
  return {
    send(commands, isUrgent) {
      const send = () => commands.map((command) => client.sendCommand(words(command)));
      return isUrgent ? atOnce(send) : send();
    },
    subscribe: (channels, onMessage) => client.subscribe(channels, onMessage),
    close,
  };
}

function ioRedisCluster(client: Cluster): Adapter {
  /** The nodes, when the first ones are known. */
  const nodes = async () => {
    if (client.status === "wait") client.connect().catch(logged);
    if (client.nodes().length === 0) {
      await once(client, "+node", { signal: AbortSignal.timeout(1000) }).catch(logged);
    }
    return client.nodes();
  };
  return {
    async connect(onEnd, node, signal) {
      const [template] = await nodes();
      if (template === undefined) throw new Error(NO_NODE);
      return openIoRedis(template, onEnd, node, signal);
    },
    nodes: async () => (await nodes()).map((node) => node.options as Address),
  };
}

function nodeRedisCluster(client: NodeRedisCluster): Adapter {
  return {
    async connect(onEnd, node, signal) {
      const [first] = client.masters;
      if (first === undefined) throw new Error(NO_NODE);
      return openNodeRedis((await client.nodeClient(first)) as unknown as NodeRedis, onEnd, node, signal);
    },
    nodes: async () => client.masters,
  };
}

/**
 * For a Sentinel group with node-redis: `sentinel`, of `createSentinel` and connected, tells where the primary is.
 * `client`, of `createClient` and not connected, tells how to connect there (password, TLS).
 */
export function fromSentinel(sentinel: object, client: object): Adapter {
  return {
    async connect(onEnd, _node, signal) {
      const node = (sentinel as NodeRedisSentinel).getMasterNode();
      if (node === undefined) throw new Error("no primary is known");
      return openNodeRedis(client as NodeRedis, onEnd, { host: node.host, port: node.port }, signal);
    },
  };
}

/** A client of ioredis or of node-redis, of any of their major versions, or an adapter. */
export type Client = { connect(...args: never[]): unknown; duplicate(...args: never[]): unknown } | Adapter;

/** The adapter of a client: one of ioredis or node-redis, or an adapter itself. */
export function adapterOf(client: Client): Adapter {
  const has = (...methods: string[]) =>
    methods.every((name) => typeof (client as unknown as Record<string, unknown> | null)?.[name] === "function");
  if (has("call", "nodes")) return ioRedisCluster(client as unknown as Cluster);
  if (has("call", "duplicate")) {
    return { connect: (onEnd, node, signal) => openIoRedis(client as unknown as Redis, onEnd, node, signal) };
  }
  if (has("getMasterNode")) throw new TypeError("pass fromSentinel(sentinel, client): see docs/node.md");
  if (has("nodeClient")) return nodeRedisCluster(client as unknown as NodeRedisCluster);
  if (has("sendCommand", "subscribe", "duplicate")) {
    return { connect: (onEnd, node, signal) => openNodeRedis(client as NodeRedis, onEnd, node, signal) };
  }
  if (has("connect") && !has("sendCommand")) return client as Adapter;
  const what = has("execute") ? "a pool" : has("sendCommand") ? "a legacy client or a pipeline" : String(client);
  throw new TypeError("the client must be one of ioredis (Redis, Cluster) or of node-redis (createClient, " +
    `createCluster), or an adapter, not ${what}`);
}
