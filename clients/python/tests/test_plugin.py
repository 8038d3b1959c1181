"""The plugin of pytest, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from servers import MODULE, SERVER

try:
    version("redis-dlock")
    PLUGIN = []  # pytest finds its entry point
except PackageNotFoundError:
    PLUGIN = ["-p", "redis_dlock.pytest_plugin"]

TEST = """
def test_server(dlock, dlock_server):
    assert dlock_server.startswith("redis://")
    hold = dlock.lock("plugin").try_acquire()
    assert hold is not None

def test_nothing_is_left(dlock):
    assert dlock.lock("plugin").try_acquire() is not None
"""


def run(folder, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_user.py").write_text(TEST)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DLOCK_")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[1] / "src")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN, "--rootdir", str(folder)]
    words += [*options, str(folder)]
    return subprocess.run(words, capture_output=True, text=True, env={**environment, **variables}, timeout=120)


def test_a_server_of_its_own(tmp_path):
    done = run(tmp_path, DLOCK_MODULE=MODULE, DLOCK_SERVER=SERVER)
    assert "2 passed" in done.stdout, done.stdout


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_given_server(tmp_path, server, how):
    url = f"redis://127.0.0.1:{server.port}/3"
    options, variables = ([f"--dlock-url={url}"], {}) if how == "option" else ([], {"DLOCK_URL": url})
    done = run(tmp_path, *options, **variables)
    assert "2 passed" in done.stdout, done.stdout


def test_the_command_dlock(tmp_path):
    """A stand-in for the command: it takes the options, and starts a server with the module."""
    command = tmp_path / "bin" / "dlock"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\n[ "$1 $2 $4" = "dev --port --with-stdin" ] || exit 64\n'
                       f'exec "{SERVER}" --port "$3" --save "" --dir "{tmp_path}" --loadmodule "{MODULE}"\n')
    command.chmod(0o755)
    done = run(tmp_path, PATH=f"{command.parent}:{os.environ['PATH']}")
    assert "2 passed" in done.stdout, done.stdout


def test_no_server(tmp_path):
    done = run(tmp_path, PATH="/nowhere")
    assert "or set DLOCK_URL or DLOCK_MODULE" in done.stdout, done.stdout


def test_a_server_that_does_not_start(tmp_path):
    done = run(tmp_path, DLOCK_MODULE="/nowhere/libdlock.so", DLOCK_SERVER=SERVER)
    assert "did not start a server" in done.stdout, done.stdout
