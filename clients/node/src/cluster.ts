/** Sends batches to the nodes of a cluster, and follows the slots. */

import { Server, type Adapter, type Address, type Connection, type Sender } from "./connections.js";
import { Disconnected, ServerError } from "./errors.js";
import { Batch, log, type Reply } from "./requests.js";

const SLOTS = 16384;
const MOST_REDIRECTIONS = 5;

/** CRC16 (XMODEM) of all bytes. */
const CRC = Uint16Array.from({ length: 256 }, (_, byte) => {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit += 1) crc = (crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0);
  return crc;
});

/** The slot of a key: that of what is between the first { and the next }, if there is something. */
export function slotOf(key: string): number {
  const start = key.indexOf("{");
  const end = key.indexOf("}", start + 1);
  const hashed = start >= 0 && end > start + 1 ? key.slice(start + 1, end) : key;
  let crc = 0;
  for (const byte of Buffer.from(hashed)) crc = ((crc << 8) & 0xffff) ^ (CRC[(crc >> 8) ^ byte] as number);
  return crc % SLOTS;
}

export class Cluster implements Sender {
  readonly #nodes = new Map<string, Server>();
  readonly #slots = new Map<number, string>();
  #refreshing: Promise<void> | undefined;

  constructor(readonly adapter: Adapter, readonly limit: number, readonly onDrop: () => void) {}

  node(key: string): string {
    return this.#slots.get(slotOf(key)) ?? "";
  }

  async run(batch: Batch, signal?: AbortSignal): Promise<readonly Reply[]> {
    if (this.node(batch.key) === "") await this.#refresh();
    const name = this.node(batch.key);
    if (name === "") throw new Disconnected(`no node has the slot of '${batch.key}'`);
    try {
      const replies = await this.#node(name).run(batch, signal);
      const isRedirected = replies.some((reply) => redirection(reply, name) !== undefined);
      return isRedirected ? await this.#follow(batch, replies, name, signal) : replies;
    } catch (error) {
      void this.#refresh(); // perhaps a replica has taken over
      throw error;
    }
  }

  async #follow(batch: Batch, replies: readonly Reply[], name: string, signal?: AbortSignal): Promise<Reply[]> {
    void this.#refresh();
    return Promise.all(replies.map(async (reply, index) => {
      const command = batch.commands[index];
      let from = name;
      for (let turn = 0; turn < MOST_REDIRECTIONS; turn += 1) {
        const to = redirection(reply, from);
        if (to === undefined || command === undefined) break;
        const again = new Batch(to.isAsk ? [["ASKING"], command] : [command], batch.key, batch.block);
        if (!to.isAsk) this.#slots.set(slotOf(batch.key), to.name);
        const answers = await this.#node(to.name).run(again, signal);
        batch.isCertain &&= again.isCertain;
        reply = answers.at(-1);
        from = to.name;
      }
      return reply;
    }));
  }

  #node(name: string): Server {
    let server = this.#nodes.get(name);
    if (server === undefined) {
      server = new Server(this.adapter, this.limit, this.onDrop, addressOf(name));
      this.#nodes.set(name, server);
    }
    return server;
  }

  #refresh(): Promise<void> {
    this.#refreshing ??= this.#readSlots()
      .catch((error: unknown) => log("slots: %s", error))
      .finally(() => (this.#refreshing = undefined));
    return this.#refreshing;
  }

  /** The names of nodes that may answer, those that the client library knows first. */
  async #names(): Promise<string[]> {
    const known = (await this.adapter.nodes?.()) ?? [];
    return [...new Set([...known.map(nameOf), ...this.#nodes.keys()])];
  }

  async #readSlots(): Promise<void> {
    for (const name of shuffled(await this.#names())) {
      let shards: Reply;
      try {
        [shards] = await this.#node(name).run(new Batch([["CLUSTER", "SLOTS"]], ""));
      } catch (error) {
        log("slots of %s: %s", name, error);
        continue;
      }
      if (!Array.isArray(shards) || shards.length === 0) continue;
      for (const [first, last, [host, port]] of shards as [number, number, [string | null, number]][]) {
        const owner = nameOf({ host: host ? String(host) : addressOf(name).host, port: Number(port) });
        for (let slot = Number(first); slot <= Number(last); slot += 1) this.#slots.set(slot, owner);
      }
      return;
    }
  }

  /** Messages of plain channels reach all nodes. */
  async subscribe(channels: string[], onMessage: (text: string) => void, onEnd: () => void): Promise<Connection> {
    const [name] = shuffled(await this.#names());
    if (name === undefined) throw new Disconnected("no node of the cluster is known");
    return this.#node(name).subscribe(channels, onMessage, onEnd);
  }

  close(): void {
    for (const node of this.#nodes.values()) node.close();
  }
}

/** Where an error reply of the node `from` sends a command. */
function redirection(reply: Reply, from: string): { isAsk: boolean; name: string } | undefined {
  if (!(reply instanceof ServerError) || !(reply.code === "MOVED" || reply.code === "ASK")) return undefined;
  const name = reply.text.split(" ")[1] ?? "";
  return { isAsk: reply.code === "ASK", name: name.startsWith(":") ? `${addressOf(from).host}${name}` : name };
}

function nameOf({ host, port }: Address): string {
  return `${host}:${port}`;
}

function addressOf(name: string): Address {
  const colon = name.lastIndexOf(":");
  return { host: name.slice(0, colon), port: Number(name.slice(colon + 1)) };
}

function shuffled<T>(list: T[]): T[] {
  return list.map((value) => [Math.random(), value] as const).sort((a, b) => a[0] - b[0]).map(([, value]) => value);
}
