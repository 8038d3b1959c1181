/** The logic of requests. What is sent, and what waits, are calls of `Io`. All times are in milliseconds. */

import { now } from "./clock.js";
import {
  Disconnected, isFinal, LockLost, names, NotAcquired, Refused, ReleaseUnknown, Replaced, ServerError, Unavailable,
  userError, type LossReason,
} from "./errors.js";
import { certainty, HoldState, RenewalBatch } from "./holds.js";
import {
  Batch, fields, onWire, POLL, type Command, type Message, type Replicas, type Reply, type Request, type Target,
} from "./requests.js";

/** Calls with BLOCK wait at most this long at a time: shorter than every timeout of the connection. */
const LONGEST_BLOCK = 60_000;

/** What is sent when a time is over, or nearly, may take this much longer. */
const LAST = 60;

/** Messages other than that of the grant have a wait ask again at most that often. */
const HINT_PAUSE = 100;

/** What programs need. Each call rejects with the caller's reason if the caller gives up. */
export interface Io {
  /** Sends commands. Errors, also that no reply came, are among the replies. */
  send(batch: Batch): Promise<readonly Reply[]>;
  /** Waits for a time, or for a message about a request; returns the message. */
  pause(ms: number, reqid?: string): Promise<Message | undefined>;
  /** Waits for a promise at most this long; then undefined. */
  until<T>(promise: Promise<T>, ms: number): Promise<T | undefined>;
  /** Runs a program whose outcome nobody waits for. */
  background(program: (io: Io) => Promise<unknown>): void;
}

/** What the programs of one `DLock` have in common. */
export interface ProgramSettings {
  readonly queue: number;
  readonly retryFor: number;
  /** How long a try may take. */
  readonly responseTimeout: number;
  readonly replicas: Replicas;
}

/**
 * What a call knows of its server, and the pauses between its attempts, until no server has answered for too long.
 * `mayPass`: an error is an answer, too.
 */
export class Backoff {
  /** Whether a server answered this call, and no connection has failed since. */
  isAnswered = false;
  #attempts = 0;
  #since: number | undefined = now(); // when the first request was sent that was not answered

  constructor(readonly limit: number, readonly mayPass = false) {}

  /** How much longer a request may go without a reply. */
  get left(): number { return Math.max(LAST, (this.#since ?? now()) + this.limit - now()); }

  /** Notes a reply, or that none came. */
  saw(reply: Reply): void {
    if (!(reply instanceof Disconnected)) this.isAnswered = true;
    else if (!reply.isLate) this.isAnswered = false;
    if (!(reply instanceof ServerError)) [this.#since, this.#attempts] = [undefined, 0];
  }

  /** The error for the end of a timeout: whether the lock is busy, or no server is there. */
  over(text: string, cause?: unknown): NotAcquired | Unavailable {
    return new (this.isAnswered ? NotAcquired : Unavailable)(text, cause === undefined ? {} : { cause });
  }

  /** Waits for the next attempt, at most this long; throws Unavailable after the limit. */
  async wait(io: Io, error: ServerError, sent: number, longest = Infinity): Promise<void> {
    this.#attempts += 1;
    this.#since = this.mayPass && !(error instanceof Disconnected) ? undefined : this.#since ?? sent;
    const left = this.#since === undefined ? Infinity : this.#since + this.limit - now();
    if (left <= 0) {
      const text = `no server answered for ${this.limit} ms; the last error: ${error.message}`;
      throw new Unavailable(text, { cause: error });
    }
    const pause = (0.5 + Math.random() / 2) * Math.min(1000, 20 * 2 ** Math.min(this.#attempts, 6));
    await io.pause(Math.min(pause, longest, left));
  }
}

/** One command that may be repeated, until it is answered; throws Unavailable after this time. 0: it is sent once. */
export async function ask(io: Io, command: Command, key: string, limit: number, within = limit): Promise<Reply> {
  const backoff = new Backoff(limit);
  const began = now();
  for (;;) {
    const left = began + within - now();
    const [reply] = await io.send(new Batch([command], key, { within: Math.max(LAST, left) }));
    if (!(reply instanceof ServerError)) return reply;
    if (isFinal(reply)) throw userError(reply);
    await backoff.wait(io, reply, began, left);
  }
}

/**
 * Repeats the release of a request in the background: until it is answered, or nothing is left of what its last copy,
 * sent at this time, may have got.
 */
function giveUp(io: Io, target: Target, release: Command, least: number, { queue }: ProgramSettings, sent = now()) {
  const limit = Math.max(LAST, sent + Math.max(queue, least) - now());
  io.background((io) => ask(io, release, target.key, limit));
}

/**
 * Asks until the request is granted; at most `limit` (0: until a server answers; Infinity: forever), which ends at
 * `deadline`. Whatever else ends it: in the background, the server is told that the request is over. `inspect` gets
 * what INFO shows behind the first copy, and may throw.
 */
export async function acquire(
  io: Io, request: Request, limit: number, settings: ProgramSettings, maxHold: number,
  deadline = now() + (limit || settings.responseTimeout), inspect?: (info: Map<string, Reply>) => void,
): Promise<HoldState> {
  const { target, firstLease } = request;
  const { queue, retryFor, replicas } = settings;
  const backoff = new Backoff(retryFor, true);
  let first: number | undefined; // when the first copy of the request was sent
  let sent = now();
  let isPending = false; // the server may have something of the request
  let isDoubtful = false; // a copy had no reply, and may arrive later
  let wasPoll = false;
  const end = () => giveUp(io, target, request.release(), firstLease, settings, sent);
  await replicas.requireQuarantine(request.lease,
    (command) => ask(io, command, target.key, Math.min(deadline - now(), retryFor)));
  try {
    for (;;) {
      const left = limit > 0 ? Math.max(0, deadline - now()) : 0;
      // Several keys wait on a connection only, and lose their position with it: at first they ask without waiting.
      const block = target.form === "one" || first === undefined ? 0 : Math.min(LONGEST_BLOCK, left);
      const within = Math.max(LAST, Math.min(deadline - now(), block > 0 ? block + POLL + backoff.left : backoff.left));
      const wait = block > 0 ? ["BLOCK", onWire(block)] : target.form === "one" ? ["QUEUE", onWire(queue)] : [];
      sent = now();
      first ??= sent;
      isPending = true;
      const copy = request.acquire(...(left > 0 ? wait : []));
      const question = inspect === undefined ? [] : [[`${target.family}.INFO`, target.key]];
      const more = [...question, ...replicas.requests(request.lease)];
      const replies = await io.send(new Batch([copy, ...more], target.key, {
        block, within, reqid: request.reqid, poll: block > 0 ? [request.acquire(), ...more] : [],
        fits: (reply, index) => index > 0 || target.fits(reply),
      }));
      const [reply, info] = replies;
      backoff.saw(reply);
      let failure = reply instanceof ServerError ? reply : undefined;
      let grants = failure === undefined ? target.grants(reply) : [];
      isDoubtful ||= failure instanceof Disconnected;
      isPending = limit > 0 || grants.length > 0 || isDoubtful;
      if (failure === undefined && inspect !== undefined) {
        if (!(info instanceof ServerError)) inspect(fields(info)); // the user may not be allowed to ask
        inspect = undefined;
      }
      let isMessage = false;
      if (failure === undefined && grants.length === 0 && left > 0 && target.form === "one") {
        const pause = Math.min(queue / 2, left);
        const message = await io.pause(pause, request.reqid);
        wasPoll = message === undefined && now() - sent > pause - 10; // timers may be early
        isMessage = message?.event === "granted";
        if (isMessage) grants = target.grants(message?.token);
        else if (message?.event === "replaced") throw new Replaced("another request of the owner took its place");
        else if (message !== undefined) await io.pause(Math.min(left, Math.max(0, sent + HINT_PAUSE - now())));
      }
      if (grants.length > 0) {
        const from = isMessage ? first : sent; // a message may answer any copy
        const state = new HoldState(request, grants, from, maxHold);
        state.isUnannounced = wasPoll;
        if (((isMessage || block > 0) && replicas.wanted > 0) || state.until - now() < certainty(firstLease) / 2) {
          const renewal = new RenewalBatch([state], replicas, within);
          const answers = await io.send(renewal.batch);
          backoff.saw(answers[0]);
          failure = renewal.apply(answers, true);
        } else {
          failure = replicas.refusal(replies, from, request.lease, true);
        }
        if (failure === undefined && state.reason() === undefined) return state;
        failure ??= new ServerError("", "the lease was over when its reply was read");
      } else if (failure === undefined) {
        if (left > 0) continue;
        throw new NotAcquired(`'${target.key}' is held by another${limit > 0 ? `, not granted in ${limit} ms` : ""}`);
      } else if (isFinal(failure) && failure.code !== "SPENT") {
        throw userError(failure);
      }
      const rest = deadline - now();
      if (rest <= 0 || (limit === 0 && !(failure instanceof Disconnected))) {
        const text = `'${target.key}' was not granted${limit > 0 ? ` in ${limit} ms` : ""}`;
        throw backoff.over(`${text}; the last error: ${failure.message}`, failure);
      }
      if (grants.length > 0 || failure.code === "SPENT") { // its hold ended before it was certain
        end();
        [request, first, isPending] = [request.renewed(), undefined, false];
      }
      await backoff.wait(io, failure, sent, rest);
    }
  } catch (error) {
    if (isPending) end();
    throw error;
  }
}

/**
 * Gives a hold back whose work ended at this time. Throws LockLost if it was lost before, ReleaseUnknown if no reply
 * says whether it was. However often it is sent, it ends what its request has, and nothing else. `done`: see release().
 */
export async function release(
  io: Io, state: HoldState, settings: ProgramSettings, done = false, at = now(),
): Promise<void> {
  const { request, keys } = state;
  const known = state.reason(at);
  if (known === undefined) state.isReleased = true;
  const command = request.release(state.grants[0], done && known === undefined); // else another has to run
  let reason: string | undefined = known;
  let unknown: Error | undefined;
  try {
    const limit = known === undefined ? settings.retryFor : 0;
    const reply = await ask(io, command, request.target.key, limit, limit || settings.responseTimeout);
    if (reply === null || reply === undefined) unknown = new Error("the server knew a wait only");
  } catch (error) {
    if (error instanceof Unavailable) giveUp(io, request.target, command, request.lease, settings);
    if (error instanceof Refused && error.code === "LOST") reason ??= error.message.split(" ")[1];
    else unknown = error as Error;
  }
  // The hold was certain when its work ended, so a lease that ended covered the work.
  if (known !== undefined || (reason !== undefined && reason !== "expired")) {
    throw new LockLost(keys, reason as LossReason);
  }
  if (unknown === undefined) return;
  throw new ReleaseUnknown(`${names(keys)}: only the token tells whether its writes count: ${unknown.message}`,
    { cause: unknown });
}

/**
 * Repeats a command that waits with BLOCK until it replies something, at most `limit`; then returns null, or throws
 * Unavailable if no server is there.
 */
export async function waitFor(
  io: Io, command: Command, key: string, limit: number, { retryFor }: ProgramSettings,
  backoff = new Backoff(retryFor, true),
): Promise<Reply> {
  const deadline = now() + limit;
  for (;;) {
    const sent = now();
    const left = Math.max(0, deadline - sent);
    const block = backoff.isAnswered ? Math.min(2000, left) : 0; // at first it is asked whether it has to wait
    const within = Math.min(left + LAST, block > 0 ? block + POLL + backoff.left : backoff.left);
    const words = block > 0 ? [...command, "BLOCK", onWire(block)] : command;
    const [reply] = await io.send(new Batch([words], key, { block, within, poll: [command] }));
    backoff.saw(reply);
    if (!(reply instanceof ServerError)) {
      if ((reply !== null && reply !== undefined) || left === 0) return reply ?? null;
    } else if (isFinal(reply)) {
      throw userError(reply);
    } else {
      if (now() >= deadline && backoff.isAnswered) return null;
      if (now() >= deadline) throw backoff.over(`'${key}': no answer; the last error: ${reply.message}`, reply);
      await backoff.wait(io, reply, sent, deadline - now());
    }
  }
}
