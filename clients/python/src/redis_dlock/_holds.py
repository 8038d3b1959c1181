"""Holds as the client knows them: until when each is certain, and when it has to be renewed."""

from __future__ import annotations

import logging
import math
import os
import queue as queue_
import random
import sys
import traceback
import warnings
import weakref
from contextlib import suppress
from typing import Any, Callable, Optional, TypeVar, Union

from ._clock import now
from ._requests import Batch, Command, Grant, Message, Replicas, Request, log
from .errors import FINAL, Disconnected, LockLost, ReleaseUnknown, ServerError

T = TypeVar("T")

#: Clocks of two machines run at different rates: a lease counts for less than its time here.
_RATE, _MARGIN = 0.99, 0.002

#: Seconds between renewals because of messages, which can be forged: about one hold; about all.
HINT_GAP, FLUSH_GAP = 0.1, 1.0


class HoldState:
    """One hold, of one key or of several. All times are in seconds of ``now()``."""

    def __init__(self, request: Request, grants: tuple[Grant, ...], sent: float, max_hold: Optional[float]) -> None:
        self.request, self.grants, self.pid = request, grants, os.getpid()
        self.deadline = None if max_hold is None else now() + max_hold
        self.scope: Any = None  # the DLock that it belongs to
        self.replicas = Replicas()
        self.on_loss: list[Callable[[], Any]] = []
        self._reason: Optional[str] = None
        self.hint = "refused"  # why the server will not renew it, by the last message
        self.is_unannounced = False  # no message came about the grant
        self._known: Optional[str] = None  # why it was lost, when its release began
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
            for tell in list(self.on_loss):
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

    def release_begins(self) -> None:
        """The work is over. Until a reply says more, the release was interrupted."""
        self._known, self.is_released = self.reason(), True
        self.outcome = ReleaseUnknown(f"{', '.join(self.keys)}: the release was interrupted, and goes on")

    def ended(self, reply: Any) -> None:
        """What the reply to the release says of the hold: a value, an error reply, or why there is no reply.

        A lease that lasted until the work ended, by this clock, covered it.
        """
        lost, names = self._known, ", ".join(self.keys)
        if not lost and isinstance(reply, int):
            lost = ""
        elif not lost and isinstance(reply, Exception):
            word, reason, *_ = str(reply).split(" ") + [""]
            lost = ("" if reason == "expired" else reason) if word == "LOST" else None
        unknown = ReleaseUnknown(f"{names}: {'the request had no hold' if reply is None else reply}")
        self.outcome = None if lost == "" else LockLost(self.keys, lost) if lost else unknown


class RenewalBatch:
    """Renewals of several holds, in one batch."""

    def __init__(self, due: list[HoldState], replicas: Replicas, limit: float = 3.0, until: float = math.inf) -> None:
        self._sent = now()
        self._due = [(hold, hold.lease(self._sent)) for hold in due]
        leases = [hold.request.lease for hold in due]
        self._replicas = replicas._replace(seconds=min(replicas.seconds, *(lease / 6 for lease in leases)),
                                           lease=max(leases))
        renewals = [hold.request.renew(grant, lease) for hold, lease in self._due for grant in hold.grants]
        self._tokens = [1 if isinstance(grant.token, str) else grant.token for hold in due for grant in hold.grants]
        self.batch = Batch(renewals, due[0].keys[0], limit, until=until, replicas=self._replicas, check=self._check)

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


class Claim:
    """The requests of one acquire, and what they get: a place, or a hold that only one object can release.

    Whatever drops this, as a signal handler that raises between two steps, the client gives the request up.
    """

    def __init__(self, registry: Registry, request: Request, scope: Any) -> None:
        self.request, self.scope, self._registry = request, scope, registry
        self.state: Optional[HoldState] = None
        registry.watch(self)

    def replace(self) -> None:
        """Goes on with another request: what the last one had is not certain, or has ended."""
        self.give_up()
        self.request = self.request.renewed()
        self._registry.watch(self)

    def give_up(self, command: Optional[Command] = None) -> None:
        """Has the request released in the background: by this command, if its hold was known."""
        self._registry.give_up(self.request, self.state, command)

    def forget(self) -> None:
        """Nothing is left to give up."""
        self._registry.open.pop(self.request.reqid, None)


class DropRef(weakref.ref[Claim]):
    """Tells of the end of a claim, by a function in C: in one in Python a signal handler could raise."""

    request: Request
    where = ""


class Ending:
    """A request that is given up: copies of its RELEASE are sent until one is answered, or nothing can be left."""

    def __init__(self, request: Request, state: Optional[HoldState], command: Optional[Command], queue: float) -> None:
        self.state = state
        self.command = command or request.release()
        self.key = request.target.keys[0] if state is None else state.keys[0]
        self.until = now() + max(queue, request.px if state is None else request.lease)
        self.at = self.pause = 0.0


class ReleaseBatch:
    """Releases of several requests, in one batch."""

    def __init__(self, registry: Registry, due: list[tuple[str, Ending]]) -> None:
        self._endings, self._due, self._wake = registry._endings, due, registry._wake
        self.batch = Batch([ending.command for _, ending in due], due[0][1].key, registry.limit)

    def end(self, outcome: Union[list[Any], Exception]) -> None:
        """Applies the replies; or there are none."""
        replies = [outcome] * len(self._due) if isinstance(outcome, Exception) else outcome
        for (reqid, ending), reply in zip(self._due, replies):
            if isinstance(reply, (Disconnected, ServerError)) and reply.code not in FINAL:
                if now() < ending.until:
                    ending.pause = min(1.0, max(0.02, ending.pause * 2))
                    ending.at = now() + ending.pause * random.uniform(0.5, 1.0)
                    continue
                level = logging.INFO if ending.state is None else logging.WARNING  # perhaps nothing is held
                log.log(level, "%r is left to its lease: %s", ending.key, reply)
            self._endings.pop(reqid, None)
            if ending.state is not None:
                ending.state.ended(reply)
        if any(reqid in self._endings for reqid, _ in self._due):
            self._wake()  # the next attempt is sooner than after no reply at all


class Registry:
    """The holds that are renewed, and the requests that are given up, by their ids."""

    def __init__(self, wake: Callable[[], Any] = int, queue: float = 10.0, limit: float = 3.0) -> None:
        self._holds: dict[str, HoldState] = {}
        self._endings: dict[str, Ending] = {}
        self.open: dict[str, DropRef] = {}  # those that have, or may have, something
        self.dropped: queue_.SimpleQueue[Optional[DropRef]] = queue_.SimpleQueue()
        self._wake = wake
        self.queue, self.limit, self.shortest = queue, limit, math.inf  # of places, replies, leases

    def __len__(self) -> int:
        return len(self._holds)

    def add(self, hold: HoldState) -> None:
        self._holds[hold.request.reqid] = hold
        self.shortest = min(self.shortest, hold.request.px)

    def remove(self, hold: HoldState) -> None:
        self._holds.pop(hold.request.reqid, None)

    def all(self) -> list[HoldState]:
        return list(self._holds.values())

    def watch(self, claim: Claim) -> None:
        """Has the request of a claim given up if the claim is dropped."""
        ref = DropRef(claim, self.dropped.put)
        ref.request = claim.request
        if sys.flags.dev_mode or log.isEnabledFor(logging.DEBUG):
            ref.where = "".join(traceback.format_stack(limit=12))
        self.open[ref.request.reqid] = ref

    def sleep(self, seconds: float) -> None:
        """Until a claim is dropped, or something else is to be done."""
        with suppress(queue_.Empty):
            self.dropped.put(self.dropped.get(timeout=max(0.0, seconds)))

    def _give_up_dropped(self) -> None:
        with suppress(queue_.Empty):  # other threads take from it, too
            while True:
                ref = self.dropped.get_nowait()
                if ref is None or self.open.get(ref.request.reqid) is not ref:
                    continue
                state = self._holds.get(ref.request.reqid)
                if state is None or state.reason() is not None:
                    self.give_up(ref.request)
                    continue
                state.release_begins()
                self.give_up(ref.request, state, ref.request.release(state.grants))
                text = f"a hold of {', '.join(map(repr, state.keys))} was dropped without a release: it is released now"
                log.warning("%s%s", text, ref.where and f"; it was acquired here:\n{ref.where}")
                warnings.warn(text, ResourceWarning, stacklevel=2)

    def give_up(self, request: Request, state: Optional[HoldState] = None, command: Optional[Command] = None) -> None:
        """Releases what the request has, in the background."""
        self._holds.pop(request.reqid, None)
        self._endings[request.reqid] = Ending(request, state, command, self.queue)
        self.open.pop(request.reqid, None)
        self._wake()

    def is_ending(self, request: Optional[Request] = None) -> bool:
        return bool(self._endings) if request is None else request.reqid in self._endings

    def due(self, node: Callable[[str], str], until: Optional[float] = None) -> tuple[list[Any], float]:
        """What is to be sent now or soon, in rounds of at most 1,000 for one node; and when to look again.

        Drops holds that are lost. ``until``: with the releases that are due until then, not until now.
        """
        self._give_up_dropped()
        at, due, ends = now(), dict[Any, list[HoldState]](), dict[Any, list[tuple[str, Ending]]]()
        again, self.shortest = at + 10, math.inf
        for hold in self.all():
            if hold.reason() is not None:
                self.remove(hold)
                continue
            self.shortest = min(self.shortest, hold.request.px)
            if hold.is_due(at):
                due.setdefault((node(hold.keys[0]), hold.replicas), []).append(hold)
            again = min(again, hold.renew_at, hold.hinted_at, hold.until)
        for reqid, ending in list(self._endings.items()):
            if ending.at <= (at if until is None else until):
                ending.at = at + self.limit + 1  # if no reply comes, the next attempt follows
                ends.setdefault(node(ending.key), []).append((reqid, ending))
            again = min(again, ending.at)
        rounds: list[Any] = [RenewalBatch(some, some[0].replicas, self.limit) for some in _thousands(due)]
        return rounds + [ReleaseBatch(self, some) for some in _thousands(ends)], again

    def close(self, scope: Any) -> None:
        """Loses the holds of one ``DLock``, and releases them in the background."""
        for hold in self.all():
            if hold.scope is scope:
                hold.lose("closed")
                hold.is_released, hold.outcome = True, LockLost(hold.keys, "closed")
                self.give_up(hold.request, None, hold.request.release(hold.grants))

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


def _thousands(by_node: dict[Any, list[T]]) -> list[list[T]]:
    return [of_one[first : first + 1000] for of_one in by_node.values() for first in range(0, len(of_one), 1000)]
