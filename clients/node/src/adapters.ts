/**
 * Adapters of ioredis and node-redis. Both libraries repeat commands and reconnect by themselves. Here each connection
 * is one of its own, with the settings of the client, which does neither: then it is known what was sent how often, and
 * a reply that comes late is never taken for another.
 */

import { logged, type Adapter, type Address, type Connection } from "./connections.js";
import type { Command } from "./requests.js";

/** What is used of a `Redis` of ioredis. */
interface IoRedis {
  readonly options: object;
  duplicate(override: object): IoRedis;
  connect(): Promise<unknown>;
  call(command: string, ...words: string[]): Promise<unknown>;
  subscribe(...channels: string[]): Promise<unknown>;
  on(event: string, listener: (...values: never[]) => void): unknown;
  disconnect(): void;
  readonly stream?: { cork(): void; uncork(): void; ref(): void; unref(): void; destroy(): void };
}

/** What is used of a `Cluster` of ioredis. */
interface IoRedisCluster {
  nodes(role?: string): IoRedis[];
  readonly startupNodes?: readonly unknown[];
  on(event: string, listener: () => void): unknown;
  off(event: string, listener: () => void): unknown;
  connect(): Promise<unknown>;
  readonly status: string;
}

/** What is used of a client of node-redis. */
interface NodeRedis {
  readonly options?: { socket?: object };
  duplicate(override: object): NodeRedis;
  connect(): Promise<unknown>;
  sendCommand(words: string[]): Promise<unknown>;
  subscribe(channels: string[], listener: (message: string) => void): Promise<unknown>;
  on(event: string, listener: (...values: never[]) => void): unknown;
  destroy(): void;
  ref(): void;
  unref(): void;
}

/** What is used of a cluster of node-redis. */
interface NodeRedisCluster {
  readonly masters: readonly Address[];
  nodeClient(node: never): NodeRedis | Promise<NodeRedis>;
}

/** What is used of a `RedisSentinel` of node-redis. */
interface NodeRedisSentinel {
  getMasterNode(): Address | undefined;
}

const noop = () => {};

function words(command: Command): [string, ...string[]] {
  return command.map(String) as [string, ...string[]];
}

/** Opens a connection of ioredis. */
async function openIoRedis(template: IoRedis, onEnd: (error: Error) => void, node?: Address): Promise<Connection> {
  const redis = template.duplicate({
    ...node, lazyConnect: true, retryStrategy: null, sentinelRetryStrategy: null, reconnectOnError: null,
    autoResendUnfulfilledCommands: false, autoResubscribe: false, enableOfflineQueue: false, maxRetriesPerRequest: null,
    enableAutoPipelining: false, commandTimeout: undefined, socketTimeout: undefined, blockingTimeout: undefined,
    keyPrefix: "", readOnly: false, monitor: false, scripts: undefined, stringNumbers: false, replyMapping: "legacy",
    ...("sentinels" in template.options && template.options.sentinels ? { role: "master" } : {}),
  });
  let failure: Error | undefined;
  redis.on("error", (error: Error) => {
    failure ??= error;
    logged(error);
  });
  redis.on("end", () => onEnd(failure ?? new Error("the connection ended")));
  const close = () => {
    redis.disconnect();
    redis.stream?.destroy();
  };
  try {
    await redis.connect();
  } catch (error) {
    close();
    throw failure ?? error;
  }
  let isCorked = false;
  return {
    send(commands) {
      const { stream } = redis;
      if (!isCorked && stream !== undefined) { // one write for all that is sent now
        isCorked = true;
        stream.cork();
        process.nextTick(() => {
          isCorked = false;
          stream.uncork();
        });
      }
      return commands.map((command) => redis.call(...words(command)));
    },
    subscribe(channels, onMessage) {
      redis.on("message", (_channel: string, message: string) => onMessage(message));
      return redis.subscribe(...channels);
    },
    ref: (isNeeded) => (isNeeded ? redis.stream?.ref() : redis.stream?.unref()),
    close,
  };
}

/** Opens a connection of node-redis. */
async function openNodeRedis(template: NodeRedis, onEnd: (error: Error) => void, node?: Address): Promise<Connection> {
  const socket = { ...template.options?.socket, ...node, reconnectStrategy: false, socketTimeout: undefined };
  const client = template.duplicate({
    ...(node === undefined ? {} : { url: undefined }), socket, disableOfflineQueue: true, pingInterval: undefined,
    commandsQueueMaxLength: undefined, commandOptions: {}, clientSideCache: undefined, readonly: false,
    maintNotifications: "disabled", keyPrefix: undefined,
  });
  const close = () => {
    try {
      client.destroy();
    } catch (error) {
      logged(error); // it was closed before
    }
  };
  let isOpen = false;
  client.on("error", (error: Error) => {
    logged(error);
    if (isOpen) onEnd(error);
  });
  client.on("end", () => isOpen && onEnd(new Error("the connection ended")));
  try {
    await client.connect();
  } catch (error) {
    close();
    throw error;
  }
  isOpen = true;
  return {
    send: (commands) => commands.map((command) => client.sendCommand(words(command))),
    subscribe: (channels, onMessage) => client.subscribe(channels, onMessage),
    ref: (isNeeded) => (isNeeded ? client.ref() : client.unref()),
    close,
  };
}

/** For a `Redis` of ioredis: one server, or a Sentinel group. */
function ioRedis(client: IoRedis): Adapter {
  return { connect: (onEnd) => openIoRedis(client, onEnd) };
}

/** For a `Cluster` of ioredis. */
function ioRedisCluster(client: IoRedisCluster): Adapter {
  const ready = async () => {
    if (client.status === "wait") client.connect().catch(noop);
    if (client.nodes().length === 0) {
      await new Promise<void>((resolve) => {
        const done = () => {
          clearTimeout(timer);
          client.off("+node", done);
          resolve();
        };
        const timer = setTimeout(done, 1000);
        client.on("+node", done);
      });
    }
    return client.nodes();
  };
  return {
    async connect(onEnd, node) {
      const [template] = await ready();
      if (template === undefined) throw new Error("no node of the cluster is known");
      return openIoRedis(template, onEnd, node);
    },
    nodes: async () => (await ready()).map((node) => node.options as Address),
  };
}

/** For a client of node-redis. It need not be connected. */
function nodeRedis(client: NodeRedis): Adapter {
  return { connect: (onEnd) => openNodeRedis(client, onEnd) };
}

/** For a cluster of node-redis, which is connected. */
function nodeRedisCluster(client: NodeRedisCluster): Adapter {
  return {
    async connect(onEnd, node) {
      const [first] = client.masters;
      if (first === undefined) throw new Error("no node of the cluster is known: has its client been connected?");
      return openNodeRedis(await client.nodeClient(first as never), onEnd, node);
    },
    nodes: async () => client.masters,
  };
}

/**
 * For a Sentinel group with node-redis: the sentinel, connected, tells where the primary is; the client, which need not
 * be connected, tells how to connect there (password, TLS).
 */
export function fromSentinel(sentinel: object, client: object): Adapter {
  return {
    async connect(onEnd) {
      const node = (sentinel as NodeRedisSentinel).getMasterNode();
      if (node === undefined) throw new Error("no primary is known");
      return openNodeRedis(client as NodeRedis, onEnd, { host: node.host, port: node.port });
    },
  };
}

/** The adapter of a client: one of ioredis or node-redis, or an adapter itself. */
export function adapterOf(client: object): Adapter {
  const has = (...methods: string[]) =>
    methods.every((name) => typeof (client as Record<string, unknown>)[name] === "function");
  if (has("call", "nodes")) return ioRedisCluster(client as IoRedisCluster);
  if (has("call", "duplicate")) return ioRedis(client as IoRedis);
  if (has("getMasterNode")) throw new TypeError("pass fromSentinel(sentinel, client): see docs/node.md");
  if (has("nodeClient")) return nodeRedisCluster(client as NodeRedisCluster);
  if (has("sendCommand", "subscribe", "duplicate")) return nodeRedis(client as NodeRedis);
  if (has("connect")) return client as Adapter;
  throw new TypeError("the client must be one of ioredis or node-redis (no pool), or an adapter");
}
