"""What is sent: requests as lists of words. Here, too, is how replies and messages are read."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Optional, Union

from .errors import ServerError

log = logging.getLogger("redis_dlock")

Arg = Union[str, bytes, int]
Command = list[Arg]


_ids: list[str] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_ids.clear)


def new_id() -> str:
    """An id that nobody can guess, for an owner or a request."""
    try:
        return _ids.pop()
    except IndexError:  # many at a time: each call of the system lets other threads run before this one goes on
        many = os.urandom(16 * 256)
        _ids.extend(many[at : at + 16].hex() for at in range(16, len(many), 16))
        return many[:16].hex()


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


def pack(commands: list[Command]) -> bytes:
    """Commands as they are sent."""
    packed = []
    for words in commands:
        packed.append(b"*%d\r\n" % len(words))
        for word in words:
            raw = word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
            packed.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(packed)


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
        """What an ACQUIRE granted; empty if it granted nothing."""
        if reply is None:
            return ()
        if self.form == "all":
            return tuple(Grant(key, int(token)) for key, token in zip(self.keys, reply))
        if self.form == "any":
            return (Grant(text(reply[0]), int(reply[1])),)
        return (Grant(self.keys[0], text(reply) if self.family == "DSEM" else int(reply)),)  # also of a message


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

    def requests(self) -> list[Command]:
        """What is sent over the connection of the write, behind it."""
        return [["WAIT", self.wanted, milliseconds(self.seconds)], ["INFO", "dlock_keys"]] if self.wanted else []

    def failure(self, replies: list[Any], is_new: bool) -> Optional[ServerError]:
        """Why the write does not count, by the replies to ``requests()``; None if it does.

        A new grant does not count either if a replica came over since: it may have confirmed one of another primary.
        """
        if self.wanted and not (isinstance(replies[0], int) and replies[0] >= self.wanted):
            return ServerError("NOREPLICAS", f"{replies[0]} of {self.wanted} replicas have it")
        left = text(replies[1]).partition("dlock_quarantine_left_ms:")[2].split()[:1] if self.wanted else ["0"]
        if is_new and left != ["0"]:
            return ServerError("QUARANTINE", f"{''.join(left)} ms: a replica came to the server")
        return None


@dataclass
class Batch:
    """Commands for one server. A reply is a value or a ``ServerError``."""

    commands: list[Command]
    key: str
    block: float = 0.0  # the server may take this much longer to answer, in seconds
    replicas: Replicas = Replicas()  # the last replies are those to its requests
    reqid: str = ""  # a message about this request ends the next Pause for it

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
