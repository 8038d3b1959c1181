/** Locks in Redis and Valkey servers with the module dlock: https://github.com/dlock/dlock. */

export { fromSentinel, type Client } from "./adapters.js";
export type { Adapter, Address, Connection } from "./connections.js";
export {
  Deadlock, DLockError, LockLost, NotAcquired, Refused, ReleaseUnknown, Replaced, Unavailable, type LossReason,
} from "./errors.js";
export {
  DLock, Election, Hold, Latch, Lock, type Leader, type Once, type SemaphoreOptions, type WaitOptions, type Work,
} from "./locks.js";
export type { AcquireOptions, Settings } from "./session.js";
