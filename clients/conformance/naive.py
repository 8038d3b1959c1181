#!/usr/bin/env python3
"""A small client of dlock with its driver.

It needs nothing but Python's standard library. `Task.acquire` and what it calls are the pseudocode of docs/protocol.md,
over RESP2: a connection for requests, one for messages, few for blocked calls. traps.py makes it wrong in one way.
"""

import collections
import os
import queue
import socket
import sys
import threading
import time
import uuid
from urllib.parse import urlparse

FINAL = """SPENT NOTHELD LOST UNKNOWN REENTRY REPLACED DEADLOCK LIMIT DIVERGED STOPPED BROKEN STALE WRONGTYPE NOPERM
NOAUTH WRONGPASS CROSSSLOT ERR""".split()
AWAY = ["READONLY", "MOVING", "MASTERDOWN"]  # ask where the primary is now
FAMILIES = {"lock": "DLOCK", "fair": "DFAIR", "read": "DRW", "write": "DRW", "semaphore": "DSEM", "multi": "DLOCK",
            "any": "DLOCK", "latch": "DLATCH"}


def now():
    """Seconds of a clock that goes on while the machine sleeps, and that no one sets."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def new_id():
    return uuid.uuid4().hex


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())  # one write: other threads say something, too


def in_background(work, *arguments):
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


class Refusal(Exception):
    """An error reply. The first word of its text is the code."""


class Lost(Exception):
    """No reply: the outcome is not known."""


class NotAcquired(Exception):
    """A try got nothing, or the wait has ended."""


def code(reply):
    return str(reply).split(" ")[0] if isinstance(reply, Refusal) else None


def passes(reply):
    """Whether the same request is to be sent again later."""
    return isinstance(reply, Lost) or isinstance(reply, Refusal) and code(reply) not in FINAL


class Connection:
    """Replies come in the order of the requests. `on_message` gets what channels bring, `on_end` is called once."""

    def __init__(self, address, timeout, on_end=lambda: None, on_message=None):
        self.socket = socket.create_connection(address, timeout)
        self.socket.settimeout(None)
        self.file, self.lock, self.is_open = self.socket.makefile("rb"), threading.Lock(), True
        self.pending, self.on_end, self.on_message = collections.deque(), on_end, on_message
        in_background(self.read)

    def call(self, *words, timeout, fits=lambda reply: True):
        """The reply. After a wrong one, or none in time, the connection is given up: others are of other requests."""
        words, slot = [str(word).encode() for word in words], queue.SimpleQueue()
        request = b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)
        try:
            with self.lock:
                if not self.is_open:
                    raise Lost("closed")
                self.pending.append((slot, fits))
                self.socket.sendall(b"*%d\r\n%s" % (len(words), request))
            reply = slot.get(timeout=timeout)
        except (queue.Empty, OSError) as error:
            self.close()
            raise Lost(str(error)) from error
        if isinstance(reply, Exception):
            raise reply
        return reply

    def read(self):
        try:
            while True:
                reply = self.reply()
                if self.on_message is not None and isinstance(reply, list) and reply[0] == "message":
                    self.on_message(reply[2])
                else:
                    if not (isinstance(reply, Refusal) or self.pending[0][1](reply)):
                        raise ValueError("the reply of another request")
                    self.pending.popleft()[0].put(reply)
        except (OSError, EOFError, ValueError, IndexError):
            self.close()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("closed")
        kind, rest = line[:1], line[1:-2]
        if kind in b"-+":
            return Refusal(rest.decode()) if kind == b"-" else rest.decode()
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
        with self.lock:
            if not self.is_open:
                return
            self.is_open = False
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()
        for slot, _ in list(self.pending):
            slot.put(Lost("closed"))
        self.on_end()


class Client:
    def __init__(self, url, options):
        parts = urlparse(url)
        self.hosts = [(pair.rsplit(":", 1)[0], int(pair.rsplit(":", 1)[1]))
                      for pair in parts.netloc.rsplit("@", 1)[-1].split(",")]
        self.primary = parts.path[1:] if parts.scheme == "redis-sentinel" else None
        self.setup = [["AUTH", parts.username, parts.password]] if parts.username else []
        self.setup += [["SELECT", parts.path[1:]]] if parts.path[1:] and self.primary is None else []
        times = {"lease": 30000, "queue": 10000, "response-timeout": 3000, "retry-for": 10000, **options}
        self.lease, self.queue, self.timeout, self.retry_for = (int(times[name]) / 1000 for name in
                                                                ("lease", "queue", "response-timeout", "retry-for"))
        self.replicas, self.channel = int(times.get("replicas", 0)), f"dlock:notify:{new_id()}"
        self.tasks, self.links, self.opening, self.flushed = [], [], threading.Lock(), 0
        self.connections, self.is_closed, self.releases, self.runs = [], False, [], {}
        self.blocked = queue.LifoQueue()  # connections of blocked calls
        for _ in range(32):
            self.blocked.put(None)
        self.call("PING")

    # Connections

    def address(self):
        if self.primary is None:
            return self.hosts[0]
        for host in self.hosts:
            try:
                sentinel = Connection(host, self.timeout)
                found = sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.primary, timeout=self.timeout)
                sentinel.close()
                return found[0], int(found[1])
            except (OSError, Lost, Refusal, TypeError):
                pass
        raise Lost("no Sentinel answers")

    def connect(self, setup=(), **handlers):
        """A new connection. A subscription is part of its opening."""
        try:
            connection = Connection(self.address(), self.timeout, **handlers)
            self.connections.append(connection)
            if self.is_closed:
                connection.close()
            for words in [*self.setup, *setup]:
                connection.call(*words, timeout=self.timeout)
            return connection
        except (OSError, Refusal) as error:
            if code(error) in ("NOPERM", "NOAUTH", "WRONGPASS"):
                raise
            raise Lost(str(error)) from error

    def link(self):
        """The connection for requests. It ends with the one for messages."""
        with self.opening:
            if len(self.links) < 2 or not all(link.is_open for link in self.links):
                self.disconnect()
                channels = [["SUBSCRIBE", self.channel], ["SUBSCRIBE", "dlock:notify"]]
                self.links = [self.connect(channels, on_end=self.disconnect, on_message=self.message)]
                self.links.append(self.connect(on_end=self.disconnect))
            return self.links[1]

    def disconnect(self):
        """Then each wait sends its copy, and each hold a RENEW: the first of them opens the next connection."""
        links, self.connections = self.connections, []
        for link in links:
            link.close()
        self.wake()

    def close(self):
        """Ends each wait at once, then has the reply timeout for all releases, then ends all connections."""
        for task in list(self.tasks):
            if not task.stop("failed", "CLOSED") and task.state == "held":
                self.releases.append(in_background(task.release_now))
                task.say("lost")
        end = now() + self.timeout
        for release in self.releases:
            release.join(max(0, end - now()))
        self.is_closed = True
        self.disconnect()

    def wake(self):
        for task in list(self.tasks):
            task.woken.set()

    def call(self, *words, timeout=None, link=None, **options):
        """The reply: a value, a Refusal, or Lost."""
        try:
            return (link or self.link()).call(*words, timeout=timeout or self.timeout, **options)
        except (Lost, Refusal) as reply:
            if code(reply) in AWAY:
                self.disconnect()
            return reply

    def block(self, *words, **options):
        """The reply to a call that waits with BLOCK. It has a connection of its own while it waits."""
        link = self.blocked.get()
        try:
            link = link if link is not None and link.is_open else self.connect()
            return self.call(*words, link=link, **options)
        except (Lost, Refusal) as reply:
            return reply
        finally:
            self.blocked.put(link)

    def info(self, link=None):
        """What the server says of its quarantine, in milliseconds: by `left`, `age` and `length`."""
        text = self.call("INFO", "dlock_keys", link=link)
        lines = [] if isinstance(text, Exception) else text.split()
        told = [line[len("dlock_quarantine_"):].split("_ms:") for line in lines if line.startswith("dlock_quarantine_")]
        return {name: int(value) for name, value in told} or text

    def confirmed(self, link, sent, lease, is_new):
        """Whether enough replicas have what this connection wrote. No quarantine began since it was sent, or ended."""
        count = self.call("WAIT", self.replicas, max(1, int(lease * 1000 / 6)), link=link)
        told = self.info(link)
        if not isinstance(count, int) or count < self.replicas or isinstance(told, Exception):
            return False
        return told["age"] >= (now() - sent) * 1000 and not (is_new and told["left"] > 0)

    def repeat(self, words, limit):
        """Sends the request until its reply does not pass, or the time is over."""
        end = now() + limit
        while True:
            reply = self.call(*words)
            if not passes(reply) or now() > end or self.is_closed:
                return reply
            time.sleep(0.05)

    def message(self, text):
        """A hint, but for a grant that carries the id of a request."""
        event, *rest = text.encode().split(b" ", 4)
        if event == b"flushed":
            if now() > self.flushed + 1:
                self.flushed = now()
                self.wake()
            return
        token, owner_length, rest = rest[1].decode(), int(rest[2]), rest[3]
        length, rest = rest[owner_length + 1:].split(b" ", 1)
        reqid, event = rest[:int(length)].decode(), event.decode()
        for task in list(self.tasks):
            if task.state == "waiting" and task.id == reqid:
                task.event = (event, token)
                task.woken.set()
            elif task.state == "held" and token in map(str, task.tokens.values()):
                task.woken.set()


class Task:
    """An acquire, and the hold that it gets, or a wait for a latch. Its states are waiting, held and over (or lost)."""

    def __init__(self, name, client, mode, keys, options, listen=say):
        self.name, self.listen, self.client, self.mode, self.keys = name, listen, client, mode, keys.split(",")
        self.family, self.is_blocking = FAMILIES[mode], mode in ("multi", "any")
        self.owner, self.is_fixed = options.get("owner", new_id()), "fixed" in options
        self.lease = int(options["fixed"]) / 1000 if self.is_fixed else client.lease
        self.bind, self.limit = (int(options[name]) if name in options else None for name in ("bind", "limit"))
        self.max_hold = int(options["max-hold"]) / 1000 if "max-hold" in options else None
        self.work = int(options["work"]) / 1000 if "work" in options else None
        self.is_once, self.is_try = "once" in options, "once" in options or options.get("wait") == "0"
        self.time = int(options["wait"]) / 1000 or client.timeout if "wait" in options else None
        self.block = min(client.timeout, self.time or client.timeout) / 2  # so that a reply comes in time
        self.is_answered, self.answered, self.ended, self.value = False, now(), threading.Event(), None
        self.px = self.lease if self.is_fixed or self.is_try else min(self.lease, client.queue)
        self.state, self.last, self.tokens, self.until, self.pid = "waiting", None, {}, 0, os.getpid()
        self.lock, self.woken, self.asked, self.start = threading.RLock(), threading.Event(), 0, now()
        self.begin()
        client.tasks.append(self)
        if self.time is not None:
            in_background(self.expire)

    def say(self, *words):
        self.last = words
        if words[0] != "granted" and self.client.runs.get(self.keys[0]) is self:
            del self.client.runs[self.keys[0]]  # who comes after this event runs again
        self.listen(self.name, *words)

    # Acquire

    def begin(self):
        """A new request."""
        with self.lock:
            if self.state != "waiting":
                raise NotAcquired
            self.id, self.first, self.copies, self.event = new_id(), now(), 0, None

    def expire(self):
        """Ends the wait when its time is over, whatever it waits for. A try has the reply timeout."""
        time.sleep(self.time)
        busy = "not-open" if self.mode == "latch" else "not-acquired"
        self.stop(*[busy] if self.is_answered else ["failed", "UNAVAILABLE"])

    def acquire(self):
        try:
            self.once() if self.is_once or self.mode == "latch" else self.wait()
            if self.work is not None and self.state in ("held", "lost"):
                self.run()
        except NotAcquired:
            self.stop("not-acquired")
        except (Refusal, Lost) as error:
            self.stop("failed", code(error) or "UNAVAILABLE")
        finally:
            self.ended.set()

    def note(self, reply):
        """Raises it if there was no reply for too long."""
        self.is_answered = not isinstance(reply, Lost)
        self.answered = now() if self.is_answered else self.answered
        if now() > self.answered + self.client.retry_for:
            raise reply

    def wait(self):
        while True:
            sent = now()
            self.woken.clear()
            reply = self.ask()
            if self.state != "waiting":
                return  # it was given up: its reply means nothing
            self.note(reply)
            if passes(reply):
                if self.is_try and self.is_answered:
                    raise NotAcquired(reply)
                time.sleep(0.05)
                continue
            if code(reply) == "SPENT":
                self.give_up()
                self.begin()
                continue
            if isinstance(reply, Refusal):
                raise reply
            if reply is None:
                if self.is_try:
                    raise NotAcquired
                if not self.is_blocking and self.event is None:
                    self.woken.wait(self.client.queue / 2)                      # a message, or a new connection
                event, token = self.event or (None, None)
                self.event = None
                if event == "replaced":
                    raise Refusal("REPLACED")
                if event != "granted":
                    continue                                                    # the next copy asks
                reply, sent = token, self.first
            self.tokens = self.named(reply)
            self.until = sent + self.span(self.px)
            is_short = self.client.replicas or now() > sent + self.span(self.px) / 2
            if is_short and not self.renew():
                self.give_up()
                self.begin()
                if self.is_try:
                    raise NotAcquired
                time.sleep(0.05)
                continue
            return self.hold()

    def ask(self):
        if self.client.replicas:
            told = self.client.info()
            if isinstance(told, Exception):
                return told
            if told["length"] < self.lease * 1000:
                return Refusal("ERR the lease is longer than the quarantine of the server")
        self.copies += 1
        ask = self.client.block if self.is_blocking else self.client.call
        return ask(*self.acquire_words(), fits=lambda reply: reply is None or self.is_grant(reply))

    def is_grant(self, reply):
        """Whether it has tokens, or a permit id."""
        if self.mode == "semaphore":
            return isinstance(reply, str) and len(reply) == 36
        tokens = reply if self.is_blocking and isinstance(reply, list) else [reply]
        return all(isinstance(token, int) and token > 0 for token in (tokens[1:] if self.mode == "any" else tokens))

    def acquire_words(self):
        words = [f"{self.family}.ACQUIRE", *self.keys, self.owner]
        if self.is_blocking:
            words = [f"DLOCK.{'M' if self.mode == 'multi' else 'ANY'}ACQUIRE", len(self.keys), *self.keys, self.owner]
        words += [self.mode.upper()] if self.family == "DRW" else ["LIMIT", self.limit] if self.limit else []
        words += ["PX", self.millis(self.px), "NOTIFY", self.client.channel]
        words += ["BIND", self.bind] if self.bind else []
        if self.is_blocking and not self.is_try:
            words += ["BLOCK", self.millis(self.block)]
        elif not self.is_try:
            words += ["QUEUE", self.millis(self.client.queue)]
        return [*words, "REQID", self.id]

    def once(self):
        """Runs the work, unless a run of another is done meanwhile. Of a latch: waits until it is open."""
        words = [f"{self.family}.AWAIT", self.keys[0], *["REASON"] * self.is_once]
        while self.is_once and (leader := self.client.runs.setdefault(self.keys[0], self)) is not self:
            leader.ended.wait()
            self.value = leader.value
            if leader.last[0] in ("finished", "not-run", "failed"):
                return self.stop(*leader.last if leader.last[0] == "failed" else ["not-run"])
        while self.state == "waiting":
            try:
                if self.is_once:
                    return self.wait()
                reply = None
            except NotAcquired as error:
                reply = error.args[0] if error.args else None
                self.begin()
            if reply is None:
                reply = self.client.block(*words, "BLOCK", self.millis(self.block))
            self.note(reply)
            if reply in ("done", 1):
                return self.stop("not-run" if self.is_once else "open")
            if isinstance(reply, Refusal) and not passes(reply):
                raise reply
            error = str(reply).split(" ")
            time.sleep(min(1, int(error[1]) / 1000) if error[0] == "QUARANTINE" else 0.05)

    def named(self, reply):
        """The tokens, or the permit id, by key."""
        if self.mode == "any":
            return {reply[0]: reply[1]}
        return dict(zip(self.keys, reply if self.mode == "multi" else [reply]))

    def hold(self):
        with self.lock:
            if self.state != "waiting":
                return
            self.state, self.start = "held", now()
        self.say("granted", ",".join(map(str, self.tokens.values())))
        in_background(self.watch)
        in_background(self.keep)

    # Giving up

    def stop(self, *words):
        """Ends a wait; whether it was one."""
        with self.lock:
            if self.state != "waiting":
                return False
            self.state = "over"
        if self.copies > 0 and not (self.is_try and self.copies == 1 and self.is_answered):
            self.give_up()
        self.woken.set()
        self.say(*words)
        return True

    def give_up(self):
        """Until it is answered, or nothing of the request can be left."""
        limit = self.client.queue + self.px
        self.client.releases.append(in_background(self.client.repeat, self.release_words(), limit))

    def release_words(self, *token):
        mode = [self.mode.upper()] if self.family == "DRW" else []
        if self.is_blocking and (self.mode == "multi" or len(self.tokens) != 1):
            return ["DLOCK.MRELEASE", len(self.keys), *self.keys, self.owner, "REQID", self.id]
        key = next(iter(self.tokens), self.keys[0])
        return [f"{self.family}.RELEASE", key, self.owner, *mode, *token, "REQID", self.id]

    # The hold

    def span(self, lease):
        """For how long a request with this lease may be believed in."""
        if self.bind is not None:
            lease = min(lease, self.bind / 1000)
        return lease * 0.99 - 0.002

    def millis(self, seconds):
        return max(1, int(seconds * 1000))

    def is_held(self):
        if self.pid != os.getpid():
            return False
        is_too_long = self.max_hold is not None and now() > self.start + self.max_hold
        return self.state == "held" and now() < self.until and not is_too_long

    def lose(self):
        with self.lock:
            if self.state != "held":
                return
            self.state = "lost"
        if self.work is None:
            self.say("lost")

    def watch(self):
        while self.state == "held":
            if not self.is_held():
                self.lose()
            time.sleep(0.01)

    def keep(self):
        """Renews at each third, and when a message or a new connection says that something may have happened."""
        pause = self.span(self.px) / 3
        while self.is_held():
            if self.woken.wait(None if self.is_fixed else pause):
                time.sleep(max(0, self.asked + 0.1 - now()))
                self.woken.clear()
            if not self.is_held():
                continue
            third = self.span(self.lease) / 3
            pause = third if self.renew() is not None else min(third / 5, 1)

    def renew(self):
        """True if renewed, None without an answer."""
        sent = self.asked = now()
        is_new = self.state == "waiting"
        try:
            link = self.client.link()
        except (Lost, Refusal) as error:
            return None if isinstance(error, Lost) else False
        lease = self.lease
        if self.max_hold is not None and self.state == "held":
            lease = min(lease, max(0.001, self.start + self.max_hold - sent))
        asked = 0.001 if self.is_fixed and self.state == "held" else lease  # PX 1 asks, and extends nothing
        for key, token in self.tokens.items():
            words = [f"{self.family}.RENEW", key, token if self.mode == "semaphore" else self.owner]
            words += [self.mode.upper()] if self.family == "DRW" else []
            words += ["PX", self.millis(asked)]
            words += ["BIND", self.bind] if self.bind else []
            words += [] if self.mode == "semaphore" else ["TOKEN", token]
            third = self.span(lease) / 3 if self.state == "held" else self.client.timeout
            timeout = min(self.client.timeout, max(0.02, third))  # time for another attempt
            reply = self.client.call(*words, timeout=timeout, link=link)
            if code(reply) in ("NOTHELD", "WRONGTYPE"):
                self.lose()
            if isinstance(reply, Exception):
                return None if isinstance(reply, Lost) else False
            if reply != (1 if self.mode == "semaphore" else int(token)):
                self.client.disconnect()
                return None
        if self.client.replicas and not self.client.confirmed(link, sent, lease, is_new):
            return None
        self.until = max(self.until, sent + self.span(asked))
        return True

    def adopt(self, token):
        """Takes over a hold that another process acquired."""
        self.tokens, self.id, self.until = {self.keys[0]: token}, None, 0
        if self.renew():
            return self.hold()
        self.state = "over"
        self.say("failed", "NOTHELD")

    def run(self):
        end = now() + self.work
        while now() < end and self.is_held():
            time.sleep(0.01)
        how, self.value = self.release_now("DONE" if self.is_once else None), new_id()
        self.say({"released": "finished", "was-lost": "lost"}.get(how, how))

    def release(self):
        self.say(self.release_now())

    def release_now(self, done=None):
        with self.lock:
            was_held = self.is_held()
            self.state = "over"
        self.woken.set()
        token = [] if self.mode in ("semaphore", "multi") else ["TOKEN", *self.tokens.values()]
        words = self.release_words(*token)
        if self.id is None:
            words = [*words[:-2], "ALL"]
        if done and was_held:
            words.append(done)
        return self.verdict(was_held, self.client.repeat(words, self.client.retry_for))

    def verdict(self, was_held, reply):
        is_expired = code(reply) == "LOST" and str(reply).split(" ")[1] == "expired"
        if not was_held or code(reply) == "LOST" and not is_expired:
            return "was-lost"
        return "released" if isinstance(reply, int) or is_expired else "unknown"


class Driver:
    def __init__(self):
        self.clients, self.tasks = {}, {}

    def task(self, name, options, client, *words):
        mode, keys = ["latch", *words][-2:]
        unknown = set(options) - {"owner", "fixed", "max-hold", "wait", "work", "bind", "limit", "token", "once"}
        unknown |= {mode} - set(FAMILIES) | ({"bind"} & set(options) if mode in ("multi", "any") else set())
        if unknown:
            return say(name, "unsupported", *unknown)
        task = self.tasks[name] = Task(name, self.clients[client], mode, keys, options)
        in_background(*[task.adopt, options["token"]] if "token" in options else [task.acquire])

    def open(self, name, options, url):
        unknown = set(options) - {"lease", "queue", "response-timeout", "retry-for", "replicas"}
        if unknown or urlparse(url).scheme not in ("redis", "redis-sentinel"):
            return say(name, "unsupported", *unknown or [urlparse(url).scheme])
        self.clients[name] = Client(url, options)
        say(name, "opened")

    def waiters(self, name, options, client, count, key):
        if "as" not in options:
            return say(name, "unsupported", "waiters")  # a thread for each of thousands
        mode, ended, tasks = {"once": "lock", "await": "latch", "multi": "multi"}[options["as"]], [], []
        left = iter(range(int(count) - 1, -1, -1))
        def listen(number, event, *_):
            if event == "granted":
                return in_background(tasks[number].release) if mode == "multi" else None
            ended.append((event, tasks[number].value))
            if next(left) == 0:
                ran = [sum(event == "finished" for event, _ in ended), len({value for _, value in ended})]
                say(name, "done", *ran * (mode == "lock"))
        for number in range(int(count)):
            tasks.append(Task(number, self.clients[client], mode, key, {**options, options["as"]: True}, listen))
            in_background(tasks[-1].acquire)

    def check(self, name, options):
        say(name, "is", "held" if self.tasks[name].is_held() else "lost")

    def release(self, name, options):
        in_background(self.tasks[name].release)

    def cancel(self, name, options):
        if not self.tasks[name].stop("cancelled"):
            say(name, "too-late")

    def fork(self, name, options):
        if os.fork() == 0:
            say(name, "child-held" if self.tasks[name].is_held() else "child-lost")
            os._exit(0)

    def close(self, name, options):
        self.clients[name].close()
        say(name, "closed")

    def command(self, line):
        verb, name, *words = line.split(" ")
        options = dict(word.split("=", 1) for word in words if "=" in word)
        options.update({"once": True} if verb == "once" else {})
        work = getattr(self, "task" if verb in ("acquire", "run", "once", "await", "adopt") else verb, None)
        if work is None:
            return say(name, "unsupported", verb)
        work(name, options, *[word for word in words if "=" not in word])


driver = Driver()
for command in iter(lambda: sys.stdin.readline().strip() or "quit", "quit"):
    say("driver", "ready") if command == "suspend" else driver.command(command)
