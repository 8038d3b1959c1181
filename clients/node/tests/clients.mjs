/** What tests share: a server for each file, and clients of it that end with the tests. */

import { after } from "node:test";
import { DLock } from "redis-dlock";

import { clientOf } from "./libraries.mjs";
import { Proxy, Server, until } from "./servers.mjs";

export * from "./libraries.mjs";

const ends = [];
let number = 0;

export const newKey = () => `t:${process.pid}:${(number += 1)}`;

/** Ends it after all tests of the file. */
export function ending(one) {
  ends.push(one);
  return one;
}

after(async () => {
  for (const one of ends.reverse()) await one.end();
});

/** A server that all tests of a file share: none may end it, or delete what is not its own. */
let shared;
export const server = () => (shared ??= Server.start(["--appendonly", "no"]).then(ending));
export const ownServer = async (options = ["--appendonly", "yes"], more = {}) =>
  ending(await Server.start(options, more));
export const newProxy = async (port) => ending(await Proxy.start(port ?? (await server()).port));

/** A DLock on the shared server, or on a port. */
export async function make(kind, { port, client = {}, ...settings } = {}) {
  const locks = new DLock(clientOf(kind, port ?? (await server()).port, client), settings);
  ending({ end: () => locks.close() });
  return locks;
}

/** Whether the hold tells of its loss in this time. */
export async function lost(hold, ms = 10_000) {
  return until(() => hold.signal.aborted, ms).catch(() => false);
}
