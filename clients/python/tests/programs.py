"""Programs of the client without I/O: a test gives them their replies, and sets the clock."""

from __future__ import annotations

from redis_dlock._holds import Claim, HoldState, Registry
from redis_dlock._programs import Call, Pause, Settings, acquire, ask, release
from redis_dlock._requests import Batch, Grant, Message, Request, Target
from redis_dlock.errors import Disconnected, ServerError

FINAL = ["SPENT", "NOTHELD", "LOST", "UNKNOWN", "REENTRY", "REPLACED", "DEADLOCK", "LIMIT", "DIVERGED", "STOPPED",
         "BROKEN", "STALE", "WRONGTYPE", "NOPERM", "NOAUTH", "WRONGPASS", "CROSSSLOT", "ERR"]
PASSING = ["QUARANTINE", "UNBLOCKED", "MOVING", "OOM", "NOREPLICAS", "MISCONF", "READONLY", "MOVED", "ASK", "TRYAGAIN",
           "CLUSTERDOWN", "LOADING", "MASTERDOWN", "EXECABORT", "BUSY", "NEW"]
LOST = Disconnected("no reply")


def info(left=0, age=60_000, length=30_000):
    """The reply to INFO."""
    fields = b"# dlock_keys\r\ndlock_quarantine_left_ms:%d\r\ndlock_quarantine_age_ms:%d\r\n" % (left, age)
    return fields + b"dlock_quarantine_length_ms:%d\r\n" % length


def settings(**other):
    return Settings(**{"checked": {30.0, (("k",), ())}, **other})


def request(form="one", family="DLOCK", keys=("k",), mode=(), lease=30.0, px=10.0):
    return Request(Target(family, keys, mode, form=form), "me", "id", lease, px, "channel", None)


def option(command, name):
    """The word behind an option of a command."""
    return command[command.index(name) + 1] if name in command else None


class Run:
    """A program, and what it does: ``sent`` has its commands, ``background`` the releases that it began."""

    def __init__(self, program, *arguments, **named):
        self.registry, self.sent = Registry(queue=10.0), []
        if program is acquire:
            self.claim = Claim(self.registry, arguments[0], None)
            arguments = (self.claim, *arguments[1:])
        elif program is release:
            self.claim = Claim(self.registry, arguments[0].request, None)
            self.claim.state = arguments[0]
            arguments = (self.claim, *arguments[1:])
        elif program is ask:
            arguments = (*arguments[:2], Call("it", None, arguments[2]))
        self.program = program(*arguments, **named)
        self.result = self.error = self.step = None
        self.go(next, self.program)

    @property
    def background(self):
        """The commands of the releases that go on in the background."""
        return [ending.command for ending in self.registry._endings.values()]

    def go(self, how, *arguments):
        try:
            self.step = how(*arguments)
            if isinstance(self.step, Batch):
                self.sent += self.step.to_send()
        except StopIteration as end:
            self.step, self.result = None, end.value
        except BaseException as error:
            self.step, self.error = None, error

    def reply(self, *replies):
        """Answers what was sent; an exception is thrown into the program."""
        assert isinstance(self.step, Batch), self.step
        if len(replies) == 1 and isinstance(replies[0], BaseException) and not isinstance(replies[0], ServerError):
            self.go(self.program.throw, replies[0])
        else:
            self.go(self.program.send, list(replies))
        return self

    def wake(self, event=None):
        assert isinstance(self.step, Pause), self.step
        self.go(self.program.send, event)
        return self


def start(limit=None, max_hold=None, of=None, **other):
    return Run(acquire, of or request(), limit, settings(**other), max_hold)


def told(event, token="7", reqid="id"):
    return Message(event, token, reqid)


def hold(clock, sent=0.0, **of):
    return HoldState(request(**of), (Grant("k", 7),), clock.now + sent, None)
