/** The driver of the Node client, over ioredis and with --node-redis over node-redis. README.md has the protocol. */

import { createInterface } from "node:readline";
import { writeSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../../node/package.json", import.meta.url));
const { DLock, fromSentinel, Deadlock, LockLost, NotAcquired, Refused, ReleaseUnknown, Replaced, Unavailable } =
  require("redis-dlock"); // the package itself, as it is built
const argument = process.argv.slice(2).find((word) => word.startsWith("--"))?.slice(2) ?? "ioredis";
const LIBRARIES = { "ioredis": "ioredis", "ioredis-5": "ioredis5", "node-redis": "redis", "node-redis-5": "redis5" };
const library = LIBRARIES[argument];
const { default: Redis, createClient, createCluster, createSentinel } = require(library);
const isIoRedis = library.startsWith("ioredis");

const METHODS = { lock: "lock", semaphore: "semaphore" };
for (const mode of ["fair", "read", "write", "multi", "any"]) METHODS[mode] = `${mode}Lock`;
const SETTINGS = { "lease": "lease", "queue": "queue", "retry-for": "retryFor", "response-timeout": "responseTimeout",
  "replicas": "replicas" };
const OPTIONS = { "wait": "timeout", "max-hold": "maxHold", "lease": "lease", "limit": "limit" };
const CODES = [[Deadlock, "DEADLOCK"], [Replaced, "REPLACED"], [Unavailable, "UNAVAILABLE"]];

const locks = new Map();
const clients = new Map();
const holds = new Map();
const acquires = new Map();

function say(...words) {
  writeSync(1, `${words.join(" ")}\n`);
}

function tokens(hold) {
  return [...hold.tokens.values()].join(",");
}

/** The event for an exception. */
function failure(error) {
  if (error instanceof NotAcquired) return "not-acquired";
  if (error instanceof LockLost) return "was-lost";
  if (error instanceof ReleaseUnknown) return "unknown";
  if (error instanceof Refused) return `failed ${error.code}`;
  if (error.message.includes("is closed")) return "failed CLOSED";
  return `failed ${CODES.find(([kind]) => error instanceof kind)?.[1] ?? error.name.toUpperCase()}`;
}

function ready(client) {
  client.on("error", () => {});
  return client;
}

/** A client for one server, a cluster or Sentinels: "redis-cluster://HOST,HOST" and "redis-sentinel://HOST,…/NAME". */
async function connect(url) {
  const [, scheme, rest] = /^([a-z-]+):\/\/(.*)$/.exec(url);
  const [hosts, name] = rest.split("/");
  const nodes = hosts.split(",").map((pair) => ({ host: pair.split(":")[0], port: Number(pair.split(":")[1]) }));
  if (scheme === "redis-cluster") {
    if (isIoRedis) return ready(new Redis.Cluster(nodes));
    const rootNodes = nodes.map(({ host, port }) => ({ url: `redis://${host}:${port}` }));
    return ready(createCluster({ rootNodes })).connect();
  }
  if (scheme === "redis-sentinel") {
    if (isIoRedis) return ready(new Redis({ sentinels: nodes, name, lazyConnect: true }));
    const sentinel = await ready(createSentinel({ name, sentinelRootNodes: nodes })).connect();
    return fromSentinel(sentinel, createClient());
  }
  return ready(isIoRedis ? new Redis(url, { lazyConnect: true }) : createClient({ url }));
}

function translated(options, names) {
  const known = Object.entries(options).filter(([option]) => option in names);
  return Object.fromEntries(known.map(([option, value]) => [names[option], Number(value)]));
}

/** The lock that a command is about; undefined if there is no such thing. */
function handle(name, client, mode, key, options, signal) {
  const known = { ...OPTIONS, owner: 1, work: 1 };
  const unknown = [...Object.keys(options).filter((option) => !(option in known)), ...(mode in METHODS ? [] : [mode])];
  if (unknown.length > 0) return say(name, "unsupported", ...unknown);
  const settings = { ...translated(options, OPTIONS), signal };
  if (options.owner !== undefined) settings.owner = options.owner;
  return locks.get(client)[METHODS[mode]](["multi", "any"].includes(mode) ? key.split(",") : key, settings);
}

const commands = {
  async open(name, options, url) {
    const client = await connect(url);
    locks.set(name, new DLock(client, translated(options, SETTINGS)));
    clients.set(name, client);
    await locks.get(name).latch("ping").remaining(); // connects
    say(name, "opened");
  },

  async acquire(name, options, client, mode, key) {
    const controller = new AbortController();
    const lock = handle(name, client, mode, key, options, controller.signal);
    if (lock === undefined) return;
    acquires.set(name, controller);
    try {
      const hold = await lock.acquire();
      holds.set(name, hold);
      say(name, "granted", tokens(hold));
      hold.signal.addEventListener("abort", () => holds.get(name) === hold && say(name, "lost"));
      if (hold.signal.aborted) say(name, "lost");
    } catch (error) {
      if (!controller.signal.aborted) throw error;
      say(name, "cancelled");
    } finally {
      acquires.delete(name);
    }
  },

  cancel(name) {
    if (acquires.has(name)) acquires.get(name).abort();
    else say(name, "too-late");
  },

  check(name) {
    say(name, "is", holds.get(name).isLost ? "lost" : "held");
  },

  async release(name) {
    const hold = holds.get(name);
    holds.delete(name);
    await hold.release();
    say(name, "released");
  },

  async run(name, options, client, mode, key, method = "using") {
    const lock = handle(name, client, mode, key, options);
    if (lock === undefined) return;
    try {
      const end = await lock[method]((signal, hold) => {
        say(name, "granted", tokens(hold));
        return new Promise((resolve) => {
          setTimeout(resolve, Number(options.work));
          signal.addEventListener("abort", resolve);
        });
      });
      say(name, end?.ran === false ? "not-run" : "finished");
    } catch (error) {
      if (!(error instanceof LockLost)) throw error;
      say(name, "lost");
    }
  },

  once: (...words) => commands.run(...words, "runOnce"),

  async await(name, options, client, key) {
    say(name, (await locks.get(client).latch(key).wait(translated(options, OPTIONS))) ? "open" : "not-open");
  },

  async waiters(name, options, client, count, key) {
    const all = locks.get(client);
    const work = (signal, hold) => new Promise((resolve) => setTimeout(resolve, Number(options.work), hold.token));
    const one = {
      once: () => all.lock(key).runOnce(work),
      await: () => all.latch(key).wait(),
      multi: async () => (await all.multiLock(key.split(",")).acquire()).release(),
    }[options.as] ?? (async () => (await all.lock(key).acquire()).release());
    const found = await Promise.all(Array.from({ length: Number(count) }, one));
    if (options.as !== "once") return say(name, "done");
    say(name, "done", found.filter(({ ran }) => ran).length, new Set(found.map(({ value }) => value)).size);
  },

  async close(name) {
    await locks.get(name).close();
    say(name, "closed");
  },

  suspend() {
    say("driver", "ready"); // Node reads /proc/uptime
  },

  quit() {
    process.exit(0);
  },
};

process.on("unhandledRejection", (error) => {
  say("driver", "unhandled", String(error));
  process.exit(1);
});

createInterface({ input: process.stdin }).on("line", async (line) => {
  const [verb, name = "driver", ...rest] = line.trim().split(" ");
  const options = Object.fromEntries(rest.filter((word) => word.includes("=")).map((word) => word.split("=")));
  const work = commands[verb];
  if (work === undefined) return say(name, "unsupported", verb);
  try {
    await work(name, options, ...rest.filter((word) => !word.includes("=")));
  } catch (error) {
    say(name, failure(error));
  }
}).on("close", () => process.exit(0));
