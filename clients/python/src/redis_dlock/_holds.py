"""Holds as the client knows them: until when each is certain, and when it has to be renewed."""

from __future__ import annotations

import math
import os
from typing import Any, Callable, Optional

from ._clock import now
from ._requests import Batch, Grant, Message, Replicas, Request, log, new_id
from .errors import LockLost, ServerError

#: Clocks of two machines run at different rates: a lease counts for less than its time here.
_RATE, _MARGIN = 0.99, 0.002


def leases_of(request: Request, keys: tuple[str, ...]) -> set[Any]:
    """The leases that a request for these keys has on the server: one for each owner and key."""
    return {(request.target.family, request.target.mode, request.owner, key) for key in keys}


class HoldState:
    """One hold, of one key or of key_tuple. All times are in seconds of ``now()``."""

    def __init__(self, request: Request, grants: tuple[Grant, ...], asked: float, max_hold: Optional[float]) -> None:
        self.request, self.grants, self.pid = request, grants, os.getpid()
        self.deadline = None if max_hold is None else asked + max_hold
        self.on_loss: list[Callable[[], Any]] = []
        self._reason: Optional[str] = None
        self.refusal_reason = "refused"  # why the server will not renew it
        self.is_unannounced = False  # no message came about the grant
        self.is_released = False  # the hold ends by the wish of its holder
        self.release_id: Optional[str] = None  # of all copies of the release; None: not yet given back
        self.outcome: Optional[Exception] = None  # why the release did not end the hold, or may not have
        self._count(asked, self.lease(asked))

    @property
    def leases(self) -> set[Any]:
        """The leases on the server. Another hold of the same owner may share one, also one of key_tuple keys."""
        return leases_of(self.request, self.keys)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(grant.key for grant in self.grants)

    def lease(self, at: float) -> float:
        """The lease to ask for now: shorter than usual before ``max_hold`` is over."""
        full = self.request.lease
        return full if self.deadline is None else min(full, self.deadline - at)

    def _count(self, asked: float, lease: float) -> None:
        # From before the request was sent: the reply may have been on its way for any time.
        self.until = asked + lease * _RATE - _MARGIN
        self.renew_at = asked + lease / 3

    def renewed(self, asked: float, lease: float) -> None:
        """The server counts the lease from a moment after ``asked``."""
        if self.reason() is None:
            self._count(asked, lease)

    def lose(self, reason: str) -> None:
        """Ends the hold, unless it has ended."""
        if self._reason is None and not self.is_released:
            self._reason = reason
            for tell in self.on_loss:
                tell()

    def reason(self) -> Optional[str]:
        """Why the hold is lost; None while it is certain. No I/O."""
        if self._reason is None and self.pid != os.getpid():
            return "forked"
        if self._reason is None and not self.is_released and now() >= self.until:
            is_end = self.deadline is not None and now() >= self.deadline - _MARGIN - self.request.lease * (1 - _RATE)
            self.lose("max_hold" if is_end else "expired")
        return self._reason

    def valid_for(self) -> float:
        """For how many seconds the hold is certain; 0 if it is lost."""
        return 0.0 if self.is_released or self.reason() is not None else max(0.0, self.until - now())

    def check(self) -> None:
        """Raises LockLost if the hold is lost, or released."""
        reason = self.reason() or ("released" if self.is_released else None)
        if reason is not None:
            raise LockLost(self.keys, reason)


class RenewalBatch:
    """Renewals of key_tuple holds, in one batch. ``leases``: the longest lease of each owner of key_tuple holds."""

    def __init__(self, due: list[HoldState], replicas: Replicas, leases: dict[Any, float]) -> None:
        self._asked, self._replicas = now(), replicas
        # All holds of one owner and key share one lease on the server: none may shorten that of another.
        self._due = [(hold, max(hold.lease(self._asked), *map(leases.__getitem__, hold.leases))) for hold in due]
        renewals = [hold.request.renew(grant, lease) for hold, lease in self._due for grant in hold.grants]
        self.batch = Batch(renewals, due[0].keys[0], replicas=replicas)

    def apply(self, replies: list[Any]) -> None:
        """An error other than that nothing is held says nothing about a hold: the next round tries again."""
        is_confirmed = not self._replicas.are_too_few(replies[len(self.batch.commands) :])
        if not is_confirmed:
            log.info("renewal: too few replicas confirmed it")
        rest = iter(replies)
        for hold, lease in self._due:
            codes = [reply.code for _, reply in zip(hold.grants, rest) if isinstance(reply, ServerError)]
            if "NOTHELD" in codes or "WRONGTYPE" in codes:
                hold.lose(hold.refusal_reason)
            elif not codes and is_confirmed:
                hold.renewed(self._asked, min(lease, hold.lease(self._asked)))


class Registry:
    """The holds that are renewed, by their requests."""

    def __init__(self) -> None:
        self._holds: dict[str, HoldState] = {}

    def __len__(self) -> int:
        return len(self._holds)

    def add(self, hold: HoldState) -> None:
        self._holds[hold.request.reqid] = hold

    def remove(self, hold: HoldState) -> None:
        self._holds.pop(hold.request.reqid, None)

    def all(self) -> list[HoldState]:
        return list(self._holds.values())

    def due(self, replicas: Replicas, node: Callable[[str], str]) -> tuple[list[RenewalBatch], float]:
        """Renewals that are due, or soon will be, and when to look again. One round serves 1,000 holds of a node.

        Drops holds that are lost.
        """
        at, due = now(), dict[str, list[HoldState]]()
        again, leases = at + 10, dict[Any, float]()
        for hold in self.all():
            for one in hold.leases:
                leases[one] = max(hold.lease(at), leases.get(one, 0.0))
            if hold.reason() is not None:
                self.remove(hold)
                continue
            if hold.lease(at) < hold.request.lease / 30:
                hold.renew_at = math.inf  # max_hold is nearly over
            elif hold.renew_at <= at + hold.request.lease / 30:
                # If no reply comes, the next attempt.
                hold.renew_at = at + max(0.01, min(1.0, hold.request.lease / 10))
                due.setdefault(node(hold.keys[0]), []).append(hold)
            again = min(again, hold.renew_at, hold.until)
        rounds = [of_one[first : first + 1000] for of_one in due.values() for first in range(0, len(of_one), 1000)]
        return [RenewalBatch(of_one, replicas, leases) for of_one in rounds], again

    def longest(self, request: Request) -> float:
        """The longest lease that the owner of a request counts on already, for one of its keys."""
        wanted = leases_of(request, request.target.keys)
        return max((hold.lease(now()) for hold in self.all() if hold.leases & wanted), default=0.0)

    def check_all(self) -> None:
        """Asks the server about all holds, with the next renewals: they may have ended."""
        for hold in self.all():
            hold.renew_at = 0.0

    def close(self) -> list[Batch]:
        """Loses all holds. Returns their releases, of at most 1,000 holds each."""
        holds, self._holds = self.all(), {}
        for hold in holds:
            hold.lose("closed")
            hold.release_id, hold.outcome = new_id(), LockLost(hold.keys, "closed")
        some = [holds[first : first + 1000] for first in range(0, len(holds), 1000)]
        return [Batch([hold.request.release(grant, hold.release_id or "") for hold in of_one for grant in hold.grants],
                      of_one[0].keys[0]) for of_one in some]

    def on_message(self, message: Message) -> None:
        """A message with the id of a hold's request, and its token, is the server's: nobody else knows both."""
        if message.event == "flushed":
            self.check_all()
        hold = self._holds.get(message.reqid)
        is_end = message.event in ("expired", "broken", "deleted", "disconnected")
        if hold is not None and is_end and message.token in [str(grant.token) for grant in hold.grants]:
            if message.event == "deleted":  # or its slot moved: the server is asked
                hold.refusal_reason, hold.renew_at = message.event, 0.0
            else:
                if message.event == "expired":
                    hold.reason()  # at the end of max_hold, if the message comes before the timer
                hold.lose(message.event)
