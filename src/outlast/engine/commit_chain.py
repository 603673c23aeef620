"""The commits of one holder, in order: submitted, awaited, submitted again, or given up (S-7).

Theory of operation. A holder decides from rows to which its own commits are applied, often before they have landed. So
a commit may rest on every commit before it, and the store must take them in order or not at all. The store does that
for one `Chain`: when it refuses a commit, it refuses all later ones of the chain with the reason "chain".

Faults, and why none loses a record or repeats one:

1. The store is away, or its answer is lost: the commit may have landed or not. `settled` submits it again, and the
   later ones after it, in order, in a new chain: recorded answers must not be lost. If the first copy has landed,
   the second one is refused, because each commit replaces a version or creates a row. Then the caller reads the rows.
2. A commit is refused on its own merits: a version, a deadline, a message that came (`ConditionFailed`). The
   store would refuse it each time, so it is dropped, and the caller reads the rows and decides again. Later records of
   answers are submitted again, because their calls have happened.
3. An advance follows such a refusal. It may rest on the record that was refused, and would skip the effect. It is
   dropped with everything after it, which belongs to a visit that was not entered.
4. The run has ended or another worker has claimed it (`RunLost`). Nothing can land. The answers in the commits
   become evidence (`late_records`).
5. A commit fails behind one that was submitted and not awaited. Its reason "chain" tells nothing, so `why` looks for
   the first refusal of the chain and raises that.
6. An author's transaction writes the run row outside the chain. `land_within` first waits until the chain has landed.
   If the transaction fails, the chain is broken here, because later commits would rest on rows that were rolled back.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from outlast.core.commit import Chain, Commit, Done, Put
from outlast.core.durations import SECOND, STORE_RETRY
from outlast.core.effect_verbs import settled_shared
from outlast.core.rows.run_rows import RUN, Run
from outlast.engine.held_run import HeldRun
from outlast.engine.holder_clock import HolderClock
from outlast.engine.late_records import LateRecords
from outlast.errors import Ended, Rejected, Stale, StoreError, Uncertain
from outlast.store.batch import CHAIN, EPOCH, INBOX_SEQ, MISSING
from outlast.store.port import Store, Transaction
from outlast.telemetry.observer import Observer

LOST: Final = frozenset({EPOCH, MISSING})
RETRY_STORE_S: Final = STORE_RETRY / SECOND


class RunLost(Exception):
    """The run has ended or another worker holds it: stop before the next write (REC-3)."""


class ConditionFailed(Exception):
    """A condition of the commit did not hold (message, clock mapping, deadline): decide again with fresh rows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StoreAway(Exception):
    """The store did not take the commit, for no reason of the commit itself."""

    def __init__(self, reason: str = "the store was away") -> None:
        super().__init__(reason)


class CommitChain:
    """The commits of one holder. Each is applied to the held rows: when submitted, or when landed if it is awaited."""

    __slots__ = (
        "_chain",
        "_clock",
        "_entry",
        "_failure",
        "_held",
        "_late",
        "_open",
        "_store",
        "_unseen",
        "_watch",
        "commits",
    )

    def __init__(
        self, store: Store, held: HeldRun, late: LateRecords, clock: HolderClock, watch: Observer | None
    ) -> None:
        self._store = store
        self._held = held
        self._late = late
        self._clock = clock
        self._watch = watch
        self._chain = Chain()
        self._failure: StoreError | None = None  # the error that broke the chain, once `land` has raised it
        self._open: list[tuple[Commit, asyncio.Future[Done]]] = []
        self._unseen: dict[int, Callable[[], None]] = {}  # observers to call once a submitted commit has landed
        self._entry: asyncio.Future[Done] | None = None  # commit of the latest advance
        self.commits = 0  # commits of this holder: an execution that makes none would end the same way again

    # --- committing ---------------------------------------------------------------------------
    async def land(self, commit: Commit) -> Done:
        """Commit and wait for the answer; then update the held rows.

        Raises RunLost, ConditionFailed, StoreAway, Rejected.
        """
        try:
            done = await self._store.submit(commit, chain=self._chain)
        except StoreError as error:
            raise self._broken_by(error) from error
        held = self._held
        self._learn(done)
        if self._watch is not None and (seen := self._watch.seen(held, commit, self._clock.now)) is not None:
            seen()
        held.apply(commit)
        if held.group:
            held.landed()
        if (settled := settled_shared(commit)) is not None:
            self._late.notify_waiting(settled)
        self.commits += 1
        if self._open:  # inline, because each step comes here: a commit that failed stays for `settled`
            self._open = [each for each in self._open if not each[1].done() or each[1].exception() is not None]
        return done

    def submit(self, commit: Commit) -> None:
        """Commit without waiting, and update the held rows at once. The result waits for it (S-10)."""
        future = self._store.submit(commit, chain=self._chain, linger=True)
        self._open.append((commit, future))
        if (settled := settled_shared(commit)) is not None:
            future.add_done_callback(lambda future: None if future.exception() else self._late.notify_waiting(settled))
        # Before the rows change: the observer compares them with the commit.
        if self._watch is not None and (seen := self._watch.seen(self._held, commit, self._clock.now)) is not None:
            self._unseen[id(commit)] = seen
            self._see(commit, future)
        self._held.apply(commit)
        self.commits += 1

    def _see(self, commit: Commit, future: "asyncio.Future[Done]") -> None:
        seen = self._unseen.get(id(commit))
        if seen is not None:
            future.add_done_callback(lambda done: None if done.exception() else seen())

    def enter(self, commit: Commit) -> None:
        """Advance to the next node without waiting for the commit.

        The next node executes at once. An intent of it is in the same chain, so both land together or neither does: one
        sync of the disk for each step.
        """
        self.submit(commit)
        self._entry = self._open[-1][1]

    async def entered(self) -> None:
        """Wait until the current node is entered durably (CKP-1).

        Raises RunLost, ConditionFailed, StoreAway.
        """
        entry = self._entry
        if entry is None:
            return
        if not entry.done():
            self._store.hasten()
        try:
            self._learn(await entry)
            if self._held.group:
                self._held.landed()
        except StoreError as error:
            raise self.why(error) from error
        finally:
            if self._entry is entry:  # a further advance may have been submitted while this one was awaited
                self._entry = None

    async def land_within(self, transaction: Transaction, commits: Sequence[Commit]) -> None:
        """Land commits in a transaction in which the author's code has written.

        All commits submitted before have landed by then. Other calls of this execution do not build on it: the lock of
        the run row orders them. Raises as `land`.
        """
        await self._caught_up()
        try:
            done = await transaction.land(commits)
        except Uncertain as error:  # the next holder must lock the run row, which this transaction may still hold
            raise RunLost from error
        except StoreError as error:
            why = self._broken_by(error)
            if not (isinstance(why, ConditionFailed) and why.reason == INBOX_SEQ):
                self._chain.broken = True
            raise why from error  # because of a message: the caller reads it and lands in the same transaction
        self._learn(done)
        for commit in commits:
            if self._watch is not None and (seen := self._watch.seen(self._held, commit, self._clock.now)) is not None:
                seen()
            self._held.apply(commit)
            if (settled := settled_shared(commit)) is not None:
                self._late.notify_waiting(settled)
        self.commits += 1

    async def _caught_up(self) -> None:
        """Wait for the submitted part of the chain. Raises the error that refused a commit of it."""
        await self.entered()
        if waiting := [future for _, future in self._open if not future.done()]:
            self._store.hasten()
            await asyncio.wait(waiting)
        for _, future in self._open:
            if isinstance(error := future.exception(), StoreError):
                raise self.why(error) from error

    # --- after a refusal ------------------------------------------------------------------------
    async def settled(self) -> None:
        """Wait for all submitted commits.

        Commits that can still land are submitted again until they have, see `sort_answers`. Answers that can no longer
        land become evidence. Raises RunLost, and Rejected if a value cannot be stored.
        """
        rejected: Rejected | None = None
        refused = False  # also by an earlier round: what was submitted again may rest on the refused commit
        self._entry = None
        while self._open:
            waiting, self._open = self._open, []
            await asyncio.wait([future for _, future in waiting])
            failed = False
            for _, future in waiting:
                if future.exception() is None:
                    self._learn(future.result())
                else:
                    failed = True
            if not failed:
                continue  # not the end: an observer or a task of this run may have submitted meanwhile
            found = sort_answers([(commit, future.exception()) for commit, future in waiting], refused=refused)
            rejected, refused = found.rejected or rejected, found.refused
            if found.lost:
                await self._late.record_answers([*found.lost, *found.again])
                raise RunLost
            if found.away:
                await asyncio.sleep(RETRY_STORE_S)
            if found.again:
                self.begin()
                self._open = [(c, self._store.submit(c, chain=self._chain, linger=True)) for c in found.again]
                for commit, future in self._open if self._unseen else ():
                    self._see(commit, future)
        self._unseen.clear()
        if rejected is not None:
            raise rejected

    async def go_on(self) -> None:
        """Wait for all submitted commits and open the next chain, after a commit was refused."""
        await self.settled()
        self.begin()

    def begin(self) -> None:
        """Open the next chain. The store refuses every later commit of a broken one."""
        self._chain, self._failure = Chain(), None

    def why(self, error: StoreError) -> RunLost | ConditionFailed | StoreAway:
        """Return the exception for a refusal of the store. Raises Rejected."""
        if isinstance(error, Ended):
            return RunLost()
        if isinstance(error, Stale):
            if error.reason == CHAIN:
                return self._first_failure()
            return RunLost() if error.reason in LOST else ConditionFailed(error.reason)
        if isinstance(error, Rejected):
            raise error
        return StoreAway()

    def _broken_by(self, error: StoreError) -> RunLost | ConditionFailed | StoreAway:
        """Return the exception for a refusal of a commit that was awaited, and keep it for later ones of its chain.

        Raises Rejected.
        """
        if self._failure is None and not (isinstance(error, Stale) and error.reason == CHAIN):
            self._failure = error
        return self.why(error)

    def _first_failure(self) -> RunLost | ConditionFailed | StoreAway:
        if self._failure is not None:
            return self.why(self._failure)
        for _, future in self._open:
            error = future.exception() if future.done() else None
            if isinstance(error, StoreError) and not (isinstance(error, Stale) and error.reason == CHAIN):
                return self.why(error)
        return StoreAway()

    def _learn(self, done: Done) -> None:
        self._clock.hear(done.now)
        if done.inbox_seq > self._held.inbox_known:  # seldom: no call for each answer
            self._held.hear(done.inbox_seq)


# --- decisions after the answers -------------------------------------------------------------------
class Sorted(NamedTuple):
    """Decision after the answers to the submitted commits of a chain."""

    again: list[Commit]  # to be submitted again, in this order
    lost: list[Commit]  # the claim is over
    refused: bool  # on its own merits, now or before
    away: bool  # the store was away: wait before the next attempt
    rejected: Rejected | None  # a value that cannot be stored


def sort_answers(answers: Iterable[tuple[Commit, BaseException | None]], *, refused: bool) -> Sorted:
    """Decide after the answers which commits are submitted again. None: the commit has landed.

    A commit is submitted again if the store was away, or if it failed only because an earlier one of its chain did. A
    commit that was refused on its own merits is dropped. An advance after such a refusal is dropped with everything
    after it, because it may skip the effect whose record was refused (S-7).
    """
    again: list[Commit] = []
    lost: list[Commit] = []
    away = False
    rejected: Rejected | None = None
    for commit, error in answers:
        if error is None:
            continue
        if isinstance(error, Ended) or (isinstance(error, Stale) and error.reason in LOST):
            lost.append(commit)
        elif isinstance(error, Rejected):
            rejected, refused = error, True
        elif isinstance(error, Stale) and error.reason != CHAIN:
            refused = True
        elif refused and _enters(commit):
            break
        elif refused and _logs(commit):
            continue  # the next execution writes it again; its version of the run row is taken
        else:
            again.append(commit)
            away = away or not isinstance(error, Stale)
    return Sorted(again, lost, refused, away, rejected)


def _enters(commit: Commit) -> bool:
    """Return True if the commit is an advance: it moves the run row to another visit."""
    return _moves(commit) and not _logs(commit)


def _logs(commit: Commit) -> bool:
    """Return True if the commit adds entries of `ctx.log`: it moves the run row and stays in the visit."""
    row = commit.writes[0].row if isinstance(commit.writes[0], Put) else None
    return isinstance(row, Run) and commit.fence is not None and row.visit == commit.fence.visit


def _moves(commit: Commit) -> bool:
    first = commit.writes[0]
    return isinstance(first, Put) and first.kind is RUN
