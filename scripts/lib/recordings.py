"""Records the hand-off and `dlock top`, with a server of `dlock dev`."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import threading
import time

import terminal

TYPING = 0.25


def program(target, name):
    """The release build, else the one for tests."""
    for profile in ("release", "checked", "debug"):
        if (path := target / profile / name).exists():
            return path
    raise SystemExit(f"no {name} in {target}: cargo build --release -p dlock -p dlock-cli")


class Connection:
    """A connection that sends commands inline."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.replies = self.socket.makefile("rb")

    def send(self, words):
        self.socket.sendall(words.encode() + b"\r\n")

    def ask(self, words):
        self.send(words)
        reply = self.replies.readline()
        if reply.startswith(b"-"):
            raise SystemExit(f"{words}: {reply.decode()}")
        return reply


def type_line(tmux, pane, line, frames):
    words = line.split(" ")
    for n, word in enumerate(words):
        tmux.type(pane, word if n == 0 else " " + word)
        tmux.wait(pane, r"\$ " + r"\s+".join(map(re_escape, words[: n + 1])))
        frames.append(tmux.frame(TYPING))
    tmux.press(pane, "Enter")


def re_escape(word):
    return "".join("\\" + sign if not sign.isalnum() else sign for sign in word)


def hand_off(folder, environment):
    """alice holds, bob waits, alice releases, bob has it with a larger token."""
    tmux = terminal.Tmux(folder / "tmux", 2 * 50 + 1, 9, environment)
    try:
        tmux.split()
        frames = []
        for pane in (0, 1):
            tmux.wait(pane, r"^\$")
        frames.append(tmux.frame(0.8))
        type_line(tmux, 0, "redis-cli DLOCK.ACQUIRE door alice PX 60000", frames)
        first = int(tmux.wait(0, r"^\(integer\) (\d{9,})$")[1])
        tmux.wait(0, r"\)? \d+\n\$")
        frames.append(tmux.frame(1.6))
        type_line(tmux, 1, "redis-cli DLOCK.ACQUIRE door bob BLOCK 0", frames)
        until(lambda: b":1" in Connection(int(environment["PORT"])).ask("DLOCK.POSITION door bob"), "bob waits")
        frames.append(tmux.frame(2.2))
        if "integer" in tmux.screen(1):
            raise SystemExit(f"bob does not wait:\n{tmux.screen(1)}")
        type_line(tmux, 0, "redis-cli DLOCK.RELEASE door alice", frames)
        second = int(tmux.wait(1, r"^\(integer\) (\d{9,})$")[1])
        tmux.wait(0, r"RELEASE door alice\n\(integer\) \d+\n\$")
        tmux.wait(1, r"\d\n\$")
        frames.append(tmux.frame(4))
        if second <= first:
            raise SystemExit(f"bob's token {second} is not larger than alice's, {first}")
    finally:
        tmux.close()
    return terminal.svg("A lock is handed off", frames, ["alice", "bob"], 50, 5)


def until(condition, what):
    end = time.monotonic() + terminal.LIMIT
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"never: {what}")
        time.sleep(0.01)


def load(port, is_over):
    """Locks with holders and waiters, and a counter that workers take turns at."""
    ends = []

    def hold(words):
        connection = Connection(port)
        ends.append(connection)
        connection.ask(words)

    def wait(words):
        connection = Connection(port)
        ends.append(connection)
        connection.send(words)

    hold("DLOCK.ACQUIRE door alice PX 60000 LABEL deliveries")
    for name in ("bob", "carol", "dave"):
        wait(f"DLOCK.ACQUIRE door {name} BLOCK 0 LABEL deliveries")
    hold("DSEM.ACQUIRE licences sim-1 LIMIT 3 PX 90000")
    hold("DSEM.ACQUIRE licences sim-2 LIMIT 3 PX 90000")
    hold("DRW.ACQUIRE page reader-1 READ PX 45000")
    hold("DRW.ACQUIRE page reader-2 READ PX 45000")
    wait("DRW.ACQUIRE page editor WRITE BLOCK 0")
    hold("DFAIR.ACQUIRE printer writer-7 PX 120000")
    wait("DFAIR.ACQUIRE printer writer-9 BLOCK 0")

    def work(name, key, pause):
        connection = Connection(port)
        while not is_over.is_set():
            connection.ask(f"DLOCK.ACQUIRE {key} {name} BLOCK 0 PX 10000 LABEL import")
            is_over.wait(pause)
            connection.ask(f"DLOCK.RELEASE {key} {name}")

    workers = [("worker-1", "orders", 0.04), ("worker-2", "orders", 0.05), ("worker-3", "orders", 0.03)]
    workers += [("web-1", "stock", 0.02), ("web-2", "stock", 0.01), ("web-3", "cart", 0.02)]
    threads = [threading.Thread(target=work, args=worker, daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    return threads, ends


def top(folder, environment):
    """`dlock top` under load: rates and percentiles, then one lock."""
    is_over = threading.Event()
    threads, ends = load(int(environment["PORT"]), is_over)
    tmux = terminal.Tmux(folder / "tmux", 104, 24, environment)
    try:
        frames = []
        tmux.wait(0, r"^\$")
        type_line(tmux, 0, "dlock top -i 1", frames)
        for pattern in (
            r"^dlock top: \S+ \S+ at ",
            r"^waited p50/p99: dlock ",
            r"^held +p50/p99: dlock ",
            r"^KEY +KIND +HELD BY +LEFT +WAITERS +GRANTS/S",
            r"door +dlock +alice +\S+ +3 ",
            r"licences +dsem +2 of 3 permits",
            r"printer +dfair +writer-7",
            r"^per second: [1-9][0-9.]* grants at once, [1-9]",
        ):
            tmux.wait(0, pattern)
        for _ in range(4):
            before = tmux.screen(0)
            until(lambda seen=before: tmux.screen(0) != seen, "another sample")
            frames.append(tmux.frame(1.2))
        tmux.press(0, "Enter")
        for pattern in (r"PLACE +OWNER +CLIENT +WAITING", r"2 +carol", r"3 +dave +\d+ .* deliveries"):
            tmux.wait(0, pattern)
        frames.append(tmux.frame(3))
        tmux.press(0, "Escape")
        tmux.wait(0, r"^KEY +KIND +HELD BY")
        frames.append(tmux.frame(3))
    finally:
        is_over.set()
        tmux.close()
        for thread in threads:
            thread.join()
        for connection in ends:
            connection.socket.close()
    return terminal.svg("dlock top", frames, ["dlock top"], 104, 24)


def all_of(root):
    metadata = subprocess.run(
        [os.environ.get("CARGO", "cargo"), "metadata", "--no-deps", "--format-version", "1"],
        cwd=root, check=True, capture_output=True, text=True,
    ).stdout
    target = pathlib.Path(json.loads(metadata)["target_directory"])
    dlock, module = program(target, "dlock"), program(target, "libdlock.so")
    words = [dlock, "dev", "--json", "--with-stdin", "--module", module]
    if server := os.environ.get("DLOCK_SERVER"):
        words += ["--server", server]
    drawn = {}
    for name, record in (("hand-off.svg", hand_off), ("top.svg", top)):
        server = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            url = json.loads(server.stdout.readline())["url"]
            port = url.rsplit(":", 1)[1]
            # So that the picture does not show the port.
            (folder / "redis-cli").write_text(f'#!/bin/sh\nPATH=${{PATH#*:}} exec redis-cli -p {port} "$@"\n')
            (folder / "dlock").symlink_to(dlock)
            (folder / "redis-cli").chmod(0o755)
            path = f"{folder}:{os.environ['PATH']}"
            environment = os.environ | {"PATH": path, "DLOCK_URL": url, "PORT": port, "HISTFILE": "", "TERM": "xterm-256color"}
            environment.pop("TMUX", None)
            try:
                drawn[name] = record(folder, environment)
            finally:
                server.stdin.close()
                server.wait()
    return drawn
