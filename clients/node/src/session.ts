/** One `DLock`: its settings, its calls and its holds. Those of one client share an engine. */

import { engineOf, type Engine } from "./engine.js";
import type { Client } from "./adapters.js";
import { afterReads, now } from "./clock.js";
import { closed } from "./errors.js";
import type { HoldState } from "./holds.js";
import { Ending, keepAlive, LONGEST_TIMER, onAbort } from "./lifetime.js";
import { acquire, ask, release, waitFor, type Io } from "./programs.js";
import { log, newId, Request, requireText, type Command, type Reply, type Target } from "./requests.js";

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

/** The shortest lease: a hold counts for less than its lease. The longest time that servers take. */
const [LEAST_LEASE, LONGEST] = [20, 86_400_000];

const OPTIONS = new Set(["timeout", "lease", "owner", "maxHold", "label", "signal"]);
const SETTINGS = new Set(["lease", "queue", "retryFor", "maxHold", "replicas", "responseTimeout", "owner", "label"]);

/** Sessions that nobody can use any more, without a close(): their engine may have no other one. */
const dropped = new FinalizationRegistry<Engine>((engine) => engine.leave());

export class Session {
  readonly engine: Engine;
  readonly #defaults: AcquireOptions;
  readonly #calls = new Set<Ending>(); // those that close() ends
  readonly #running = new Set<Promise<unknown>>();
  #isClosed = false;
  #closed: Promise<void> | undefined;

  constructor(client: Client, settings: Settings) {
    checkNames("settings", settings, SETTINGS);
    const { queue = 10_000, retryFor = 10_000, replicas = 0, responseTimeout = 3000, ...defaults } = settings;
    requireTime("retryFor", retryFor, 1);
    requireTime("responseTimeout", responseTimeout, 1, LONGEST_TIMER);
    requireTime("queue", queue, LEAST_LEASE, LONGEST); // waits ask for no longer lease
    if (!Number.isInteger(replicas) || replicas < 0) throw new RangeError("replicas must be a number of replicas");
    this.#defaults = defaults;
    this.check({});
    this.engine = engineOf(client, { queue, retryFor, responseTimeout, replicas });
    dropped.register(this, this.engine, this);
  }

  /** Runs a program: a call of a user, who may give up; or a release, which goes on while the `DLock` is closed. */
  async run<T>(
    program: (io: Io) => Promise<T>, signal?: AbortSignal, kind: "call" | "release" | "background" = "call",
  ): Promise<T> {
    if (this.#isClosed && kind === "call") throw closed();
    signal?.throwIfAborted();
    const call = new Ending();
    const takeBack = onAbort(signal, () => call.end(signal?.reason));
    if (kind === "call") this.#calls.add(call);
    const io = this.engine.io(call, (other) => this.#inBackground(other));
    const running = kind === "background" ? program(io) : keepAlive(program(io));
    for (const set of [this.#running, this.engine.running]) set.add(running);
    try {
      return await running;
    } finally {
      for (const set of [this.#running, this.engine.running]) set.delete(running);
      this.#calls.delete(call);
      takeBack();
      io.end();
    }
  }

  /** The reply to one command, which may be repeated. */
  ask(key: string, command: Command, signal?: AbortSignal): Promise<Reply> {
    return this.run((io) => ask(io, command, key, this.engine.settings.retryFor), signal);
  }

  /** The reply to a command that waits with BLOCK; null: it did not come in time. */
  waitFor(key: string, command: Command, timeout: number, signal?: AbortSignal): Promise<Reply> {
    return this.run((io) => waitFor(io, command, key, timeout, this.engine.settings), signal);
  }

  #inBackground(program: (io: Io) => Promise<unknown>): void {
    this.run(program, undefined, "background").catch((error: unknown) => log("a release: %s", error));
  }

  /** Throws for options that cannot be. Returns them with the defaults. */
  check(options: AcquireOptions) {
    checkNames("options", options, OPTIONS);
    const given = Object.entries(options).filter(([, value]) => value !== undefined);
    const { owner, label, lease = 30_000, maxHold = Infinity, timeout = Infinity, signal } =
      { ...this.#defaults, ...Object.fromEntries(given) } as AcquireOptions;
    requireTime("timeout", timeout, 0);
    requireTime("maxHold", maxHold, LEAST_LEASE);
    requireTime("lease", lease, LEAST_LEASE, 365 * LONGEST);
    if (owner !== undefined) requireText("owner", owner);
    if (label !== undefined && label !== "") requireText("label", label);
    if (signal !== undefined && !(signal instanceof AbortSignal)) throw new TypeError("signal must be an AbortSignal");
    return { owner, label, lease: Math.min(lease, maxHold), maxHold, timeout, signal };
  }

  /** `within`: how long a try may take. `inspect`: see the program. */
  async acquire(
    target: Target, options: AcquireOptions, within = Infinity, inspect?: (info: Map<string, Reply>) => void,
  ): Promise<HoldState> {
    const place = log.enabled ? new Error("acquired").stack : undefined;
    const { engine } = this;
    const { owner = newId(), label, lease, maxHold, timeout, signal } = this.check(options);
    const mayQueue = target.form === "one" && timeout !== 0;
    const firstLease = mayQueue ? Math.min(lease, engine.settings.queue) : lease;
    const request = new Request(target, owner, lease, firstLease, engine.channel, label);
    const deadline = now() + (timeout || Math.min(within, engine.settings.responseTimeout));
    engine.listen();
    const state = await this.run(
      (io) => acquire(io, request, timeout, engine.settings, maxHold, deadline, inspect), signal);
    if (this.#isClosed) {
      this.#inBackground((io) => release(io, state, engine.settings));
      throw closed();
    }
    state.place = place;
    engine.add(state, this);
    return state;
  }

  async release(state: HoldState, done: boolean): Promise<void> {
    const at = now();
    this.engine.registry.remove(state);
    if (at >= state.until) await new Promise((resolve) => afterReads(resolve)); // perhaps a renewal was answered
    await this.run((io) => release(io, state, this.engine.settings, done, at), undefined, "release");
  }

  /** Releases a hold whose `Hold` was collected, and warns of it. */
  drop(state: HoldState): void {
    if (state.hasSignal || !this.engine.registry.remove(state)) return;
    process.emitWarning(`the hold of ${state.keys.join(", ")} was dropped, so it is released: release each hold, or ` +
      `use using()${state.place === undefined ? "" : `; it was ${state.place.replace("Error: ", "")}`}`,
    { type: "DLockWarning", code: "DLOCK_DROPPED" });
    this.#inBackground((io) => release(io, state, this.engine.settings));
  }

  /** Ends all calls, and releases all holds. The last one of an engine ends its connections. */
  close(): Promise<void> {
    return (this.#closed ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#isClosed = true;
    const releases = this.engine.takeOut("closed", this);
    for (const call of this.#calls) call.end(closed()); // waits leave their queues, in the background
    await keepAlive(this.engine.settle(releases, this.#running));
    dropped.unregister(this);
    this.engine.leave();
  }
}

function checkNames(what: string, options: object, names: ReadonlySet<string>): void {
  if (typeof options !== "object" || options === null) {
    throw new TypeError(`${what} must be an object like { lease: 5000 }, not ${String(options)}`);
  }
  const unknown = Object.keys(options).filter((name) => !names.has(name));
  if (unknown.length > 0) throw new TypeError(`unknown ${what}: ${unknown.join(", ")}`);
}

function requireTime(name: string, value: unknown, least: number, most = Infinity): void {
  if (typeof value !== "number") throw new TypeError(`${name} must be a number of milliseconds, not ${String(value)}`);
  if (value >= least && value <= most) return;
  const upTo = most < Infinity ? `, at most ${most} ms` : "";
  throw new RangeError(`${name} must be at least ${least} ms${upTo}, not ${value}`);
}
