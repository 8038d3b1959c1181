/** The logic of requests. What is sent, and what waits, are calls of `Io`. All times are in milliseconds. */

import { now } from "./clock.js";
import {
  Disconnected, DLockError, LockLost, names, NotAcquired, Refused, ReleaseUnknown, Replaced, ServerError, Unavailable,
  userError,
} from "./errors.js";
import { HoldState } from "./holds.js";
import {
  Batch, newId, onWire, type Command, type Grant, type Message, type Replicas, type Reply, type Request,
} from "./requests.js";

/** The server cannot decide now: the same request, a little later. */
const RETRYABLE = new Set(["MOVING", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS",
  "MISCONF", "MOVED", "ASK", "QUARANTINE"]);

/** Calls with BLOCK wait at most this long at a time: shorter than every timeout of the connection. */
const LONGEST_BLOCK = 60_000;

/** The least that a server can be set to keep a grant for which no request came (`dlock.claim-ms`). */
const LEAST_CLAIM = 10_000;

/** What programs need. Each call rejects with the caller's reason if the caller gives up. */
export interface Io {
  /** Sends commands; rejects with `Disconnected` if no reply comes. */
  send(batch: Batch): Promise<readonly Reply[]>;
  /** Waits for a time, or for a message about a request; returns the message. */
  pause(ms: number, reqid?: string): Promise<Message | undefined>;
  /** Runs a program whose outcome nobody waits for. */
  background(program: (io: Io) => Promise<unknown>): void;
}

/** What the programs of one `DLock` have in common. */
export interface ProgramSettings {
  readonly queue: number;
  readonly retryFor: number;
  readonly replicas: Replicas;
}

/** Pauses between attempts, until no server has answered for too long. */
class Backoff {
  #attempts = 0;
  #since: number | undefined; // the first failure after the last answer

  constructor(readonly limit: number) {}

  answered(): void { [this.#since, this.#attempts] = [undefined, 0]; }

  /** Waits for the next attempt, at most this long; throws Unavailable after the limit. */
  async wait(io: Io, error: Error, longest = Infinity): Promise<void> {
    this.#attempts += 1;
    this.#since ??= now();
    if (now() - this.#since >= this.limit) {
      throw new Unavailable(`no server answered for ${this.limit} ms; the last error: ${error.message}`);
    }
    const pause = (0.5 + Math.random() / 2) * Math.min(1000, 20 * 2 ** Math.min(this.#attempts, 6));
    await io.pause(Math.min(pause, longest));
  }
}

/** One command that may be repeated: it changes nothing, or has a REQID. */
export async function ask(io: Io, command: Command, key: string, settings: ProgramSettings, block = 0): Promise<Reply> {
  const backoff = new Backoff(settings.retryFor);
  for (;;) {
    let failure: Error;
    try {
      const [reply] = await io.send(new Batch([command], key, block));
      if (!(reply instanceof ServerError)) return reply;
      if (!RETRYABLE.has(reply.code)) throw userError(reply);
      failure = reply;
    } catch (error) {
      if (!(error instanceof Disconnected)) throw error;
      failure = error;
    }
    await backoff.wait(io, failure);
  }
}

/** What is known of one request while it is repeated. */
class Attempt {
  isUnknown = false; // a copy of it was not answered
  wasUnanswered = false;
  isEnded = false; // by the server: nothing is left of it
  wasAsked = false;
  copies = 0;
  granted: HoldState | undefined;

  constructor(readonly request: Request) {}

  /** The next copy, and how long the server may take to answer it. */
  next(left: number, settings: ProgramSettings): [Command, number] {
    this.wasUnanswered = this.isUnknown;
    this.copies += 1;
    if (left === 0) return [this.request.acquire(), 0];
    if (this.request.target.form === "one") return [this.request.acquire("QUEUE", onWire(settings.queue)), 0];
    const block = Math.min(LONGEST_BLOCK, left); // these wait on a connection only, and lose their position with it
    return [this.request.acquire("BLOCK", onWire(block)), block];
  }

  /**
   * The hold that a message reports, if it is certain without asking the server: only the server knows the id of a
   * request that was sent once, and has sent no message before. It made the grant after the request, and keeps it for
   * QUEUE without a claim; the first renewal claims it. Owners with a name may share a lease with others, and a grant
   * must be on its replicas before it counts: those ask.
   */
  announced({ event, token }: Message, asked: number, maxHold: number, settings: ProgramSettings) {
    const { request, copies } = this;
    if (event !== "granted" || copies > 1 || !request.isOwnName || settings.replicas.wanted > 0) return undefined;
    const lasts = Math.min(settings.queue, LEAST_CLAIM);
    const state = new HoldState(request, request.target.grants(token), asked, maxHold, lasts, now());
    state.renewAt = Math.min(state.renewAt, now() + Math.min(lasts, request.lease) / 10); // from then on: its lease
    return state.until - now() >= lasts / 3 ? state : undefined;
  }

  /** Whether the request may have a place, or a grant that nobody learned of. */
  needsRollback(limit: number): boolean {
    return !this.isEnded && (limit !== 0 || this.isUnknown || this.granted !== undefined);
  }
}

/**
 * Asks until the request is granted; at most `limit` (0: once; Infinity: forever), which ends at `deadline`. Whatever
 * ends the wait, the queue is left, in the background.
 */
export async function acquire(
  io: Io, request: Request, limit: number, settings: ProgramSettings, maxHold: number, deadline = now() + limit,
): Promise<HoldState> {
  const { key } = request.target;
  const { replicas } = settings;
  const backoff = new Backoff(settings.retryFor);
  let attempt = new Attempt(request);
  let wasPoll = false;
  const rollBackAttempt = () => {
    const { request, isUnknown, granted } = attempt;
    io.background((io) => rollBack(io, request, isUnknown, granted, settings));
  };
  try {
    for (;;) {
      const left = Math.max(0, deadline - now());
      const [command, block] = attempt.next(left, settings);
      let asked = now();
      attempt.isUnknown = true;
      let reply: Reply;
      let confirmed: readonly Reply[];
      try {
        [reply, ...confirmed] = await io.send(new Batch([command], key, block, replicas, attempt.request.reqid));
      } catch (error) {
        if (!(error instanceof Disconnected)) throw error;
        if (limit === 0) throw new Unavailable(`'${key}': no reply: ${error.message}`);
        if (left === 0) {
          throw new NotAcquired(`'${key}': not granted in ${limit} ms; the last error: ${error.message}`);
        }
        await backoff.wait(io, error, left);
        continue;
      }
      attempt.isUnknown = attempt.wasUnanswered;
      if (reply instanceof ServerError) {
        if (reply.code === "SPENT") {
          attempt = new Attempt(attempt.request.renewed()); // its hold ended before we learned of it
        } else if (!RETRYABLE.has(reply.code)) {
          attempt.isEnded = !(attempt.wasAsked || attempt.isUnknown);
          throw userError(reply);
        } else if (left === 0) {
          throw new NotAcquired(`'${key}': ${reply.message}`);
        }
        await backoff.wait(io, reply);
        continue;
      }
      backoff.answered();
      attempt.wasAsked = true;
      const grants = request.target.grants(reply);
      if (grants.length > 0) {
        let state = (attempt.granted = new HoldState(attempt.request, grants, asked, maxHold));
        let failure: Error | undefined;
        if (block > 0 && now() - asked > request.lease / 10) { // it began at some moment of the wait
          asked = now();
          [failure, confirmed] = await renewNow(io, attempt.request, grants, settings);
          state = new HoldState(attempt.request, grants, asked, maxHold);
        }
        if (failure === undefined && replicas.areTooFew(confirmed)) {
          const count = confirmed[0] instanceof ServerError ? confirmed[0].message : String(confirmed[0]);
          throw new Refused("NOREPLICAS", `${count} of ${replicas.wanted} replicas have the grant`);
        }
        if (failure === undefined && replicas.areFromElsewhere(confirmed)) {
          failure = new ServerError("QUARANTINE", "a replica came to the server since the grant");
        }
        if (failure !== undefined) {
          rollBackAttempt();
          attempt = new Attempt(attempt.request.renewed());
          await backoff.wait(io, failure);
          continue;
        }
        state.isUnannounced = wasPoll;
        return state;
      }
      if (left === 0) {
        throw new NotAcquired(`'${key}' is held by another${limit > 0 ? `, not granted in ${limit} ms` : ""}`);
      }
      if (block === 0) {
        const [paused, pause] = [now(), Math.min(settings.queue / 2, left)];
        const message = await io.pause(pause, attempt.request.reqid);
        const state = message && attempt.announced(message, asked, maxHold, settings);
        if (state !== undefined) return state;
        wasPoll = message === undefined && now() - paused > pause - 10; // timers may be early
        if (message?.event === "replaced") {
          attempt.isEnded = true;
          throw new Replaced("another request of the owner took over the place");
        }
      }
    }
  } catch (error) {
    if (attempt.needsRollback(limit)) rollBackAttempt();
    throw error;
  }
}

/** Renews a new grant. Returns why that failed, and what the replicas say. */
async function renewNow(
  io: Io, request: Request, grants: readonly Grant[], { replicas }: ProgramSettings,
): Promise<[Error | undefined, readonly Reply[]]> {
  try {
    const renewals = grants.map((grant) => request.renew(grant, request.lease));
    const replies = await io.send(new Batch(renewals, request.target.key, 0, replicas));
    const failed = replies.slice(0, grants.length).find((reply) => reply instanceof ServerError);
    return [failed as ServerError | undefined, replies.slice(grants.length)];
  } catch (error) {
    if (!(error instanceof Disconnected)) throw error;
    return [error, []];
  }
}

/** Leaves the queue. If a reply was lost, asks what the request did, and releases what it was granted. */
async function rollBack(
  io: Io, request: Request, isUnknown: boolean, granted: HoldState | undefined, settings: ProgramSettings,
): Promise<void> {
  const askUnlessRefused = async (command: Command, key = request.target.key) => {
    try {
      return await ask(io, command, key, settings);
    } catch (error) {
      if (error instanceof Refused) return null; // SPENT, NOTHELD: nothing is held
      throw error;
    }
  };
  await askUnlessRefused(request.cancel());
  const isToAsk = granted === undefined && isUnknown;
  const grants = isToAsk ? request.target.grants(await askUnlessRefused(request.acquire())) : granted?.grants ?? [];
  for (const grant of grants) await askUnlessRefused(request.release(grant, newId()), grant.key);
}

/**
 * Gives a hold back. Throws LockLost if it was lost before, ReleaseUnknown if no reply says whether it was. All copies
 * of the release have one id, and count once.
 */
export async function release(io: Io, state: HoldState, settings: ProgramSettings, done = false): Promise<void> {
  const known = state.reason();
  const shown = names(state.keys);
  const reqid = (state.releaseId ??= newId());
  if (known === undefined) state.isReleased = true;
  const backoff = new Backoff(settings.retryFor);
  let waiting = state.grants.map((grant) => state.request.release(grant, reqid, done));
  let copies = 0;
  let isLost = false;
  let isUnknown = false;
  let first: Batch | undefined; // the first copy that the server may have looked at
  while (waiting.length > 0) {
    const batch = new Batch(waiting, state.request.target.key);
    copies += 1;
    first ??= batch;
    let replies: readonly Reply[];
    try {
      replies = await io.send(batch);
    } catch (error) {
      if (!(error instanceof Disconnected)) throw error;
      if (known !== undefined) break; // the hold has ended: nobody needs this release
      await backoff.wait(io, error).catch((late: Error) => {
        throw new ReleaseUnknown(`${shown}: ${late.message}`);
      });
      continue;
    }
    const again: Command[] = [];
    for (const [index, command] of batch.commands.entries()) {
      const reply = replies[index];
      if (!(reply instanceof ServerError)) continue;
      if (RETRYABLE.has(reply.code)) {
        again.push(command);
      } else if (["NOTHELD", "WRONGTYPE", "SPENT"].includes(reply.code)) {
        const isFirst = copies === (reply.code === "SPENT" ? 2 : 1);
        if (isFirst && first.isCertain && now() < state.until) isLost = true;
        else isUnknown = true;
      } else {
        throw userError(reply);
      }
    }
    waiting = again;
    if (waiting.length > 0) {
      copies -= 1; // refused without a look at the hold
      if (copies === 0) first = undefined;
      await backoff.wait(io, new DLockError("the server cannot decide now"));
    }
  }
  if (known !== undefined || isLost) throw new LockLost(state.keys, known ?? "refused");
  if (isUnknown) {
    throw new ReleaseUnknown(`${shown}: the hold had ended when the server looked, perhaps by an earlier copy of ` +
      "this release; only the token tells whether its writes count");
  }
}

/** Repeats a command that waits with BLOCK until it replies something, at most `limit`; else returns null. */
export async function waitFor(
  io: Io, command: Command, key: string, limit: number, settings: ProgramSettings,
): Promise<Reply> {
  const deadline = now() + limit;
  for (;;) {
    const left = Math.max(0, deadline - now());
    const block = Math.min(2000, left);
    try {
      const reply = await ask(io, block > 0 ? [...command, "BLOCK", onWire(block)] : command, key, settings, block);
      if ((reply !== null && reply !== undefined) || left === 0) return reply ?? null;
    } catch (error) {
      if (error instanceof Unavailable && left === 0) return null;
      throw error;
    }
  }
}
