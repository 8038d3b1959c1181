/** What ends calls, and what keeps the process alive: connections and timers do not, calls that someone awaits do. */

import { afterReads, now } from "./clock.js";

/** Node fires longer timers at once. */
export const LONGEST_TIMER = 2 ** 31 - 1;

/** Something that ends once: a call, or a signal. */
export class Ending {
  isOver = false;
  reason: unknown;
  readonly #tells = new Set<() => void>();

  get isWatched(): boolean { return this.#tells.size > 0; }

  /** Calls back at the end; at once if that was before. Returns what takes it back. */
  onEnd(tell: () => void): () => void {
    if (this.isOver) tell();
    else this.#tells.add(tell);
    return () => void this.#tells.delete(tell);
  }

  readonly end = (reason?: unknown): void => {
    if (this.isOver) return;
    this.isOver = true;
    this.reason = reason;
    for (const tell of this.#tells) tell();
    this.#tells.clear();
  };
}

/** Signals have one listener each, however many calls wait: Node warns of more than ten. */
const signals = new WeakMap<AbortSignal, Ending>();

/** Calls back when the signal is aborted; at once if it was before. Returns what takes it back. */
export function onAbort(signal: AbortSignal | undefined, tell: () => void): () => void {
  if (signal === undefined) return () => {};
  let ending = signals.get(signal);
  if (ending === undefined) {
    signals.set(signal, (ending = new Ending()));
    if (signal.aborted) ending.end();
    else signal.addEventListener("abort", ending.end, { once: true });
  }
  const { end } = ending;
  const takeBack = ending.onEnd(tell);
  return () => {
    takeBack();
    if (signals.get(signal)?.isWatched !== false) return;
    signal.removeEventListener("abort", end);
    signals.delete(signal);
  };
}

/** How late the end of a time may be noticed, and how much longer it is if that is later. */
const [LATE, MORE] = [30, 50];

/**
 * The outcome of a promise, or that of `late` after this time, when all that has arrived is read. If that is noticed
 * late, a computation may have kept requests from being written and replies from being read: there is more time, once.
 * Rejects when the call ends.
 */
export function bounded<T>(promise: Promise<T>, ms: number, call: Ending, late: () => T): Promise<T> {
  return new Promise((resolve, reject) => {
    let latest = now() + ms + LATE;
    const look = () => {
      if (now() < latest) return void Promise.resolve().then(late).then(resolve, reject);
      latest = Infinity;
      timer = setTimeout(afterReads, MORE, look).unref();
    };
    let timer = ms <= LONGEST_TIMER ? setTimeout(afterReads, ms, look).unref() : undefined;
    const takeBack = call.onEnd(() => reject(call.reason));
    promise.then(resolve, reject).finally(() => {
      latest = Infinity; // also for a look that is about to come
      clearTimeout(timer);
      takeBack();
    });
  });
}

/** Keeps the process alive until the promise has an outcome, which it returns. */
export async function keepAlive<T>(promise: Promise<T>): Promise<T> {
  const alive = setInterval(() => {}, LONGEST_TIMER);
  try {
    return await promise;
  } finally {
    clearInterval(alive);
  }
}
