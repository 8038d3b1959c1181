"""Servers with the module for tests, each in a process of its own, and a proxy that cuts and delays."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import redis

SERVER = os.environ.get("DLOCK_SERVER", "redis-server")
_ROOT = Path(__file__).resolve().parents[3]
MODULE = str(Path(os.environ.get("DLOCK_MODULE", _ROOT / "target/debug/libdlock.so")).resolve())


def free_port() -> int:
    """A port that is free, as is the one 10,000 above: the bus of a cluster uses that."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
            try:
                other.bind(("127.0.0.1", port + 10000))
            except (OSError, OverflowError):
                continue
            return port


def until(is_so, seconds: float = 10.0, pause: float = 0.005):
    """Waits for a state, and returns what ``is_so`` returned."""
    end = time.monotonic() + seconds
    while True:
        value = is_so()
        if value or time.monotonic() > end:
            assert value, f"not so within {seconds:g} s"
            return value
        time.sleep(pause)


class Server:
    """A server that can be stopped, killed and started again with its data."""

    def __init__(self, *options: str, module: bool = True, port: int = 0) -> None:
        self.port = port or free_port()
        self.folder = tempfile.mkdtemp(prefix="dlock-python-")
        self._command = [SERVER, *(["--loadmodule", MODULE] if module else []), "--port", str(self.port), "--save", "",
                         "--dir", self.folder, "--bind", "127.0.0.1", "--appendfsync", "always", *options]
        self.start()

    def start(self) -> None:
        log = open(os.path.join(self.folder, "log"), "ab")  # noqa: SIM115
        self.process = subprocess.Popen(self._command, stdout=log, stderr=log)
        log.close()
        self.client = redis.Redis(port=self.port)
        until(self._answers, 30)

    def _answers(self) -> bool:
        assert self.process.poll() is None, Path(self.folder, "log").read_text()
        try:
            return bool(self.client.ping())
        except redis.exceptions.ResponseError:
            return True
        except redis.exceptions.RedisError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def ask(self, *words):
        return self.client.execute_command(*words)

    def shown(self, key: str, field: str, family: str = "DLOCK") -> int:
        info = self.ask(f"{family}.INFO", key)
        pairs = dict(zip(info[::2], info[1::2])) if isinstance(info, list) else info or {}
        return int(pairs.get(field.encode(), 0))

    def waiters(self, key: str, family: str = "DLOCK") -> int:
        return self.shown(key, "waiters", family)

    def holds(self, key: str) -> int:
        return self.shown(key, "holds")

    def connections(self) -> int:
        return len(self.client.client_list())

    def end(self) -> None:
        self.client.close()
        if self.process.poll() is None:
            self.go_on()
            self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class Cluster:
    """Nodes of a cluster that share the slots evenly."""

    def __init__(self, nodes: int = 3) -> None:
        options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000",
                   "--cluster-require-full-coverage", "no"]
        self.nodes = [Server(*options) for _ in range(nodes)]
        share = 16384 // nodes
        for index, node in enumerate(self.nodes):
            last = 16383 if index == nodes - 1 else (index + 1) * share - 1
            node.ask("CLUSTER ADDSLOTSRANGE", index * share, last)
            node.ask("CLUSTER SET-CONFIG-EPOCH", index + 1)
        for node in self.nodes[1:]:
            node.ask("CLUSTER MEET", "127.0.0.1", self.nodes[0].port)
        for node in self.nodes:
            until(lambda node=node: node.ask("CLUSTER INFO").get("cluster_state") == "ok"
                  and int(node.ask("CLUSTER INFO")["cluster_known_nodes"]) == nodes, 30)
        self.port = self.nodes[0].port

    def end(self) -> None:
        for node in self.nodes:
            node.end()


class Proxy:
    """A TCP proxy in threads. It notes requests, and can hold them back, or lose replies."""

    def __init__(self, port: int) -> None:
        self._to, self._pairs, self.requests = port, [], bytearray()
        self._muted: list = []
        self.delay = 0.0  # of replies, in seconds
        self.cut_after = b""  # a request that contains this goes through, and its connection ends before the reply
        self.hold_back = b""  # a request that contains this does not go through: its connection ends
        self.half_at = False  # of the next reply only two bytes arrive, and the connection stays open
        self.mute_at = b""  # a connection whose replies contain this stays open, and brings no more of them
        self.cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                client.close()
                continue
            pair = (client, server)
            self._pairs.append(pair)
            threading.Thread(target=self._requests, args=pair, daemon=True).start()
            threading.Thread(target=self._replies, args=pair, daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while data := client.recv(1 << 16):
                if self.hold_back and self.hold_back in data:
                    self.cuts += 1
                    break
                self.requests += data
                if self.cut_after and self.cut_after in data:
                    self.cut_after = b""
                    self.cuts += 1
                    client.shutdown(socket.SHUT_RDWR)
                    server.sendall(data)
                    server.settimeout(0.05)
                    server.recv(1 << 16)  # the request was carried out, unless the other thread sees that
                    break
                server.sendall(data)
        except OSError:
            pass
        self._close(client, server)

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        is_mute = False
        try:
            while data := server.recv(1 << 16):
                if self.delay:
                    time.sleep(self.delay)
                is_mute = is_mute or bool(self.mute_at and self.mute_at in data) or client in self._muted
                if self.half_at and not is_mute:
                    self.half_at, is_mute = False, True
                    client.sendall(data[:2])
                if is_mute:
                    continue
                client.sendall(data)
        except OSError:
            pass
        self._close(client, server)

    def _close(self, *pair: socket.socket) -> None:
        for one in pair:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            one.close()

    def mute_all(self) -> None:
        """All connections stay open, and bring no more replies. New ones do."""
        self._muted += [client for client, _ in self._pairs]

    def cut(self) -> None:
        """Ends all connections."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            self._close(*pair)

    def end(self) -> None:
        self._close(self._listening)
        self.cut()
