/** Locks, holds, and what is made of them. */

import { CLOCK_INTERVAL, now } from "./clock.js";
import { adapterOf, type Client } from "./adapters.js";
import type { Adapter } from "./connections.js";
import { Engine, type AcquireOptions, type Settings } from "./engine.js";
import { LockLost, NotAcquired, ReleaseUnknown, ServerError, Unavailable } from "./errors.js";
import { HoldState } from "./holds.js";
import { ask, Backoff, waitFor, type Io } from "./programs.js";
import { fields, newId, Target, type Command, type Reply } from "./requests.js";

const asyncDispose: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose") as typeof Symbol.asyncDispose;

/** Work under a lock. `signal` is aborted when the hold is lost; its reason is the `LockLost`. */
export type Work<T, Token extends number | string = number> =
  (signal: AbortSignal, hold: Hold<Token>) => T | Promise<T>;

/** A hold of a lock, which is renewed until it is released. */
export class Hold<Token extends number | string = number> {
  readonly #state: HoldState;
  readonly #engine: Engine;
  #controller: AbortController | undefined;
  #released: Promise<void> | undefined;

  /** @internal */
  constructor(engine: Engine, state: HoldState) {
    this.#engine = engine;
    this.#state = state;
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

  /** Aborted when the hold is lost; its reason is the `LockLost`. A release does not abort it. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      const controller = (this.#controller = new AbortController());
      const state = this.#state;
      const abort = () => controller.abort(new LockLost(state.keys, state.reason() ?? "expired"));
      if (state.reason() === undefined) state.onLoss.push(abort);
      else abort();
    }
    return this.#controller.signal;
  }

  /** Whether the hold is lost. Looks at the clock, and waits for nothing. */
  get isLost(): boolean {
    this.#engine.renewDue();
    return this.#state.reason() !== undefined;
  }

  /** Throws LockLost if the hold is lost. Waits for nothing: call it before each step of the work. */
  check(): void {
    this.#engine.renewDue();
    this.#state.check();
  }

  /** For how many milliseconds the hold is certain without another renewal; 0 if it is lost. */
  validFor(): number { return this.#state.validFor(); }

  /**
   * Gives the lock to the next in the queue. Throws LockLost if the hold was lost before, and ReleaseUnknown if that is
   * not known. Neither is retried: a second call has the same outcome. `done`: waiters of `runOnce` need not run.
   */
  release({ done = false }: { done?: boolean } = {}): Promise<void> {
    return (this.#released ??= this.#engine.release(this.#state, done));
  }

  /** The end of `await using`: as release(), unless the block released the hold, and learned the outcome. */
  async [asyncDispose](): Promise<void> {
    if (this.#released === undefined) await this.release();
  }

  /** @internal Runs work, and releases. */
  async run<T>(work: Work<T, Token>, done = false): Promise<T> {
    const { signal } = this;
    const alive = setInterval(() => {}, 2 ** 30); // the process does not end while the work waits for its signal only
    let result: T;
    try {
      result = await Promise.resolve(work(signal, this)).finally(() => clearInterval(alive));
    } catch (error) {
      clearInterval(alive); // a work that throws at once
      const lost = await this[asyncDispose]().catch((error: unknown) => error);
      // A library that was given the signal may reject with an error of its own.
      const isAbort = error instanceof Error && error.name === "AbortError";
      throw isAbort && lost instanceof LockLost ? new LockLost(lost.keys, lost.reason, { cause: error }) : error;
    }
    try {
      await (this.#released === undefined ? this.release({ done }) : undefined);
    } catch (error) {
      if (error instanceof ReleaseUnknown) error.result = result;
      throw error;
    }
    return result;
  }
}

/** `ran`: whether this call ran the work; then `value` is its result. */
export type Once<T> = { readonly ran: true; readonly value: T } | { readonly ran: false; readonly value: undefined };

/** What can be acquired. One object serves any number of tasks at the same time. */
export class Lock<Token extends number | string = number> {
  /** @internal */
  constructor(
    /** @internal */ readonly engine: Engine,
    /** @internal */ readonly target: Target,
    /** @internal */ readonly options: AcquireOptions,
  ) {
    engine.check(options);
  }

  /** Waits for the lock. Throws NotAcquired when the timeout is over. */
  async acquire(options?: AcquireOptions): Promise<Hold<Token>> {
    return new Hold(this.engine, await this.engine.acquire(this.target, { ...this.options, ...options }));
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
    if (typeof options === "function") return (await this.acquire()).run(options);
    if (typeof work !== "function") throw new TypeError("using needs a function");
    return (await this.acquire(options)).run(work);
  }

  /**
   * Runs `work` in one of the tasks that ask for it at the same time; the others wait for its end.
   *
   * A run counts if `work` returns and the hold lasted until then. If it does not, one of the others runs. At least
   * once, not exactly once: look into the cache again inside `work`.
   */
  async runOnce<T>(work: Work<T, Token>): Promise<Once<T>> {
    const { family, form, key } = this.target;
    if (form !== "one" || !(family === "DLOCK" || family === "DFAIR")) {
      throw new TypeError("runOnce needs lock() or fairLock()");
    }
    const deadline = now() + (this.options.timeout ?? Infinity);
    const backoff = new Backoff(this.engine.settings.retryFor, true);
    for (;;) {
      const sent = now();
      const trying = this.engine.acquire(this.target, { ...this.options, timeout: 0 }, deadline - sent);
      const attempt = await trying.catch((error: unknown) => error);
      if (attempt instanceof HoldState) {
        return { ran: true, value: await new Hold<Token>(this.engine, attempt).run(work, true) };
      }
      if (!(attempt instanceof NotAcquired || attempt instanceof Unavailable)) throw attempt;
      const { cause } = attempt;
      const waiting = async (io: Io) => {
        const left = Math.max(0, deadline - now());
        if (cause instanceof ServerError && left === 0) throw attempt;
        if (cause instanceof ServerError) return void await backoff.wait(io, cause, sent, left);
        const end = await waitFor(io, [`${family}.AWAIT`, key, "REASON"], key, left, this.engine.settings);
        if (end === null) throw new NotAcquired(`'${key}': another run did not end in time`);
        if (String(end) !== "free") backoff.answered();
        else await backoff.wait(io, new ServerError("", "another is next"), sent, left);
        return String(end) === "done";
      };
      if (await this.engine.run<boolean | void>(waiting, this.options.signal)) return { ran: false, value: undefined };
    }
  }
}

/** How to wait for something that is not a lock. `timeout` is in milliseconds; default: forever. */
export type WaitOptions = Pick<AcquireOptions, "timeout" | "signal">;

/** A latch: opens, once, after a number of steps. */
export class Latch {
  /** @internal */
  constructor(/** @internal */ readonly engine: Engine, readonly key: string) {}

  #ask(...command: Command): Promise<Reply> {
    return this.engine.run((io) => ask(io, command, this.key, this.engine.settings.retryFor));
  }

  /** Closes the latch for `count` steps; false if one is closed already, which does not change. */
  async init(count: number): Promise<boolean> {
    return Number(await this.#ask("DLATCH.INIT", this.key, count)) === 1;
  }

  /** Counts, and returns how many steps remain. */
  async countDown(steps = 1): Promise<number> {
    return Number(await this.#ask("DLATCH.COUNTDOWN", this.key, steps, "REQID", newId()));
  }

  /** How many steps remain; 0: the latch is open, or was never closed. */
  async remaining(): Promise<number> {
    return Number(fields(await this.#ask("DLATCH.INFO", this.key)).get("count") ?? 0);
  }

  /** Waits until the latch is open; false: the timeout is over. Throws Refused (BROKEN) if it was deleted. */
  async wait({ timeout = Infinity, signal }: WaitOptions = {}): Promise<boolean> {
    const command = ["DLATCH.AWAIT", this.key];
    const reply = this.engine.run((io) => waitFor(io, command, this.key, timeout, this.engine.settings), signal);
    return (await reply) !== null;
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

  /** Waits until this candidate leads. The hold is the leadership: release it to resign. */
  campaign(options?: Omit<AcquireOptions, "label">): Promise<Hold> { return this.lock.acquire(options); }

  /** Who leads now; the answer may be outdated when you read it. */
  leader(): Promise<Leader | undefined> { return this.lock.engine.run((io) => this.#leader(io)); }

  async #leader(io: Io): Promise<Leader | undefined> {
    const { key } = this.lock.target;
    const info = fields(await ask(io, ["DLOCK.INFO", key], key, this.lock.engine.settings.retryFor));
    if (Number(info.get("holds") ?? 0) === 0) return undefined;
    return { value: String(info.get("label") ?? ""), token: Number(info.get("token")) };
  }

  /** One leader after the other, from the present one on. */
  async *observe({ signal }: Pick<WaitOptions, "signal"> = {}): AsyncGenerator<Leader, void, void> {
    const { engine, target: { key } } = this.lock;
    let last = 0;
    for (;;) {
      const found = await engine.run(async (io) => {
        const command = ["DLOCK.AWAIT", key, "TOKEN", last];
        if (last > 0) await waitFor(io, command, key, Infinity, engine.settings);
        for (;;) {
          const found = await this.#leader(io);
          if (found !== undefined && found.token > last) return found;
          await io.pause(CLOCK_INTERVAL);
        }
      }, signal);
      last = found.token;
      yield found;
    }
  }
}

/** Options of semaphores. */
export interface SemaphoreOptions extends AcquireOptions {
  /** The permits of the semaphore, if it has to be created. */
  limit?: number;
  /** How many permits to acquire. Default: 1. */
  count?: number;
}

/**
 * Locks on a server, a Sentinel group or a cluster. Make one for the process.
 *
 * `client` is a client of ioredis (`Redis`, `Cluster`) or of node-redis (`createClient`, `createCluster`), or an
 * adapter (`fromSentinel`). It tells how to connect; commands and messages use two connections of their own.
 */
export class DLock {
  readonly #engine: Engine;

  constructor(client: Client, settings: Settings = {}) {
    this.#engine = new Engine(adapterOf(client) satisfies Adapter, settings);
  }

  #lock<T extends number | string = number>(
    options: AcquireOptions | undefined, ...target: ConstructorParameters<typeof Target>
  ): Lock<T> {
    return new Lock<T>(this.#engine, new Target(...target), options ?? {});
  }

  /** One holder at a time (DLOCK). */
  lock(key: string, options?: AcquireOptions): Lock { return this.#lock(options, "DLOCK", [key]); }

  /** One holder at a time, with a queue that survives restarts and failovers (DFAIR). */
  fairLock(key: string, options?: AcquireOptions): Lock { return this.#lock(options, "DFAIR", [key]); }

  /** The shared mode of a read-write lock (DRW). */
  readLock(key: string, options?: AcquireOptions): Lock { return this.#lock(options, "DRW", [key], "one", ["READ"]); }

  /** The exclusive mode of a read-write lock (DRW). */
  writeLock(key: string, options?: AcquireOptions): Lock { return this.#lock(options, "DRW", [key], "one", ["WRITE"]); }

  /** `count` permits of a semaphore (DSEM). The token of a hold is its permit id, no fencing token. */
  semaphore(key: string, { limit, count = 1, ...options }: SemaphoreOptions = {}): Lock<string> {
    const words = limit === undefined ? ["COUNT", count] : ["COUNT", count, "LIMIT", limit];
    return this.#lock<string>(options, "DSEM", [key], "one", [], words);
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
    const lock = this.lock(key);
    return typeof options === "function" ? lock.using(options) : lock.using(options, work as Work<T>);
  }

  /** A count-down latch (DLATCH). */
  latch(key: string): Latch {
    return new Latch(this.#engine, new Target("DLOCK", [key]).key);
  }

  /** One leader at a time, whose `value` all can read. */
  election(key: string, value = "", options: AcquireOptions = {}): Election {
    return new Election(this.lock(key, { ...options, label: value }));
  }

  /** Releases all holds, and ends its connections. The client stays as it is. */
  close(): Promise<void> { return this.#engine.close(); }

  [asyncDispose](): Promise<void> { return this.close(); }
}

