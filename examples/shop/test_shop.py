"""Sellers in three languages are killed and cut, and sell every piece of the stock once.

    make test-clients, or: python -m pytest examples/shop
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "clients/python/tests"))

from servers import Server, until  # noqa: E402

PIECES, EACH = 1500, 4


def commands(folder: Path) -> list[list[str]]:
    node = ROOT / "clients/node"
    project = folder / "project"
    (project / "node_modules").mkdir(parents=True)
    (project / "node_modules/redis-dlock").symlink_to(node)
    (project / "node_modules/ioredis").symlink_to(node / "node_modules/ioredis")
    for name in ("shop.mjs", "sell.lua"):
        shutil.copy(HERE / name, project)
    seller = os.environ.get("DLOCK_SELLER") or str(ROOT / "target/debug/examples/seller")
    return [[sys.executable, str(HERE / "shop.py")], ["node", str(project / "shop.mjs")], [seller]]


def test_every_piece_is_sold_once():
    dice = random.Random(7)
    server = Server("--appendonly", "yes")
    log = Path(server.folder, "sellers")
    sellers: list[tuple[list[str], subprocess.Popen[bytes]]] = []

    def start(command: list[str]) -> None:
        with log.open("ab") as out:
            url = f"redis://127.0.0.1:{server.port}/"
            sellers.append((command, subprocess.Popen([*command, url], stdout=subprocess.PIPE, stderr=out)))

    def sold() -> int:
        return int(server.ask("LLEN", "shop:sales"))

    try:
        server.ask("HSET", "shop", "left", PIECES)
        for command in commands(Path(server.folder)) * EACH:
            start(command)
        for mark in range(100, PIECES - 100, 100):
            until(lambda mark=mark: sold() >= mark, 60)
            if mark % 200:
                server.client.client_kill_filter(_type="normal", skipme=True)
                continue
            command, seller = sellers.pop(dice.randrange(len(sellers)))
            seller.kill()
            seller.communicate()
            start(command)
        said = []
        for _, seller in sellers:
            out, _ = seller.communicate(timeout=60)
            assert seller.returncode == 0, log.read_text()[-2000:]
            said.append(int(out.split()[-1]))
        sales = [sale.decode().split() for sale in server.ask("LRANGE", "shop:sales", 0, -1)]
        tokens = [int(token) for _, token in sales]
        assert len(sales) == PIECES and int(server.ask("HGET", "shop", "left")) == 0
        assert tokens == sorted(set(tokens))
        assert {seller for seller, _ in sales} == {"python", "node", "rust"}
        # A seller that is killed, or whose reply was lost, does not count what it sold.
        assert sum(said) <= PIECES
        # The places of killed sellers last for 10 s more.
        until(lambda: server.ask("EXISTS", "shop:lock") == 0 and server.waiters("shop:lock") == 0, 30)
    finally:
        for _, seller in sellers:
            if seller.poll() is None:
                seller.kill()
            seller.communicate()
        server.end()
