/** Connections of the client libraries: what is asked of them, and the batches that wait for replies. */

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
  run(batch: Batch, signal?: AbortSignal): Promise<readonly Reply[]>;
  /** Opens a connection that receives messages. */
  subscribe(channels: string[], onMessage: (text: string) => void, onEnd: () => void): Promise<Connection>;
  /** Names the node of a key. */
  node(key: string): string;
  close(): void;
}

interface Waiting {
  resolve(replies: readonly Reply[]): void;
  reject(error: Error): void;
}

/** A connection, and the batches whose replies are still to come. If none comes in time, the connection ends. */
class Link {
  isOver = false;
  readonly #waiting = new Set<Waiting>();
  #progressAt = 0;
  #timer: NodeJS.Timeout | undefined;
  #isRetired = false;

  constructor(readonly connection: Connection, public limit: number, readonly onOver: (link: Link) => void) {
    connection.ref(false);
  }

  run(batch: Batch): Promise<readonly Reply[]> {
    return new Promise((resolve, reject) => {
      if (this.isOver) return reject(new Disconnected("the connection ended"));
      const waiting = { resolve, reject };
      this.#waiting.add(waiting);
      if (this.#waiting.size === 1) {
        this.connection.ref(true);
        this.#progressAt = performance.now();
        this.#timer ??= setTimeout(this.#watch, this.limit).unref();
      }
      const commands = batch.toSend();
      const replies = new Array<Reply>(commands.length);
      let left = commands.length;
      const settle = (index: number, reply: Reply) => {
        if (this.isOver) return; // late: nobody waits for it
        if (reply instanceof Disconnected) return this.end(reply);
        this.#progressAt = performance.now();
        // A server that became a replica: the next connection may lead to the primary.
        if (reply instanceof ServerError && reply.code === "READONLY") this.retire();
        replies[index] = reply;
        left -= 1;
        if (left > 0) return;
        this.#waiting.delete(waiting);
        resolve(replies);
        if (this.#waiting.size === 0) this.#idle();
      };
      for (const [index, reply] of this.connection.send(commands).entries()) {
        reply.then((value) => settle(index, value), (error: unknown) => settle(index, fromLibrary(error)));
      }
    });
  }

  #idle(): void {
    if (this.#isRetired) this.end(new Disconnected("retired"));
    else this.connection.ref(false);
  }

  readonly #watch = (): void => {
    // After a long computation timers run before replies are read: so only after these.
    setImmediate(() => {
      this.#timer = undefined;
      if (this.isOver || this.#waiting.size === 0) return;
      const left = this.#progressAt + this.limit - performance.now();
      if (left <= 0) this.end(new Disconnected(`no reply within ${this.limit} ms`));
      else this.#timer = setTimeout(this.#watch, left).unref();
    });
  };

  /** Takes no further batches. */
  retire(): void {
    this.#isRetired = true;
    this.onOver(this);
  }

  /** Ends the connection: a reply that comes later must not be taken for that of a later request. */
  end(error: Error): void {
    if (this.isOver) return;
    this.isOver = true;
    clearTimeout(this.#timer);
    this.connection.close();
    for (const { reject } of this.#waiting) reject(error);
    this.#waiting.clear();
    this.onOver(this);
  }

  get isUsable(): boolean {
    return !(this.isOver || this.#isRetired);
  }
}

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
      batch.isCertain = this.#link !== undefined;
      if (this.#link !== undefined) return await this.#link.run(batch);
      return await new Promise((resolve, reject) => {
        this.#queue.push((link) => (link instanceof Error ? reject(link) : resolve(link.run(batch))));
        if (!this.#isOpening) void this.#open();
      });
    } catch (error) {
      if (error instanceof ServerError) return batch.toSend().map(() => error); // it refused the connection
      throw error;
    }
  }

  async #open(): Promise<void> {
    this.#isOpening = true;
    let opened: Link | Error;
    try {
      opened = this.#link = await this.#connect((link) => {
        if (this.#link !== link) return;
        this.#link = undefined;
        if (!this.#isClosed) this.onDrop();
      });
    } catch (error) {
      opened = error as Error;
    }
    this.#isOpening = false;
    const queue = this.#queue;
    this.#queue = [];
    for (const start of queue) start(opened);
  }

  async #connect(onOver: (link: Link) => void): Promise<Link> {
    let link: Link | undefined;
    let ended: Error | undefined;
    const connection = await this.#openConnection((error) => {
      ended = error;
      link?.end(new Disconnected(error.message));
    });
    link = new Link(connection, this.limit, onOver);
    if (ended !== undefined || this.#isClosed) {
      link.end(new Disconnected("closed"));
      throw new Disconnected(ended?.message ?? "closed");
    }
    return link;
  }

  #openConnection(onEnd: (error: Error) => void): Promise<Connection> {
    return new Promise((resolve, reject) => {
      let isLate = false;
      const timer = setTimeout(() => {
        isLate = true;
        reject(new Disconnected(`no connection within ${this.limit} ms`));
      }, this.limit);
      this.adapter.connect(onEnd, this.address).then(
        (connection) => (isLate ? connection.close() : resolve(connection)),
        (error: unknown) => reject(fromLibrary(error)),
      ).finally(() => clearTimeout(timer));
    });
  }

  /** A batch that blocks has a connection of its own. */
  async #alone(batch: Batch, signal: AbortSignal | undefined): Promise<readonly Reply[]> {
    const spare = this.#spares.pop();
    const used = spare?.isUsable ? spare : await this.#connect((link) => this.#blocking.delete(link));
    used.limit = this.limit + batch.block;
    const abort = () => used.end(new Disconnected("interrupted"));
    if (signal?.aborted) abort();
    signal?.addEventListener("abort", abort, { once: true });
    this.#blocking.add(used);
    try {
      return await used.run(batch);
    } finally {
      signal?.removeEventListener("abort", abort);
      this.#blocking.delete(used);
      if (used.isUsable && this.#spares.length < MOST_SPARES && !this.#isClosed) this.#spares.push(used);
      else used.end(new Disconnected("not needed"));
    }
  }

  async subscribe(channels: string[], onMessage: (text: string) => void, onEnd: () => void): Promise<Connection> {
    const connection = await this.#openConnection(onEnd);
    const timer = setTimeout(() => connection.close(), this.limit);
    try {
      await connection.subscribe(channels, onMessage);
      connection.ref(false);
      if (this.#isClosed) throw new Disconnected("closed");
      return connection;
    } catch (error) {
      connection.close();
      throw fromLibrary(error);
    } finally {
      clearTimeout(timer);
    }
  }

  node(): string {
    return "";
  }

  close(): void {
    this.#isClosed = true;
    const closed = new Disconnected("closed");
    this.#link?.end(closed);
    for (const link of [...this.#blocking, ...this.#spares.splice(0)]) link.end(closed);
  }
}

/** Logs what a connection says of itself. */
export function logged(error: unknown): void {
  log("connection: %s", error instanceof Error ? error.message : error);
}
