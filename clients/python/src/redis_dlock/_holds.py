"""Holds as the client knows them: until when each is certain, and when it has to be renewed."""

from __future__ import annotations

import math
import os
from typing import Any, Callable, Optional, Union

from ._clock import now
from ._requests import Batch, Grant, Message, Replicas, Request, log
from .errors import FINAL, Disconnected, LockLost, ServerError

#: Clocks of two machines run at different rates: a lease counts for less than its time here.
_RATE, _MARGIN = 0.99, 0.002

#: Seconds between renewals because of messages, which can be forged: about one hold; about all.
HINT_GAP, FLUSH_GAP = 0.1, 1.0


class HoldState:
    """One hold, of one key or of several. All times are in seconds of ``now()``."""

    def __init__(self, request: Request, grants: tuple[Grant, ...], sent: float, max_hold: Optional[float]) -> None:
        self.request, self.grants, self.pid = request, grants, os.getpid()
        self.deadline = None if max_hold is None else now() + max_hold
        self.on_loss: list[Callable[[], Any]] = []
        self._reason: Optional[str] = None
        self.hint = "refused"  # why the server will not renew it, by the last message
        self.is_unannounced = False  # no message came about the grant
        self.is_released = False  # the work is over, and the hold was or will be given back
        self.outcome: Optional[Exception] = None  # why the release did not end the hold, or may not have
        # From before the request was sent: the reply may have been on its way for any time.
        self.until = sent + request.px * _RATE - _MARGIN
        self.renew_at, self._sent, self._lease = sent + request.px / 3, sent, request.px
        self.hinted_at = math.inf  # when to renew it because of a message
        self.read: Callable[[], Any] = int  # takes what has arrived, without waiting: perhaps the reply to a renewal
        self.refusal = ""  # the code with which the last renewal was refused

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(grant.key for grant in self.grants)

    def lease(self, at: float) -> float:
        """The lease to ask for now: shorter than usual before ``max_hold`` is over."""
        full = self.request.lease
        return full if self.deadline is None else min(full, self.deadline - at)

    def renewed(self, sent: float, lease: float) -> None:
        """The server promised a lease that began after ``sent``. Promises only grow."""
        if self._reason is None:
            self.until = max(self.until, sent + lease * _RATE - _MARGIN)
            self.renew_at, self._lease = sent + lease / 3, lease

    def is_due(self, at: float) -> bool:
        """Whether to renew it now, or nearly now, together with others. If no reply comes, the next attempt follows."""
        if self.lease(at) < self.request.lease / 30:
            self.renew_at = self.hinted_at = math.inf  # max_hold is nearly over
        retry = max(0.01, min(1.0, self._lease / 15))
        if self.renew_at > at + retry / 3 and self.hinted_at > at:
            return False
        self.renew_at, self.hinted_at, self._sent = at + retry, math.inf, at
        return True

    def ask(self, gap: float = 0.0, hint: str = "refused") -> None:
        """Has the server asked about the hold, by a renewal at least ``gap`` seconds after the one before."""
        self.hint, self.hinted_at = hint, min(self.hinted_at, self._sent + gap)

    def lose(self, reason: str) -> None:
        """Ends the hold, unless it has ended."""
        if self._reason is None and not self.is_released:
            rest = math.inf if self.deadline is None else self.deadline - now() - self.request.lease * (1 - _RATE)
            self._reason = "max_hold" if reason == "expired" and rest <= _MARGIN else reason
            for tell in self.on_loss:
                tell()

    def reason(self) -> Optional[str]:
        """Why the hold is lost; None while it is certain. No I/O."""
        if self._reason is None and self.pid != os.getpid():
            return "forked"
        if now() >= self.until and self._reason is None:
            self.read()
            if now() >= self.until:
                self.lose("expired")
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
    """Renewals of several holds, in one batch."""

    def __init__(self, due: list[HoldState], replicas: Replicas) -> None:
        self._sent = now()
        self._due = [(hold, hold.lease(self._sent)) for hold in due]
        leases = [hold.request.lease for hold in due]
        self._replicas = replicas._replace(seconds=min(replicas.seconds, *(lease / 6 for lease in leases)),
                                           lease=max(leases))
        renewals = [hold.request.renew(grant, lease) for hold, lease in self._due for grant in hold.grants]
        self._tokens = [1 if isinstance(grant.token, str) else grant.token for hold in due for grant in hold.grants]
        self.batch = Batch(renewals, due[0].keys[0], replicas=self._replicas, check=self._check)

    def _check(self, replies: list[Any]) -> None:
        for token, reply in zip(self._tokens, replies):
            if reply != token and not isinstance(reply, ServerError):
                raise Disconnected(f"the reply to a renewal is {reply!r}")

    def end(self, outcome: Union[list[Any], Exception]) -> None:
        """Applies the replies; or there are none."""
        if isinstance(outcome, Exception):
            log.info("renewal: %s", outcome)
        else:
            self.apply(outcome)

    def apply(self, replies: list[Any]) -> Optional[ServerError]:
        """Extends the holds; returns why it did not extend the last one.

        An error other than that nothing is held says nothing about a hold: it is renewed again.
        """
        failure = self._replicas.failure(replies[len(self.batch.commands) :], now() - self._sent)
        errors, rest, refused = list[ServerError](), iter(replies), dict[str, ServerError]()
        if failure is not None:
            log.info("renewal: %s", failure)
        for hold, lease in self._due:
            errors = [reply for _, reply in zip(hold.grants, rest) if isinstance(reply, ServerError)]
            if {"NOTHELD", "WRONGTYPE"} & {error.code for error in errors}:
                hold.lose(hold.hint)
            elif errors:
                if errors[0].code in FINAL:  # others pass, perhaps soon
                    hold.renew_at = max(hold.renew_at, self._sent + lease / 3)
                if hold.refusal != errors[0].code:
                    refused[errors[0].code] = errors[0]
            elif failure is None:
                hold.renewed(self._sent, lease)
            hold.refusal = errors[0].code if errors else ""
        for error in refused.values():  # once, until it changes
            log.warning("the server refuses to renew holds: %s", error)
        return errors[0] if errors else failure


class Registry:
    """The holds that are renewed, by their requests."""

    def __init__(self) -> None:
        self._holds: dict[str, HoldState] = {}
        self.shortest = math.inf  # of the leases

    def __len__(self) -> int:
        return len(self._holds)

    def add(self, hold: HoldState) -> None:
        self._holds[hold.request.reqid] = hold
        self.shortest = min(self.shortest, hold.request.px)

    def remove(self, hold: HoldState) -> None:
        self._holds.pop(hold.request.reqid, None)

    def all(self) -> list[HoldState]:
        return list(self._holds.values())

    def due(self, replicas: Replicas, node: Callable[[str], str]) -> tuple[list[RenewalBatch], float]:
        """Renewals that are due, or soon will be, and when to look again. One round serves 1,000 holds of a node.

        Drops holds that are lost.
        """
        at, due = now(), dict[str, list[HoldState]]()
        again, self.shortest = at + 10, math.inf
        for hold in self.all():
            if hold.reason() is not None:
                self.remove(hold)
                continue
            self.shortest = min(self.shortest, hold.request.px)
            if hold.is_due(at):
                due.setdefault(node(hold.keys[0]), []).append(hold)
            again = min(again, hold.renew_at, hold.hinted_at, hold.until)
        rounds = [of_one[first : first + 1000] for of_one in due.values() for first in range(0, len(of_one), 1000)]
        return [RenewalBatch(of_one, replicas) for of_one in rounds], again

    def close(self) -> list[Batch]:
        """Loses all holds. Returns their releases, of at most 1,000 holds each."""
        holds, self._holds = self.all(), {}
        for hold in holds:
            hold.lose("closed")
            hold.is_released, hold.outcome = True, LockLost(hold.keys, "closed")
        some = [holds[first : first + 1000] for first in range(0, len(holds), 1000)]
        return [Batch([hold.request.release(hold.grants) for hold in of_one], of_one[0].keys[0]) for of_one in some]

    def on_message(self, message: Message) -> bool:
        """Whether a message asks for renewals. A re-entry leaves the channel and REQID alone, so the token counts."""
        if message.event in ("granted", "offered", "replaced", "deadlock"):
            return False  # about a wait
        is_flush, is_found = message.event == "flushed", False
        for hold in self.all():
            if is_flush or message.token in [str(grant.token) for grant in hold.grants]:
                hold.ask(FLUSH_GAP if is_flush else HINT_GAP, hold.hint if is_flush else message.event)
                is_found = True
        return is_found
