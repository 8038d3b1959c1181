/** A server for tests, with node:test, Vitest or any other runner. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

/** A server with the module dlock. */
export interface TestServer {
  readonly url: string;
  /** Ends the server, if `startServer` started it. */
  close(): Promise<void>;
}

/**
 * A server with the module dlock: that of DLOCK_URL; else one that is started: `redis-server` (or DLOCK_SERVER) with
 * the module DLOCK_MODULE, or by the command `dlock`. It ends with `close()`, or with this process.
 */
export async function startServer(): Promise<TestServer> {
  const { DLOCK_URL: url, DLOCK_MODULE: module, DLOCK_SERVER: program = "redis-server" } = process.env;
  if (url) return { url, close: async () => {} };
  const folder = await mkdtemp(join(tmpdir(), "dlock-node-"));
  const port = await freePort();
  const words = module
    ? [program, "--loadmodule", resolve(module), "--port", `${port}`, "--bind", "127.0.0.1", "--dir", folder, "--save",
        "", "--appendonly", "no"]
    : ["dlock", "dev", "--port", `${port}`, "--with-stdin"]; // it ends with this process in any case
  const child = spawn(words[0] as string, words.slice(1), { stdio: ["pipe", "ignore", "inherit"] });
  const ended = once(child, "exit")
    .then(([code, signal]) => `${code ?? signal}`, (error: NodeJS.ErrnoException) => error.code ?? error.message);
  const kill = () => void child.kill("SIGKILL");
  process.once("exit", kill);
  const close = async () => {
    process.off("exit", kill);
    child.kill();
    await ended;
    await rm(folder, { recursive: true, force: true });
  };
  const limit = Date.now() + 20_000;
  while (!(await answers(port))) { // Redis 7.0 listens before it loads modules
    const why = await Promise.race([ended, new Promise<undefined>((done) => setTimeout(done, 20, undefined))]);
    if (why === undefined && Date.now() < limit) continue;
    await close();
    const hint = why === "ENOENT" && !module ? "; set DLOCK_URL, or DLOCK_MODULE (of libdlock.so)" : "";
    throw new Error(`${words[0]} did not start a server: ${why ?? "no answer within 20 s"}${hint}`);
  }
  return { url: `redis://127.0.0.1:${port}`, close };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => socket.write("PING\r\n")).setTimeout(5000, () => socket.destroy());
    socket.on("data", (data) => (resolve(data.toString().startsWith("+PONG")), socket.destroy()));
    socket.on("error", () => {}).on("close", () => resolve(false));
  });
}
