"""The other side of every call: it records what reaches it and what it does before it answers, then misbehaves.

Honest as S-17 has it: a receiver of `resend` dedupes by key for its window, one of `reconcile` can be asked, one of
`ask` can do neither.
"""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple

from outlast.flow import DidNotHappen, Happened, NotSent, Perhaps, Refused, RetryLater, Unknown, this_call
from tests.simulation.environment import IN_THE_AIR, LIVE, QUIET, Environment
from tests.simulation.loop import SECOND

WINDOW: Final = 150 * SECOND  # how long the receiver of `resend` remembers a key
LATE_AT: Final = (LIVE.attempt_timeout, IN_THE_AIR, QUIET)
BEHAVIOURS: Final = ("acts_then_silent", "acts_then_5xx", "5xx", "429", "says_no")


class Request(NamedTuple):
    """One call in flight."""

    key: str
    mode: str
    what: str
    args: dict[str, Any]
    checked_at: int
    reply: "asyncio.Future[str] | None"


class Execution(NamedTuple):
    """One action of a receiver."""

    at: int
    air_ms: int  # since the caller's last check
    args: dict[str, Any]
    response: str


class Receivers:
    """All receivers of a seed, and their records."""

    def __init__(self, env: Environment) -> None:
        self.env = env
        self.executed: dict[str, list[Execution]] = {}
        self.modes: dict[str, str] = {}
        self.longest_air: dict[str, int] = {}
        self.flying = 0
        self._answers: dict[str, tuple[int, str | Exception]] = {}  # records of a receiver that deduplicates
        self.on_send: Callable[[str, dict[str, Any]], None] = lambda key, args: None
        self.on_execute: Callable[[str], None] = lambda key: None

    # --- in the caller's process -----------------------------------------------------------------
    async def call(self, mode: str, what: str, **args: Any) -> str:
        """Receive one attempt of an activity. Raises the exceptions that an HTTP client would."""
        env, dice = self.env, self.env.dice
        key = this_call().idempotency_key
        self.modes[key] = mode
        checked_at = env.loop.now
        env.say("calls %s %s", key, args)
        args["what"] = what
        self.on_send(key, args)
        if dice.happens("stuck_before_sending", 0.2):
            await asyncio.sleep(dice.span(10, 5 * SECOND) / SECOND)
        if dice.happens("refused_connection", 0.3):
            raise NotSent("connection refused")
        request = Request(key, mode, what, args, checked_at, env.loop.create_future())
        self._send(request)
        if mode == "repeat" and dice.happens("delivered_twice", 0.3):
            self._send(request._replace(reply=None))
        assert request.reply is not None
        return await request.reply

    def _send(self, request: Request) -> None:
        dice = self.env.dice
        late = dice.happens("acts_late", 0.3)
        ms = dice.near(LATE_AT, 5 * SECOND, 45 * SECOND) if late else self._latency()
        self.flying += 1
        self.env.later(ms, self._arrive, request)

    def _latency(self) -> int:
        dice = self.env.dice
        return dice.span(1, 3 * SECOND) if dice.rng.random() < dice.latency else 0

    async def find(self, what: str) -> Happened[str] | DidNotHappen | Unknown:
        """Answer a reconcile by the recorded keys."""
        env = self.env
        key = this_call().idempotency_key
        answer = env.loop.create_future()
        env.later(self._latency(), self._answer_find, key, answer)
        found: Happened[str] | DidNotHappen | Unknown = await answer
        env.say("asked about %s: %s", key, found)
        return found

    # --- at the receiver -----------------------------------------------------------------------------
    def _answer_find(self, key: str, answer: "asyncio.Future[Any]") -> None:
        if self.env.dice.happens("unknown_outcome", 0.4):
            found: Any = Unknown("ask me later")
        else:
            done = self.executed.get(key)
            found = Happened(done[0].response, "ext") if done else DidNotHappen()
        if not answer.done():
            answer.set_result(found)

    def _arrive(self, request: Request) -> None:
        self.flying -= 1
        env, dice = self.env, self.env.dice
        now = env.loop.now
        air = now - request.checked_at
        self.longest_air[request.key] = max(air, self.longest_air.get(request.key, 0))
        remembered = self._answers.get(request.key) if request.mode == "repeat" else None
        if remembered is None and request.reply is None:
            return  # a duplicate of a request that was not taken in is not taken in either
        if remembered is not None and now < remembered[0] + WINDOW:
            self._reply(request, remembered[1])
            return
        how = dice.one_of(BEHAVIOURS) if dice.storm and dice.rng.random() < 0.35 else ""
        if how:
            dice.fired[how] += 1
        env.say("reaches the receiver: %s %s", request.key, how)
        if how == "says_no":
            no = Refused("no", "not today")
            if request.mode == "repeat":
                self._answers[request.key] = (now, no)
            self._reply(request, no)
        elif how == "429":
            wait = timedelta(milliseconds=dice.span(SECOND, 20 * SECOND)) if dice.rng.random() < 0.5 else None
            self._reply(request, RetryLater("busy", after=wait))
        elif how == "5xx":
            self._reply(request, Perhaps("502"))
        else:
            done = self.executed.setdefault(request.key, [])
            response = f"{request.what}#{len(done) + 1}"
            done.append(Execution(now, air, request.args, response))
            self.on_execute(request.key)
            if request.mode == "repeat":
                self._answers[request.key] = (now, response)
            if how != "acts_then_silent":
                self._reply(request, Perhaps("502 after it acted") if how == "acts_then_5xx" else response)

    def _reply(self, request: Request, answer: str | Exception) -> None:
        if request.reply is not None:
            self.env.later(self._latency(), _answer, request.reply, answer)


def _answer(reply: "asyncio.Future[str]", answer: str | Exception) -> None:
    if reply.done():
        return
    if isinstance(answer, Exception):
        reply.set_exception(answer)
        reply.exception()
    else:
        reply.set_result(answer)
