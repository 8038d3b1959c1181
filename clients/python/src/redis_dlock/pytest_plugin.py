"""Fixtures of pytest: ``dlock_server``, the URL of a server with the module, and ``dlock``, a ``DLock`` on it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from redis_dlock import DLock


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--dlock-url", default=os.environ.get("DLOCK_URL"), metavar="URL", help=(
        "a server with the module dlock. Default: DLOCK_URL; else a server is started: redis-server (or DLOCK_SERVER) "
        "with the module DLOCK_MODULE, or by the command dlock"))


@pytest.fixture(scope="session")
def dlock_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """The URL of a server with the module dlock. A server that this fixture starts ends with the session."""
    given, module = pytestconfig.getoption("--dlock-url"), os.environ.get("DLOCK_MODULE")
    if given:
        yield given
        return
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        if module:
            words = [os.environ.get("DLOCK_SERVER", "redis-server"), "--loadmodule", os.path.abspath(module), "--port",
                     port, "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no"]
        elif shutil.which("dlock"):
            words = ["dlock", "dev", "--port", port, "--with-stdin"]  # it ends with this process in any case
        else:
            pytest.fail("no server with dlock: pass --dlock-url, or set DLOCK_URL or DLOCK_MODULE (of libdlock.so)")
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as server:
            try:
                until = time.monotonic() + 20
                while not _answers(int(port)):  # Redis 7.0 listens before it loads modules
                    if server.poll() is not None or time.monotonic() > until:
                        pytest.fail(f"{words[0]} did not start a server; its exit code: {server.poll()}")
                    time.sleep(0.05)
                yield f"redis://127.0.0.1:{port}/0"
            finally:
                server.terminate()


@pytest.fixture
def dlock(dlock_server: str) -> Iterator[DLock]:
    """A ``DLock`` on the server of the tests. What a test still holds is released after it."""
    import redis

    from redis_dlock import DLock

    with redis.Redis.from_url(dlock_server) as client, DLock(client) as locks:
        yield locks


def _answers(port: int) -> bool:
    import redis

    with contextlib.suppress(redis.RedisError):
        return bool(redis.Redis(port=port, socket_timeout=5).ping())
    return False
