/** The clock by which leases are counted, in milliseconds. It goes on while the machine is suspended. */

import { uptime } from "node:os";

/** Calls a function after the event loop has read from its sockets. Bound here, before tests fake the timers. */
export const afterReads = globalThis.setImmediate;

/** How often holds look at the clock: timers stand still while the machine is suspended. */
export const CLOCK_INTERVAL = 250;

/** Differences of the clocks below this are noise: the boot time comes in steps of 10 ms. */
const NOISE = 50;

/**
 * A clock. `monotonic` never goes back, and stands still in a suspend on Linux; `wall` goes on, and can be set; `boot`,
 * the time since the machine started, goes on, but takes longer to read. A suspend shows as a step of the wall clock
 * against the monotonic clock; the time since boot tells it from a wall clock that was set.
 */
export function createClock(monotonic: () => number, wall: () => number, boot: () => number): () => number {
  let suspended = 0;
  let wallAhead = wall() - monotonic();
  const bootAhead = boot() - monotonic();
  return () => {
    const at = monotonic();
    const ahead = wall() - at;
    if (Math.abs(ahead - wallAhead) > NOISE) {
      wallAhead = ahead;
      const missed = boot() - monotonic() - bootAhead;
      if (missed > suspended + NOISE) suspended = missed;
    }
    return at + suspended;
  };
}

export const now = createClock(() => performance.now(), () => Date.now(), () => uptime() * 1000);

/** Runs `work` at most once in this time: for the first call at once, for all later ones together at the end of it. */
export function atMostOnceIn(pause: number, work: () => void): () => void {
  let last = -Infinity;
  let timer: NodeJS.Timeout | undefined;
  const run = () => {
    timer = undefined;
    last = now();
    work();
  };
  return () => {
    const left = last + pause - now();
    if (left <= 0) run();
    else timer ??= setTimeout(run, left).unref();
  };
}
