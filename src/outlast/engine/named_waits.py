"""Waits that a node opens: a row with a fixed deadline, bound once to messages or to the deadline (S-14)."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from outlast.core import effect_verbs
from outlast.core.business_days import DUE, BusinessDays
from outlast.core.codec import Codec, schema_text
from outlast.core.conclude import Parked
from outlast.core.durations import SECOND, Term, check_near, ms_of
from outlast.core.keys import check_name
from outlast.core.machine import Reason, WaitStatus, wait_target
from outlast.core.rows.effect_rows import Wait
from outlast.core.rows.run_columns import Attention, Timer, WaitingFor
from outlast.core.rows.run_rows import Message
from outlast.core.terms import Deadline, deadline_of
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.errors import InvalidInput

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
    ) -> None:
        self.execution = execution
        self.kind = kind
        self.name = check_name("wait", name)
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
        execution, session = self.execution, self.execution.session
        wait = session.held.waits.get((session.held.run.visit, self.name)) or await self._declare()
        if wait.kind != self.kind:
            detail = f"wait {wait.name} was a {wait.kind} earlier in this visit and is a {self.kind} now"
            execution.call_person(
                Attention(Reason.NODE_DIVERGED, session.clock.now.business, detail, seen=session.held.inbox_read)
            )
            raise Unresolved
        if wait.status is WaitStatus.OPEN:
            wait = await self._bind(wait)
        return self.notes_of(wait)

    def bound(self) -> Wait | None:
        """Return the row if an execution of this visit has bound it, else None."""
        wait = self.execution.session.held.waits.get((self.execution.session.held.run.visit, self.name))
        return wait if wait is not None and wait.status is WaitStatus.BOUND and wait.kind == self.kind else None

    def notes_of(self, wait: Wait) -> tuple[Message, ...] | None:
        """Return the messages bound to the wait, or None at its deadline."""
        bound = wait.binding
        return None if bound is None else tuple(n for n in self.execution.session.held.messages if n.n in bound)

    async def _declare(self) -> Wait:
        session, run = self.execution.session, self.execution.session.held.run
        now = await session.store.now()
        deadline = self._deadline(now.business)
        wait = Wait(
            tenant=run.tenant,
            run=run.run,
            visit=run.visit,
            key=self.name,
            version=1,
            status=wait_target("open_wait", None),
            kind=self.kind,
            name=self.name,
            deadline=max(deadline.ms, 1) if self._given is not None else 0,
            most=self.most,
            binding_text="",
            since=now.business,
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
        session = self.execution.session
        found = self._matching(wait)
        enough = 1 if self.kind == "receive" else self.most
        now = await session.store.now()
        if self.kind != "sleep" and enough and len(found) >= enough:
            return await self._land(wait, found[:enough], complete=True)
        if wait.deadline and now.business >= self._closes_at(wait):
            return await self._land(wait, found if self.kind == "collect" else None, complete=False)
        self._park(wait)
        raise Unresolved

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
        numbers = None if messages is None else tuple(n.n for n in messages)
        self.execution.reserved |= set(numbers or ())
        closes = mapping = None
        if session.store.skew and not complete:
            closes, mapping = self._closes_at(wait), session.store.mapping().version
        commit = effect_verbs.bind(
            session.held.run,
            wait,
            numbers,
            inbox_seq=session.held.inbox_read,
            complete=complete,
            closes=closes,
            mapping=mapping,
        )
        await session.chain.land(commit)
        return session.held.waits[wait.visit, wait.key]

    def _closes_at(self, wait: Wait) -> int:
        store = self.execution.session.store
        return effect_verbs.closes_at(wait, store.mapping(), store.skew) if store.skew else wait.deadline

    def _park(self, wait: Wait) -> None:
        kind: Literal["timer", "signal"] = "timer" if self.kind == "sleep" else "signal"
        then = {
            "sleep": "continues",
            "receive": "continues without it",
            "collect": "continues with the messages so far",
        }[self.kind]
        waiting = WaitingFor(kind, wait.name, since=wait.since, until=wait.deadline, then=then if wait.deadline else "")
        armed = Timer(f"wait {wait.name}", self._closes_at(wait)) if wait.deadline else None
        self.execution.park(Parked("park", waiting, armed))

    def load(self, message: Message) -> Any:
        """Return the payload of a message as the model."""
        assert self.codec is not None
        return self.codec.admit(message.payload)


def _instant(name: str, given: datetime) -> int:
    """Return an instant in milliseconds since 1970. Raises InvalidInput."""
    checked: object = given  # a caller without a type checker may pass anything
    if not isinstance(checked, datetime):
        why = "an instant is a datetime; a duration is given with timeout="
        raise InvalidInput(f"wait {name} until {given!r}", why, "e.g. ctx.now() + timedelta(hours=12)")
    if checked.tzinfo is None:
        raise InvalidInput(f"wait {name} until {given}", "it has no time zone", "e.g. datetime(…, tzinfo=UTC)")
    return int(checked.timestamp() * SECOND)
