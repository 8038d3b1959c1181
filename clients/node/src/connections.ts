/** Connections of the client libraries: what is asked of them, and the batches that wait for replies. */

import { afterReads } from "./clock.js";
import { Disconnected, fromLibrary, ServerError } from "./errors.js";
import { bounded, Ending } from "./lifetime.js";
import { Batch, log, POLL, type Command, type Reply } from "./requests.js";

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** One connection that is open, and never opens again. It does not keep the process alive. */
export interface Connection {
  /**
   * Sends commands in this order, and returns a promise of each reply. Error replies reject. `isUrgent`: they are
   * written before this returns.
   */
  send(commands: readonly Command[], isUrgent?: boolean): Promise<unknown>[];
  subscribe(channels: string[], onMessage: (message: string) => void): Promise<unknown>;
  close(): void;
}

/** How to use a client library: it opens connections with the settings of a client. */
export interface Adapter {
  /**
   * Opens a connection, to a node if the client is one of a cluster. `onEnd` is called when it has ended. The signal
   * has it given up, and everything closed.
   */
  connect(onEnd: (error: Error) => void, node?: Address, signal?: AbortSignal): Promise<Connection>;
  /** Of a cluster: nodes that may be asked for the others. */
  nodes?(): Promise<readonly Address[]>;
}

/** How long replies may take, in milliseconds. */
export interface Limits {
  /** To a call that blocks, besides its time. */
  readonly longest: number;
  /** To all else, and how long a connection may take to open: it follows the shortest lease. */
  usual(): number;
}

/** What sends batches: one server, or a cluster. */
export interface Sender {
  /** Returns the replies; errors, also that none came, are among them. */
  run(batch: Batch, call?: Ending): Promise<readonly Reply[]>;
  /** Opens a connection that receives messages. */
  subscribe(channels: string[], onMessage: (text: string) => void, onEnd: () => void): Promise<Connection>;
  /** Names the node of a key. */
  node(key: string): string;
  /** Whether there is a connection for this key. */
  isOpen(key: string): boolean;
  close(): void;
}

/** A connection, and the batches whose replies are still to come. If none comes in time, the connection ends. */
class Link {
  isOver = false;
  readonly #rejects = new Set<(error: Error) => void>();
  #progressAt = 0;
  #overdueSince = -1;
  #timer: NodeJS.Timeout | undefined;
  #watchAt = 0;

  constructor(
    readonly connection: Connection, public limit: () => number,
    readonly onOver: (link: Link, isReplica: boolean) => void,
  ) {}

  run(batch: Batch): Promise<readonly Reply[]> {
    return new Promise((resolve, reject) => {
      if (this.isOver) return reject(new Disconnected("the connection ended"));
      this.#rejects.add(reject);
      if (this.#rejects.size === 1) this.#progressAt = performance.now();
      this.#watchIn(this.#progressAt + this.limit() - performance.now());
      const commands = batch.toSend();
      const replies = new Array<Reply>(commands.length);
      let left = commands.length;
      let isReplica = false;
      const settle = (index: number, reply: Reply) => {
        if (this.isOver) return; // late: nobody waits for it
        const fits = reply instanceof ServerError || batch.fits(reply, index);
        const broken = fits ? reply : new Disconnected("a reply of another request");
        if (broken instanceof Disconnected) return this.end(broken);
        this.#progressAt = performance.now();
        isReplica ||= reply instanceof ServerError && reply.code === "READONLY";
        replies[index] = reply;
        left -= 1;
        if (left > 0) return;
        this.#rejects.delete(reject);
        resolve(replies);
        if (isReplica) this.end(new Disconnected("the server is a replica"), true); // the next may lead to the primary
      };
      for (const [index, reply] of this.connection.send(commands, batch.isUrgent).entries()) {
        reply.then((value) => settle(index, value), (error: unknown) => settle(index, fromLibrary(error)));
      }
    });
  }

  #watchIn(ms: number): void {
    const at = performance.now() + ms;
    if (this.#timer !== undefined && at >= this.#watchAt) return;
    clearTimeout(this.#timer);
    this.#watchAt = at;
    this.#timer = setTimeout(this.#watch, ms).unref();
  }

  readonly #watch = (): void => {
    afterReads(() => { // after a long computation timers run before replies are read
      this.#timer = undefined;
      if (this.isOver || this.#rejects.size === 0) return;
      const limit = this.limit();
      let left = this.#progressAt + limit - performance.now();
      if (left <= 0) {
        if (this.#overdueSince === this.#progressAt) {
          return this.end(new Disconnected(`no reply within ${limit} ms`));
        }
        this.#overdueSince = this.#progressAt; // that computation may have kept the request from being written
        left = limit / 10;
      }
      this.#watchIn(left);
    });
  };

  /** Ends the connection: a reply that comes later must not be taken for that of a later request. */
  end(error: Error, isReplica = false): void {
    if (this.isOver) return;
    this.isOver = true;
    clearTimeout(this.#timer);
    this.connection.close();
    for (const reject of this.#rejects) reject(error);
    this.#rejects.clear();
    this.onOver(this, isReplica);
  }
}

/** With these a server refuses a connection for good. Any other error while it is opened is a failed connection. */
const REFUSALS = new Set(["NOPERM", "NOAUTH", "WRONGPASS"]);

/** Calls that block at a time, each on a connection of its own, and how many of these are kept for the next ones. */
const [MOST_BLOCKED, MOST_SPARES] = [16, 4];

/** Sends batches over one connection, without waiting for the replies to those before. */
export class Server implements Sender {
  #link: Link | undefined;
  #isOpening = false;
  #isClosed = false;
  #queue: ((link: Link | Error) => void)[] = [];
  readonly #spares: Link[] = [];
  #blocked = 0;
  /** Calls that wait for one of those connections. */
  readonly #blocking = new Set<() => void>();
  /** What ends the connections that are open, or being opened. */
  readonly #ends = new Set<() => void>();

  constructor(
    readonly adapter: Adapter, readonly limits: Limits, readonly onDrop: (isReplica: boolean) => void,
    readonly address?: Address,
  ) {}

  async run(batch: Batch, call = new Ending()): Promise<readonly Reply[]> {
    try {
      if (batch.block > 0) {
        if (await this.#mayBlock(call)) return await this.#alone(batch, call);
        const { key, poll, fits, confirm, reqid } = batch;
        batch = new Batch(poll, key, { fits, confirm, reqid });
      }
      if (call.isOver) throw new Disconnected("interrupted");
      if (this.#link !== undefined) return await this.#link.run(batch);
      return await new Promise((resolve, reject) => {
        this.#queue.push((link) => {
          if (link instanceof Link && !call.isOver) resolve(link.run(batch));
          else reject(link instanceof Error ? link : new Disconnected("interrupted"));
        });
        if (!this.#isOpening) void this.#open();
      });
    } catch (error) {
      return batch.toSend().map(() => fromLibrary(error));
    }
  }

  async #open(): Promise<void> {
    this.#isOpening = true;
    const opened = await this.#connect((link, isReplica) => {
      if (this.#link !== link) return;
      this.#link = undefined;
      if (!this.#isClosed) this.onDrop(isReplica);
    }).catch((error: Error) => error);
    if (opened instanceof Link) this.#link = opened;
    this.#isOpening = false;
    for (const start of this.#queue.splice(0)) start(opened);
  }

  async #connect(onOver: (link: Link, isReplica: boolean) => void = () => {}): Promise<Link> {
    let link: Link | undefined;
    let ended: Error | undefined;
    const connection = await this.#openConnection((error) => {
      ended = error;
      link?.end(new Disconnected(error.message));
    });
    link = new Link(connection, () => this.limits.usual(), onOver);
    if (ended === undefined && !this.#isClosed) return link;
    link.end(new Disconnected("closed"));
    throw new Disconnected((ended as Error | undefined)?.message ?? "closed");
  }

  async #openConnection(onEnd: (error: Error) => void): Promise<Connection> {
    const controller = new AbortController();
    const { signal } = controller;
    const opening = this.adapter.connect(onEnd, this.address, signal);
    const end = () => {
      this.#ends.delete(end);
      controller.abort();
      opening.then((connection) => connection.close(), () => {});
    };
    this.#ends.add(end);
    try {
      const connection = await this.#inTime(opening, signal);
      return {
        send: (commands, isUrgent) => connection.send(commands, isUrgent),
        subscribe: (channels, onMessage) => connection.subscribe(channels, onMessage),
        close: end,
      };
    } catch (error) {
      end();
      throw error;
    }
  }

  /** A batch that blocks has a connection of its own. */
  async #alone(batch: Batch, call: Ending): Promise<readonly Reply[]> {
    let link: Link | undefined;
    const interrupt = () => link?.end(new Disconnected("interrupted"));
    const takeBack = call.onEnd(interrupt);
    try {
      const spare = this.#spares.pop();
      link = spare?.isOver === false ? spare : await this.#connect();
      link.limit = () => this.limits.longest + batch.block;
      if (call.isOver) interrupt();
      return await link.run(batch);
    } finally {
      takeBack();
      if (link?.isOver === false && this.#spares.length < MOST_SPARES && !this.#isClosed) this.#spares.push(link);
      else link?.end(new Disconnected("not needed"));
      this.#passOn();
    }
  }

  /** Waits for its turn to block, for `POLL` at most; false: the others go on blocking. */
  async #mayBlock(call: Ending): Promise<boolean> {
    if (this.#blocked < MOST_BLOCKED) return (this.#blocked += 1) > 0;
    let take = () => {};
    const turn = new Promise<void>((resolve) => this.#blocking.add((take = resolve)));
    await bounded(turn, POLL, call, () => {}).catch(() => {});
    const isMine = !this.#blocking.delete(take);
    if (isMine && call.isOver) this.#passOn();
    return isMine && !call.isOver;
  }

  /** Another call may block in place of one. */
  #passOn(): void {
    const [next] = this.#blocking;
    if (next === undefined) this.#blocked -= 1;
    else this.#blocking.delete(next);
    next?.();
  }

  async subscribe(channels: string[], onMessage: (text: string) => void, onEnd: () => void): Promise<Connection> {
    const connection = await this.#openConnection(onEnd);
    try {
      await this.#inTime(connection.subscribe(channels, onMessage));
      return connection;
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  /** Limits how long a step of a connection takes. */
  #inTime<T>(promise: Promise<T>, signal?: AbortSignal): Promise<T> {
    return new Promise((resolve, reject) => {
      const limit = this.limits.usual();
      const late = () => afterReads(() => reject(new Disconnected(`no connection within ${limit} ms`)));
      const timer = setTimeout(late, limit).unref();
      signal?.addEventListener("abort", () => {
        clearTimeout(timer);
        reject(new Disconnected("closed"));
      }, { once: true });
      promise.then(resolve, (error: unknown) => {
        const found = fromLibrary(error);
        reject(REFUSALS.has(found.code) ? found : new Disconnected(found.message));
      }).finally(() => clearTimeout(timer));
    });
  }

  node(): string { return ""; }

  isOpen(): boolean { return this.#link !== undefined; }

  close(): void {
    this.#isClosed = true;
    this.#link?.end(new Disconnected("closed"));
    for (const end of this.#ends) end();
  }
}

/** Logs what a connection says of itself. */
export function logged(error: unknown): void {
  log("connection: %s", error instanceof Error ? error.message : error);
}
