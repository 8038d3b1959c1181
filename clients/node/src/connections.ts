/** Connections of the client libraries: what is asked of them, and the batches that wait for replies. */

import { afterReads } from "./clock.js";
import { Disconnected, fromLibrary, ServerError } from "./errors.js";
import { log, type Batch, type Command, type Reply } from "./requests.js";

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** One connection that is open, and never opens again. */
export interface Connection {
  /** Sends commands in this order, and returns a promise of each reply. Error replies reject. */
  send(commands: readonly Command[]): Promise<unknown>[];
  subscribe(channels: string[], onMessage: (message: string) => void): Promise<unknown>;
  /** Whether the connection keeps the process alive. */
  ref(isNeeded: boolean): void;
  close(): void;
}

/** How to use a client library: it opens connections with the settings of a client. */
export interface Adapter {
  /** Opens a connection, to a node if the client is one of a cluster. `onEnd` is called when it has ended. */
  connect(onEnd: (error: Error) => void, node?: Address): Promise<Connection>;
  /** Of a cluster: nodes that may be asked for the others. */
  nodes?(): Promise<readonly Address[]>;
}

/** What sends batches: one server, or a cluster. */
export interface Sender {
  /** Returns the replies; errors, also that none came, are among them. */
  run(batch: Batch, signal?: AbortSignal): Promise<readonly Reply[]>;
  /** Opens a connection that receives messages. */
  subscribe(channels: string[], onMessage: (text: string) => void, onEnd: () => void): Promise<Connection>;
  /** Names the node of a key. */
  node(key: string): string;
  close(): void;
}

/** A connection, and the batches whose replies are still to come. If none comes in time, the connection ends. */
class Link {
  isOver = false;
  readonly #rejects = new Set<(error: Error) => void>();
  #progressAt = 0;
  #overdueSince = -1;
  #timer: NodeJS.Timeout | undefined;

  constructor(readonly connection: Connection, public limit: number, readonly onOver: (link: Link) => void) {
    connection.ref(false);
  }

  run(batch: Batch): Promise<readonly Reply[]> {
    return new Promise((resolve, reject) => {
      if (this.isOver) return reject(new Disconnected("the connection ended"));
      this.#rejects.add(reject);
      if (this.#rejects.size === 1) {
        this.connection.ref(true);
        this.#progressAt = performance.now();
        this.#timer ??= setTimeout(this.#watch, this.limit).unref();
      }
      const commands = batch.toSend();
      const replies = new Array<Reply>(commands.length);
      let left = commands.length;
      let isReplica = false;
      const settle = (index: number, reply: Reply) => {
        if (this.isOver) return; // late: nobody waits for it
        if (reply instanceof Disconnected) return this.end(reply);
        this.#progressAt = performance.now();
        isReplica ||= reply instanceof ServerError && reply.code === "READONLY";
        replies[index] = reply;
        left -= 1;
        if (left > 0) return;
        this.#rejects.delete(reject);
        resolve(replies);
        if (isReplica) this.end(new Disconnected("the server is a replica")); // the next one may lead to the primary
        else if (this.#rejects.size === 0) this.connection.ref(false);
      };
      for (const [index, reply] of this.connection.send(commands).entries()) {
        reply.then((value) => settle(index, value), (error: unknown) => settle(index, fromLibrary(error)));
      }
    });
  }

  readonly #watch = (): void => {
    afterReads(() => { // after a long computation timers run before replies are read
      this.#timer = undefined;
      if (this.isOver || this.#rejects.size === 0) return;
      let left = this.#progressAt + this.limit - performance.now();
      if (left <= 0) {
        if (this.#overdueSince === this.#progressAt) {
          return this.end(new Disconnected(`no reply within ${this.limit} ms`));
        }
        this.#overdueSince = this.#progressAt; // that computation may have kept the request from being written
        left = this.limit / 10;
      }
      this.#timer = setTimeout(this.#watch, left).unref();
    });
  };

  /** Ends the connection: a reply that comes later must not be taken for that of a later request. */
  end(error: Error): void {
    if (this.isOver) return;
    this.isOver = true;
    clearTimeout(this.#timer);
    this.connection.close();
    for (const reject of this.#rejects) reject(error);
    this.#rejects.clear();
    this.onOver(this);
  }
}

/** With these a server refuses a connection for good. Any other error while it is opened is a failed connection. */
const REFUSALS = new Set(["NOPERM", "NOAUTH", "WRONGPASS"]);

/** Connections for calls that block are kept for the next of them, up to this number. */
const MOST_SPARES = 4;

/** Sends batches over one connection, without waiting for the replies to those before. */
export class Server implements Sender {
  #link: Link | undefined;
  #isOpening = false;
  #isClosed = false;
  #queue: ((link: Link | Error) => void)[] = [];
  readonly #blocking = new Set<Link>();
  readonly #spares: Link[] = [];

  constructor(
    readonly adapter: Adapter, readonly limit: number, readonly onDrop: () => void, readonly address?: Address,
  ) {}

  async run(batch: Batch, signal?: AbortSignal): Promise<readonly Reply[]> {
    try {
      if (batch.block > 0) return await this.#alone(batch, signal);
      if (this.#link !== undefined) return await this.#link.run(batch);
      return await new Promise((resolve, reject) => {
        this.#queue.push((link) => (link instanceof Error ? reject(link) : resolve(link.run(batch))));
        if (!this.#isOpening) void this.#open();
      });
    } catch (error) {
      return batch.toSend().map(() => fromLibrary(error));
    }
  }

  async #open(): Promise<void> {
    this.#isOpening = true;
    const opened = await this.#connect((link) => {
      if (this.#link !== link) return;
      this.#link = undefined;
      if (!this.#isClosed) this.onDrop();
    }).catch((error: Error) => error);
    if (opened instanceof Link) this.#link = opened;
    this.#isOpening = false;
    for (const start of this.#queue.splice(0)) start(opened);
  }

  async #connect(onOver: (link: Link) => void): Promise<Link> {
    let link: Link | undefined;
    let ended: Error | undefined;
    const connection = await this.#openConnection((error) => {
      ended = error;
      link?.end(new Disconnected(error.message));
    });
    link = new Link(connection, this.limit, onOver);
    if (ended === undefined && !this.#isClosed) return link;
    link.end(new Disconnected("closed"));
    throw new Disconnected((ended as Error | undefined)?.message ?? "closed");
  }

  #openConnection(onEnd: (error: Error) => void): Promise<Connection> {
    return this.#inTime(this.adapter.connect(onEnd, this.address), (connection) => connection.close());
  }

  /** A batch that blocks has a connection of its own. */
  async #alone(batch: Batch, signal: AbortSignal | undefined): Promise<readonly Reply[]> {
    const spare = this.#spares.pop();
    const link = spare?.isOver === false ? spare : await this.#connect((link) => this.#blocking.delete(link));
    link.limit = this.limit + batch.block;
    const abort = () => link.end(new Disconnected("interrupted"));
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
    this.#blocking.add(link);
    try {
      return await link.run(batch);
    } finally {
      signal?.removeEventListener("abort", abort);
      this.#blocking.delete(link);
      if (!link.isOver && this.#spares.length < MOST_SPARES && !this.#isClosed) this.#spares.push(link);
      else link.end(new Disconnected("not needed"));
    }
  }

  async subscribe(channels: string[], onMessage: (text: string) => void, onEnd: () => void): Promise<Connection> {
    const connection = await this.#openConnection(onEnd);
    try {
      await this.#inTime(connection.subscribe(channels, onMessage));
      connection.ref(false);
      return connection;
    } catch (error) {
      connection.close();
      throw error;
    }
  }

  /** Limits how long a step of a connection takes. `onLate` gets what comes later. */
  #inTime<T>(promise: Promise<T>, onLate?: (value: T) => void): Promise<T> {
    return new Promise((resolve, reject) => {
      let isLate = false;
      const timer = setTimeout(() => {
        isLate = true;
        reject(new Disconnected(`no connection within ${this.limit} ms`));
      }, this.limit);
      promise.then(
        (value) => (isLate ? onLate?.(value) : resolve(value)),
        (error: unknown) => {
          const found = fromLibrary(error);
          reject(REFUSALS.has(found.code) ? found : new Disconnected(found.message));
        },
      ).finally(() => clearTimeout(timer));
    });
  }

  node(): string {
    return "";
  }

  close(): void {
    this.#isClosed = true;
    for (const link of [this.#link, ...this.#blocking, ...this.#spares]) link?.end(new Disconnected("closed"));
  }
}

/** Logs what a connection says of itself. */
export function logged(error: unknown): void {
  log("connection: %s", error instanceof Error ? error.message : error);
}
