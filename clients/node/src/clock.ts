/** The clock by which leases are counted, in milliseconds. It goes on while the machine is suspended. */

import { uptime } from "node:os";

/** How often holds look at the clock: timers stand still while the machine is suspended. */
export const CLOCK_INTERVAL = 250;

/** What a clock reads. Each returns milliseconds. */
export interface Sources {
  /** Never goes back; stands still in a suspend on Linux. */
  monotonic(): number;
  /** Goes on in a suspend; can be set. */
  wall(): number;
  /** The time since the machine started, suspends included. Slower to read than the others. */
  boot(): number;
}

/** Differences of the clocks below this are noise: the boot time comes in steps of 10 ms. */
const NOISE = 50;

/**
 * The monotonic clock and the suspends of the machine. A suspend shows as a step of the wall clock against the
 * monotonic clock; the time since boot tells it from a wall clock that was set.
 */
export function createClock({ monotonic, wall, boot }: Sources): () => number {
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

export const now = createClock({
  monotonic: () => performance.now(),
  wall: () => Date.now(),
  boot: () => uptime() * 1000,
});
