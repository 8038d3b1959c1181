/** Runs programs, renews holds and receives messages. */

import { afterReads, atMostOnceIn, CLOCK_INTERVAL, now } from "./clock.js";
import { Cluster } from "./cluster.js";
import { Server, type Adapter, type Connection, type Sender } from "./connections.js";
import { Disconnected, DLockError } from "./errors.js";
import { Registry, type HoldState, type RenewalBatch } from "./holds.js";
import { acquire, release, type Io, type ProgramSettings } from "./programs.js";
import {
  log, message, newId, Replicas, Request, requireText, type Batch, type Message, type Reply, type Target,
} from "./requests.js";

/** How to acquire. Times are in milliseconds. */
export interface AcquireOptions {
  /** How long to wait. Default: forever; 0: not at all. */
  timeout?: number | undefined;
  /** How long a hold lasts without renewal. Default: that of the `DLock`. */
  lease?: number | undefined;
  /**
   * The name of the task. Default: another one for each acquire. An owner may acquire what it holds again, and
   * deadlocks between owners are found. Two tasks must not share one at the same time.
   */
  owner?: string | undefined;
  /** How long a hold is renewed at most. Default: that of the `DLock`. */
  maxHold?: number | undefined;
  /** A text that DLOCK.INFO shows. */
  label?: string | undefined;
  /** Ends the wait, and leaves the queue: the acquire rejects with its reason. It does not end a hold. */
  signal?: AbortSignal | undefined;
}

/** Settings of a `DLock`. Times are in milliseconds. */
export interface Settings {
  /** How long a hold lasts without renewal; it is renewed every third of that. Default: 30 s. */
  lease?: number | undefined;
  /** How long a place in a queue outlives its connection. A wait asks again after half of it. Default: 10 s. */
  queue?: number | undefined;
  /** How long a call goes on while no server answers. Default: 10 s. */
  retryFor?: number | undefined;
  /** How long a hold is renewed at most. Default: without a limit. */
  maxHold?: number | undefined;
  /** How many replicas must have each grant and each renewal (docs/failover.md). Default: 0. */
  replicas?: number | undefined;
  /** How long a reply may take. Default: 3 s. */
  responseTimeout?: number | undefined;
  /** The owner of each acquire that names none. Default: another one for each acquire. */
  owner?: string | undefined;
  /** The label of each acquire that names none. */
  label?: string | undefined;
}

/** The shortest lease: a hold counts for less than its lease. */
const LEAST_LEASE = 20;

/** The channel on which servers tell of FLUSHDB and FLUSHALL. */
const FLUSHES = "dlock:notify";

/** How often a client that receives no messages asks instead. */
const POLL = 1000;

/** Messages have holds renewed at most that often, and all holds and waits checked. */
const [HINT_PAUSE, CHECK_PAUSE] = [100, 1000];

const OPTIONS = new Set(["timeout", "lease", "owner", "maxHold", "label", "signal"]);
const SETTINGS = new Set(["lease", "queue", "retryFor", "maxHold", "replicas", "responseTimeout", "owner", "label"]);

/** Waits for a message about one request. */
class Waiter {
  isWoken = false;
  message: Message | undefined;
  onWake: (() => void) | undefined;

  wake(message?: Message): void {
    this.message = message;
    this.isWoken = true;
    this.onWake?.();
  }
}

export class Engine {
  readonly settings: ProgramSettings;
  readonly #defaults: Settings & { lease: number; responseTimeout: number; maxHold: number };
  readonly #channel = `${FLUSHES}:${newId()}`;
  readonly #sender: Sender;
  readonly #registry = new Registry();
  readonly #waiters = new Map<string, Waiter>();
  readonly #running = new Set<Promise<unknown>>();
  readonly #calls = new Set<AbortController>(); // of those that close() ends
  #isClosed = false;
  #closed: Promise<void> | undefined;
  #isOver = false; // closed, and nothing more is sent
  #firstSubscription: Promise<void> | undefined; // ends with the first attempt
  #isSubscribed = false;
  #subscription: Connection | undefined;
  #renewalTimer: NodeJS.Timeout | undefined;
  #wakesAt = Infinity; // when the holds are looked at next
  readonly #onFlush = atMostOnceIn(CHECK_PAUSE, () => this.#checkAll());
  readonly #onHint = atMostOnceIn(HINT_PAUSE, () => {
    this.#registry.takeHints();
    this.#wakeAt(now());
  });

  constructor(adapter: Adapter, settings: Settings) {
    checkNames(settings, SETTINGS);
    const {
      lease = 30_000, queue = 10_000, retryFor = 10_000, replicas = 0, responseTimeout = 3000, maxHold = Infinity,
    } = settings;
    this.#defaults = { ...settings, lease, responseTimeout, maxHold };
    for (const [name, value] of Object.entries({ retryFor, responseTimeout })) requireTime(name, value, 1);
    requireTime("queue", queue, LEAST_LEASE); // waits ask for no longer lease
    if (!Number.isInteger(replicas) || replicas < 0) throw new RangeError("replicas must be a number of replicas");
    const isCluster = adapter.nodes !== undefined;
    if (isCluster && replicas > 0) throw new TypeError("replicas needs a client for one server or a Sentinel group");
    this.settings = { queue, retryFor, replicas: new Replicas(replicas, Math.min(responseTimeout / 3, 1000)) };
    const limits = {
      longest: responseTimeout, usual: () => Math.min(responseTimeout, this.#registry.shortest / 3),
    };
    const check = atMostOnceIn(CHECK_PAUSE, () => this.#checkAll()); // places have lost their connection
    const onReplica = atMostOnceIn(CHECK_PAUSE, () => this.#subscription?.close()); // messages come from the primary
    this.#sender = new (isCluster ? Cluster : Server)(adapter, limits, (isReplica) => {
      if (isReplica) onReplica();
      check();
    });
  }

  // Programs.

  /** Runs a program: a call of a user, who may give up; or a release, which goes on while the `DLock` is closed. */
  async run<T>(
    program: (io: Io) => Promise<T>, signal?: AbortSignal, kind: "call" | "release" | "background" = "call",
  ): Promise<T> {
    if (this.#isClosed && kind === "call") throw closed();
    const reqids = new Set<string>();
    const call = new AbortController();
    const abort = () => call.abort(signal?.reason);
    signal?.addEventListener("abort", abort, { once: true });
    if (signal?.aborted) abort();
    if (kind === "call") this.#calls.add(call);
    const io: Io = {
      send: (batch) => this.#send(batch, reqids, call.signal),
      pause: (ms, reqid) => this.#pause(ms, reqid, call.signal, kind !== "background"),
      background: (other) => void this.#inBackground(other),
    };
    const running = program(io);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
      this.#calls.delete(call);
      signal?.removeEventListener("abort", abort);
      for (const reqid of reqids) this.#waiters.delete(reqid);
    }
  }

  async #inBackground(program: (io: Io) => Promise<unknown>): Promise<void> {
    try {
      await this.run(program, undefined, "background");
    } catch (error) {
      log("a release: %s", error);
    }
  }

  #send(batch: Batch, reqids: Set<string>, signal: AbortSignal): Promise<readonly Reply[]> {
    if (signal.aborted) return Promise.reject(signal.reason);
    if (this.#isOver) return Promise.reject(closed());
    if (batch.reqid !== "") {
      reqids.add(batch.reqid);
      this.#waiters.set(batch.reqid, new Waiter());
    }
    const { within } = batch;
    const sent = this.#sender.run(batch, signal);
    return new Promise((resolve, reject) => {
      const none = new Disconnected(`no reply within ${Math.round(within)} ms`);
      const late = () => afterReads(() => resolve(batch.toSend().map(() => none))); // what has arrived is read first
      const timer = within < Infinity ? setTimeout(late, within) : undefined;
      const abort = () => reject(signal.reason);
      signal.addEventListener("abort", abort, { once: true });
      sent.then(resolve, reject).finally(() => {
        clearTimeout(timer);
        signal.removeEventListener("abort", abort);
      });
    });
  }

  async #pause(
    ms: number, reqid: string | undefined, signal: AbortSignal, isAwaited: boolean,
  ): Promise<Message | undefined> {
    const waiter = this.#waiters.get(reqid ?? "");
    await new Promise<void>((resolve, reject) => {
      const end = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", end);
        if (waiter !== undefined) waiter.onWake = undefined;
        if (signal.aborted) reject(signal.reason);
        else resolve();
      };
      const timer = setTimeout(end, waiter === undefined || this.#isSubscribed ? ms : Math.min(POLL, ms));
      if (!isAwaited) timer.unref(); // else it keeps the process alive
      if (waiter !== undefined) waiter.onWake = end;
      signal.addEventListener("abort", end, { once: true });
      if (signal.aborted || waiter?.isWoken) end();
    });
    return waiter?.message; // the last one: a grant may have ended in the same packet
  }

  // Holds.

  /** Throws for options that cannot be. Returns the lease. */
  check(options: AcquireOptions): number {
    checkNames(options, OPTIONS);
    const { owner = this.#defaults.owner, label = this.#defaults.label } = options;
    const maxHold = options.maxHold ?? this.#defaults.maxHold;
    const lease = Math.min(options.lease ?? this.#defaults.lease, maxHold);
    if (options.timeout !== undefined) requireTime("timeout", options.timeout, 0);
    requireTime("lease and maxHold", lease, LEAST_LEASE);
    if (owner !== undefined) requireText("owner", owner);
    if (label !== undefined && label !== "") requireText("label", label);
    return lease;
  }

  #request(target: Target, options: AcquireOptions): Request {
    const lease = this.check(options);
    const { owner = this.#defaults.owner ?? newId(), label = this.#defaults.label } = options;
    const mayQueue = target.form === "one" && options.timeout !== 0;
    const firstLease = mayQueue ? Math.min(lease, this.settings.queue) : lease;
    return new Request(target, owner, lease, firstLease, this.#channel, label);
  }

  /** `within`: how long a try may take. */
  async acquire(target: Target, options: AcquireOptions, within = Infinity): Promise<HoldState> {
    const request = this.#request(target, options);
    const { timeout = Infinity, maxHold = this.#defaults.maxHold, signal } = options;
    const deadline = now() + timeout;
    const state = await this.run(async (io) => {
      this.#firstSubscription ??= new Promise((resolve) => void this.#listen(resolve));
      if (timeout > 0 && !this.#isSubscribed) { // a message about a request may follow its reply at once
        await Promise.race([this.#firstSubscription, io.pause(Math.min(timeout, POLL))]);
      }
      return acquire(io, request, timeout, this.settings, maxHold, deadline, within);
    }, signal);
    if (this.#isClosed) {
      void this.#inBackground((io) => release(io, state, this.settings));
      throw closed();
    }
    this.#registry.add(state);
    if (state.isUnannounced) this.#subscription?.close(); // perhaps that of a server that became a replica
    if (state.renewAt < this.#wakesAt - (state.until - state.renewAt) / 4) this.#wakeAt(state.renewAt);
    return state;
  }

  async release(state: HoldState, done: boolean): Promise<void> {
    const at = now();
    this.#registry.remove(state);
    if (at >= state.until) await new Promise((resolve) => afterReads(resolve)); // perhaps a renewal was answered
    await this.run((io) => release(io, state, this.settings, done, at), undefined, "release");
  }

  /** Looks at the holds at this time, or before. Timers stand still in a suspend, so the clock is read often. */
  #wakeAt(time: number): void {
    this.#wakesAt = time;
    clearTimeout(this.#renewalTimer);
    const left = Math.max(1, Math.min(CLOCK_INTERVAL, time - now()));
    const look = () => (now() < this.#wakesAt ? this.#wakeAt(this.#wakesAt) : this.renewDue());
    this.#renewalTimer = setTimeout(look, left).unref();
  }

  /** Renews what is due. Holds that are looked at call it, too: computations in turns keep timers back. */
  renewDue(): void {
    if (now() < this.#wakesAt) return;
    const [rounds, again] = this.#registry.due(this.settings.replicas, (key) => this.#sender.node(key));
    for (const round of rounds) void this.#renew(round);
    if (this.#registry.size > 0) this.#wakeAt(again);
    else this.#wakesAt = Infinity;
  }

  async #renew(round: RenewalBatch): Promise<void> {
    round.apply(await this.#sender.run(round.batch));
  }

  // Messages.

  async #listen(onAttempt: () => void): Promise<void> {
    while (!this.#isClosed) {
      try {
        let onEnd = () => {};
        const ended = new Promise<void>((resolve) => (onEnd = resolve));
        const receive = (text: string) => this.#onMessage(text);
        const connection = await this.#sender.subscribe([this.#channel, FLUSHES], receive, onEnd);
        this.#subscription = { ...connection, close: () => (connection.close(), onEnd()) };
        this.#isSubscribed = true;
        this.#checkAll(); // messages may have been missed
        if (this.#isClosed) this.#subscription.close();
        onAttempt();
        await ended;
        connection.close();
      } catch (error) {
        log("messages: %s", error);
      }
      onAttempt();
      this.#isSubscribed = false;
      this.#subscription = undefined;
      if (!this.#isClosed) await new Promise((resolve) => setTimeout(resolve, 200).unref());
    }
  }

  /** Each wait asks again, and each hold is renewed. */
  #checkAll(): void {
    for (const waiter of this.#waiters.values()) waiter.wake();
    this.#registry.checkAll();
    if (this.#registry.size > 0) this.#wakeAt(now());
  }

  #onMessage(text: string): void {
    const notice = message(text);
    if (notice === undefined) return;
    if (notice.event === "flushed") return this.#onFlush();
    this.#waiters.get(notice.reqid)?.wake(notice);
    if (this.#registry.onMessage(notice)) this.#onHint();
  }

  /** Ends all calls, releases all holds, and ends all connections of its own. The client is the caller's. */
  close(): Promise<void> {
    return (this.#closed ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#renewalTimer);
    const releases = this.#registry.close((key) => this.#sender.node(key)).map((batch) => this.#sender.run(batch));
    for (const call of this.#calls) call.abort(closed()); // waits leave their queues, in the background
    let timer: NodeJS.Timeout | undefined;
    const limit = new Promise((resolve) => (timer = setTimeout(resolve, this.#defaults.responseTimeout)));
    const idle = async () => {
      await Promise.all(releases);
      while (this.#running.size > 0) await Promise.allSettled(this.#running);
    };
    await Promise.race([idle(), limit]);
    clearTimeout(timer);
    this.#isOver = true;
    this.#subscription?.close();
    this.#sender.close();
  }
}

function closed(): DLockError {
  return new DLockError("the DLock is closed");
}

function checkNames(options: object, known: ReadonlySet<string>): void {
  const unknown = Object.keys(options).filter((name) => !known.has(name));
  if (unknown.length > 0) throw new TypeError(`unknown options: ${unknown.join(", ")}`);
}

function requireTime(name: string, value: number, least: number): void {
  if (!(typeof value === "number" && value >= least)) throw new RangeError(`${name} must be at least ${least} ms`);
}

