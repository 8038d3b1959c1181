/** What is sent: requests as lists of words. Here, too, is how replies and messages are read. */

import { randomFillSync } from "node:crypto";
import { closeSync, openSync, readSync } from "node:fs";
import { debuglog } from "node:util";

import { now } from "./clock.js";
import { Refused, ServerError } from "./errors.js";

/** Set NODE_DEBUG=redis-dlock to see these. */
export const log = debuglog("redis-dlock");

export type Arg = string | number;
export type Command = readonly Arg[];
/** A value, or an error reply. */
export type Reply = unknown;

/**
 * An id that nobody can guess, for an owner or a request. It comes from the kernel when it is needed: clones of a
 * process (a snapshot of its machine) share all that was drawn before, and the state of OpenSSL, too.
 */
export function newId(): string {
  const bytes = Buffer.allocUnsafe(16);
  try {
    const kernel = openSync("/dev/urandom", "r");
    readSync(kernel, bytes);
    closeSync(kernel);
  } catch {
    randomFillSync(bytes); // Windows, or no descriptor is left
  }
  return bytes.toString("hex");
}

/** A time on the wire: at least 1 ms, because 0 often means "forever". */
export function onWire(ms: number): number {
  return Math.max(1, Math.round(ms));
}

/** A map of a reply: RESP2 sends it as a flat list. */
export function fields(reply: Reply): Map<string, Reply> {
  if (!Array.isArray(reply)) return new Map(Object.entries((reply as Record<string, unknown> | null) ?? {}));
  return new Map(reply.flatMap((name, at) => (at % 2 === 0 ? [[String(name), reply[at + 1]]] : [])));
}

/** Throws for a text that cannot be sent as it is. */
export function requireText(what: string, value: unknown): asserts value is string {
  const isHalf = /[\ud800-\udfff]/u; // with the flag u: half of a pair that stands alone
  if (typeof value !== "string" || value === "" || isHalf.test(value)) {
    throw new TypeError(`${what} must be a string of at least one character, not ${JSON.stringify(value)}`);
  }
}

/** One key of a grant, with its fencing token (a number), or its permit id (a string). */
export interface Grant {
  readonly key: string;
  readonly token: number | string;
}

/** What is locked: the family of commands, the keys, and the words that its commands have besides. */
export class Target {
  constructor(
    readonly family: "DLOCK" | "DFAIR" | "DRW" | "DSEM",
    readonly keys: readonly string[],
    readonly form: "one" | "all" | "any" = "one",
    readonly mode: readonly Arg[] = [],
    readonly options: readonly Arg[] = [],
  ) {
    if (!Array.isArray(keys) || keys.length === 0) throw new TypeError("keys must be an array of at least one key");
    for (const key of keys) requireText("a key", key);
  }

  get key(): string { return this.keys[0] as string; }

  /** Whether a value can be the reply to an ACQUIRE: it grants nothing, or has a token for each key. */
  fits(reply: Reply): boolean {
    if (reply === null || reply === undefined) return true;
    if (this.form !== "one" && !Array.isArray(reply)) return false;
    if (this.family === "DSEM") return typeof reply === "string" && reply !== "";
    return this.grants(reply).every(({ token }) => Number.isInteger(token) && Number(token) > 0);
  }

  /** What an ACQUIRE granted; empty if it granted nothing. */
  grants(reply: Reply): readonly Grant[] {
    if (reply === null || reply === undefined) return [];
    if (this.form === "all") {
      return this.keys.map((key, index) => ({ key, token: Number((reply as Reply[])[index]) }));
    }
    if (this.form === "any") {
      const [key, token] = reply as Reply[];
      return [{ key: String(key), token: Number(token) }];
    }
    return [{ key: this.key, token: this.family === "DSEM" ? String(reply) : Number(reply) }];
  }
}

/** One acquire, with all that its copies have in common. Its id names it until its release. */
export class Request {
  constructor(
    readonly target: Target,
    readonly owner: string,
    /** What each renewal asks for. */
    readonly lease: number,
    /** What the acquire asks for: less, if it may wait in a queue. A waiter that dies costs this. */
    readonly firstLease: number,
    readonly channel: string,
    readonly label: string | undefined,
    readonly reqid: string = newId(),
  ) {}

  /** The same once more, as another request. */
  renewed(): Request {
    return new Request(this.target, this.owner, this.lease, this.firstLease, this.channel, this.label);
  }

  /** A copy of the request. `wait` is empty, or how to wait: BLOCK and QUEUE with their times. */
  acquire(...wait: Arg[]): Command {
    const { family, form, keys, mode, options } = this.target;
    const verb = { one: "ACQUIRE", all: "MACQUIRE", any: "ANYACQUIRE" }[form];
    return [`${family}.${verb}`, ...(form === "one" ? [] : [keys.length]), ...keys, this.owner, ...mode, ...options,
      "PX", onWire(this.firstLease), ...wait, "NOTIFY", this.channel, "REQID", this.reqid,
      ...(this.label === undefined ? [] : ["LABEL", this.label])];
  }

  /** Extends the lease of what was granted. */
  renew({ key, token }: Grant, lease: number): Command {
    const holder = this.target.family === "DSEM" ? [token] : [this.owner, ...this.target.mode];
    return [`${this.target.family}.RENEW`, key, ...holder, "PX", onWire(lease), ...this.#token(token)];
  }

  /**
   * Ends what the request has: its hold, or its wait. Without a grant all that it may have. `done`: tells observers of
   * the hold that its work is done.
   */
  release(grant?: Grant, done = false): Command {
    const { family, form, keys, key, mode } = this.target;
    const id = ["REQID", this.reqid];
    if (form === "all" || (form === "any" && grant === undefined)) {
      return [`${family}.MRELEASE`, keys.length, ...keys, this.owner, ...id];
    }
    const token = grant === undefined ? [] : this.#token(grant.token);
    return [`${family}.RELEASE`, grant?.key ?? key, this.owner, ...mode, ...token, ...id, ...(done ? ["DONE"] : [])];
  }

  #token(token: number | string): Arg[] { return this.target.family === "DSEM" ? [] : ["TOKEN", token]; }
}

const INFO = ["INFO", "dlock_keys"];

/** What a server tells of its quarantine, in milliseconds. */
function quarantine(info: Reply, name: string): number {
  return Number(new RegExp(`^dlock_quarantine_${name}_ms:(\\d+)`, "m").exec(String(info))?.[1]);
}

/**
 * How many replicas must have a write before it counts, and how long it waits for them at most.
 *
 * docs/failover.md has the rules, and why they suffice.
 */
export class Replicas {
  /** The longest lease that is known to be safe: the quarantine of the server. */
  safeLease = 0;

  constructor(readonly wanted: number, readonly limit: number) {}

  /** What is sent over the connection of the write, behind it. */
  requests(lease: number): Command[] {
    return this.wanted === 0 ? [] : [["WAIT", this.wanted, onWire(Math.min(lease / 6, this.limit))], INFO];
  }

  /**
   * Why a write does not count, by the replies to it and to `requests()`: too few replicas have it, or one came over
   * since, which may have confirmed a write of another primary. `sent`: when it was. A grant: also if there was a
   * quarantine since.
   */
  refusal(replies: readonly Reply[], sent: number, lease: number, isGrant: boolean): ServerError | undefined {
    if (this.wanted === 0) return undefined;
    const [count, info] = replies.slice(-2);
    if (!(Number(count) >= this.wanted)) {
      return new ServerError("NOREPLICAS", `${count} of ${this.wanted} replicas have it`);
    }
    const left = quarantine(info, "left");
    const isShort = quarantine(info, "length") < lease; // a failover may have led to another server
    const isCalm = !isShort && quarantine(info, "age") >= now() - sent && !(isGrant && left > 0);
    return isCalm ? undefined : new ServerError("QUARANTINE", `${left} ms: a replica came over since`);
  }

  /** Throws Refused for a lease that outlives the quarantine of the server, unless one that does not was seen. */
  async requireQuarantine(lease: number, ask: (command: Command) => Promise<Reply>): Promise<void> {
    if (this.wanted === 0 || lease <= this.safeLease) return;
    const length = quarantine(await ask(INFO), "length");
    this.safeLease = Number.isNaN(length) ? Infinity : length; // a server that does not tell is believed
    if (lease <= this.safeLease) return;
    throw new Refused("ERR", `a lease of ${lease} ms is above the server's dlock.restart-quarantine-ms ${length}`);
  }
}

/** How long a call that blocks waits for a connection, before it asks without one. */
export const POLL = 1000;

/** Commands for one server, which are sent together, in order. */
export class Batch {
  /** The server may take this much longer to answer. */
  readonly block: number = 0;
  /** What is sent in place of a call that blocks while there is no connection for it: the same without BLOCK. */
  readonly poll: readonly Command[] = [];
  /** For how long the caller waits for the replies. */
  readonly within: number = Infinity;
  /** Whether a value can be the reply to the command with this index; else it is that of another request. */
  readonly fits: (reply: Reply, index: number) => boolean = () => true;
  /** A message about this request ends the next pause for it. */
  readonly reqid: string = "";
  /** It is written at once, before anything that waits for the event loop. */
  readonly isUrgent: boolean = false;

  /** `key` tells the node of a cluster. */
  constructor(
    readonly commands: readonly Command[], readonly key: string,
    options: Partial<Pick<Batch, "block" | "poll" | "within" | "fits" | "reqid" | "isUrgent">> = {},
  ) {
    Object.assign(this, options);
  }}

/** What the server says about a wait or a hold. Anybody who may publish can forge it, but for the id of a request. */
export interface Message {
  readonly event: string;
  readonly token: string;
  readonly reqid: string;
}

/** Reads `event db id owner-length owner reqid-length reqid key`; `flushed db` has no reqid. Lengths are in bytes. */
export function message(text: string): Message | undefined {
  if (text.startsWith("flushed ")) return { event: "flushed", token: "", reqid: "" };
  const head = /^(\S+) \S+ (\S+) (\d+) /.exec(text);
  if (head === null) return undefined;
  const [whole, event, token, length] = head as unknown as [string, string, string, string];
  const rest = Buffer.from(text.slice(whole.length)).subarray(Number(length) + 1).toString();
  const tail = /^(\d+) /.exec(rest);
  return tail === null ? undefined : { event, token, reqid: rest.slice(tail[0].length).slice(0, Number(tail[1])) };
}
