/** Sends batches to the nodes of a cluster, and follows the slots. */

import { Server, type Adapter, type Address, type Limit, type Sender } from "./connections.js";
import { Disconnected, ServerError } from "./errors.js";
import type { Ending } from "./lifetime.js";
import { Batch, log, type Reply } from "./requests.js";

const SLOTS = 16384;
const MOST_REDIRECTIONS = 5;

/** The slot of a key: that of what is between the first { and the next }, if there is something. CRC16 (XMODEM). */
export function slotOf(key: string): number {
  const start = key.indexOf("{");
  const end = key.indexOf("}", start + 1);
  const hashed = start >= 0 && end > start + 1 ? key.slice(start + 1, end) : key;
  let crc = 0;
  for (const byte of Buffer.from(hashed)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = ((crc << 1) ^ (crc & 0x8000 ? 0x1021 : 0)) & 0xffff;
  }
  return crc % SLOTS;
}

export class Cluster implements Sender {
  readonly #nodes = new Map<string, Server>(); // by host:port
  readonly #slots = new Map<number, string>();
  #refreshing: Promise<void> | undefined;

  constructor(readonly adapter: Adapter, readonly limit: Limit, readonly onDrop: (isReplica: boolean) => void) {}

  node(key: string): string { return this.#slots.get(slotOf(key)) ?? ""; }

  isOpen(key: string): boolean { return this.#nodes.get(this.node(key))?.isOpen() ?? false; }

  async run(batch: Batch, call?: Ending): Promise<readonly Reply[]> {
    if (this.node(batch.key) === "") await this.#refresh();
    const name = this.node(batch.key);
    if (name === "") return batch.commands.map(() => new Disconnected(`no node has the slot of '${batch.key}'`));
    const first = await this.#node(name).run(batch, call);
    const replies = await Promise.all(first.map((reply, index) => this.#follow(batch, index, reply, name, call)));
    if (replies.some((reply) => reply instanceof Disconnected)) void this.#refresh(); // perhaps a replica took over
    return replies;
  }

  /** Follows the redirections of a command. */
  async #follow(batch: Batch, index: number, reply: Reply, name: string, call?: Ending): Promise<Reply> {
    const command = batch.commands[index];
    for (let turn = 0; turn < MOST_REDIRECTIONS && command !== undefined; turn += 1) {
      if (!(reply instanceof ServerError) || !(reply.code === "MOVED" || reply.code === "ASK")) break;
      const isAsk = reply.code === "ASK";
      const to = reply.text.split(" ")[1] ?? "";
      name = to.startsWith(":") ? `${addressOf(name).host}${to}` : to;
      if (!isAsk) {
        this.#slots.set(slotOf(batch.key), name);
        void this.#refresh();
      }
      const { key, block, poll, isUrgent } = batch;
      const again = new Batch(isAsk ? [["ASKING"], command] : [command], key, { block, poll, isUrgent });
      reply = (await this.#node(name).run(again, call)).at(-1);
    }
    return reply;
  }

  #node(name: string): Server {
    let server = this.#nodes.get(name);
    if (server === undefined) {
      server = new Server(this.adapter, this.limit, this.onDrop, addressOf(name));
      this.#nodes.set(name, server);
    }
    return server;
  }

  /** Nodes that may answer, in any order. */
  async #candidates(): Promise<string[]> {
    const known = (await this.adapter.nodes?.()) ?? [];
    const names = [...new Set([...known.map(({ host, port }) => `${host}:${port}`), ...this.#nodes.keys()])];
    const start = Math.floor(Math.random() * names.length);
    return [...names.slice(start), ...names.slice(0, start)];
  }

  #refresh(): Promise<void> {
    this.#refreshing ??= this.#readSlots()
      .catch((error: unknown) => log("slots: %s", error))
      .finally(() => (this.#refreshing = undefined));
    return this.#refreshing;
  }

  async #readSlots(): Promise<void> {
    for (const name of await this.#candidates()) {
      const [shards] = await this.#node(name).run(new Batch([["CLUSTER", "SLOTS"]], ""));
      if (!Array.isArray(shards) || shards.length === 0) continue;
      for (const [first, last, [host, port]] of shards as [number, number, [string | null, number]][]) {
        const owner = `${host || addressOf(name).host}:${port}`;
        for (let slot = Number(first); slot <= Number(last); slot += 1) this.#slots.set(slot, owner);
      }
      return;
    }
  }

  /** Messages of plain channels reach all nodes. */
  async subscribe(channels: string[], onMessage: (text: string) => void, ended: Ending): Promise<void> {
    const [name] = await this.#candidates();
    if (name === undefined) throw new Disconnected("no node of the cluster is known");
    return this.#node(name).subscribe(channels, onMessage, ended);
  }

  close(): void {
    for (const node of this.#nodes.values()) node.close();
  }
}

function addressOf(name: string): Address {
  const colon = name.lastIndexOf(":");
  return { host: name.slice(0, colon), port: Number(name.slice(colon + 1)) };
}
