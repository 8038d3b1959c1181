/** Holds as the client knows them: until when each is certain, and when it has to be renewed. */

import { now } from "./clock.js";
import { LockLost, ServerError, type LossReason } from "./errors.js";
import { Batch, log, newId, type Grant, type Message, type Replicas, type Reply, type Request } from "./requests.js";

/** Clocks of two machines run at different rates: a lease counts for less than its time here. */
const RATE = 0.99;
const MARGIN = 2;

const ROUND = 1000;

/** The leases that a request for these keys has on the server: one for each owner and key. */
function leasesOf({ target, owner }: Request, keys: readonly string[]): string[] {
  return keys.map((key) => JSON.stringify([target.family, target.mode, owner, key]));
}

/** One hold, of one key or of several. All times are those of `now()`. */
export class HoldState {
  /** The hold is certain until then. */
  until = 0;
  renewAt = 0;
  /** The leases on the server. Another hold of the same owner may share one, also one of several keys. */
  readonly leases: readonly string[];
  /** When `maxHold` ends it. */
  readonly deadline: number;
  readonly onLoss: (() => void)[] = [];
  /** Why the server will not renew it. */
  refusalReason: LossReason = "refused";
  /** No message came about the grant. */
  isUnannounced = false;
  /** The hold ends by the wish of its holder. */
  isReleased = false;
  /** Of all copies of the release; undefined: not yet given back. */
  releaseId: string | undefined;
  #reason: LossReason | undefined;

  /** `lasts`: how long the server keeps the grant after `asked`. Default: for the lease of the request. */
  constructor(
    readonly request: Request, readonly grants: readonly Grant[], asked: number, maxHold: number,
    lasts = request.lease, began = asked,
  ) {
    this.deadline = began + maxHold;
    this.leases = leasesOf(request, this.keys);
    this.#count(asked, Math.min(lasts, this.deadline - asked));
  }

  get keys(): string[] {
    return this.grants.map((grant) => grant.key);
  }

  /** The lease to ask for now: shorter than usual before `maxHold` is over. */
  lease(at: number): number {
    return Math.min(this.request.lease, this.deadline - at);
  }

  #count(asked: number, lease: number): void {
    // From before the request was sent: the reply may have been on its way for any time.
    this.until = asked + lease * RATE - MARGIN;
    this.renewAt = asked + lease / 3;
  }

  /** The server counts the lease from a moment after `asked`. */
  renewed(asked: number, lease: number): void {
    if (this.reason() === undefined) this.#count(asked, lease);
  }

  /** Ends the hold, unless it has ended. */
  lose(reason: LossReason): void {
    if (this.#reason !== undefined || this.isReleased) return;
    this.#reason = reason;
    for (const tell of this.onLoss) tell();
  }

  /** Why the hold is lost; undefined while it is certain. No I/O. */
  reason(): LossReason | undefined {
    if (this.#reason === undefined && !this.isReleased && now() >= this.until) {
      const isEnd = now() >= this.deadline - MARGIN - this.request.lease * (1 - RATE);
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

/** Renewals of several holds, in one batch. `leases`: the longest lease of each owner of several holds. */
export class RenewalBatch {
  readonly batch: Batch;
  readonly #asked = now();
  readonly #due: readonly (readonly [HoldState, number])[];

  constructor(due: readonly HoldState[], replicas: Replicas, leases: ReadonlyMap<string, number>) {
    // All holds of one owner and key share one lease on the server: none may shorten that of another.
    this.#due = due.map((hold) => {
      const longest = Math.max(...hold.leases.map((lease) => leases.get(lease) ?? 0));
      return [hold, Math.max(hold.lease(this.#asked), longest)];
    });
    const renewals = this.#due.flatMap(([hold, lease]) =>
      hold.grants.map((grant) => hold.request.renew(grant, lease)));
    this.batch = new Batch(renewals, due[0]?.request.target.key ?? "", 0, replicas);
  }

  /** An error other than that nothing is held says nothing about a hold: the next round tries again. */
  apply(replies: readonly Reply[]): void {
    const { replicas, commands } = this.batch;
    const isConfirmed = !replicas.areTooFew(replies.slice(commands.length));
    if (!isConfirmed) log("renewal: too few replicas confirmed it");
    let next = 0;
    for (const [hold, lease] of this.#due) {
      const codes = hold.grants.map(() => replies[next++])
        .flatMap((reply) => (reply instanceof ServerError ? [reply.code] : []));
      if (codes.includes("NOTHELD") || codes.includes("WRONGTYPE")) hold.lose(hold.refusalReason);
      else if (codes.length === 0 && isConfirmed) hold.renewed(this.#asked, Math.min(lease, hold.lease(this.#asked)));
    }
  }
}

/** The holds that are renewed, by their requests. */
export class Registry {
  readonly #holds = new Map<string, HoldState>();

  get size(): number { return this.#holds.size; }

  add(hold: HoldState): void { this.#holds.set(hold.request.reqid, hold); }

  remove(hold: HoldState): void { this.#holds.delete(hold.request.reqid); }

  /**
   * Renewals that are due, or soon will be, and when to look again. One round serves 1,000 holds of a node. Drops holds
   * that are lost.
   */
  due(replicas: Replicas, node: (key: string) => string): [RenewalBatch[], number] {
    const at = now();
    const due: HoldState[] = [];
    const leases = new Map<string, number>();
    let again = at + 10_000;
    for (const hold of this.#holds.values()) {
      for (const lease of hold.leases) leases.set(lease, Math.max(hold.lease(at), leases.get(lease) ?? 0));
      if (hold.reason() !== undefined) {
        this.remove(hold);
        continue;
      }
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
    return [roundsOf(due, node).map((holds) => new RenewalBatch(holds, replicas, leases)), again];
  }

  /** The longest lease that the owner of a request counts on already, for one of its keys. */
  longest(request: Request): number {
    const wanted = new Set(leasesOf(request, request.target.keys));
    const at = now();
    let longest = 0;
    for (const hold of this.#holds.values()) {
      if (hold.leases.some((lease) => wanted.has(lease))) longest = Math.max(longest, hold.lease(at));
    }
    return longest;
  }

  /** Asks the server about all holds, with the next renewals: they may have ended. */
  checkAll(): void {
    for (const hold of this.#holds.values()) hold.renewAt = 0;
  }

  /** Loses all holds. Returns their releases. */
  close(node: (key: string) => string): Batch[] {
    const all = [...this.#holds.values()];
    this.#holds.clear();
    for (const hold of all) {
      hold.lose("closed");
      hold.releaseId = newId();
    }
    return roundsOf(all, node).map((holds) => {
      const releases = holds.flatMap(({ request, grants, releaseId }) =>
        grants.map((grant) => request.release(grant, releaseId ?? "")));
      return new Batch(releases, holds[0]?.request.target.key ?? "");
    });
  }

  /** A message with the id of a hold's request, and its token, is the server's: nobody else knows both. */
  onMessage({ event, token, reqid }: Message): void {
    if (event === "flushed") this.checkAll();
    const hold = this.#holds.get(reqid);
    if (hold === undefined || !hold.grants.some((grant) => String(grant.token) === token)) return;
    if (event === "deleted") {
      hold.refusalReason = event; // or its slot moved: the server is asked
      hold.renewAt = 0;
    } else if (event === "expired" || event === "broken" || event === "disconnected") {
      if (event === "expired") hold.reason(); // at the end of maxHold, if the message comes before the timer
      hold.lose(event);
    }
  }
}

/** Holds that are sent together: at most 1,000 of one node. */
function roundsOf(holds: readonly HoldState[], node: (key: string) => string): HoldState[][] {
  const open = new Map<string, HoldState[]>();
  const rounds: HoldState[][] = [];
  for (const hold of holds) {
    const name = node(hold.request.target.key);
    let round = open.get(name);
    if (round === undefined || round.length === ROUND) {
      open.set(name, (round = []));
      rounds.push(round);
    }
    round.push(hold);
  }
  return rounds;
}
