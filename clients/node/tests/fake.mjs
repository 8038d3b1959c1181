/** A server in this process: a test answers each command, sends messages, and ends connections. */

import { DLock } from "redis-dlock";

/** No reply comes. */
export const NOTHING = Symbol("no reply");

export const error = (text) => new Error(text);

/** The word behind a word of a command. */
export const after = (command, word) => command[command.indexOf(word) + 1];

export class Fake {
  static all = [];
  sent = [];
  opened = 0;
  /** Errors of the next connections. */
  refusals = [];
  #connections = new Set();

  /** `answer` gets the command, and how many of its name came before; it returns a reply, an error, or a promise. */
  constructor(answer) {
    this.answer = answer;
  }

  locks(settings) {
    Fake.all.push(new DLock(this, { retryFor: 2000, responseTimeout: 500, ...settings }));
    return Fake.all.at(-1);
  }

  async connect(onEnd) {
    this.opened += 1;
    const refusal = this.refusals.shift();
    if (refusal !== undefined) throw refusal;
    const connection = {
      onEnd,
      send: (commands) => commands.map((command) => this.#reply(command)),
      subscribe: async (channels, onMessage) => {
        connection.onMessage = onMessage;
      },
      ref() {},
      close: () => this.#connections.delete(connection),
    };
    this.#connections.add(connection);
    return connection;
  }

  async #reply(command) {
    const earlier = this.named(command[0]).length;
    this.sent.push(command);
    const reply = await this.answer(command, earlier);
    if (reply === NOTHING) return new Promise(() => {});
    if (reply instanceof Error) throw reply;
    return reply;
  }

  named(name) {
    return this.sent.filter(([verb]) => verb === name);
  }

  publish(event, token, reqid = "") {
    const text = event === "flushed" ? "flushed 0" : `${event} 0 ${token} 1 o ${reqid.length} ${reqid} k`;
    for (const { onMessage } of this.#connections) onMessage?.(text);
  }

  /** Ends the connections for messages, or those for commands. */
  cut(isForMessages) {
    for (const connection of [...this.#connections]) {
      if (isForMessages === (connection.onMessage !== undefined)) connection.onEnd(new Error("cut"));
    }
  }
}

/**
 * An `Io` whose replies are these, one a call; functions are called. A message is the time until it comes, its event
 * and its token. `sleep` makes time pass.
 */
export function ioOf(replies, { messages = [], sleep = async () => {} } = {}) {
  const io = {
    sent: [],
    given: [],
    pauses: [],
    async send(batch) {
      io.sent.push(batch);
      const next = replies.length > 1 ? replies.shift() : replies[0];
      const reply = typeof next === "function" ? await next(batch) : next;
      return Array.isArray(reply) ? reply : batch.commands.map(() => reply);
    },
    async pause(ms, reqid) {
      io.pauses.push(ms);
      if (reqid === undefined) return void (await sleep(ms));
      const [wait, event, token = "7"] = messages.shift() ?? [ms];
      await sleep(wait);
      return event && { event, token, reqid };
    },
    background(program) {
      io.given.push(program);
    },
  };
  return io;
}
