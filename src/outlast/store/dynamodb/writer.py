"""Schedules the work of a DynamoDB store: commits of one run or one chain in order, all others at once (S-7)."""

import asyncio
import logging
from collections.abc import Coroutine, Hashable, Sequence
from typing import Any, Final

from outlast.core.commit import AppendMessage, Chain, Commit, Mapping, Put, Wake
from outlast.core.rows.row_kind import AnyKind, Key, key_of
from outlast.core.rows.run_rows import RUN, Run
from outlast.errors import OutlastError, Rejected, Stale, StoreError, Unavailable, Uncertain
from outlast.store.batch import Batch
from outlast.store.dynamodb.connection import urgent
from outlast.store.dynamodb.landing import Landed, Lander
from outlast.store.dynamodb.takes import RunFinder, in_transactions
from outlast.store.threads import WakeSubscribers
from outlast.store.tickets import Take, Task, Ticket, candidates, deliver, refuse

log = logging.getLogger("outlast.store")
TAKE_ROUNDS: Final = 3  # looks for further runs, if other workers took those that were found first


class CommitScheduler:
    """The queue of a store, in the store's own event loop. Every ticket is answered."""

    def __init__(self, lander: Lander, finder: RunFinder, wakes: WakeSubscribers) -> None:
        self._lander = lander
        self._finder = finder
        self._wakes = wakes
        self._last: dict[Hashable, asyncio.Future[None]] = {}  # end of the last commit of a group or chain
        self._working: set[asyncio.Task[None]] = set()
        self._answered: list[Ticket] = []
        self._take_turn = asyncio.Lock()  # two takes would choose the same runs
        self._urgent_turn = asyncio.Lock()
        self._closing = False

    def submit(self, tickets: list[Ticket]) -> None:
        """Begin to land tickets, each after earlier ones of its runs, rows and chain."""
        for ticket in tickets:
            if self._closing:
                refuse((ticket,), Unavailable("the store is closed"))
                self._answer(ticket)
            elif isinstance(ticket.work, Commit):
                self._begin(self._commit(ticket, self._in_order((ticket.work,), ticket.chain, ticket.out_of_bounds)))
            elif isinstance(ticket.work, Take):
                self._begin(self._do(ticket, self._take(ticket.work)))
            else:
                self._begin(self._do(ticket, self._task(ticket.work, tuple(self._working))))

    async def submit_first(self, ticket: Ticket) -> None:
        """Land a ticket over its own receipt shard and connections, so that nothing else delays it."""
        if self._closing:
            refuse((ticket,), Unavailable("the store is closed"))
            deliver((ticket,))
            return
        async with self._urgent_turn:
            assert isinstance(ticket.work, Commit)
            before = urgent.set(True)
            try:
                await self._commit(ticket, self._lander.land_together((ticket.work,), urgent=True))
            finally:
                urgent.reset(before)

    async def close(self) -> None:
        """Land earlier tickets and refuse later ones."""
        self._closing = True
        await self.idle()
        async with self._urgent_turn:
            self._deliver()

    async def idle(self) -> None:
        """Wait until all tickets are answered."""
        while self._working:
            await asyncio.wait(self._working)

    # --- tickets -------------------------------------------------------------------------
    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _commit(self, ticket: Ticket, landing: Coroutine[Any, Any, list[Landed | StoreError]]) -> None:
        try:
            (answer,) = await landing
            if isinstance(answer, StoreError):
                raise answer
            ticket.answer = answer.done
        except StoreError as error:
            refuse((ticket,), error)
        except Exception as error:  # a bug must not leave callers waiting
            log.exception("the writer failed")
            refuse((ticket,), Uncertain("the writer failed", repr(error)))
        self._answer(ticket)

    async def _do(self, ticket: Ticket, work: Coroutine[Any, Any, Any]) -> None:
        try:
            ticket.answer = await work
        except OutlastError as error:
            ticket.answer = error
        except Exception as error:  # of a step or a task; raised again in its caller
            ticket.answer = error
        self._answer(ticket)

    def _answer(self, ticket: Ticket) -> None:
        """Deliver the tickets that are answered in one turn of the loop together."""
        if not self._answered:
            asyncio.get_running_loop().call_soon(self._deliver)
        self._answered.append(ticket)

    def _deliver(self) -> None:
        answered, self._answered = self._answered, []
        deliver(answered)

    # --- commits ---------------------------------------------------------------------------
    def _in_order(
        self,
        commits: Sequence[Commit],
        chain: Chain | None = None,
        error: Rejected | None = None,
        mapping: int | None = None,
    ) -> Coroutine[Any, Any, list[Landed | StoreError]]:
        """Return the landing of commits by one transaction, after all earlier ones of their groups and their chain."""
        groups: set[Hashable] = set().union(*map(_groups, commits))
        if chain is not None:
            groups.add(chain)
        earlier = {self._last[group] for group in groups if group in self._last}
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for group in groups:
            self._last[group] = end

        async def land() -> list[Landed | StoreError]:
            try:
                for each in earlier:
                    await each
                if error is not None:
                    raise error
                answers = await self._lander.land_together(commits, chain, mapping=mapping)
                runs = [each for answer in answers if isinstance(answer, Landed) for each in answer.runs.values()]
                if any(each.run.owner == "" and each.run.due_at is not None for each in runs):
                    self._wakes.fire()
                return answers
            finally:
                for group in groups:
                    if self._last.get(group) is end:
                        del self._last[group]
                end.set_result(None)

        return land()

    # --- takes -------------------------------------------------------------------------------
    async def _take(self, take: Take) -> tuple[Run, ...]:
        async with self._take_turn:
            left: list[Run] = []
            offered: set[Key] = set()
            for _ in range(TAKE_ROUNDS):
                lost = await self._take_once(take._replace(n=take.n - len(left)), left, offered)
                if not lost or len(left) >= take.n:
                    break
            return tuple(left)

    async def _take_once(self, take: Take, left: list[Run], offered: set[Key]) -> int:
        """Move due runs, add them to `left`, and return how many other writers took or changed meanwhile."""
        if (off := self._lander.refusal()) is not None:
            raise off
        found, changed = await asyncio.gather(self._finder.find(take, self._lander.now()), self._lander.refresh())
        if changed:
            found = await self._finder.find(take, self._lander.now())
        now, mapping = self._lander.now(), self._lander.mapping
        batch = Batch(_nothing, now)
        runs = candidates(take, batch, (run for run in found if run[:2] not in offered))
        moves = self._finder.offers.moves(take.step, runs, now, mapping)
        commits = [(run, commit) for run, commit in moves if commit is not None]
        offered.update(run[:2] for run in runs)
        lost = 0
        failed: list[BaseException] = []
        for (run, _), answer in zip(
            commits, await self._claims([commit for _, commit in commits], mapping), strict=True
        ):
            if isinstance(answer, Stale):
                lost += 1  # a row that it names has changed: the run is not taken now
            elif isinstance(answer, BaseException):
                failed.append(answer)
            else:
                moved = answer.runs.get(run[:2])
                left.append(run if moved is None else moved.run)
        self._raise_worst(failed, left)
        return lost

    async def _claims(self, commits: Sequence[Commit], mapping: Mapping) -> list[Landed | BaseException]:
        """Land the commits of a take, as many by one transaction as have room in it, and answer each."""
        portions = in_transactions(commits)
        landings = [self._in_order(portion, mapping=mapping.version) for portion in portions]
        found: list[Landed | BaseException] = []
        for portion, answers in zip(portions, await asyncio.gather(*landings, return_exceptions=True), strict=True):
            found += [answers] * len(portion) if isinstance(answers, BaseException) else answers
        return found

    def _raise_worst(self, failed: list[BaseException], left: list[Run]) -> None:
        """Raise an error of a take: an uncertain one, or if nothing was moved any one.

        The caller of Uncertain compares the runs that the store assigns to it with those that it knows.
        """
        for error in failed:
            if not isinstance(error, StoreError) or error.landed is None:
                raise error
        if failed and not left:
            raise failed[0]

    # --- tasks -------------------------------------------------------------------------------
    async def _task(self, task: Task, earlier: tuple[asyncio.Task[None], ...]) -> Any:
        if earlier:
            await asyncio.wait(earlier)
        return await task.run(self._lander)


def _nothing(kind: AnyKind, key: Key) -> None:
    return None


def _groups(commit: Commit) -> set[Hashable]:
    """Return the runs that a commit names, and the rows that belong to no run."""
    groups: set[Hashable] = set()
    if commit.fence is not None:
        groups.add(commit.fence[:2])
    for expect in commit.expects:
        groups.add(_group(expect.kind, expect.key))
    for write in commit.writes:
        if type(write) is Put:
            groups.add(_group(write.kind, key_of(write.kind, write.row)))
        elif type(write) is AppendMessage:
            groups.add(write.message[:2])
        elif type(write) is Wake:
            groups.add(write[:2])
    return groups


def _group(kind: AnyKind, key: Key) -> Hashable:
    return key[:2] if kind is RUN or (kind.columns[1] == "run" and key[1]) else (kind.name, *key)
