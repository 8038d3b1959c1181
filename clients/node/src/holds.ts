/** Holds as the client knows them: until when each is certain, and when it has to be renewed. */

import { afterReads, now } from "./clock.js";
import { isFinal, LockLost, names, ServerError, type LossReason } from "./errors.js";
import { Batch, log, type Grant, type Message, type Replicas, type Reply, type Request } from "./requests.js";

/** Clocks of two machines run at different rates: a lease counts for less than its time here. */
const RATE = 0.99;
const MARGIN = 2;

const ROUND = 1000;

/** For how long a hold is certain after the sending of a request that was answered. */
export const certainty = (lease: number) => lease * RATE - MARGIN;

/** One hold, of one key or of several. All times are those of `now()`. */
export class HoldState {
  /** The hold is certain until then. */
  until: number;
  renewAt = 0;
  /** When `maxHold` ends it. */
  readonly deadline: number;
  /** Whether it keeps the process alive while someone listens for its loss: that of an election does. */
  isLeadership = false;
  /** What it was acquired by, and what releases it at its end. */
  session: object | undefined;
  /** Where it was acquired, if NODE_DEBUG asks for it. */
  place: string | undefined;
  /** Why the server will not renew it, by a message. */
  hint: LossReason = "refused";
  /** No message came about the grant. */
  isUnannounced = false;
  /** The hold ends by the wish of its holder. */
  isReleased = false;
  #reason: LossReason | undefined;
  #controller: AbortController | undefined;

  /** `sent`: when the request was; if a message tells of the grant, its first copy. */
  constructor(readonly request: Request, readonly grants: readonly Grant[], sent: number, maxHold: number) {
    this.deadline = now() + maxHold;
    this.until = -Infinity;
    this.renewed(sent, request.firstLease);
  }

  get keys(): string[] { return this.grants.map((grant) => grant.key); }

  /** The lease to ask for now: shorter than usual before `maxHold` is over. */
  lease(at: number): number { return Math.min(this.request.lease, this.deadline - at); }

  /** A request was answered: the hold lasts for the lease from when it was sent. Nothing makes that shorter. */
  renewed(sent: number, lease: number): void {
    this.until = Math.max(this.until, Math.min(sent + certainty(lease), this.deadline));
    this.renewAt = now() + (this.until - now()) / 3;
    this.hint = "refused";
  }

  /** Ends the hold, unless it has ended. */
  lose(reason: LossReason): void {
    if (this.#reason !== undefined || this.isReleased) return;
    this.#reason = reason;
    this.#controller?.abort(new LockLost(this.keys, reason));
  }

  /** Whether the user has its signal, and so may learn of its loss without the `Hold`. */
  get hasSignal(): boolean { return this.#controller !== undefined; }

  /** Aborted when the hold is lost. */
  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      const reason = this.reason();
      this.#controller = new AbortController();
      if (reason !== undefined) this.#controller.abort(new LockLost(this.keys, reason));
    }
    return this.#controller.signal;
  }

  /** Why the hold was lost at this time; undefined while it is certain. No I/O. A loss that was told stays told. */
  reason(at = now()): LossReason | undefined {
    if (this.#reason === undefined && !this.isReleased && at >= this.until) {
      const isEnd = at >= this.deadline - MARGIN - this.request.lease * (1 - RATE);
      this.lose(isEnd ? "max-hold" : "expired");
    }
    return this.#reason;
  }

  /** For how long the hold is certain; 0 if it is lost. */
  validFor(): number {
    return this.isReleased || this.reason() !== undefined ? 0 : Math.max(0, this.until - now());
  }

  /** Throws LockLost if the hold is lost, or released. */
  check(): void {
    const reason = this.reason() ?? (this.isReleased ? "released" : undefined);
    if (reason !== undefined) throw new LockLost(this.keys, reason);
  }
}

/** Renewals of several holds, in one batch. */
export class RenewalBatch {
  readonly batch: Batch;
  readonly #sent = now();
  readonly #longest: number;
  readonly #due: readonly (readonly [HoldState, number])[];

  constructor(due: readonly HoldState[], readonly replicas: Replicas, within = Infinity) {
    this.#due = due.map((hold) => [hold, hold.lease(this.#sent)]);
    const leases = due.map(({ request }) => request.lease);
    this.#longest = Math.max(...leases);
    const renewals = this.#due.flatMap(([hold, lease]) =>
      hold.grants.map((grant) => hold.request.renew(grant, lease)));
    const commands = [...renewals, ...replicas.requests(Math.min(...leases))];
    const tokens = due.flatMap(({ grants }) => grants.map(({ token }) => (typeof token === "string" ? 1 : token)));
    const fits = (reply: Reply, index: number) => index >= tokens.length || reply === tokens[index];
    this.batch = new Batch(commands, due[0]?.request.target.key ?? "", { within, fits, isUrgent: true });
  }

  /**
   * An error other than that nothing is held says nothing about a hold: it is renewed again, after a final error at the
   * next third of its lease, else sooner. Returns an error, if there is one; `isGrant`: the hold does not count before.
   */
  apply(replies: readonly Reply[], isGrant = false): ServerError | undefined {
    const refusal = this.replicas.refusal(replies, this.#sent, this.#longest, isGrant);
    let first: ServerError | undefined;
    let next = 0;
    for (const [hold, lease] of this.#due) {
      const failed = hold.grants.map(() => replies[next++]).filter((reply) => reply instanceof ServerError);
      const error = failed[0] ?? refusal;
      first ??= error;
      if (failed.some(({ code }) => code === "NOTHELD" || code === "WRONGTYPE")) hold.lose(hold.hint);
      else if (error === undefined) hold.renewed(this.#sent, lease);
      else if (isFinal(error) && hold.renewAt > 0) hold.renewAt = this.#sent + lease / 3;
      if (error !== undefined) log("renewal of %s: %s", names(hold.keys), error.message);
    }
    return first;
  }
}

/** The holds that are renewed, by their requests. */
export class Registry {
  readonly #holds = new Map<string, HoldState>();
  /** Losses of which messages tell, by token. Anybody can forge these: the server is asked. */
  readonly #hints = new Map<string, LossReason>();
  #shortest = Infinity;

  get size(): number { return this.#holds.size; }

  /** The shortest lease, or a shorter one that was released since. */
  get shortest(): number { return this.size > 0 ? this.#shortest : Infinity; }

  add(hold: HoldState): void {
    this.#shortest = Math.min(this.shortest, hold.request.lease);
    this.#holds.set(hold.request.reqid, hold);
  }

  /** Whether the hold was there. */
  remove(hold: HoldState): boolean { return this.#holds.delete(hold.request.reqid); }

  all(): HoldState[] { return [...this.#holds.values()]; }

  /**
   * Renewals that are due, or soon will be, and when to look again. One round serves 1,000 holds of a node. Drops holds
   * that are lost.
   */
  due(replicas: Replicas, node: (key: string) => string): [RenewalBatch[], number] {
    const at = now();
    const due: HoldState[] = [];
    let again = at + 10_000;
    this.#shortest = Infinity;
    for (const hold of this.#holds.values()) {
      if (hold.reason(-Infinity) !== undefined) {
        this.remove(hold);
        continue;
      }
      this.#shortest = Math.min(this.#shortest, hold.request.lease);
      if (hold.until <= at) afterReads(() => hold.reason(at)); // timers run before what has arrived is read
      const slack = hold.request.lease / 30;
      if (hold.lease(at) < slack) {
        hold.renewAt = Infinity; // maxHold is nearly over
      } else if (hold.renewAt <= at + slack) {
        const pause = Math.min(1000, hold.request.lease / 10, (hold.until - at) / 3);
        hold.renewAt = at + Math.max(10, pause); // if no reply comes, again then
        due.push(hold);
      }
      again = Math.min(again, hold.renewAt, hold.until);
    }
    return [roundsOf(due, node).map((holds) => new RenewalBatch(holds, replicas)), again];
  }

  /** Has the holds of which messages told renewed next. */
  takeHints(): void {
    for (const hold of this.#holds.values()) {
      const hint = hold.grants.map((grant) => this.#hints.get(String(grant.token))).find(Boolean);
      if (hint !== undefined) [hold.hint, hold.renewAt] = [hint, 0];
    }
    this.#hints.clear();
  }

  /** Asks the server about all holds, with the next renewals: they may have ended. */
  checkAll(): void {
    for (const hold of this.#holds.values()) hold.renewAt = 0;
  }

  /** Takes these holds out. Returns their releases. */
  releases(holds: readonly HoldState[], node: (key: string) => string): Batch[] {
    for (const hold of holds) this.remove(hold);
    return roundsOf(holds, node).map((round) => {
      const releases = round.map(({ request, grants: [grant] }) => request.release(grant));
      return new Batch(releases, round[0]?.request.target.key ?? "");
    });
  }

  /** Whether a message tells of the loss of a hold. */
  onMessage({ event, token }: Message): boolean {
    const isLoss = event === "expired" || event === "broken" || event === "deleted" || event === "disconnected";
    if (!isLoss || this.#holds.size === 0) return false;
    this.#hints.set(token, event);
    return true;
  }
}

/** Holds that are sent together: at most 1,000 of one node. */
function roundsOf(holds: readonly HoldState[], node: (key: string) => string): HoldState[][] {
  const rounds = new Map<string, HoldState[]>();
  for (const [index, hold] of holds.entries()) {
    const name = `${Math.floor(index / ROUND)} ${node(hold.request.target.key)}`;
    const round = rounds.get(name);
    if (round === undefined) rounds.set(name, [hold]);
    else round.push(hold);
  }
  return [...rounds.values()];
}
