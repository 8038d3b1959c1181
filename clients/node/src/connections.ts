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

/**
 * How long the reply to a call that blocks for this time may take, in milliseconds. Of 0: the reply to any other call,
 * or a step of the opening of a connection; it follows the shortest lease.
 */
export type Limit = (block: number) => number;

/** What sends batches: one server, or a cluster. */
export interface Sender {
  /** Returns the replies; errors, also that none came, are among them. */
  run(batch: Batch, call?: Ending): Promise<readonly Reply[]>;
  /** Opens a connection that receives messages, until `ended`, which also closes it. */
  subscribe(channels: string[], onMessage: (text: string) => void, ended: Ending): Promise<void>;
  /** Names the node of a key. */
  node(key: string): string;
  /** Whether there is a connection for this key. */
  isOpen(key: string): boolean;
  close(): void;
}

/** A connection, and the batches whose replies are still to come. If none comes in time, the connection ends. */
class Link {
  isReplica = false;
  #open = 0; // batches without all their replies
  #progressAt = 0;
  #overdueSince = -1;
  #timer: NodeJS.Timeout | undefined;
  #watchAt = 0;
  #block = 0;

  /** `ended`: a reply that comes later must not be taken for that of a later request. */
  constructor(readonly connection: Connection, readonly ended: Ending, readonly limit: Limit) {
    ended.onEnd(() => clearTimeout(this.#timer));
  }

  run(batch: Batch): Promise<readonly Reply[]> {
    return new Promise((resolve, reject) => {
      const takeBack = this.ended.onEnd(() => reject(this.ended.reason));
      if (this.ended.isOver) return;
      this.#open += 1;
      if (this.#open === 1) this.#progressAt = performance.now();
      this.#block = batch.block;
      this.#watchIn(this.#progressAt + this.limit(this.#block) - performance.now());
      const settle = (reply: Reply, index: number) => {
        const fits = reply instanceof ServerError || batch.fits(reply, index);
        const broken = fits ? reply : new Disconnected("a reply of another request");
        if (broken instanceof Disconnected) this.ended.end(broken);
        this.#progressAt = performance.now();
        this.isReplica ||= reply instanceof ServerError && reply.code === "READONLY";
        return reply;
      };
      const sent = this.connection.send(batch.commands, batch.isUrgent)
        .map((reply, index) => reply.catch(fromLibrary).then((it) => settle(it, index)));
      void Promise.all(sent).then((replies) => {
        takeBack();
        this.#open -= 1;
        resolve(replies);
        if (this.isReplica) this.ended.end(new Disconnected("the server is a replica")); // the next may be the primary
      });
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
      if (this.ended.isOver || this.#open === 0) return;
      const limit = this.limit(this.#block);
      const left = this.#progressAt + limit - performance.now();
      if (left > 0) return this.#watchIn(left);
      if (this.#overdueSince === this.#progressAt) {
        return this.ended.end(new Disconnected(`no reply within ${limit} ms`));
      }
      this.#overdueSince = this.#progressAt; // that computation may have kept the request from being written
      this.#watchIn(limit / 10);
    });
  };
}

/** With these a server refuses a connection for good. Any other error while it is opened is a failed connection. */
const REFUSALS = new Set(["NOPERM", "NOAUTH", "WRONGPASS"]);

/** Calls that block at a time, each on a connection of its own, and how many of these are kept for the next ones. */
const [MOST_BLOCKED, MOST_SPARES] = [16, 4];

/** Sends batches over one connection, without waiting for the replies to those before. */
export class Server implements Sender {
  #link: Link | undefined;
  #opening: Promise<Link> | undefined;
  #isClosed = false;
  readonly #spares: Link[] = [];
  #blocked = 0;
  /** Calls that wait for one of those connections. */
  readonly #blocking = new Set<() => void>();
  /** The ends of the connections that are open, or being opened. */
  readonly #ends = new Set<Ending>();

  constructor(
    readonly adapter: Adapter, readonly limit: Limit, readonly onDrop: (isReplica: boolean) => void,
    readonly address?: Address,
  ) {}

  async run(batch: Batch, call = new Ending()): Promise<readonly Reply[]> {
    try {
      if (batch.block > 0) {
        if (await this.#mayBlock(call)) return await this.#alone(batch, call);
        const { key, poll, fits, reqid } = batch;
        batch = new Batch(poll, key, { fits, reqid });
      }
      if (call.isOver) throw new Disconnected("interrupted");
      const link = this.#link ?? await (this.#opening ??= this.#open());
      if (call.isOver) throw new Disconnected("interrupted");
      return await link.run(batch);
    } catch (error) {
      return batch.commands.map(() => fromLibrary(error));
    }
  }

  async #open(): Promise<Link> {
    try {
      const link = await this.#connect();
      this.#link = link;
      link.ended.onEnd(() => {
        this.#link = undefined;
        if (!this.#isClosed) this.onDrop(link.isReplica);
      });
      return link;
    } finally {
      this.#opening = undefined;
    }
  }

  async #connect(): Promise<Link> {
    const ended = new Ending();
    return new Link(await this.#openConnection(ended), ended, this.limit);
  }

  /** `ended` also closes the connection. */
  async #openConnection(ended: Ending): Promise<Connection> {
    if (this.#isClosed) throw new Disconnected("closed");
    const controller = new AbortController();
    const onEnd = (error: Error) => ended.end(new Disconnected(error.message));
    const opening = this.adapter.connect(onEnd, this.address, controller.signal);
    this.#ends.add(ended);
    ended.onEnd(() => {
      this.#ends.delete(ended);
      controller.abort();
      opening.then((connection) => connection.close(), () => {});
    });
    return this.#inTime(opening, ended);
  }

  /** A batch that blocks has a connection of its own. */
  async #alone(batch: Batch, call: Ending): Promise<readonly Reply[]> {
    let link: Link | undefined;
    const interrupt = () => link?.ended.end(new Disconnected("interrupted"));
    const takeBack = call.onEnd(interrupt);
    try {
      const spare = this.#spares.pop();
      link = spare?.ended.isOver === false ? spare : await this.#connect();
      if (call.isOver) interrupt();
      return await link.run(batch);
    } finally {
      takeBack();
      if (link?.ended.isOver === false && this.#spares.length < MOST_SPARES) this.#spares.push(link);
      else link?.ended.end(new Disconnected("not needed"));
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

  async subscribe(channels: string[], onMessage: (text: string) => void, ended: Ending): Promise<void> {
    const connection = await this.#openConnection(ended);
    await this.#inTime(connection.subscribe(channels, onMessage), ended);
  }

  /** Limits how long a step of the opening takes. A failure ends the connection. */
  async #inTime<T>(step: Promise<T>, ended: Ending): Promise<T> {
    const limit = this.limit(0);
    const late = () => { throw new Disconnected(`no connection within ${limit} ms`); };
    try {
      return await bounded(step, limit, ended, late);
    } catch (error) {
      const found = fromLibrary(error);
      ended.end(REFUSALS.has(found.code) ? found : new Disconnected(found.message));
      throw ended.reason;
    }
  }

  node(): string { return ""; }

  isOpen(): boolean { return this.#link !== undefined; }

  close(): void {
    this.#isClosed = true;
    for (const ended of this.#ends) ended.end(new Disconnected("closed"));
  }
}

/** Logs what a connection says of itself. */
export function logged(error: unknown): void {
  log("connection: %s", error instanceof Error ? error.message : error);
}
