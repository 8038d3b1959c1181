/** What can go wrong, as exceptions, and what servers say, as codes. */

/** Why a hold was lost; see {@link LockLost}. */
export type LossReason =
  | "expired" | "refused" | "broken" | "deleted" | "disconnected" | "max-hold" | "closed" | "released";

/** Base class of all errors of this package. */
export class DLockError extends Error {
  /** What it is, in a word that does not change. */
  declare readonly code: string;
  static { named(this, "DLockError", "CLOSED"); } // it is thrown for a closed `DLock` only
}

export function closed(): DLockError {
  return new DLockError("the DLock is closed");
}

/** Names a class of errors here, so that bundlers do not change it. */
function named(kind: { readonly prototype: DLockError }, name: string, code: string): void {
  Object.assign(kind.prototype, { name, code });
}

/**
 * The lock was not granted within the timeout. Nothing is held, and no place in a queue is left. If the last attempt
 * ended with an error, that is the `cause`.
 */
export class NotAcquired extends DLockError { static { named(this, "NotAcquired", "NOT_ACQUIRED"); } }

/** Waiting would close a cycle of owners that wait for each other. Release what you hold, and begin again. */
export class Deadlock extends DLockError { static { named(this, "Deadlock", "DEADLOCK"); } }

/** Another request of the same owner took over the place in the queue: two tasks share one owner. */
export class Replaced extends DLockError { static { named(this, "Replaced", "REPLACED"); } }

/** No server answered in time, or for `retryFor` milliseconds. The `cause` is the last failure. */
export class Unavailable extends DLockError { static { named(this, "Unavailable", "UNAVAILABLE"); } }

/**
 * The hold ended before it was released, so another client may have held the lock meanwhile.
 *
 * `reason` is one of `expired` (the lease ended by this machine's clock, or the server said so), `refused` (the server
 * did not renew the hold, and no message said why), `broken` (by an operator), `deleted` (the key is gone),
 * `disconnected`, `released` (by a RELEASE without the id of the request; `check()` also of a hold that you released),
 * `max-hold` and `closed` (the `DLock` was closed).
 */
export class LockLost extends DLockError {
  static { named(this, "LockLost", "LOCK_LOST"); }
  /** What the work returned, if `using` or `runOnce` ran it. */
  result: unknown = undefined;

  constructor(readonly keys: readonly string[], readonly reason: LossReason, options?: ErrorOptions) {
    super(`lost ${names(keys)}: ${reason}`, options);
  }
}

/** No reply says whether the hold stood until its release: the work counts only if its fencing token says so. */
export class ReleaseUnknown extends DLockError {
  static { named(this, "ReleaseUnknown", "RELEASE_UNKNOWN"); }
  /** What the work returned, if `using` or `runOnce` ran it. */
  result: unknown = undefined;
}

/** The server refused the request. `code` is the first word of its error. */
export class Refused extends DLockError {
  static { named(this, "Refused", "ERR"); }

  constructor(override readonly code: string, text: string) {
    super(`${code} ${text}`);
  }
}

/** An error reply, with its code. Programs decide about it; users see one of the classes above. */
export class ServerError extends Error {
  constructor(readonly code: string, readonly text: string) {
    super(`${code} ${text}`.trim());
  }
}

/**
 * In place of a reply that did not come: the outcome of the request is not known. It passes, as most errors do.
 * `isLate`: the caller's time was over first, and the connection may be well.
 */
export class Disconnected extends ServerError {
  constructor(text: string, readonly isLate = false) {
    super("", text);
  }
}

/** The codes that end what they answer. Every other code passes: the same request, a little later. */
const FINAL = new Set(["SPENT", "NOTHELD", "LOST", "UNKNOWN", "REENTRY", "REPLACED", "DEADLOCK", "LIMIT", "DIVERGED",
  "STOPPED", "BROKEN", "STALE", "WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS", "CROSSSLOT", "ERR"]);

/** Whether the server will not answer otherwise later. */
export function isFinal(error: ServerError): boolean {
  return FINAL.has(error.code);
}

/** Keys as they are shown in messages. */
export function names(keys: readonly string[]): string {
  return keys.map((key) => `'${key}'`).join(", ");
}

/**
 * An error of a client library: the error reply in it, or `Disconnected`. Error replies begin with a code in capitals;
 * errors of connections do not. Class names would not do: bundlers change them.
 */
export function fromLibrary(error: unknown): ServerError {
  if (error instanceof ServerError) return error;
  const text = error instanceof Error ? error.message : String(error);
  const found = /^([A-Z][A-Z0-9_]+)(?: |$)/.exec(text);
  if (found?.[1] !== undefined) return new ServerError(found[1], text.slice(found[0].length));
  return new Disconnected(text || (error as Error).name);
}

/** The exception that a user sees for an error reply that ends a call. */
export function userError(error: ServerError): DLockError {
  if (error.code === "ERR" && error.text.includes("unknown command")) {
    return new Refused("ERR", "the server has no module dlock (loadmodule libdlock.so), or not this command");
  }
  if (error.code === "DEADLOCK") return new Deadlock(error.text);
  if (error.code === "REPLACED") return new Replaced(error.text);
  return new Refused(error.code, error.text);
}
