"""The first of several waits of a node (S-29): all are opened, one commit ends one of them and closes the others.

`core/first_wait.py` decides which one ends. Faults, and why no other wait ends:

1. *A message comes while the winner is chosen.* The commit names the last message that was read, so the store refuses
   it, and the node is executed again with the message.
2. *An approver decides at the same time.* The commit withdraws the approval under the version that was read.
3. *The holder dies.* Before the commit nothing is given to the node. After it the memo names the winner.
4. *The time of an approval runs out beside other waits.* An operator is notified, the others stay open, and the commit
   of the winner takes the request to the operator back.
"""

from collections.abc import Mapping
from typing import TypeAlias

from outlast.core.children import stop_child
from outlast.core.commit import AppendMessage, Put
from outlast.core.divergence import DECIDED
from outlast.core.effect_verbs import closes_at
from outlast.core.first_wait import (
    Bound,
    Candidate,
    Winner,
    decided_at,
    end_first,
    ended_between,
    first_of,
    set_key,
    winner_of,
)
from outlast.core.machine import ApprovalStatus, Reason, WaitStatus
from outlast.core.rows.effect_rows import Approval, Effect, Wait
from outlast.engine.approval_waits import Question, current_request, parked, timed_out
from outlast.engine.child_runs import ChildWait
from outlast.engine.child_runs import parked as waiting_for_child
from outlast.engine.named_waits import NamedWait
from outlast.engine.node_execution import NodeExecution, Unresolved

AnyWait: TypeAlias = NamedWait | Question | ChildWait


def name_of(wait: AnyWait) -> str:
    """Return the identity of a wait in its visit."""
    if isinstance(wait, ChildWait):
        return f"child?{wait.name}"
    return f"approval?{wait.name}" if isinstance(wait, Question) else f"wait?{wait.key}"


def remembered_winner(execution: NodeExecution, names: list[str]) -> str | None:
    """Return the identity of the wait that an execution of this visit has ended first; None if the set is open."""
    held = execution.session.held
    memo = held.memos.get((held.run.visit, set_key(names)))
    return None if memo is None else winner_of(memo)


async def first_ended(execution: NodeExecution, waits: Mapping[str, AnyWait]) -> str:
    """End the first of these waits and return its identity. Raises Unresolved if the run waits for it."""
    return await _SetOfWaits(execution, waits).end()


class _SetOfWaits:
    """The waits of one call of `ctx.first` with their rows."""

    def __init__(self, execution: NodeExecution, waits: Mapping[str, AnyWait]) -> None:
        self._execution = execution
        self._waits = waits
        self._rows: dict[str, Wait] = {}
        self._requests: dict[str, Approval] = {}
        self._children: dict[str, Effect] = {}
        self._closes: dict[str, int] = {}

    async def end(self) -> str:
        """End the first of the waits, or park."""
        await self._open()
        ended = next((name for name, row in self._rows.items() if row.status is WaitStatus.BOUND), None)
        if ended is not None:  # an earlier execution awaited it alone, and had its answer
            await self._land(ended, None)
            return ended
        now = (await self._execution.session.store.now()).business
        won = first_of([self._candidate(name) for name in self._waits], now)
        if won is None:
            self._rest()
            raise Unresolved
        await self._land(won.name, self._bound(won))
        return won.name

    async def _open(self) -> None:
        """Open the waits and request the approvals, all from the same instant."""
        session = self._execution.session
        store, now = session.store, (await session.store.now()).business
        for name, wait in self._waits.items():
            if isinstance(wait, ChildWait):
                self._children[name] = await wait.opened()
                continue
            if isinstance(wait, NamedWait):
                row = self._rows[name] = await wait.opened(now)
                self._closes[name] = closes_at(row.deadline, store.mapping(), store.skew) if row.deadline else 0
                continue
            found = await current_request(self._execution, wait)
            if found is None:
                raise Unresolved
            self._requests[name] = found

    def _candidate(self, name: str) -> Candidate:
        wait = self._waits[name]
        if isinstance(wait, NamedWait):
            row = self._rows[name]
            last = wait.satisfying(row)[-1:]
            number, at = (last[0].n, last[0].at) if last else (0, 0)
            return Candidate(name, number, at, row.deadline, self._closes[name])
        messages = self._execution.session.held.messages
        if isinstance(wait, ChildWait):
            ended = self._children[name].settled_at
            return Candidate(name, ended_between(ended, messages), ended) if ended else Candidate(name)
        request = self._requests[name]
        if request.status not in DECIDED:
            return Candidate(name)
        return Candidate(name, *decided_at(request, messages))

    def _bound(self, won: Winner) -> Bound | None:
        wait, row = self._waits[won.name], self._rows.get(won.name)
        if row is None or not isinstance(wait, NamedWait):
            return None
        messages = wait.at_deadline(row) if won.by_deadline else wait.satisfying(row)
        store = self._execution.session.store
        mapping = store.mapping().version if store.skew and won.by_deadline else None
        return Bound(row, wait.reserve(messages), not won.by_deadline, self._closes[won.name], mapping)

    async def _land(self, won: str, bound: Bound | None) -> None:
        session = self._execution.session
        if self._execution.observed:
            self._execution.record_observed()
        commit = end_first(
            session.held.run,
            list(self._waits),
            won,
            bound=bound,
            lost=[row for name, row in self._rows.items() if name != won and row.status is WaitStatus.OPEN],
            withdrawn=[request for name, request in self._requests.items() if name != won],
            stopped=[write for name in self._children if name != won for write in self._stop(name, won)],
            inbox_seq=session.held.inbox_read,
            now=session.clock.now,
        )
        await session.chain.land(commit)

    def _stop(self, name: str, won: str) -> tuple[Put | AppendMessage, ...]:
        """Return the writes that end a child which lost, if it was started for this set."""
        wait, row = self._waits[name], self._children[name]
        assert isinstance(wait, ChildWait)
        if not wait.is_owned or row.settled_at or row.child.stop:
            return ()
        return stop_child(self._execution.session.held.run, row, f"{won} ended first")

    def _rest(self) -> None:
        """Park the run until one of the waits ends. An approval whose time is over is an operator's matter."""
        execution = self._execution
        pending = [each for each in self._requests.values() if each.status is ApprovalStatus.PENDING]
        expired = [each for each in self._requests.values() if each.status is ApprovalStatus.EXPIRED]
        for name, row in self._rows.items():
            wait = self._waits[name]
            assert isinstance(wait, NamedWait)
            execution.park(wait.parked(row, self._closes[name]))
        for each in pending:
            execution.park(parked(each))
        for child in self._children.values():
            execution.park(waiting_for_child(child))
        goes_on = bool(self._rows or pending or self._children)
        flagged = execution.session.held.run.attention if goes_on else ()
        known = {a.since for a in flagged if a.goes_on and a.reason is Reason.APPROVAL_TIMEOUT}
        for each in expired:
            if each.within_until not in known:
                execution.call_person(timed_out(execution, each)._replace(goes_on=goes_on))
