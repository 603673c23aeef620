"""Waits that a node opens: a row with a fixed deadline, bound once to messages or to the deadline (S-14)."""

from datetime import datetime
from typing import Any, Literal, NoReturn

from pydantic import BaseModel

from outlast.core import effect_verbs
from outlast.core.business_days import DUE, BusinessDays
from outlast.core.codec import Codec, schema_text
from outlast.core.conclude import Parked
from outlast.core.durations import SECOND, Term, check_near, ms_of
from outlast.core.keys import check_name
from outlast.core.limits import VISITS_MAX
from outlast.core.machine import Reason, WaitStatus, wait_target
from outlast.core.rows.effect_rows import Wait
from outlast.core.rows.run_columns import Attention, Timer, WaitingFor
from outlast.core.rows.run_rows import Message
from outlast.core.terms import Deadline, deadline_of
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.errors import Conflict, InvalidInput

WaitKind = Literal["sleep", "receive", "collect"]


class NamedWait:
    """One wait of one node execution."""

    def __init__(
        self,
        execution: NodeExecution,
        kind: WaitKind,
        name: str,
        *,
        timeout: Term | None,
        until: datetime | BusinessDays | None,
        model: type[BaseModel] | None = None,
        most: int = 0,
        number: int | None = None,
    ) -> None:
        self.execution = execution
        self.kind = kind
        self.name = check_name("wait", name)
        self.number = number
        self.key = wait_key(name, number)
        if timeout is not None and until is not None:
            raise InvalidInput(f"wait {name} has a duration and until=", "a wait ends once", "keep one of the two")
        self._given = timeout if until is None else until
        self._days = self._given if isinstance(self._given, BusinessDays) else None
        self.timeout_ms = self.until_ms = None
        if timeout is not None and not isinstance(timeout, BusinessDays):
            self.timeout_ms = ms_of(f"duration of wait {name}", timeout, any_length=True)
        if until is not None and not isinstance(until, BusinessDays):
            self.until_ms = _instant(name, until)
        self.most = most
        self.model = model
        self.codec: Codec[Any] | None = Codec(model, named=f"signal {name}") if model else None

    async def answer(self) -> tuple[Message, ...] | None:
        """Return the messages bound to the wait, or None at its deadline. Raises Unresolved if the run parks."""
        wait = await self.opened()
        if wait.status is WaitStatus.OPEN:
            wait = await self._bind(wait)
        return self.notes_of(wait)

    async def opened(self, now: int | None = None) -> Wait:
        """Return the row of the wait, which its first request opens. Raises Unresolved if it was another wait.

        `now`: business instant at which it begins; None for the store's.
        """
        held = self.execution.session.held
        wait = held.waits.get((held.run.visit, self.key))
        if wait is None:
            self._check_round()
            wait = self._declare((await self.execution.session.store.now()).business if now is None else now)
        elif wait.kind != self.kind or wait.status is WaitStatus.CLOSED:
            was = f"a {wait.kind} earlier in this visit and is a {self.kind} now"
            if wait.status is WaitStatus.CLOSED:
                was = "closed earlier in this visit, because another wait of its ctx.first ended before it"
            self._diverged(f"wait {wait.key} was {was}")
        return wait

    def _check_round(self) -> None:
        """Raise Unresolved for a round below one of the visit, Conflict for a second open wait of this name."""
        held = self.execution.session.held
        mine = [w for (at, _), w in held.waits.items() if at == held.run.visit and w.name == self.name]
        for other in mine:
            if self.number is not None and (round_of(other.key) or 0) > self.number:
                self._diverged(f"wait {self.key} is asked for after {other.key}; the rounds of a name rise")
        for other in mine:
            if other.status is WaitStatus.OPEN:
                raise Conflict(
                    f"wait {self.key} is asked for while wait {other.key} is open",
                    "two open waits of one name could take the same signal",
                    "await the earlier one first, or give the waits two names",
                )

    def _diverged(self, detail: str) -> NoReturn:
        session = self.execution.session
        seen = session.held.inbox_read
        self.execution.call_person(Attention(Reason.NODE_DIVERGED, session.clock.now.business, detail, seen=seen))
        raise Unresolved

    def bound(self) -> Wait | None:
        """Return the row if an execution of this visit has bound it, else None."""
        wait = self.execution.session.held.waits.get((self.execution.session.held.run.visit, self.key))
        return wait if wait is not None and wait.status is WaitStatus.BOUND and wait.kind == self.kind else None

    def notes_of(self, wait: Wait) -> tuple[Message, ...] | None:
        """Return the messages bound to the wait, or None at its deadline."""
        bound = wait.binding
        return None if bound is None else tuple(n for n in self.execution.session.held.messages if n.n in bound)

    def _declare(self, now: int) -> Wait:
        session, run = self.execution.session, self.execution.session.held.run
        deadline = self._deadline(now)
        wait = Wait(
            tenant=run.tenant,
            run=run.run,
            visit=run.visit,
            key=self.key,
            version=1,
            status=wait_target("open_wait", None),
            kind=self.kind,
            name=self.name,
            deadline=max(deadline.ms, 1) if self._given is not None else 0,
            most=self.most,
            binding_text="",
            since=now,
            schema=schema_text(self.model) if self.model else "",
            due_text=DUE.encode(deadline.due) if deadline.due is not None else "",
        )
        if self.execution.observed:
            self.execution.record_observed()
        session.chain.submit(effect_verbs.open_wait(run, wait))
        return wait

    def _deadline(self, now: int) -> Deadline:
        """Return the end of the wait if it begins now: its own, or that of the visit if it is earlier."""
        what = f"duration of wait {self.name}"
        if self._days is not None:
            own = deadline_of(what, self._days, now, self._given)
        else:
            ahead = self.timeout_ms if self.timeout_ms is not None else (self.until_ms or now) - now
            check_near(what, self._given, ahead)
            own = Deadline(now + self.timeout_ms if self.timeout_ms is not None else self.until_ms or 0)
        last = self.execution.visit_deadline() if own.ms else own
        return last if 0 < last.ms < own.ms else own

    async def _bind(self, wait: Wait) -> Wait:
        """Bind the wait if messages or the deadline allow it, else park."""
        now = await self.execution.session.store.now()
        if found := self.satisfying(wait):
            return await self._land(wait, found, complete=True)
        if wait.deadline and now.business >= self._closes_at(wait):
            return await self._land(wait, self.at_deadline(wait), complete=False)
        self.execution.park(self.parked(wait, self._closes_at(wait)))
        raise Unresolved

    def satisfying(self, wait: Wait) -> tuple[Message, ...]:
        """Return the messages that end the wait before its deadline; () if there are not enough of them."""
        enough = {"sleep": 0, "receive": 1}.get(self.kind, self.most)
        found = self._matching(wait) if enough else ()
        return found[:enough] if len(found) >= enough else ()

    def at_deadline(self, wait: Wait) -> tuple[Message, ...] | None:
        """Return the messages to which the deadline binds the wait; None unless it collects."""
        return self._matching(wait) if self.kind == "collect" else None

    def _matching(self, wait: Wait) -> tuple[Message, ...]:
        """Return unbound signals of this name before the deadline that the model accepts, in order."""
        session = self.execution.session
        if self.codec is None:
            return ()
        spent = session.held.bound_messages() | self.execution.reserved
        return tuple(
            n
            for n in session.held.messages
            if n.kind == "signal"
            and n.name == self.name
            and n.n not in spent
            and (not wait.deadline or n.at < wait.deadline)
            and self._readable(n)
        )

    def _readable(self, message: Message) -> bool:
        assert self.codec is not None
        try:
            self.codec.admit(message.payload)
        except InvalidInput:
            return False
        return True

    async def _land(self, wait: Wait, messages: tuple[Message, ...] | None, *, complete: bool) -> Wait:
        session = self.execution.session
        numbers = self.reserve(messages)
        closes = mapping = None
        if session.store.skew and not complete:
            closes, mapping = self._closes_at(wait), session.store.mapping().version
        commit = effect_verbs.bind(
            session.held.run,
            wait,
            numbers,
            inbox_seq=None if self.kind == "sleep" else session.held.inbox_read,
            complete=complete,
            closes=closes,
            mapping=mapping,
        )
        await session.chain.land(commit)
        return session.held.waits[wait.visit, wait.key]

    def reserve(self, messages: tuple[Message, ...] | None) -> tuple[int, ...] | None:
        """Return the numbers of messages, which no other wait of the execution can get from now on."""
        if messages is None:
            return None
        numbers = tuple(n.n for n in messages)
        self.execution.reserved |= set(numbers)
        return numbers

    def _closes_at(self, wait: Wait) -> int:
        store = self.execution.session.store
        if not store.skew or self.kind == "sleep":  # no message is stamped before the end of a sleep
            return wait.deadline
        return effect_verbs.closes_at(wait.deadline, store.mapping(), store.skew)

    def parked(self, wait: Wait, closes: int) -> Parked:
        """Return what operators see of the open wait, and its timer. `closes`: when its deadline has passed."""
        kind: Literal["timer", "signal"] = "timer" if self.kind == "sleep" else "signal"
        then = {
            "sleep": "continues",
            "receive": "continues without it",
            "collect": "continues with the messages so far",
        }[self.kind]
        waiting = WaitingFor(kind, wait.name, since=wait.since, until=wait.deadline, then=then if wait.deadline else "")
        armed = Timer(f"wait {wait.key}", closes) if wait.deadline else None
        return Parked("park", waiting, armed)

    def value_of(self, messages: tuple[Message, ...] | None) -> Any:
        """Return what the node gets: a model, a list of models, or None at the deadline and after a sleep."""
        if self.codec is None:
            return None
        values = [self.codec.admit(message.payload) for message in messages or ()]
        return values if self.kind == "collect" else next(iter(values), None)


def wait_key(name: str, number: int | None) -> str:
    """Return the key of a wait in its visit. Raises InvalidInput for a round that is no number."""
    if number is None:
        return name
    if type(number) is not int or not 0 <= number <= VISITS_MAX:
        why = f"it is a number from 0 to {VISITS_MAX:,}, higher for each wait of this name"
        raise InvalidInput(f"round={number!r} of wait {name}", why, "for n in range(5): await ctx.receive(…, round=n)")
    return f"{name}#{number}"


def round_of(key: str) -> int | None:
    """Return the round in the key of a wait; None without one."""
    _, found, number = key.partition("#")
    return int(number) if found else None


def _instant(name: str, given: datetime) -> int:
    """Return an instant in milliseconds since 1970. Raises InvalidInput."""
    checked: object = given  # a caller without a type checker may pass anything
    if not isinstance(checked, datetime):
        why = "an instant is a datetime; a duration is given with timeout="
        raise InvalidInput(f"wait {name} until {given!r}", why, "e.g. ctx.now() + timedelta(hours=12)")
    if checked.tzinfo is None:
        raise InvalidInput(f"wait {name} until {given}", "it has no time zone", "e.g. datetime(…, tzinfo=UTC)")
    return int(checked.timestamp() * SECOND)
