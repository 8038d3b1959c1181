"""What is sent: requests as lists of words. Here, too, is how replies and messages are read."""

from __future__ import annotations

import logging
import math
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Callable, NamedTuple, Optional, Union

from .errors import Disconnected, Refused, ServerError

log = logging.getLogger("redis_dlock")

Arg = Union[str, bytes, int]
Command = list[Arg]


def new_id() -> str:
    """An id that nobody can guess, for an owner or a request. Drawn when it is needed: clones of a process differ."""
    return os.urandom(16).hex()


def milliseconds(seconds: float) -> int:
    """A time on the wire: at least 1 ms, because 0 often means "forever"."""
    return max(1, round(seconds * 1000))


def text(value: Any) -> str:
    """A string of a reply, whichever way the client decodes replies."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def fields(reply: Any) -> dict[str, Any]:
    """A map of a reply: RESP2 sends it as a flat list."""
    if reply is None:
        return {}
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2])
    return {text(name): value for name, value in pairs}


def raw(word: Arg) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")


def pack(commands: list[Command]) -> bytes:
    """Commands as they are sent."""
    packed = []
    for words in commands:
        packed.append(b"*%d\r\n" % len(words))
        packed += [b"$%d\r\n%b\r\n" % (len(word), word) for word in map(raw, words)]
    return b"".join(packed)


def encoded(command: Command) -> list[Any]:
    """A command for a client of redis-py, whatever its encoding. It looks up the name of the command as a string."""
    return [command[0], *map(raw, command[1:])]


def read_replies(data: bytes, with_pushes: bool = False) -> tuple[list[Any], bytes]:
    """The whole replies in what arrived, and the rest of it. RESP2 and RESP3; a map is a flat list."""
    replies, at = [], 0
    try:
        while True:
            reply, end = _reply(data, at)
            if with_pushes or not data.startswith(b">", at):
                replies.append(reply)
            at = end
    except EOFError:
        return replies, data[at:]
    except ValueError:
        raise Disconnected("the server sent something else than a reply") from None


def _reply(data: bytes, at: int) -> tuple[Any, int]:
    end = data.find(b"\r\n", at)
    if end < 0:
        raise EOFError
    kind, line, at = data[at : at + 1], data[at + 1 : end], end + 2
    if kind == b":":
        return int(line), at
    if kind == b"-":
        code, _, rest = text(line).partition(" ")
        return ServerError(code, rest), at
    if kind == b"_" or (kind in (b"$", b"*") and line == b"-1"):
        return None, at
    if kind in (b"$", b"="):
        end = at + int(line)
        if len(data) < end + 2:
            raise EOFError
        return data[at:end], end + 2
    if kind in (b"*", b"~", b">", b"%"):
        items = []
        for _ in range(int(line) * (2 if kind == b"%" else 1)):
            item, at = _reply(data, at)
            items.append(item)
        return items, at
    if kind not in (b"+", b"#", b",", b"("):
        raise ValueError
    return line, at


def number(name: str, value: Any, least: float, infinite: bool = False) -> float:
    """A number of seconds, or of other things, or an error that names it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} has to be a number, not {value!r}")
    if not value >= least or (math.isinf(value) and not infinite):
        raise ValueError(f"{name} must be at least {least:g}{'' if infinite else ' and finite'}, not {value!r}")
    return value


def key_tuple(keys: Iterable[str]) -> tuple[str, ...]:
    """Several keys."""
    if isinstance(keys, (str, bytes)):
        raise TypeError("give a list or tuple of keys, not one string")
    return tuple(keys)


class Grant(NamedTuple):
    """One key of a grant, with its fencing token (an int), or its permit id (a str)."""

    key: str
    token: Union[int, str]


@dataclass(frozen=True)
class Target:
    """What is locked: the family of commands, the keys, and the words that its commands have besides."""

    family: str
    keys: tuple[str, ...]
    mode: tuple[Arg, ...] = ()  # READ or WRITE
    options: tuple[Arg, ...] = ()  # COUNT and LIMIT
    form: str = "one"  # or "all", "any"

    def __post_init__(self) -> None:
        if not self.keys or not all(isinstance(key, str) and key for key in self.keys):
            raise TypeError(f"keys are strings of at least one character, not {self.keys!r}")
        for key in self.keys:
            key.encode()  # an error here is the caller's, and not that of all who share the connection

    def __str__(self) -> str:
        return f"{', '.join(map(repr, self.keys))} ({self.family})"

    def grants(self, reply: Any) -> tuple[Grant, ...]:
        """What an ACQUIRE granted; empty if it granted nothing. Raises Disconnected if this is no reply to it."""
        if reply is None:
            return ()
        try:
            tokens = reply if self.form == "all" else [reply]
            pairs = [reply] if self.form == "any" else list(zip(self.keys, tokens))
            count = {"one": 1, "any": 1, "all": len(self.keys)}[self.form]
            fits = self.form == "one" or isinstance(reply, list)
            if fits and len(tokens) == count and all(self._is_token(token) for _, token in pairs):
                return tuple(Grant(text(key), text(it) if self.family == "DSEM" else int(it)) for key, it in pairs)
        except (TypeError, ValueError):
            pass
        raise Disconnected(f"the reply to an acquire is {reply!r}")

    def _is_token(self, token: Any) -> bool:
        """Whether it is what a grant has. Messages have strings of digits."""
        if self.family == "DSEM":
            return isinstance(token, (bytes, str)) and len(token) > 0
        return int(token) > 0 if isinstance(token, str) else type(token) is int and token > 0


@dataclass(frozen=True)
class Request:
    """One acquire, and what it gets, under one id until its release. All copies have the same ``px``."""

    target: Target
    owner: str
    reqid: str
    lease: float  # what renewals ask for
    px: float  # what the grant lasts: this is also what a waiter that dies costs
    channel: str
    label: Optional[str]

    def renewed(self) -> Request:
        """The same once more, as another request."""
        return replace(self, reqid=new_id())

    def acquire(self, *wait: Arg) -> Command:
        """A copy of the request. ``wait`` is empty, or how to wait: BLOCK and QUEUE with their times."""
        label: tuple[Arg, ...] = () if self.label is None else ("LABEL", self.label)
        return [*self._verb({"one": "ACQUIRE", "all": "MACQUIRE", "any": "ANYACQUIRE"}[self.target.form]), self.owner,
                *self.target.mode, *self.target.options, "PX", milliseconds(self.px), *wait, "NOTIFY", self.channel,
                "REQID", self.reqid, *label]

    def check(self, replies: list[Any]) -> None:
        """Raises Disconnected if this is no reply to an acquire: then the connection has replies of others."""
        if not isinstance(replies[0], ServerError):
            self.target.grants(replies[0])

    def renew(self, grant: Grant, lease: float) -> Command:
        """Lets what was granted last at least ``lease`` from now."""
        if self.target.family == "DSEM":
            return ["DSEM.RENEW", grant.key, grant.token, "PX", milliseconds(lease)]
        return [f"{self.target.family}.RENEW", grant.key, self.owner, *self.target.mode, "PX", milliseconds(lease),
                "TOKEN", grant.token]

    def release(self, grants: tuple[Grant, ...] = (), done: bool = False) -> Command:
        """Ends what this request has, and nothing else: a hold, a place, or nothing. Any copy of it, at any time.

        ``done``: tells observers of the hold that its work is done.
        """
        target, reqid = self.target, ("REQID", self.reqid)
        if target.form == "all" or (target.form == "any" and not grants):
            return [*self._verb("MRELEASE"), self.owner, *reqid]
        key, token = grants[0] if grants else (target.keys[0], "")
        token_words = () if token == "" or target.family == "DSEM" else ("TOKEN", token)
        end: tuple[Arg, ...] = ("DONE",) if done else ()
        return [f"{target.family}.RELEASE", key, self.owner, *target.mode, *token_words, *reqid, *end]

    def _verb(self, verb: str) -> Command:
        count: tuple[Arg, ...] = () if self.target.form == "one" else (len(self.target.keys),)
        return [f"{self.target.family}.{verb}", *count, *self.target.keys]


class Replicas(NamedTuple):
    """How many replicas must have a write before it counts, and how long it waits for them, in seconds.

    docs/failover.md has the rules, and why they suffice.
    """

    wanted: int = 0
    seconds: float = 0.0
    is_new: bool = False  # the write is a grant, or the first renewal of one
    lease: float = 0.0  # the longest of the holds: nothing counts at a server with a shorter quarantine

    def requests(self) -> list[Command]:
        """What is sent over the connection of the write, behind it."""
        return [["WAIT", self.wanted, milliseconds(self.seconds)], ["INFO", "dlock_keys"]] if self.wanted else []

    def failure(self, replies: list[Any], seconds: float) -> Optional[ServerError]:
        """Why the write does not count, by the replies to ``requests()``; None if it does.

        A replica that came to the server since may have confirmed a grant of another primary, and WAIT may have counted
        it twice: so no quarantine may have begun in the ``seconds`` since the write was sent; for a new grant there may
        have been none in that time.
        """
        if not self.wanted:
            return None
        if not (isinstance(replies[0], int) and replies[0] >= self.wanted):
            return ServerError("NOREPLICAS", f"{replies[0]} of {self.wanted} replicas have it")
        told = quarantine(replies[1])
        is_short = told.get("length", math.inf) < self.lease * 1000
        if is_short or told.get("age", -1) < seconds * 1000 or (self.is_new and told.get("left") != 0):
            return ServerError("QUARANTINE", f"{told.get('left')} ms: a replica came to the server")
        return None


def quarantine(info: Any) -> dict[str, int]:
    """What the reply to INFO says of the quarantine of the server, in milliseconds: ``left``, ``age``, ``length``."""
    return {name: int(ms) for name, ms in re.findall(r"dlock_quarantine_(\w+)_ms:(\d+)", text(info))}


def require_quarantine(info: Any, lease: float) -> None:
    """Raises Refused for a lease that outlives the quarantine of the server. One that does not tell is believed."""
    length = quarantine(info).get("length", math.inf)
    if length < lease * 1000:
        raise Refused("ERR", f"a lease of {lease:g} s is above the server's dlock.restart-quarantine-ms {length}")


@dataclass
class Batch:
    """Commands for one server. A reply is a value or a ``ServerError``."""

    commands: list[Command]
    key: str
    limit: float = 3.0  # how long a reply may take, in seconds
    block: float = 0.0  # the server may take this much longer to answer
    until: float = math.inf  # when the call ends: no reply is awaited longer
    replicas: Replicas = Replicas()  # the last replies are those to its requests
    reqid: str = ""  # a message about this request ends the next Pause for it
    check: Callable[[list[Any]], Any] = bool  # raises Disconnected if these are not the replies to this batch

    def to_send(self) -> list[Command]:
        """The commands, and those that wait for replicas."""
        return [*self.commands, *self.replicas.requests()]


class Message(NamedTuple):
    """What the server says about a place or a hold: a hint, because any client that may publish can forge it.

    Only ``granted`` is more, because only the server knows the id of the request.
    """

    event: str
    token: str
    reqid: str


def message(data: Union[bytes, str]) -> Optional[Message]:
    """Reads ``event db id owner-length owner reqid-length reqid key``; ``flushed db`` has no reqid."""
    data = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
    try:
        event, _, rest = data.split(b" ", 2) if data.count(b" ") > 1 else (*data.split(b" ", 1), b"")
        if event == b"flushed":
            return Message("flushed", "", "")
        token, length, rest = rest.split(b" ", 2)
        length, rest = rest[int(length) + 1 :].split(b" ", 1)
        return Message(text(event), text(token), text(rest[: int(length)]))
    except ValueError:
        return None
