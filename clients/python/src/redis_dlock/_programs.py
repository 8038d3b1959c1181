"""The logic of the client, without I/O.

A program is a generator. It yields a ``Batch`` of commands and gets their replies, or a ``Pause`` and gets the event
that ended it. If no reply comes, ``Disconnected`` is thrown into it; so is the interruption of the caller, whatever its
class. Threads and asyncio run the same programs.
"""

from __future__ import annotations

import math
import random
import weakref
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, Optional, TypeVar, Union

from ._clock import now
from ._holds import FLUSH_GAP, Claim, HoldState, RenewalBatch
from ._requests import (
    Arg,
    Batch,
    Command,
    Message,
    Replicas,
    Request,
    fields,
    milliseconds,
    require_quarantine,
)
from .errors import (
    FINAL,
    Deadlock,
    Disconnected,
    NotAcquired,
    NoTime,
    Refused,
    Replaced,
    ServerError,
    Unavailable,
    user_error,
)

T = TypeVar("T")


@dataclass
class Pause:
    """Waits for a message about a request, for a run of this process, or for a time."""

    seconds: float
    reqid: str = ""
    run: Any = None


Step = Union[Batch, Pause]
Program = Generator[Step, Any, T]


class Permits:
    """How many calls may block at a time, each on a connection of its own. One that is dropped is free again."""

    class Permit:
        pass

    def __init__(self, count: int) -> None:
        self._count, self._taken = count, weakref.WeakSet[Any]()

    def take(self) -> Any:
        """A permit, or None. It is given back by ``give``, or when nobody has it any more."""
        if len(self._taken) >= self._count:
            return None
        permit = Permits.Permit()
        self._taken.add(permit)
        return permit

    def give(self, permit: Any) -> None:
        if permit is not None:
            self._taken.discard(permit)


@dataclass(frozen=True)
class Settings:
    """What the programs of one ``DLock`` have in common; times in seconds."""

    queue: float = 10.0
    retry_for: float = 10.0
    response_timeout: float = 3.0
    block: Optional[float] = None  # wait for one lock in a call that blocks so long at a time, if there is a permit
    longest_block: float = 60.0  # shorter than every timeout of the connection
    replicas: Replicas = Replicas()
    grace: float = 0.05  # how long a reply is awaited after the time of its call is over
    permits: Permits = field(default_factory=lambda: Permits(64))
    checked: set[Any] = field(default_factory=set)  # leases and semaphores that fit the server


class Call:
    """The attempts of one call: how long they may take, and the error with which it ends.

    ``may_pass``: an error reply is an answer. A try has no time to wait, but time for replies.
    """

    def __init__(self, name: str, limit: Optional[float], settings: Settings, may_pass: bool = False) -> None:
        self.name, self.limit, self.settings, self._may_pass = name, limit, settings, may_pass
        self.end = math.inf if limit is None else now() + limit
        self.latest = now() + settings.response_timeout if limit == 0 else self.end + settings.grace
        self._attempts, self.was_answered = 0, False
        self._since: Optional[float] = None  # when that was sent which no server has answered since
        self._last: Union[Disconnected, ServerError, None] = None

    def left(self) -> float:
        return max(0.0, self.end - now())

    def batch(self, commands: list[Command], key: str, block: float = 0.0, **more: Any) -> Batch:
        """Commands, and how long their replies may take."""
        return Batch(commands, key, self.settings.response_timeout, block, self.until(block), **more)

    def until(self, block: float = 0.0) -> float:
        """How long to wait for the reply to what is sent now."""
        self._sent = now() + block
        since = self._sent if self._since is None else self._since
        return min(self.latest, since + (self.settings.retry_for or math.inf))

    def answered(self) -> None:
        self._since, self._attempts, self.was_answered, self._last = None, 0, True, None

    def pause(self, error: Union[Disconnected, ServerError]) -> Pause:
        """How long to wait after an attempt that failed. Raises the error of the call if its time is over."""
        self._attempts += 1
        if isinstance(error, NoTime):  # that says nothing of the server
            self._last = self._last or error
        else:
            self._last, self.was_answered = error, bool(error.code)
        self._since = min(now(), self._sent) if self._since is None else self._since
        if self._may_pass and error.code:
            self._since = None
        elif now() - self._since >= self.settings.retry_for:
            text = f"no server could answer for {self.settings.retry_for:g} s; the last error: {self._last}"
            raise Unavailable(f"{self.name}: {text}") from self._last
        if self.limit == 0 and self._attempts == 1 and not error.code and now() < self.latest:
            return Pause(0.0)  # a connection that was idle may have ended unnoticed
        if now() >= self.end:
            raise self.over()
        seconds = random.uniform(0.5, 1.0) * min(1.0, 0.02 * 2 ** min(self._attempts, 6))
        word = error.text.partition(" ")[0]
        if error.code == "QUARANTINE" and word.isdigit():  # how long it lasts
            seconds = max(seconds, int(word) / 1000)
        patience = math.inf if self._since is None else self._since + self.settings.retry_for - now()
        return Pause(min(seconds, self.left(), max(0.0, patience)))

    def over(self) -> Union[NotAcquired, Unavailable]:
        """Why the call ends at the end of its time: a server has answered it, or none."""
        in_time = f"not in {self.limit:g} s" if self.limit else "now"
        kind = NotAcquired if self.was_answered else Unavailable
        error = kind(f"{self.name}, {in_time}: {self._last or 'another holds it'}")
        error.__cause__ = self._last
        return error


def ask(command: Command, key: str, call: Call, block: float = 0.0) -> Program[Any]:
    """One command that may be repeated: it changes nothing, or has a REQID."""
    while True:
        try:
            (reply,) = yield call.batch([command], key, block)
        except Disconnected as error:
            reply = error
        if not isinstance(reply, (Disconnected, ServerError)):
            call.answered()
            return reply
        if reply.code in FINAL:
            raise user_error(reply)
        yield call.pause(reply)


def acquire(claim: Claim, limit: Optional[float], settings: Settings, max_hold: Optional[float], waits: bool = True,
            call: Optional[Call] = None) -> Program[HoldState]:
    """Asks until the request is granted; at most ``limit`` seconds (0: once; None: forever).

    Whatever else ends the wait, the request is given up. Without ``waits`` only until the server says whether the lock
    is free; ``call``: that of which this is a part.
    """
    target, permit = claim.request.target, None
    key, name = target.keys[0], ", ".join(map(repr, target.keys))
    call = Call(name, limit, settings, True) if call is None else call
    first, may_have, was_poll = now(), False, False
    try:
        yield from _check(claim.request, call)
        while True:
            sent, left = now(), call.left() if waits else 0.0
            if left and permit is None and (settings.block is not None or target.form != "one"):
                permit = settings.permits.take()
            # Several locks are asked for once without blocking: a late end of a blocked call says nothing then.
            may_block = permit is not None and (target.form == "one" or call.was_answered)
            copy, block = _copy(claim.request, left, settings, may_block)
            is_first = not may_have
            first, may_have = first if may_have else sent, True  # what the request may have is ended if all else fails
            try:
                batch = call.batch([copy], key, block, reqid=claim.request.reqid, check=claim.request.check)
                (reply,) = yield batch
                grants = () if isinstance(reply, ServerError) else target.grants(reply)
                # A try whose only copy was answered has what its reply says.
                may_have = not is_first or (waits and limit != 0)
            except Disconnected as error:
                reply = error
            if not isinstance(reply, (Disconnected, ServerError)):
                if not grants:
                    call.answered()
                    if left == 0:
                        raise call.over()
                    if permit is not None:
                        continue  # the next copy asks
                    wait = settings.queue / 2 if target.form == "one" else random.uniform(0.2, 0.5)
                    paused = now()
                    notice: Optional[Message] = yield Pause(min(wait, left), claim.request.reqid)
                    was_poll = target.form == "one" and notice is None and now() - paused >= min(wait, left)
                    if notice is not None and notice.event == "replaced":
                        raise user_error(ServerError("REPLACED", "another request of the owner took over the place"))
                    if notice is not None and notice.event == "flushed":
                        yield Pause(min(max(0.0, sent + FLUSH_GAP - now()), call.left()))
                    if notice is None or notice.event != "granted":
                        continue
                    # Only the server knows this id, so this is a grant: perhaps as old as the first copy.
                    grants, sent = target.grants(notice.token), first
                may_have, state = True, HoldState(claim.request, grants, sent, max_hold)
                state.is_unannounced, state.scope, state.replicas = was_poll, claim.scope, settings.replicas
                claim.state = state
                if not settings.replicas.wanted and state.until - now() >= state.request.px / 2:
                    return state
                renewal = RenewalBatch([state], settings.replicas._replace(is_new=True), settings.response_timeout,
                                       call.until())
                try:
                    reply = renewal.apply((yield renewal.batch))
                except Disconnected as error:
                    reply = error
                if reply is None and state.reason() is None:
                    return state
                reply = reply or ServerError("NOTHELD", "the lease ended before the reply came")
                claim.state = None
            elif reply.code in FINAL and reply.code != "SPENT":
                raise user_error(reply)
            else:
                grants = ()
            if grants or reply.code == "SPENT":  # what it had is not certain, or has ended
                claim.replace()
                may_have = False
            yield call.pause(reply)
    except GeneratorExit:
        raise  # a task was destroyed, with its loop or in a child of a fork: nothing can be sent
    except BaseException:
        claim.state = None
        claim.give_up() if may_have else claim.forget()
        raise
    finally:
        settings.permits.give(permit)


def _check(request: Request, call: Call) -> Program[None]:
    """Refuses what the server cannot do; each setting is looked up once."""
    target, settings = request.target, call.settings
    of = (target.keys, target.options) if target.family == "DSEM" else None
    if settings.replicas.wanted and request.lease not in settings.checked:
        require_quarantine((yield from ask(["INFO", "dlock_keys"], target.keys[0], call)), request.lease)
        settings.checked.add(request.lease)
    if of is not None and of not in settings.checked:
        limit = target.options[3] if len(target.options) > 2 else 0
        info = fields((yield from ask(["DSEM.INFO", target.keys[0]], target.keys[0], call)))
        capacity = int(info.get("capacity", 0))
        if not (limit or capacity) or (limit and capacity and limit != capacity):
            now_is = f"has {capacity} permits, not {limit!r}" if capacity else "does not exist: give a limit to make it"
            raise Refused("ERR", f"the semaphore {target.keys[0]!r} {now_is}")
        if len(settings.checked) > 1000:
            settings.checked.clear()
        settings.checked.add(of)


def _copy(request: Request, left: float, settings: Settings, may_block: bool) -> tuple[Command, float]:
    """The next copy of an acquire, and how long the server may take to answer it."""
    has_place = request.target.form == "one"  # others wait on a connection only, and lose their position with it
    longest = settings.block if has_place else None
    block = min(longest or math.inf, settings.longest_block, left) if may_block else 0.0
    blocks: tuple[Arg, ...] = ("BLOCK", milliseconds(block)) if block else ()
    queues: tuple[Arg, ...] = ("QUEUE", milliseconds(settings.queue)) if left and has_place else ()
    return request.acquire(*blocks, *queues), block


def release(claim: Claim, settings: Settings, done: bool = False) -> Program[None]:
    """Gives a hold back. Raises LockLost if it was lost before, ReleaseUnknown if no reply says whether it was.

    If it is interrupted, or no server answers, it goes on in the background: all copies are one request.
    """
    state: Any = claim.state
    is_lost = state.reason() is not None
    state.release_begins()
    command = state.request.release(state.grants, done and not is_lost)
    once = replace(settings, retry_for=0.0)  # a hold that has ended is no reason to wait
    try:
        reply = yield from ask(command, state.keys[0], Call("the release", None, once if is_lost else settings))
        claim.forget()
    except Unavailable as error:
        claim.give_up(command)
        reply = error
    except (Refused, Deadlock, Replaced) as error:
        claim.forget()
        reply = error
    except GeneratorExit:
        raise
    except BaseException:
        claim.give_up(command)
        raise
    state.ended(reply)
    if state.outcome is not None:
        raise state.outcome


def wait_for(command: Command, key: str, call: Call) -> Program[Any]:
    """Repeats a command until it replies something, at most as long as the call; else None.

    With a permit it blocks. Without one it asks now and then.
    """
    permit = call.settings.permits.take()
    try:
        while True:
            left = call.left()
            block = min(2.0, call.settings.longest_block, left) if permit and call.was_answered else 0.0
            reply = yield from ask([*command, "BLOCK", milliseconds(block)] if block else command, key, call, block)
            if reply is not None or left == 0:
                return reply
            if permit is None:
                yield Pause(min(random.uniform(0.2, 0.5), left))
                permit = call.settings.permits.take()
    finally:
        call.settings.permits.give(permit)
