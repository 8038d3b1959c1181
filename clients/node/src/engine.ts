/** What all `DLock`s of one client share: connections, messages, and the renewal of holds. */

import { getEventListeners } from "node:events";

import { adapterOf, type Client } from "./adapters.js";
import { atMostOnceIn, CLOCK_INTERVAL, now } from "./clock.js";
import { Cluster } from "./cluster.js";
import { Server, type Adapter, type Sender } from "./connections.js";
import { closed, Disconnected, type LossReason } from "./errors.js";
import { Registry, type HoldState } from "./holds.js";
import { bounded, Ending, keepAlive } from "./lifetime.js";
import type { Io, ProgramSettings } from "./programs.js";
import { log, message, newId, POLL, Replicas, type Batch, type Message, type Reply } from "./requests.js";

/** The channel on which servers tell of FLUSHDB and FLUSHALL. */
const FLUSHES = "dlock:notify";

/** Messages have holds renewed at most that often, and all holds and waits checked. */
const [HINT_PAUSE, CHECK_PAUSE] = [100, 1000];

/** Waits for a message about one request. */
class Waiter extends Ending {
  message: Message | undefined;

  wake(message?: Message): void {
    this.message = message;
    this.end();
  }
}

/** The settings of a `DLock` that concern connections: those who have the same ones share an engine. */
export type EngineSettings = Omit<ProgramSettings, "replicas"> & { readonly replicas: number };

const engines = new WeakMap<object, Map<string, Engine>>();

/** Engines that are not closed: what they hold is released when the process ends. */
const open = new Set<Engine>();

/** The engine of a client, which is joined: it closes when all have left. */
export function engineOf(client: Client, settings: EngineSettings): Engine {
  const adapter = adapterOf(client);
  let known = engines.get(client);
  if (known === undefined) engines.set(client, (known = new Map()));
  const name = JSON.stringify(settings);
  let engine = known.get(name);
  if (engine === undefined || !open.has(engine)) known.set(name, (engine = new Engine(adapter, settings)));
  engine.users += 1;
  return engine;
}

/** The process would end now. */
const onExit = () => open.forEach((engine) => engine.onExit());

export class Engine {
  /** How many `DLock`s use it. */
  users = 0;
  readonly settings: ProgramSettings;
  readonly channel = `${FLUSHES}:${newId()}`;
  readonly running = new Set<Promise<unknown>>();
  /** What callers of `runOnce` in this process share, by family and key. */
  readonly runs = new Map<string, unknown>();
  readonly #sender: Sender;
  readonly registry = new Registry();
  readonly #waiters = new Map<string, Waiter>();
  #hasWaited = false; // at the end of the process, for what is sent in the background
  #isListening = false;
  #subscription: Ending | undefined;
  #renewalTimer: NodeJS.Timeout | undefined;
  #wakesAt = Infinity; // when the holds are looked at next
  readonly #onFlush = atMostOnceIn(CHECK_PAUSE, () => this.#checkAll());
  readonly #onHint = atMostOnceIn(HINT_PAUSE, () => {
    this.registry.takeHints();
    this.#wakeAt(now());
  });

  constructor(adapter: Adapter, settings: EngineSettings) {
    const { responseTimeout, replicas } = settings;
    const isCluster = adapter.nodes !== undefined;
    if (isCluster && replicas > 0) throw new TypeError("replicas needs a client for one server or a Sentinel group");
    this.settings = { ...settings, replicas: new Replicas(replicas, Math.min(responseTimeout / 3, 1000)) };
    const limit = (block: number) =>
      block > 0 ? responseTimeout + block : Math.min(responseTimeout, this.registry.shortest / 3);
    const check = atMostOnceIn(CHECK_PAUSE, () => this.#checkAll()); // places have lost their connection
    const onReplica = atMostOnceIn(CHECK_PAUSE, () => this.#subscription?.end()); // messages come from the primary
    this.#sender = new (isCluster ? Cluster : Server)(adapter, limit, (isReplica) => {
      if (isReplica) onReplica();
      check();
    });
    if (open.size === 0) process.on("beforeExit", onExit);
    open.add(this);
  }

  /** What a program needs for a call. `end`: it is over. */
  io(call: Ending, background: Io["background"]): Io & { end(): void } {
    const reqids = new Set<string>();
    return {
      send: (batch) => this.#send(batch, reqids, call),
      pause: (ms, reqid) => this.#pause(ms, reqid, call),
      until: (promise, ms) => bounded(promise, ms, call, () => undefined),
      background,
      end: () => {
        for (const reqid of reqids) this.#waiters.delete(reqid);
      },
    };
  }

  async #send(batch: Batch, reqids: Set<string>, call: Ending): Promise<readonly Reply[]> {
    if (call.isOver) throw call.reason;
    if (!open.has(this)) throw closed();
    if (batch.reqid !== "") {
      reqids.add(batch.reqid);
      this.#waiters.set(batch.reqid, new Waiter());
    }
    const none = () => {
      const text = `no reply within ${Math.round(batch.within)} ms`;
      return batch.commands.map(() => new Disconnected(text, this.#sender.isOpen(batch.key)));
    };
    const sending = new Ending();
    try {
      return await bounded(this.#sender.run(batch, sending), batch.within, call, none);
    } finally {
      sending.end();
    }
  }

  async #pause(ms: number, reqid: string | undefined, call: Ending): Promise<Message | undefined> {
    const waiter = this.#waiters.get(reqid ?? "");
    const woken = new Promise<void>((resolve) => waiter?.onEnd(resolve));
    const longest = waiter === undefined || this.#subscription !== undefined ? ms : Math.min(POLL, ms);
    await bounded(woken, longest, call, () => {});
    return waiter?.message; // the last one: a grant may have ended in the same packet
  }

  // Holds.

  add(state: HoldState, session: object): void {
    this.registry.add(state);
    state.session = session;
    if (state.isUnannounced) this.#subscription?.end(); // perhaps that of a server that became a replica
    if (state.renewAt < this.#wakesAt - (state.until - state.renewAt) / 4) this.#wakeAt(state.renewAt);
  }

  /** Takes the holds of a session out, or all, and sends their releases. They are lost if there is a reason. */
  takeOut(reason?: LossReason, session?: object): Promise<unknown> {
    const holds = this.registry.all().filter((hold) => session === undefined || hold.session === session);
    const batches = this.registry.releases(holds, (key) => this.#sender.node(key));
    const sent = Promise.all(batches.map((batch) => this.#sender.run(batch)));
    for (const hold of holds) {
      if (reason === undefined) hold.isReleased = true;
      else hold.lose(reason);
    }
    return sent;
  }

  /** Waits for releases, and until nothing runs, at most for the time of a reply. */
  async settle(releases: Promise<unknown>, running: ReadonlySet<Promise<unknown>>): Promise<void> {
    const idle = async () => {
      await releases;
      while (running.size > 0) await Promise.allSettled(running);
    };
    await bounded<unknown>(idle(), this.settings.responseTimeout, new Ending(), () => undefined);
  }

  /**
   * The process ends: holds are released, and what is sent in the background has the time of a reply. A leadership
   * whose end someone waits for keeps the process alive.
   */
  onExit(): void {
    const holds = this.registry.all();
    if (holds.some((hold) => hold.isLeadership && getEventListeners(hold.signal, "abort").length > 0)) {
      setTimeout(() => {}, CLOCK_INTERVAL); // then it is asked again
    } else if (holds.length > 0 || (this.running.size > 0 && !this.#hasWaited)) {
      this.#hasWaited = true;
      void keepAlive(this.settle(this.takeOut(), this.running));
    }
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
    const [rounds, again] = this.registry.due(this.settings.replicas, (key) => this.#sender.node(key));
    for (const round of rounds) void this.#sender.run(round.batch).then((replies) => round.apply(replies));
    if (this.registry.size > 0) this.#wakeAt(again);
    else this.#wakesAt = Infinity;
  }

  // Messages.

  /** Subscribes. Waits that asked before ask again then: a message about a request may follow its reply at once. */
  listen(): void {
    if (this.#isListening) return;
    this.#isListening = true;
    void this.#receive();
  }

  async #receive(): Promise<void> {
    while (open.has(this)) {
      const subscription = new Ending();
      try {
        await this.#sender.subscribe([this.channel, FLUSHES], (text) => this.#onMessage(text), subscription);
        this.#subscription = subscription;
        this.#checkAll(); // messages may have been missed
        await new Promise<void>((resolve) => subscription.onEnd(resolve));
      } catch (error) {
        log("messages: %s", error);
      }
      this.#subscription = undefined;
      if (open.has(this)) await new Promise((resolve) => setTimeout(resolve, 200).unref());
    }
  }

  /** Each wait asks again, and each hold is renewed. */
  #checkAll(): void {
    for (const waiter of this.#waiters.values()) waiter.wake();
    this.registry.checkAll();
    if (this.registry.size > 0) this.#wakeAt(now());
  }

  #onMessage(text: string): void {
    const notice = message(text);
    if (notice === undefined) return;
    if (notice.event === "flushed") return this.#onFlush();
    this.#waiters.get(notice.reqid)?.wake(notice);
    if (this.registry.onMessage(notice)) this.#onHint();
  }

  /** A `DLock` needs it no longer. The last one ends its connections; the client is the caller's. */
  leave(): void {
    this.users -= 1;
    if (this.users > 0) return;
    open.delete(this);
    if (open.size === 0) process.off("beforeExit", onExit);
    clearTimeout(this.#renewalTimer);
    this.#sender.close();
  }
}
