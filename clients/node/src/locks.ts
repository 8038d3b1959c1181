/** Locks, holds, and what is made of them. */

import { types } from "node:util";

import type { Client } from "./adapters.js";
import { CLOCK_INTERVAL, now } from "./clock.js";
import { LockLost, NotAcquired, Refused, ReleaseUnknown, ServerError, Unavailable } from "./errors.js";
import { HoldState } from "./holds.js";
import { keepAlive } from "./lifetime.js";
import { Backoff, waitFor, type Io } from "./programs.js";
import { fields, newId, Target, type Reply } from "./requests.js";
import { Session, type AcquireOptions, type Settings } from "./session.js";

const asyncDispose: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose") as typeof Symbol.asyncDispose;

/** Work under a lock. `signal` is aborted when the hold is lost; its reason is the `LockLost`. */
export type Work<T, Token extends number | string = number> =
  (signal: AbortSignal, hold: Hold<Token>) => T | Promise<T>;

/** Holds that were collected without a release. */
const collected = new FinalizationRegistry<[Session, HoldState]>(([session, state]) => session.drop(state));

/**
 * A hold of a lock, which is renewed until it is released. One that is dropped is released when it is collected, with a
 * warning, unless its `signal` was read.
 */
export class Hold<Token extends number | string = number> {
  readonly #state: HoldState;
  readonly #session: Session;
  #released: Promise<void> | undefined;

  /** @internal */
  constructor(session: Session, state: HoldState) {
    this.#session = session;
    this.#state = state;
    collected.register(this, [session, state], this);
  }

  /** The key; of several, the first. */
  get key(): string { return this.#state.keys[0] as string; }

  /**
   * The fencing token, which rises from grant to grant: about 1.8e15, below `Number.MAX_SAFE_INTEGER` (9e15). Of a
   * semaphore the permit id, a string.
   */
  get token(): Token { return this.#state.grants[0]?.token as Token; }

  /** The fencing token of each key. */
  get tokens(): ReadonlyMap<string, Token> {
    return new Map(this.#state.grants.map(({ key, token }) => [key, token as Token]));
  }

  get owner(): string { return this.#state.request.owner; }

  /**
   * Aborted when the hold is lost; its reason is the `LockLost`. A release does not abort it. Who reads it has to
   * release the hold, or to limit it by `maxHold`: it is renewed also when nothing refers to it any more.
   */
  get signal(): AbortSignal { return this.#state.signal; }

  /** Whether the hold is lost. Looks at the clock, and waits for nothing. */
  get isLost(): boolean {
    this.#session.engine.renewDue();
    return this.#state.reason() !== undefined;
  }

  /** Throws LockLost if the hold is lost. Waits for nothing: call it before each step of the work. */
  check(): void {
    this.#session.engine.renewDue();
    this.#state.check();
  }

  /** For how many milliseconds the hold is certain without another renewal; 0 if it is lost. */
  validFor(): number { return this.#state.validFor(); }

  /**
   * Gives the lock to the next in the queue. Throws LockLost if the hold was lost before, and ReleaseUnknown if that is
   * not known. Neither is retried: a second call has the same outcome. `done`: waiters of `runOnce` need not run.
   */
  release({ done = false }: { done?: boolean } = {}): Promise<void> {
    collected.unregister(this);
    return (this.#released ??= this.#session.release(this.#state, done));
  }

  /** The end of `await using`: as release(), unless the block released the hold, and learned the outcome. */
  async [asyncDispose](): Promise<void> {
    if (this.#released === undefined) await this.release();
  }

  /** @internal Runs work, and releases. */
  async run<T>(work: Work<T, Token>, done = false): Promise<T> {
    const { signal } = this;
    let result: T;
    try {
      result = await keepAlive((async () => work(signal, this))());
    } catch (error) {
      const lost = await this[asyncDispose]().catch((error: unknown) => error);
      // A library that was given the signal may reject with an error of its own.
      const isAbort = error instanceof Error && error.name === "AbortError";
      throw isAbort && lost instanceof LockLost ? new LockLost(lost.keys, lost.reason, { cause: error }) : error;
    }
    try {
      await (this.#released === undefined ? this.release({ done }) : undefined);
    } catch (error) {
      if (error instanceof ReleaseUnknown || error instanceof LockLost) error.result = result;
      throw error;
    }
    return result;
  }

  /** @internal While someone listens for its loss, it keeps the process alive. */
  asLeadership(): this {
    this.#state.isLeadership = true;
    return this;
  }
}

/** `ran`: whether this call ran the work. `value`: what the work returned, if it ran in this process. */
export type Once<T> =
  { readonly ran: true; readonly value: T } | { readonly ran: false; readonly value: T | undefined };

/** One call of `runOnce`, whose outcome the others in this process return or throw. */
interface Run {
  /** What is known of the server. */
  readonly backoff: Backoff;
  /** Whether the work has begun; a call that fails before says nothing to the others. */
  hasBegun: boolean;
  outcome: Promise<Once<unknown>>;
}

/** What can be acquired. One object serves any number of tasks at the same time. */
export class Lock<Token extends number | string = number> {
  /** @internal */
  constructor(
    /** @internal */ readonly session: Session,
    /** @internal */ readonly target: Target,
    /** @internal */ readonly options: AcquireOptions,
    /** @internal */ readonly inspect?: (info: Map<string, Reply>) => void,
  ) {
    session.check(options);
  }

  /** Waits for the lock. Throws NotAcquired when the timeout is over, and Unavailable if no server is there. */
  async acquire(options: AcquireOptions = {}): Promise<Hold<Token>> {
    this.session.check(options);
    const all = { ...this.options, ...options };
    return new Hold(this.session, await this.session.acquire(this.target, all, undefined, this.inspect));
  }

  /** Acquires the lock if it is free; else undefined, without waiting for it. */
  async tryAcquire(options: Omit<AcquireOptions, "timeout"> = {}): Promise<Hold<Token> | undefined> {
    try {
      return await this.acquire({ ...options, timeout: 0 });
    } catch (error) {
      if (error instanceof NotAcquired) return undefined;
      throw error;
    }
  }

  /** Runs work under the lock, and releases it. Work that goes on after a loss must look at its signal. */
  async using<T>(work: Work<T, Token>): Promise<T>;
  async using<T>(options: AcquireOptions, work: Work<T, Token>): Promise<T>;
  async using<T>(options: AcquireOptions | Work<T, Token>, work?: Work<T, Token>): Promise<T> {
    if (typeof options === "function") return this.using({}, options);
    requireWork(work);
    return (await this.acquire(options)).run(work);
  }

  /**
   * Runs `work` in one of the tasks that ask for it at the same time; the others wait for its end. Those in this
   * process get its value, or throw its error.
   *
   * A run counts if `work` returns and the hold lasted until then. If it does not, one in another process runs. At
   * least once, not exactly once: look into the cache again inside `work`.
   */
  async runOnce<T>(work: Work<T, Token>): Promise<Once<T>> {
    requireWork(work);
    const { session, target: { family, form, key }, options: { timeout = Infinity, signal } } = this;
    if (form !== "one" || !(family === "DLOCK" || family === "DFAIR")) {
      throw new TypeError("runOnce needs lock() or fairLock()");
    }
    const runs = session.engine.runs as Map<string, Run>;
    const name = `${family} ${key}`;
    const deadline = now() + timeout;
    for (let other = runs.get(name); other !== undefined; other = runs.get(name)) {
      const { backoff, outcome } = other;
      const counts = outcome.then(() => true, () => other?.hasBegun);
      const isShared = await session.run((io) => io.until(counts, deadline - now()), signal);
      if (isShared) return { ran: false, value: (await outcome).value as T };
      if (now() >= deadline) throw backoff.over(`'${key}': the run of another did not end in ${timeout} ms`);
    }
    const run = { backoff: new Backoff(session.engine.settings.retryFor, true), hasBegun: false } as Run;
    const outcome = this.#runFirst(work, run, deadline).finally(() => runs.delete(name));
    runs.set(name, Object.assign(run, { outcome }));
    return outcome;
  }

  /** The same for the first caller in this process. */
  async #runFirst<T>(work: Work<T, Token>, run: Run, deadline: number): Promise<Once<T>> {
    const { session, target: { family, key } } = this;
    const { backoff } = run;
    let wasRefused = false; // then few requests are sent
    for (;;) {
      const sent = now();
      let token = 0;
      const inspect = (info: Map<string, Reply>) => void (token = Number(info.get("token") ?? 0));
      const options = { ...this.options, timeout: 0 };
      const trying = session.acquire(this.target, options, deadline - sent, wasRefused ? undefined : inspect);
      const attempt = await trying.catch((error: unknown) => error);
      if (attempt instanceof HoldState) {
        backoff.saw(null);
        run.hasBegun = true;
        return { ran: true, value: await new Hold<Token>(session, attempt).run(work, true) };
      }
      if (!(attempt instanceof NotAcquired || attempt instanceof Unavailable)) throw attempt;
      const { cause } = attempt;
      wasRefused = cause !== undefined;
      backoff.saw(cause ?? null);
      const waiting = async (io: Io) => {
        const left = Math.max(0, deadline - now());
        if (cause instanceof ServerError && left === 0) throw attempt;
        if (cause instanceof ServerError) return void await backoff.wait(io, cause, sent, left);
        const command = [`${family}.AWAIT`, key, ...(token > 0 ? ["TOKEN", token] : []), "REASON"];
        const end = await waitFor(io, command, key, left, session.engine.settings, backoff);
        if (end === null) throw new NotAcquired(`'${key}': the run of another did not end in time`);
        if (String(end) === "free") await backoff.wait(io, new ServerError("", "another is next"), sent, left);
        return String(end) === "done";
      };
      if (await session.run<boolean | void>(waiting, this.options.signal)) return { ran: false, value: undefined };
    }
  }
}

function requireWork(work: unknown): asserts work {
  if (typeof work !== "function") throw new TypeError(`the work must be a function, not ${String(work)}`);
  if (types.isGeneratorFunction(work)) {
    throw new TypeError("the work must not be a generator: it would run without the lock");
  }
}

/** How to wait for something that is not a lock. `timeout` is in milliseconds; default: forever. */
export type WaitOptions = Pick<AcquireOptions, "timeout" | "signal">;

/** A latch: opens, once, after a number of steps. */
export class Latch {
  /** @internal */
  constructor(/** @internal */ readonly session: Session, readonly key: string) {}

  /** Closes the latch for `count` steps; false if one is closed already, which does not change. */
  async init(count: number): Promise<boolean> {
    return Number(await this.session.ask(this.key, ["DLATCH.INIT", this.key, count])) === 1;
  }

  /** Counts, and returns how many steps remain. */
  async countDown(steps = 1): Promise<number> {
    return Number(await this.session.ask(this.key, ["DLATCH.COUNTDOWN", this.key, steps, "REQID", newId()]));
  }

  /** How many steps remain; 0: the latch is open, or was never closed. */
  async remaining(): Promise<number> {
    return Number(fields(await this.session.ask(this.key, ["DLATCH.INFO", this.key])).get("count") ?? 0);
  }

  /** Waits until the latch is open; false: the timeout is over. Throws Refused (BROKEN) if it was deleted. */
  async wait(options: WaitOptions = {}): Promise<boolean> {
    const { timeout, signal } = this.session.check(options);
    return (await this.session.waitFor(this.key, ["DLATCH.AWAIT", this.key], timeout, signal)) !== null;
  }
}

/** Who leads, as all can see it: the value of the election, and the fencing token. */
export interface Leader {
  readonly value: string;
  readonly token: number;
}

/** One leader at a time: the holder of a lock. Its value is the label of the hold. */
export class Election {
  /** @internal */
  constructor(/** @internal */ readonly lock: Lock) {}

  /**
   * Waits until this candidate leads; a `signal` ends that. The hold is the leadership: release it to resign. While
   * someone listens to its signal, it keeps the process alive.
   */
  async campaign(options?: Omit<AcquireOptions, "label">): Promise<Hold> {
    return (await this.lock.acquire(options)).asLeadership();
  }

  /** Who leads now; the answer may be outdated when you read it. */
  leader(): Promise<Leader | undefined> { return this.#leader(); }

  async #leader(signal?: AbortSignal): Promise<Leader | undefined> {
    const { session, target: { key } } = this.lock;
    const info = fields(await session.ask(key, ["DLOCK.INFO", key], signal));
    if (Number(info.get("holds") ?? 0) === 0) return undefined;
    return { value: String(info.get("label") ?? ""), token: Number(info.get("token")) };
  }

  /** One leader after the other, from the present one on. */
  async *observe({ signal }: Pick<WaitOptions, "signal"> = {}): AsyncGenerator<Leader, void, void> {
    const { session, target: { key } } = this.lock;
    for (let last = 0; ;) {
      const found = await this.#leader(signal);
      if (found === undefined || found.token <= last) {
        await session.run((io) => io.pause(CLOCK_INTERVAL), signal);
        continue;
      }
      last = found.token;
      yield found;
      await session.waitFor(key, ["DLOCK.AWAIT", key, "TOKEN", last], Infinity, signal);
    }
  }
}

/** Options of semaphores. */
export interface SemaphoreOptions extends AcquireOptions {
  /** The permits of the semaphore, which is created with them. Default: those of the semaphore, which exists. */
  limit?: number | undefined;
  /** How many permits to acquire. Default: 1. */
  count?: number | undefined;
}

/**
 * Locks on a server, a Sentinel group or a cluster. Make one for the process.
 *
 * `client` is a client of ioredis (`Redis`, `Cluster`) or of node-redis (`createClient`, `createCluster`), or an
 * adapter (`fromSentinel`). It tells how to connect; commands and messages use two connections of their own.
 */
export class DLock {
  readonly #session: Session;

  constructor(client: Client, settings: Settings = {}) {
    this.#session = new Session(client, settings);
  }

  #lock(options: AcquireOptions = {}, ...target: ConstructorParameters<typeof Target>): Lock {
    return new Lock(this.#session, new Target(...target), options);
  }

  /** One holder at a time (DLOCK). */
  lock(key: string, options?: AcquireOptions): Lock { return this.#lock(options, "DLOCK", [key]); }

  /** One holder at a time, with a queue that survives restarts and failovers (DFAIR). */
  fairLock(key: string, options?: AcquireOptions): Lock { return this.#lock(options, "DFAIR", [key]); }

  /** The shared mode of a read-write lock (DRW). */
  readLock(key: string, options?: AcquireOptions): Lock { return this.#lock(options, "DRW", [key], "one", ["READ"]); }

  /** The exclusive mode of a read-write lock (DRW). */
  writeLock(key: string, options?: AcquireOptions): Lock { return this.#lock(options, "DRW", [key], "one", ["WRITE"]); }

  /**
   * `count` permits of a semaphore (DSEM). The token of a hold is its permit id, no fencing token. The acquire throws
   * Refused if the semaphore has another limit, or if it does not exist and there is no limit.
   */
  semaphore(key: string, { limit, count = 1, ...options }: SemaphoreOptions = {}): Lock<string> {
    for (const [name, value] of Object.entries({ limit: limit ?? 1, count })) {
      if (!Number.isInteger(value) || value < 1) throw new RangeError(`${name} is a number of permits, not ${value}`);
    }
    const words = limit === undefined ? ["COUNT", count] : ["COUNT", count, "LIMIT", limit];
    const inspect = (info: Map<string, Reply>) => {
      const capacity = Number(info.get("capacity") ?? 0);
      if (capacity === 0 && limit === undefined) {
        throw new Refused("ERR", `the semaphore '${key}' does not exist: pass a limit to create it`);
      }
      if (capacity > 0 && limit !== undefined && capacity !== limit) {
        throw new Refused("ERR", `the semaphore '${key}' has ${capacity} permits, not the limit of ${limit}`);
      }
    };
    return new Lock<string>(this.#session, new Target("DSEM", [key], "one", [], words), options, inspect);
  }

  /** All of several locks, or none. In a cluster they share a slot. */
  multiLock(keys: readonly string[], options?: AcquireOptions): Lock {
    return this.#lock(options, "DLOCK", keys, "all");
  }

  /** The first of several locks that is free; `hold.key` tells which. In a cluster they share a slot. */
  anyLock(keys: readonly string[], options?: AcquireOptions): Lock {
    return this.#lock(options, "DLOCK", keys, "any");
  }

  /** The short form of `lock(key, options).acquire()`. */
  async acquire(key: string, options?: AcquireOptions): Promise<Hold> { return this.lock(key, options).acquire(); }

  /** The short form of `lock(key, options).using(work)`. */
  using<T>(key: string, work: Work<T>): Promise<T>;
  using<T>(key: string, options: AcquireOptions, work: Work<T>): Promise<T>;
  async using<T>(key: string, options: AcquireOptions | Work<T>, work?: Work<T>): Promise<T> {
    return this.lock(key).using(options as AcquireOptions, work as Work<T>);
  }

  /** A count-down latch (DLATCH). */
  latch(key: string): Latch {
    return new Latch(this.#session, new Target("DLOCK", [key]).key);
  }

  /** One leader at a time, whose `value` all can read. */
  election(key: string, value = "", options: AcquireOptions = {}): Election {
    return new Election(this.lock(key, { ...options, label: value }));
  }

  /** Releases all holds, and ends its connections. The client stays as it is. */
  close(): Promise<void> { return this.#session.close(); }

  [asyncDispose](): Promise<void> { return this.close(); }
}

