"""A holder's session with one run: its rows, and the chain of its commits.

A holder reads the rows once, when it claims the run. Its own commits keep them current, because no other process may
write them (S-2). The result of an execution waits for all submitted commits.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

from outlast.core import budget, divergence, effect_verbs
from outlast.core.clock import Clock
from outlast.core.commit import Chain, Commit, Done, Instant, Put, actions_of, in_portions
from outlast.core.divergence import Missing, Requested
from outlast.core.durations import SECOND, STORE_RETRY
from outlast.core.effect_columns import EffectError, EvidenceAnswer
from outlast.core.effect_rows import EFFECT, USAGE, Approval, Effect, Evidence, Memo, Usage, Wait
from outlast.core.effect_verbs import settled_shared
from outlast.core.limits import ACTIONS_MAX, LARGE_ITEMS_MAX
from outlast.core.machine import EffectStatus
from outlast.core.mailbox import settled_elsewhere
from outlast.core.quarantine import group_of
from outlast.core.row_kind import key_of
from outlast.core.rows import CALL_USAGE, MESSAGE, RUN, STATE_CHUNK, Event, Message, Run, is_over
from outlast.core.run_transition import LogEntry, fence, log_key
from outlast.core.state.snapshot_codec import StateChunk
from outlast.core.usage import NOTHING_USED, Amounts, CallUsage, Used
from outlast.engine.snapshots import SnapshotStore
from outlast.errors import Ended, Rejected, Stale, StoreError, Uncertain
from outlast.store.batch import INBOX_SEQ
from outlast.store.port import RunRows, Store, Transaction
from outlast.store.usage_sums import RunUsage
from outlast.telemetry.observer import Observer

log = logging.getLogger("outlast.engine")
USERS_PER_READ: Final = 1_000


async def notify_waiting(store: Store, effect: Effect) -> None:
    """Send a message to every run that waits for this shared effect.

    Never raises (S-18).

    A run that misses the message finds the answer at its next check.
    """
    cursor = ""
    try:
        while True:
            page = await store.page(USAGE, effect.tenant, {"key": effect.key}, cursor=cursor, limit=USERS_PER_READ)
            runs = [row.run for row in page.rows if row.run != effect.by_run]
            await asyncio.gather(*(_notify_waiting(store, effect, run) for run in runs))
            cursor = page.cursor
            if not cursor:
                return
    except StoreError as error:
        log.warning("runs that wait for %s could not be notified: %s", effect.key, error)


async def _notify_waiting(store: Store, effect: Effect, run: str) -> None:
    row = await store.load(RUN, (effect.tenant, run))
    if row is None or is_over(row):
        return
    if not row.owner and not any(w.kind == "effect" and w.what.endswith(f" {effect.key}") for w in row.waiting_for):
        return  # the run used the effect before
    try:
        await store.commit(settled_elsewhere(effect, run))
    except StoreError:
        pass  # the run has ended, or finds the answer at its next check


EffectKey = tuple[int, str]


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


LOST: Final = frozenset({"epoch", "missing"})
RETRY_STORE_S: Final = STORE_RETRY / SECOND


class RunSession:
    """Rows of one run, and its chain of commits."""

    __slots__ = (  # a dict of more than 30 attributes is slow: instances share no keys, and no read is cached
        "_ahead_ms",
        "_chain",
        "_clock",
        "_earlier",
        "_entry",
        "_failure",
        "_notifying",
        "_open",
        "_ordinal",
        "_owner",
        "_said",
        "_snapshots",
        "_unseen",
        "_usage_n",
        "_usage_read",
        "_used_before",
        "_used_since",
        "_watch",
        "approvals",
        "claimed_visit",
        "commits",
        "effects",
        "evidence",
        "group",
        "inbox_known",
        "inbox_read",
        "last",
        "loaded_visit",
        "memos",
        "messages",
        "noted",
        "notes",
        "open_by_key",
        "others",
        "run",
        "store",
        "unsent",
        "waits",
    )

    def __init__(self, store: Store, rows: RunRows, clock: Clock, watch: Observer | None = None) -> None:
        self.store = store
        self._watch = watch
        self._clock = clock
        self._chain = Chain()
        self._failure: StoreError | None = None  # the error that broke the chain, once `land` has raised it
        self._owner = rows.run.owner
        self._snapshots = SnapshotStore(store, rows.run.tenant, rows.run.run)
        self._open: list[tuple[Commit, asyncio.Future[Done]]] = []
        # greatest difference to the store's clock that was received (decision 0040)
        self._ahead_ms = rows.now.real - clock.boot()
        self._unseen: dict[int, Callable[[], None]] = {}  # observers to call once a submitted commit has landed
        self._entry: asyncio.Future[Done] | None = None  # commit of the latest advance
        self.unsent: dict[EffectKey, Effect | None] = {}
        """Intents whose call has not begun.

        Removing one gives the right to call, or to prove that it was not sent. None: an earlier attempt may have
        happened, so there is nothing to prove.
        """
        self._notifying: set[asyncio.Task[None]] = set()
        self.notes: list[LogEntry] = []  # entries of the history about usage that is not counted
        self._usage_n = 0  # number of the last usage row of this claim
        self.commits = 0  # commits of this holder: an execution that makes none would end the same way again
        self.claimed_visit = rows.run.visit  # visit of the run when it was claimed
        self._take_rows(rows)

    def _take_rows(self, rows: RunRows) -> None:
        self.run: Run = rows.run
        self.group = group_of(rows.run)  # as stored: an advance that has not landed does not end it (S-5)
        self.last: Event = rows.last
        own = [*rows.effects, *(e for e in rows.shared if e.by_run == rows.run.run)]
        self.effects: dict[EffectKey, Effect] = {(e.visit, e.key): e for e in own}
        self.open_by_key: dict[EffectKey, Effect] = {ident: e for ident, e in self.effects.items() if e.settled_at == 0}
        self.others: dict[str, Effect] = {e.key: e for e in rows.shared if e.by_run != rows.run.run}
        self.noted: set[str] = {e.key for e in rows.shared}  # shared effects named by a usage row of this run
        self.memos: dict[EffectKey, Memo] = {(m.visit, m.key): m for m in rows.memos}
        self.waits: dict[EffectKey, Wait] = {(w.visit, w.key): w for w in rows.waits}
        self.approvals: dict[str, Approval] = {a.id: a for a in rows.approvals}
        self.evidence: tuple[Evidence, ...] = rows.evidence
        self.messages: tuple[Message, ...] = rows.messages
        self._earlier: dict[tuple[str, str], int] | None = None
        self._said: Instant = rows.now  # last answer of `now`, which is called several times within a millisecond
        self._hear(rows.now)
        self.inbox_read = rows.run.inbox_seq
        self.inbox_known = rows.run.inbox_seq
        self.loaded_visit = rows.run.visit  # an execution of a later visit finds nothing recorded in it
        self._ordinal = max((e.ordinal for e in own), default=0)
        self._used_before: Amounts | None = None  # usage of the run up to the next row; None = not read yet
        self._usage_read = self._usage_n
        self._used_since = NOTHING_USED

    def visit_of(self, activity: str, key: str) -> int:
        """Return the latest visit in which an activity recorded a key for that visit alone; 0 if it did not.

        A key that counts in the whole run may have been recorded when it counted in its visit.
        """
        if self._earlier is None:  # once for a claim: later rows are of activities that count within a visit
            own = sorted((visit, key, effect) for (visit, key), effect in self.effects.items() if visit)
            self._earlier = {(effect.activity, key): visit for visit, key, effect in own if not effect.undoes}
        return self._earlier.get((activity, key), 0)

    async def reload(self) -> None:
        """Read all rows again. Raises RunLost if this holder no longer holds the run."""
        epoch = self.run.epoch
        (rows,) = await self.store.run_rows([(self.run.tenant, self.run.run)])
        if rows is None or rows.run.epoch != epoch or rows.run.owner != self._owner:
            raise RunLost
        self._begin_chain()
        self._take_rows(rows)

    def _begin_chain(self) -> None:
        self._chain, self._failure = Chain(), None

    async def go_on(self) -> None:
        """Wait for all submitted commits and open the next chain, after a commit was refused."""
        await self.settled()
        self._begin_chain()

    async def abandon(self) -> None:
        """Wait for submitted commits of a lost run. Answers that came too late become evidence."""
        unsent, self.unsent = self.unsent, {}
        try:
            await self.settled()
        except (RunLost, ConditionFailed):
            pass  # expected: the run is lost
        for effect in unsent.values():
            if effect is not None:
                await self._record_unsent(
                    effect, effect_verbs.too_late("its holder was replaced before it called", self.now)
                )

    def next_ordinal(self) -> int:
        """Return the number of a new effect. Undo goes by falling ordinal (S-19)."""
        self._ordinal += 1
        return self._ordinal

    # --- usage ----------------------------------------------------------------------------------
    async def used(self) -> Amounts:
        """Return the sum of the run's usage rows. Raises StoreError."""
        if self._used_before is None:
            run = self.run
            self._used_before = await self.store.query(RunUsage(run.tenant, run.run, run.epoch, self._usage_read))
        return self._used_before.plus(self._used_since)

    def usage_puts(self, ident: EffectKey, activity: str, used: list[Used]) -> tuple[Put, ...]:
        """Return the rows of what a call has reported, and empty the list."""
        rows = budget.usage_rows(self.run, ident, activity, used, after=self._usage_n, now=self.now)
        self.notes += budget.notes_of(ident, used)
        self._usage_n += len(rows)
        used.clear()
        return tuple(Put(CALL_USAGE, row, 0) for row in rows)

    def submit_usage(self, ident: EffectKey, activity: str, used: list[Used]) -> None:
        """Commit the usage of an attempt that leaves no other row, without waiting."""
        self.submit(budget.record_usage(self.run, self.usage_puts(ident, activity, used)))

    # --- committing ---------------------------------------------------------------------------
    async def land(self, commit: Commit) -> Done:
        """Commit and wait for the answer; then update the rows here.

        Raises RunLost, ConditionFailed, StoreAway, Rejected.
        """
        try:
            done = await self.store.submit(commit, chain=self._chain)
        except StoreError as error:
            raise self._broken_by(error) from error
        self._learn(done)
        if self._watch is not None and (seen := self._watch.seen(self, commit)) is not None:
            seen()
        self._apply(commit)
        if self.group:
            self.group = group_of(self.run)
        if (settled := settled_shared(commit)) is not None:
            self._notify_waiting(settled)
        self.commits += 1
        self._open = [each for each in self._open if not _landed(each[1])]
        return done

    def submit(self, commit: Commit) -> None:
        """Commit without waiting, and update the rows here at once. The result waits for it (S-10)."""
        future = self.store.submit(commit, chain=self._chain, linger=True)
        self._open.append((commit, future))
        if (settled := settled_shared(commit)) is not None:
            future.add_done_callback(lambda future: None if future.exception() else self._notify_waiting(settled))
        if self._watch is not None and (seen := self._watch.seen(self, commit)) is not None:
            self._unseen[id(commit)] = seen
            self._see(commit, future)
        self._apply(commit)
        self.commits += 1

    def _see(self, commit: Commit, future: "asyncio.Future[Done]") -> None:
        seen = self._unseen.get(id(commit))
        if seen is not None:
            future.add_done_callback(lambda done: None if done.exception() else seen())

    def state_in_memory(self) -> bytes | None:
        """Return the state in the newest checkpoint, or None if `state` must read it."""
        return self._snapshots.in_memory(self.last.snapshot)

    async def state(self) -> bytes:
        """Return the state in the newest checkpoint. Raises Corrupt if a chunk does not match its hash."""
        return await self._snapshots.read(self.last.snapshot)

    async def snapshot_of(self, state: bytes) -> tuple[bytes, tuple[StateChunk, ...]]:
        """Return the snapshot of a state, and the chunks that `with_chunks` adds to the commit (CKP-3)."""
        return await self._snapshots.write(state, self.now.business)

    async def with_chunks(self, commit: Commit, values: Sequence[StateChunk]) -> Commit:
        """Return a commit together with the chunks that its snapshot names.

        Chunks that do not fit land before it, under the same claim. If the holder dies in between, no snapshot names
        them; the next one to write the same state finds them. Raises RunLost, ConditionFailed, StoreAway.
        """
        groups = in_portions(Put(STATE_CHUNK, value, 0) for value in values)
        fits = groups and actions_of(commit, LARGE_ITEMS_MAX) + len(groups[-1]) <= ACTIONS_MAX
        for puts in groups[:-1] if fits else groups:
            label = f"{self.run.run} keep {self.run.node}#{self.run.visit}"
            await self.land(Commit(puts, fence(self.run), label=label))
            groups = groups[1:]
        return commit._replace(writes=(*commit.writes, *groups[0])) if groups else commit

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
            self.store.hasten()
        try:
            self._learn(await entry)
            if self.group:
                self.group = group_of(self.run)
        except StoreError as error:
            raise self.why(error) from error
        finally:
            if self._entry is entry:
                self._entry = None

    async def land_within(self, transaction: Transaction, commits: Sequence[Commit]) -> None:
        """Land commits in a transaction in which the author's code has written.

        Raises as `land`.

        All commits submitted before have landed by then. Other calls of this execution do not build on it: the lock of
        the run row orders them.
        """
        await self._caught_up()
        try:
            done = await transaction.land(commits)
        except Uncertain as error:  # the next holder must lock the run row, which this transaction may still hold
            raise RunLost from error
        except StoreError as error:
            why = self._broken_by(error)
            if not (
                isinstance(why, ConditionFailed) and why.reason == INBOX_SEQ
            ):  # the caller tries again with the new messages
                self._chain.broken = True
            raise why from error
        self._learn(done)
        for commit in commits:
            if self._watch is not None and (seen := self._watch.seen(self, commit)) is not None:
                seen()
            self._apply(commit)
            if (settled := settled_shared(commit)) is not None:
                self._notify_waiting(settled)
        self.commits += 1

    async def _caught_up(self) -> None:
        """Wait for the submitted part of the chain. Raises the error that refused a commit of it."""
        await self.entered()
        if waiting := [future for _, future in self._open if not future.done()]:
            self.store.hasten()
            await asyncio.wait(waiting)
        for _, future in self._open:
            if isinstance(error := future.exception(), StoreError):
                raise self.why(error) from error

    async def settled(self) -> None:
        """Wait for all submitted commits.

        Raises RunLost, and Rejected if a value cannot be stored.

        Commits that failed because the store was away, or because an earlier commit of the chain failed, are submitted
        again in order: recorded answers must not be lost. Commits refused on their own merits are dropped; the caller
        reads the rows and decides again. An advance after such a refusal is dropped with everything after it, because
        it may skip the effect whose record was refused (S-7). Answers that can no longer land become evidence.
        """
        rejected: Rejected | None = None
        refused = False
        self._entry = None
        while self._open:
            waiting, self._open = self._open, []
            await asyncio.wait([future for _, future in waiting])
            again: list[Commit] = []
            lost: list[Commit] = []
            away = False
            for commit, future in waiting:
                error = future.exception()
                if error is None:
                    self._learn(future.result())
                elif isinstance(error, Ended) or (isinstance(error, Stale) and error.reason in LOST):
                    lost.append(commit)
                elif isinstance(error, Rejected):
                    rejected, refused = error, True
                elif isinstance(error, Stale) and error.reason != "chain":
                    refused = True
                elif refused and _enters(commit):
                    break
                elif refused and _logs(commit):
                    continue  # the next execution writes it again; its version of the run row is taken
                else:
                    again.append(commit)
                    away = away or not isinstance(error, Stale)
            if lost:
                await self._record_late_answers([*lost, *again])
                raise RunLost
            if away:
                await asyncio.sleep(RETRY_STORE_S)
            if again:
                self._begin_chain()
                self._open = [(c, self.store.submit(c, chain=self._chain, linger=True)) for c in again]
                for commit, future in self._open if self._unseen else ():
                    self._see(commit, future)
        self._unseen.clear()
        if rejected is not None:
            raise rejected

    def why(self, error: StoreError) -> RunLost | ConditionFailed | StoreAway:
        """Return the exception for a refusal of the store. Raises Rejected."""
        if isinstance(error, Ended):
            return RunLost()
        if isinstance(error, Stale):
            if error.reason == "chain":
                return self._first_failure()
            return RunLost() if error.reason in LOST else ConditionFailed(error.reason)
        if isinstance(error, Rejected):
            raise error
        return StoreAway()

    def _broken_by(self, error: StoreError) -> RunLost | ConditionFailed | StoreAway:
        """Return the exception for a refusal of a commit that was awaited, and keep it for later ones of its chain.

        Raises Rejected.
        """
        if self._failure is None and not (isinstance(error, Stale) and error.reason == "chain"):
            self._failure = error
        return self.why(error)

    def _first_failure(self) -> RunLost | ConditionFailed | StoreAway:
        if self._failure is not None:
            return self.why(self._failure)
        for _, future in self._open:
            error = future.exception() if future.done() else None
            if isinstance(error, StoreError) and not (isinstance(error, Stale) and error.reason == "chain"):
                return self.why(error)
        return StoreAway()

    async def _record_late_answers(self, commits: list[Commit]) -> None:
        """Record late answers as evidence, without a fence, for reconcilers and operators (S-10)."""
        for commit in commits:
            row = commit.writes[0].row if isinstance(commit.writes[0], Put) else None
            if puts := [put for put in commit.writes if isinstance(put, Put) and put.kind is CALL_USAGE]:
                await self.record_late_usage(puts)
            if isinstance(row, Effect) and row.error is not None and not row.settled_at and not row.settle_after:
                await self._record_unsent(row, row.error)
            elif isinstance(row, Effect) and row.status is not EffectStatus.INTENDED:
                response = row.response.decode() if row.response is not None else None
                answer = EvidenceAnswer(row.status.value, row.error, response)
                try:
                    await self.store.commit(effect_verbs.record_late_answer(row, answer, self.now))
                except StoreError:
                    pass  # the evidence exists already, or the store is away: the effect stays open

    async def record_late_usage(self, puts: Sequence[Put]) -> None:
        """Record usage without a fence, because it was paid even if another worker holds the run."""
        try:
            await self.store.commit(Commit(tuple(puts), label=f"{self.run.run} used late"))
        except StoreError:
            pass  # it has landed, or the store is away

    async def _record_unsent(self, effect: Effect, error: EffectError) -> None:
        """Record that an attempt was not sent, if its intent has landed and no other attempt was made."""
        try:
            row = await self.store.load(EFFECT, key_of(EFFECT, effect))
            if row is not None and (row.epoch, row.attempts) == (effect.epoch, effect.attempts):
                await self.store.commit(effect_verbs.record_unsent(effect, error, self.now))
        except StoreError:
            pass  # the same

    def _learn(self, done: Done) -> None:
        self._hear(done.now)
        self.inbox_known = max(self.inbox_known, done.inbox_seq)

    def _hear(self, now: Instant) -> None:
        """Keep the greatest difference of the clocks: a late answer gives a smaller one."""
        self._ahead_ms = max(self._ahead_ms, now.real - self._clock.boot())

    def _apply(self, commit: Commit) -> None:
        for write in commit.writes:
            if not isinstance(write, Put):
                continue
            row = write.row
            match row:
                case Run():
                    self.run = row
                case Event():
                    self.last = row if row.snapshot is not None else self.last
                case Effect():
                    self._keep(row)
                case Memo():
                    self.memos[row.visit, row.key] = row
                case Usage():
                    self.noted.add(row.key)
                case CallUsage():
                    self._used_since = self._used_since.plus(row.amounts)
                case Wait():
                    self.waits[row.visit, row.key] = row
                case Approval():
                    self.approvals[row.id] = row

    def _keep(self, row: Effect) -> None:
        if row.by_run not in ("", self.run.run):
            self.others[row.key] = row
            return
        ident = row.visit, row.key
        self.effects[ident] = row
        if row.settled_at == 0:
            self.open_by_key[ident] = row
        else:
            self.open_by_key.pop(ident, None)
        if row.by_run:
            self.others.pop(row.key, None)

    def _notify_waiting(self, settled: Effect) -> None:
        """Notify the runs that wait for a settled shared effect, in a task (S-18)."""
        task = asyncio.get_running_loop().create_task(notify_waiting(self.store, settled))
        self._notifying.add(task)
        task.add_done_callback(self._notifying.discard)

    @property
    def now(self) -> Instant:
        """Return an estimate of the store's time. It never goes back; the store judges every condition that matters."""
        real = self._clock.boot() + self._ahead_ms
        mapping, said = self.store.mapping(), self._said
        if said.real != real or said.mapping != mapping.version:
            self._said = said = mapping.at(real)
        return said

    # --- reading --------------------------------------------------------------------------------
    @property
    def has_new_messages(self) -> bool:
        """Return True if a message has come that this execution has not read."""
        return self.inbox_known > self.inbox_read

    async def new_messages(self) -> tuple[Message, ...]:
        """Read the messages after those of this execution. They do not become part of it."""
        from_ = (self.run.tenant, self.run.run)
        return await self.store.rows(MESSAGE, from_, after=(*from_, self.inbox_read))

    async def pass_over(self, asked: Collection[str]) -> bool:
        """Read the new messages, and count them as read if they concern none of the `asked` waits (S-1).

        Returns True if a commit that was refused because of them may be tried again.
        """
        messages = await self.new_messages()
        if not messages or any(n.kind != "signal" or n.name in asked for n in messages):
            return False
        await self.go_on()
        self.messages += messages
        self.inbox_read = max(self.inbox_read, *(n.n for n in messages))
        return True

    def bound_messages(self) -> frozenset[int]:
        """Return the numbers of messages that a wait of this run has bound, in any visit."""
        return frozenset(n for wait in self.waits.values() for n in wait.binding or ())

    def open_effects(self) -> list[Effect]:
        """Return the effects of any visit without a known outcome."""
        return list(self.open_by_key.values())

    def missing_calls(self, paid: Callable[[str], bool]) -> Missing:
        """Return what earlier executions of the visit have recorded, and the next one must ask for (EFF-9).

        `paid` tells whether a lookup of this name is durable.
        """
        memos = self.memos.values()
        names = divergence.recorded(
            self.run,
            self.effects.values(),
            memos,
            self.waits.values(),
            self.approvals.values(),
            paid,
            divergence.dropped_in(self.run, memos),
        )
        found = set(names)
        return divergence.by_activity(found - divergence.accepted(self.run, self.messages) if found else found)

    def requested_approvals(self) -> dict[str, Requested]:
        """Return the requests for approval of the visit, by the name that asks for each (EFF-9)."""
        if not self.approvals:
            return {}
        dropped = divergence.dropped_in(self.run, self.memos.values())
        found = {each.name: each for each in divergence.requested(self.run, self.approvals.values(), dropped)}
        accepted = divergence.accepted(self.run, self.messages) if found else ()
        return {name: each for name, each in found.items() if name not in accepted}

    def unwritten(self, log_entries: Iterable[LogEntry]) -> tuple[LogEntry, ...]:
        """Return the log entries that no earlier execution of this visit has written."""
        return tuple(t for t in log_entries if (self.run.visit, log_key(t.key)) not in self.memos)


def _landed(future: asyncio.Future[Done]) -> bool:
    return future.done() and future.exception() is None


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
