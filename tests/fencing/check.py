"""Runs the code blocks of docs/fencing.md, and checks that stale tokens are refused. `make fencing` runs it."""

import http.client
import http.server
import itertools
import os
import random
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
import moto
import psycopg
import redis

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "fencing.md").read_text()
BLOCKS = dict(re.findall(r"<!-- run: (\w+) -->\n```\w+\n(.*?)```", PAGE, re.S))
DATABASE = os.environ["FENCING_DATABASE"]


def connect(autocommit=True):
    return psycopg.connect(DATABASE, autocommit=autocommit)


def write(cursor, quantity, token, row="door"):
    return cursor.execute(BLOCKS["write"], {"quantity": quantity, "token": token, "id": row}).rowcount


def waits_for_a_lock(pid):
    with connect() as other:
        query = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = %s"
        for _ in range(10_000):
            if other.execute(query, [pid]).fetchone()[0]:
                return
    raise AssertionError("the statement does not wait")


def a_stale_holder_of_a_real_lock_is_refused():
    client = redis.Redis(port=int(os.environ["NEW_PORT"]))
    acquire = ["DLOCK.ACQUIRE", "orders:7"]
    first = client.execute_command(*acquire, "alice", "PX", 50)
    second = client.execute_command(*acquire, "bob", "PX", 60_000, "BLOCK", 4000)
    with connect() as db:
        db.execute("INSERT INTO stock VALUES ('real', 9)")
        assert write(db, 1, second, "real") == 1
        assert write(db, 2, first, "real") == 0
        assert write(db, 3, second, "real") == 1
    print("PostgreSQL, one row: a holder whose lease has ended is refused, its successor is not")


def a_statement_that_waits_is_checked_again():
    with connect() as db:
        db.execute("UPDATE stock SET token = 5, quantity = 9 WHERE id = 'door'")
    with connect(autocommit=False) as new, connect() as stale, ThreadPoolExecutor() as threads:
        assert write(new, 1, 7) == 1
        # Token 6 was fine when the statement began: 5 is committed.
        late = threads.submit(write, stale, 2, 6)
        waits_for_a_lock(stale.info.backend_pid)
        new.commit()
        assert late.result() == 0
    with connect() as db:
        assert db.execute("SELECT quantity, token FROM stock WHERE id = 'door'").fetchone() == (1, 7)
    print("PostgreSQL, one row: a stale statement that waited for a newer one is refused")


def two_statements_let_a_stale_write_through():
    check, update = BLOCKS["wrong"].split(";")
    with connect() as db:
        db.execute("UPDATE stock SET token = 5, quantity = 9 WHERE id = 'door'")
    with connect(autocommit=False) as stale, connect() as new:
        arguments = {"quantity": 2, "token": 6, "id": "door"}
        assert stale.execute(check, arguments).fetchone()[0]
        assert write(new, 1, 7) == 1
        assert stale.execute(update, arguments).rowcount == 1
        stale.commit()
        assert new.execute("SELECT quantity, token FROM stock WHERE id = 'door'").fetchone() == (2, 6)
    print("PostgreSQL, two statements: the stale write went through, as the page says")


def a_storm_of_writers():
    """Each write is noted by a trigger, in the order of the writes: tokens in that order never decrease."""
    with connect() as db:
        db.execute(
            """CREATE TABLE history (at bigserial, token bigint);
            CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
                'BEGIN INSERT INTO history (token) VALUES (NEW.token); RETURN NEW; END';
            CREATE TRIGGER note AFTER UPDATE ON stock FOR EACH ROW EXECUTE FUNCTION note();
            INSERT INTO stock VALUES ('storm', 0)"""
        )

    newest = itertools.count(100)

    def writer(seed):
        chance, written = random.Random(seed), 0
        with connect() as db:
            for step in range(500):
                written += write(db, step, next(newest) - chance.randint(0, 20), "storm")
        return written

    with ThreadPoolExecutor(8) as threads:
        written = sum(threads.map(writer, range(8)))
    with connect() as db:
        tokens = [token for (token,) in db.execute("SELECT token FROM history ORDER BY at")]
        assert tokens == sorted(tokens) and len(tokens) == written
        db.execute("DROP TRIGGER note ON stock")
    assert 0 < written < 4000
    print(f"PostgreSQL, one row: 8 writers, 4000 writes, {4000 - written} refused, tokens never decreased")


def transactions_are_fenced():
    transaction = BLOCKS["transaction"]
    token = int(re.search(r"\d{10,}", transaction).group())
    with connect() as db:
        db.execute("UPDATE stock SET quantity = 10 WHERE id = 'door'")
        db.execute(transaction)
        try:
            db.execute(transaction.replace(str(token), str(token - 1)))
            raise AssertionError("a stale transaction was committed")
        except psycopg.errors.RaiseException:
            db.rollback()
        db.execute(transaction)
        assert db.execute("SELECT quantity FROM stock WHERE id = 'door'").fetchone() == (8,)
    with connect(autocommit=False) as new, connect() as stale, ThreadPoolExecutor() as threads:
        new.execute("SELECT fence('orders:7', %s)", [token + 2])
        late = threads.submit(stale.execute, "SELECT fence('orders:7', %s)", [token + 1])
        waits_for_a_lock(stale.info.backend_pid)
        new.commit()
        assert isinstance(late.exception(), psycopg.errors.RaiseException)
    print("PostgreSQL, a transaction: a stale one cannot commit, also if it waited for a newer one")


class Rival:
    """An S3 client before whose first write another writer writes."""

    def __init__(self, s3, act):
        self.s3, self.act = s3, act

    def __getattr__(self, name):
        return getattr(self.s3, name)

    def put_object(self, **arguments):
        act, self.act = self.act, lambda: None
        act()
        return self.s3.put_object(**arguments)


@moto.mock_aws
def an_object_store():
    scope = {}
    exec(BLOCKS["s3"], scope)
    put = scope["fenced_put"]
    s3 = boto3.client("s3", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    s3.create_bucket(Bucket="bucket")

    def content(key):
        return s3.get_object(Bucket="bucket", Key=key)["Body"].read()

    for key in ("new", "known"):
        if key == "known":
            put(s3, "bucket", key, 5, b"data")
        try:
            # The rival writes the same data with a larger token, between the reading and the writing of the stale one.
            put(Rival(s3, lambda: put(s3, "bucket", key, 7, b"data")), "bucket", key, 6, b"data")
            raise AssertionError("a stale write went through")
        except PermissionError:
            assert content(key) == b"7\ndata"
        put(s3, "bucket", key, 7, b"more")
        put(Rival(s3, lambda: put(s3, "bucket", key, 7, b"other")), "bucket", key, 8, b"last")
        assert content(key) == b"8\nlast"
    print("an object store (moto): a stale write is refused, also between reading and writing, also with the same data")


def an_http_service():
    scope = {"http": http, "threading": threading}
    exec(BLOCKS["http"], scope)
    scope["Handler"].log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), scope["Handler"])
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def put(token):
        connection = http.client.HTTPConnection(*server.server_address)
        connection.request("PUT", "/stock/door", b"41", {"Fencing-Token": str(token)})
        return connection.getresponse().status

    assert [put(7), put(6), put(7), put(8), put(7)] == [204, 409, 204, 204, 409]
    server.shutdown()
    print("an HTTP service: a stale write is refused")


if __name__ == "__main__":
    with connect() as db:
        db.execute(BLOCKS["schema"])
        db.execute(BLOCKS["fence"])
        db.execute("INSERT INTO stock VALUES ('door', 10)")
        print(db.execute("SHOW server_version").fetchone()[0].join(["PostgreSQL ", ""]))
    a_stale_holder_of_a_real_lock_is_refused()
    a_statement_that_waits_is_checked_again()
    two_statements_let_a_stale_write_through()
    a_storm_of_writers()
    transactions_are_fenced()
    an_object_store()
    an_http_service()
