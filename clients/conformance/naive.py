#!/usr/bin/env python3
"""A small client of dlock with its driver: correct as it is, and wrong in one way with `--trap NAME`.

It needs nothing but Python's standard library, waits with BLOCK and QUEUE on a connection per call, and knows DLOCK
alone. It shows what a client has to do; `dlock-conformance --traps` shows that the kit notices each mistake.
"""

import os
import socket
import sys
import threading
import time
import uuid
from urllib.parse import urlparse

TRAPS = """believes-forever block-longer-than-timeout error-is-loss fork-shares lease-after-reply messages-only
monotonic-lease new-owner-per-copy new-reqid-per-copy no-cancel no-renewal no-reqid no-rollback one-renewal-only
one-reqid polls release-by-del release-is-always-fine release-no-reqid release-without-token renew-without-token
shared-owner silent-reacquire spent-is-held spent-is-the-end stop-on-notheld-ignored trust-messages unknown-is-lost
unknown-is-released wall-clock-lease work-goes-on""".split()
TRAP = sys.argv[2] if sys.argv[1:2] == ["--trap"] else None
if TRAP is not None and TRAP not in TRAPS:
    sys.exit(f"no trap {TRAP}; there are: {' '.join(TRAPS)}")


def now():
    """Seconds of a clock that goes on while the machine sleeps, and that no one sets."""
    if TRAP == "wall-clock-lease":
        return time.time()
    return time.clock_gettime(time.CLOCK_MONOTONIC if TRAP == "monotonic-lease" else time.CLOCK_BOOTTIME)


def new_id():
    return uuid.uuid4().hex


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


class Refusal(Exception):
    """An error reply. The first word of its text is the code."""

    @property
    def code(self):
        return str(self).split(" ")[0]


class Closed(Exception):
    """The call was cancelled."""


class Link:
    """One connection. After an error the next call opens another one."""

    def __init__(self, client):
        self.client, self.socket, self.file = client, None, None

    def call(self, *words, timeout):
        try:
            if self.socket is None:
                self.socket = socket.create_connection(self.client.address, timeout=2)
                self.file = self.socket.makefile("rb")
                for setup in self.client.setup:
                    self.send(setup, self.client.timeout)
            return self.send(words, timeout)
        except (OSError, EOFError, ValueError, AttributeError) as error:
            self.close()
            raise ConnectionError(str(error)) from error

    def send(self, words, timeout):
        self.socket.settimeout(timeout)
        words = [str(word).encode() for word in words]
        request = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        self.socket.sendall(b"*%d\r\n%s" % (len(words), request))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("closed")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise Refusal(rest.decode())
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if int(rest) < 0:
            return None
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        data = self.file.read(int(rest) + 2)
        if len(data) < int(rest) + 2:
            raise EOFError("closed")
        return data[:-2].decode()

    def close(self):
        link, self.socket = self.socket, None
        if link is not None:
            try:
                link.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            link.close()


class Client:
    def __init__(self, url, options):
        parts = urlparse(url)
        self.address = (parts.hostname, parts.port)
        self.setup = [["AUTH", parts.username, parts.password]] if parts.username else []
        self.setup += [["SELECT", parts.path[1:]]] if parts.path[1:] else []
        self.lease = int(options.get("lease", 30000))
        self.queue = int(options.get("queue", 10000))
        self.timeout = int(options.get("response-timeout", 3000)) / 1000
        self.retry_for = int(options.get("retry-for", 10000)) / 1000
        self.owner, self.reqid = new_id(), new_id()
        Link(self).call("PING", timeout=self.timeout)

    def repeat(self, words):
        """Sends the request until it is answered; returns the reply and the number of copies."""
        end, copies, link = now() + self.retry_for, 0, Link(self)
        try:
            while True:
                copies += 1
                try:
                    return link.call(*words, timeout=self.timeout), copies
                except Refusal as error:
                    if error.code not in RETRIED or now() > end:
                        error.copies = copies
                        raise
                except ConnectionError:
                    if now() > end:
                        raise
                time.sleep(0.05)
        finally:
            link.close()


# Errors that say nothing about the request, and that pass.
RETRIED = ["LOADING", "READONLY", "NOREPLICAS", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "MOVING", "QUARANTINE"]


class Task:
    """An acquire, and the hold that it gets."""

    def __init__(self, name, client, key, options):
        self.name, self.client, self.key = name, client, key
        self.owner = options.get("owner", client.owner if TRAP == "shared-owner" else new_id())
        self.fixed = "fixed" in options
        self.lease = int(options.get("fixed", client.lease))
        self.max_hold = int(options["max-hold"]) / 1000 if "max-hold" in options else None
        self.end = now() + int(options["wait"]) / 1000 if "wait" in options else None
        self.tries_once = options.get("wait") == "0"
        self.work = int(options["work"]) / 1000 if "work" in options else None
        self.link = Link(client)
        self.state, self.token, self.until, self.pid = "waiting", None, 0, os.getpid()
        self.lock = threading.Lock()

    # Acquire

    def acquire(self):
        try:
            self.token = self.wait()
        except (Closed, Refusal, ConnectionError) as error:
            if self.state == "waiting":
                self.state = "over"
                say(self.name, "failed", getattr(error, "code", "UNAVAILABLE"))
            return
        finally:
            if TRAP != "no-cancel":
                self.link.close()
        if self.token is None:
            self.state = "over"
            say(self.name, "not-acquired")
            return
        self.state, self.start = "held", now()
        say(self.name, "granted", self.token)
        threading.Thread(target=self.watch, daemon=True).start()
        if not self.fixed and TRAP != "no-renewal":
            threading.Thread(target=self.renew, daemon=True).start()
        if self.work is not None:
            self.run()

    def words(self, reqid, *waits):
        owner = new_id() if TRAP == "new-owner-per-copy" else self.owner
        reqid = {"new-reqid-per-copy": new_id(), "one-reqid": self.client.reqid}.get(TRAP, reqid)
        ids = [] if TRAP == "no-reqid" else ["REQID", reqid]
        return ["DLOCK.ACQUIRE", self.key, owner, "PX", self.lease, *waits, *ids]

    def wait(self):
        """The token, or None if the time is over."""
        reqid, lost_replies, answered = new_id(), 0, now()
        while True:
            slice_ms = int(min(2000, self.client.timeout * 500))
            if TRAP == "block-longer-than-timeout":
                slice_ms = 60000
            if self.end is not None:
                slice_ms = int(min(slice_ms, max(1, (self.end - now()) * 1000)))
            waits = [] if self.tries_once or TRAP == "polls" else ["BLOCK", slice_ms, "QUEUE", self.client.queue]
            if TRAP in ("trust-messages", "messages-only") and not self.tries_once:
                waits = ["QUEUE", self.client.queue, "NOTIFY", "dlock:notify:naive"]
                listener = self.listen()
            sent = now()
            try:
                token = self.link.call(*self.words(reqid, *waits), timeout=self.client.timeout)
                answered = now()
                if token is not None and self.is_certain(token, sent):
                    return token
                if token is not None:
                    reqid, lost_replies = new_id(), 0
                elif self.state == "waiting" and "NOTIFY" in waits:
                    token = self.message(listener, reqid)
                    if token is not None:
                        return token
            except Refusal as error:
                answered = now()
                if error.code == "SPENT" and TRAP not in ("spent-is-held", "spent-is-the-end"):
                    reqid, lost_replies = new_id(), 0
                elif error.code == "SPENT" and TRAP == "spent-is-held":
                    self.until = now() + self.lease / 1000
                    return 0
                elif error.code not in RETRIED:
                    raise
                else:
                    time.sleep(0.05)
            except ConnectionError:
                lost_replies += 1
                if TRAP == "block-longer-than-timeout":
                    raise
                time.sleep(0.05)
            if self.state != "waiting":
                self.roll_back(reqid, lost_replies)
                raise Closed
            if self.tries_once and lost_replies == 0 or self.end is not None and now() >= self.end:
                self.roll_back(reqid, lost_replies)
                return None
            if now() > answered + self.client.retry_for:
                raise ConnectionError("no server")
            if TRAP == "polls":
                time.sleep(0.05)

    def is_certain(self, token, sent):
        """A grant after a wait began between request and reply: a renewal says from when it counts."""
        if TRAP == "lease-after-reply":
            sent = now()
        if now() - sent > self.lease / 1000 / 10:
            sent = now()
            try:
                self.client.repeat(["DLOCK.RENEW", self.key, self.owner, "PX", self.lease, "TOKEN", token])
            except Refusal:
                return False
        self.count_from(sent)
        return True

    def roll_back(self, reqid, lost_replies):
        """Nothing of the request is left: no place, no grant, no late copy."""
        threading.Thread(target=self.roll_back_now, args=(reqid, lost_replies), daemon=True).start()

    def roll_back_now(self, reqid, lost_replies):
        if TRAP == "no-cancel":
            return
        try:
            self.client.repeat(["DLOCK.CANCEL", self.key, self.owner, "REQID", reqid])
            if lost_replies and TRAP != "no-rollback":
                token, _ = self.client.repeat(self.words(reqid))
                if token is not None:
                    release = ["DLOCK.RELEASE", self.key, self.owner, "TOKEN", token, "REQID", new_id()]
                    self.client.repeat(release)
        except (Refusal, ConnectionError):
            pass

    def cancel(self):
        if self.state != "waiting":
            return say(self.name, "too-late")
        self.state = "cancelled"
        if TRAP != "no-cancel":
            self.link.close()
        say(self.name, "cancelled")

    # Messages, for two traps only

    def listen(self):
        listener = Link(self.client)
        listener.call("SUBSCRIBE", "dlock:notify:naive", timeout=self.client.timeout)
        return listener

    def message(self, listener, reqid):
        """The token that a message names, if the trap is to believe it."""
        end = now() + (1e9 if TRAP == "messages-only" else self.client.queue / 2000)
        while self.state == "waiting" and now() < end:
            listener.socket.settimeout(0.1)
            try:
                text = listener.reply()[2]
            except OSError:
                listener.file = listener.socket.makefile("rb")
                continue
            event, _, token = text.split(" ")[:3]
            if TRAP == "messages-only":
                return None
            if event != "granted":
                raise Refusal(event.upper())
            self.count_from(now())
            return int(token)
        return None

    # The hold

    def count_from(self, sent):
        lease = self.lease / 1000
        self.until = sent + lease * 0.99 - 0.002

    def is_held(self):
        if TRAP == "believes-forever":
            return self.state == "held"
        if self.pid != os.getpid() and TRAP != "fork-shares":
            return False
        is_too_long = self.max_hold is not None and now() > self.start + self.max_hold
        return self.state == "held" and now() < self.until and not is_too_long

    def lose(self):
        with self.lock:
            if self.state != "held":
                return
            self.state = "lost"
        if self.work is None:
            say(self.name, "lost")

    def watch(self):
        while self.state == "held":
            if not self.is_held():
                self.lose()
            time.sleep(0.01)

    def renew(self):
        pause = self.lease / 3000
        while True:
            time.sleep(pause)
            if not self.is_held():
                return
            token = [] if TRAP == "renew-without-token" else ["TOKEN", self.token]
            words = ["DLOCK.RENEW", self.key, self.owner, "PX", self.lease, *token]
            link, sent, pause = Link(self.client), now(), self.lease / 3000
            try:
                link.call(*words, timeout=self.client.timeout)
                self.count_from(now() if TRAP == "lease-after-reply" else sent)
            except Refusal as error:
                is_lost = error.code in ("NOTHELD", "WRONGTYPE") and TRAP != "stop-on-notheld-ignored"
                if is_lost and TRAP == "silent-reacquire":
                    self.token = self.client.repeat(self.words(new_id()))[0]
                elif is_lost or TRAP == "error-is-loss":
                    self.lose()
                pause = self.lease / 20000
            except ConnectionError:
                if TRAP == "one-renewal-only":
                    self.lose()
                pause = self.lease / 20000
            finally:
                link.close()

    def run(self):
        end = now() + self.work
        while now() < end and (self.is_held() or TRAP == "work-goes-on"):
            time.sleep(0.01)
        how = self.release_now()
        say(self.name, {"released": "finished", "was-lost": "lost"}.get(how, how))

    def release(self):
        say(self.name, self.release_now())

    def release_now(self):
        with self.lock:
            was_lost = not self.is_held()
            self.state = "over"
        if TRAP == "release-by-del":
            self.client.repeat(["DEL", self.key])
            return "released"
        token = [] if TRAP == "release-without-token" else ["TOKEN", self.token]
        ids = [] if TRAP == "release-no-reqid" else ["REQID", new_id()]
        try:
            self.client.repeat(["DLOCK.RELEASE", self.key, self.owner, *token, *ids])
            return "was-lost" if was_lost else "released"
        except Refusal as error:
            was_lost |= error.code in ("NOTHELD", "WRONGTYPE") and error.copies == 1
            was_lost |= error.code == "SPENT" and error.copies == 2
        except ConnectionError:
            pass
        if TRAP == "release-is-always-fine":
            return "released"
        unknown = {"unknown-is-released": "released", "unknown-is-lost": "was-lost"}.get(TRAP, "unknown")
        return "was-lost" if was_lost else unknown


class Driver:
    def __init__(self):
        self.clients, self.tasks = {}, {}

    def command(self, line):
        verb, name, *words = line.split(" ")
        options = dict(word.split("=", 1) for word in words if "=" in word)
        unknown = set(options) - {"lease", "queue", "response-timeout", "retry-for", "owner", "fixed", "max-hold",
                                  "wait", "work"}
        if unknown or verb in ("acquire", "run") and words[1] != "lock":
            say(name, "unsupported", *unknown or [words[1]])
        elif verb == "open":
            if not words[0].startswith("redis://"):
                return say(name, "unsupported", urlparse(words[0]).scheme)
            self.clients[name] = Client(words[0], options)
            say(name, "opened")
        elif verb in ("acquire", "run"):
            task = self.tasks[name] = Task(name, self.clients[words[0]], words[2], options)
            threading.Thread(target=task.acquire, daemon=True).start()
        elif verb == "check":
            say(name, "is", "held" if self.tasks[name].is_held() else "lost")
        elif verb == "release":
            threading.Thread(target=self.tasks[name].release, daemon=True).start()
        elif verb == "cancel":
            self.tasks[name].cancel()
        elif verb == "fork":
            if os.fork() == 0:
                say(name, "child-held" if self.tasks[name].is_held() else "child-lost")
                os._exit(0)
        elif verb == "close":
            for task in self.tasks.values():
                if task.client is self.clients[name] and task.state == "waiting":
                    task.state = "closed"
                    task.link.close()
                    say(task.name, "failed", "CLOSED")
                elif task.client is self.clients[name] and task.state == "held":
                    releasing = threading.Thread(target=task.release_now, daemon=True)
                    releasing.start()
                    releasing.join(task.client.timeout)
                    say(task.name, "lost")
            say(name, "closed")
        else:
            say(name, "unsupported", verb)


driver = Driver()
for command in sys.stdin:
    if command.strip() == "quit":
        break
    if command.strip() == "suspend":
        say("driver", "ready")
    else:
        driver.command(command.strip())
