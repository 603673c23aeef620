"""A holder that applies its commits has the rows that a reader finds: `HeldRun.apply` beside the judge of the store."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from typing_extensions import override

from outlast.core.commit import AppendMessage, Commit, Put, Wake
from outlast.core.machine import ApprovalStatus, WaitStatus
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, MEMO, USAGE, WAIT, Approval, Effect, Memo, Usage, Wait
from outlast.core.rows.limit_rows import CALL_USAGE
from outlast.core.rows.run_rows import EVENT, RUN, Run
from outlast.core.usage import CallUsage
from outlast.engine.held_run import HeldRun
from outlast.store.memory import MemoryCore, MemoryStore
from outlast.store.port import RunRows
from outlast.store.usage_sums import total
from tests.conformance import subject as make
from tests.conformance.subject import T0, TENANT, HandClock
from tests.lockstep.test_lockstep import RUNS, Dice, play

SEEDS = 40
KEYS = ("a", "b", "c")
OTHERS = ("memo", "wait", "approval", "shared", "open effect", "usage of a call")


class HolderDice(Dice):
    """Generator of commits as holders make them: of every kind that a holder keeps, in events of rising number.

    The label of a commit names the run whose holder makes it.
    """

    holder = ""

    @override
    async def commit(self) -> Commit:
        while True:
            self.holder = ""
            work = await super().commit()
            if not isinstance(work, Commit):
                continue  # a claim reads all rows, so nothing is applied
            first = work.writes[0]
            run = self.holder or (first.row.run if isinstance(first, Put) else "")  # type: ignore[union-attr]
            shared = [w.row for w in work.writes if isinstance(w, Put) and isinstance(w.row, Effect) and w.row.by_run]
            noted = [
                Put(USAGE, Usage(TENANT, run, effect.key, T0), 0)
                for effect in shared
                if await self.memory.load(USAGE, (TENANT, run, effect.key)) is None
            ]
            return work._replace(writes=(*work.writes, *noted), label=run)

    @override
    def moved(self, row: Run) -> list[Put | AppendMessage | Wake]:
        self.holder, how = row.run, self.random.random()
        after = make.ended(row) if how < 0.02 else make.moved(row, node=f"{how:.3f}", group_max=int(how * 10) % 3)
        replaces = self.version(row.version)
        after = after._replace(version=replaces + 1, seq=row.seq + 1, visit=row.visit + (how > 0.8))
        event = make.event_row(row.run, after.seq, snapshot=b"{}" if how < 0.6 else None)
        return [Put(RUN, after, replaces), Put(EVENT, event, 0)]

    @override
    async def other(self, kind: str, run: str) -> Put:
        self.holder = run
        kind, key, visit = self.random.choice(OTHERS), self.random.choice(KEYS), self.random.randrange(3)
        if kind == "memo":
            return Put(MEMO, Memo(TENANT, run, visit, key, "look", "d", b"%d" % self.reports, "", T0), 0)
        if kind == "wait":
            wait = await self.memory.load(WAIT, (TENANT, run, visit, key))
            version = self.version(wait.version if isinstance(wait, Wait) else 0)
            status = self.random.choice(list(WaitStatus))
            return Put(WAIT, Wait(TENANT, run, visit, key, version + 1, status, "receive", key, 0, 0, "", T0), version)
        if kind == "approval":
            approval = await self.memory.load(APPROVAL, (TENANT, run, key))
            version = self.version(approval.version if isinstance(approval, Approval) else 0)
            row = make.approval_row(key, run)._replace(version=version + 1)
            return Put(APPROVAL, row._replace(status=ApprovalStatus.WITHDRAWN) if version else row, version)
        if kind == "usage of a call":
            return self.used(run)
        return await self.effect(run, visit, key, shared=kind == "shared")

    async def effect(self, run: str, visit: int, key: str, *, shared: bool) -> Put:
        """Return an open or settled effect of the run, or of the run that a shared one belongs to."""
        of, visit = ("", 0) if shared else (run, visit)
        key = f"shared/{key}" if shared else key
        found = await self.memory.load(EFFECT, (TENANT, of, visit, key))
        before = found.version if isinstance(found, Effect) else 0
        row = make.effect_row(of, key, visit=visit)._replace(by_run=run if shared else "")
        if isinstance(found, Effect) and self.random.random() < 0.9:
            row = row._replace(by_run=found.by_run)  # else it was undone, and this run makes the call again
        version = self.version(before)
        if self.random.random() < 0.5:
            row = make.done(row)
        return Put(EFFECT, row._replace(version=version + 1, attempts=version + 1), version)


def differences(held: HeldRun, rows: RunRows, usage: list[CallUsage]) -> Iterator[str]:
    """Return what a holder has otherwise than one that reads the rows now."""
    again = HeldRun(rows)
    held.landed()
    # Other writers change these columns beside the holder.
    stored = rows.run._replace(inbox_seq=held.run.inbox_seq)
    if not stored.owner:
        stored = stored._replace(due_at=held.run.due_at)
    if held.run != stored:
        yield f"run {held.run} is stored as {stored}"
    for name in ("last", "group", "memos", "waits", "approvals", "noted"):
        if getattr(held, name) != getattr(again, name):
            yield f"{name}: {getattr(held, name)} is stored as {getattr(again, name)}"
    own = {ident: effect for ident, effect in held.effects.items() if effect.run}
    if own != {ident: effect for ident, effect in again.effects.items() if effect.run}:
        yield f"effects {own} are stored as {again.effects}"
    opened = [effect for effect in held.open_effects() if effect.run]
    if sorted(opened) != sorted(effect for effect in again.open_effects() if effect.run):
        yield f"open {opened} are stored as {again.open_effects()}"
    if held.usage_since != total(usage):
        yield f"usage {held.usage_since} is stored as {total(usage)}"


def differences_shared(held: HeldRun, rows: RunRows) -> Iterator[str]:
    """Return the shared effects that this commit wrote, and that its holder has in another place than a reader."""
    again = HeldRun(rows)
    mine = {key: effect for (_, key), effect in held.effects.items() if effect.by_run}
    stored = {key: effect for (_, key), effect in again.effects.items() if effect.by_run}
    for key in (*stored, *again.others):
        found, other = mine.get(key), held.others.get(key)
        written = stored.get(key) or again.others[key]
        if found == written and other is None and key in stored:
            continue
        if other == written and key in again.others:
            continue
        yield f"shared {key}: {found or other} is stored as {written}"


async def replay(seed: int, apply: Callable[[HeldRun, Commit], None] = HeldRun.apply) -> tuple[int, set[str]]:
    """Land the commits of one seed on an empty store, and compare each holder after each of them.

    Returns the number of landed commits and the kinds of their rows.
    """
    drawn = MemoryCore(HandClock())
    moves = await play(seed, drawn, drawn.store_clock._clock, HolderDice)  # type: ignore[arg-type]
    clock = HandClock()
    store, held, landed = MemoryStore(MemoryCore(clock), "again"), dict[str, HeldRun](), 0
    kinds: set[str] = set()
    for move in moves:
        if not move.outcome.startswith("Done"):
            continue
        assert isinstance(move.work, Commit)
        clock.time, run = move.at, move.work.label
        await store.commit(move.work)
        if not run:
            continue  # a message from outside
        landed += 1
        kinds |= {write.kind.name for write in move.work.writes if isinstance(write, Put)}
        (rows,) = await store.run_rows([(TENANT, run)])
        assert rows is not None
        if run not in held:
            held[run] = HeldRun(rows)
            continue
        apply(held[run], move.work)
        usage = await store.rows(CALL_USAGE, (TENANT, run))
        found = list(differences(held[run], rows, list(usage)))
        if any(isinstance(write, Put) and write.kind is USAGE for write in move.work.writes):
            written = {w.row.key for w in move.work.writes if isinstance(w, Put) and isinstance(w.row, Effect)}
            found += [each for each in differences_shared(held[run], rows) if each.split()[1][:-1] in written]
        assert not found, f"{found} after {move.work}"
    assert set(held) == set(RUNS)
    return landed, kinds


@pytest.mark.req("EFF-1", "RUN-3")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_holder_has_the_rows_that_its_commits_left(seed: int) -> None:
    asyncio.run(replay(seed))


def test_the_commits_write_every_kind_that_a_holder_keeps() -> None:
    """A generator that leaves a kind out would compare nothing of it."""
    landed, kinds = 0, set[str]()
    for seed in range(SEEDS):
        more, of_seed = asyncio.run(replay(seed))
        landed, kinds = landed + more, kinds | of_seed
    assert landed > SEEDS * 30
    assert kinds >= {"run", "event", "effect", "memo", "wait", "approval", "usage", "call_usage"}


@pytest.mark.parametrize("kind", ["run", "event", "effect", "memo", "wait", "approval", "usage", "call_usage"])
def test_a_kind_of_row_that_is_not_applied_is_found(kind: str) -> None:
    """The comparison sees each kind: if `apply` forgets it, some seed shows that."""

    def forgetful(held: HeldRun, commit: Commit) -> None:
        writes = (w for w in commit.writes if not (isinstance(w, Put) and w.kind.name == kind))
        HeldRun.apply(held, commit._replace(writes=tuple(writes)))

    async def every_seed() -> None:
        for seed in range(SEEDS):
            await replay(seed, forgetful)

    with pytest.raises(AssertionError, match="stored as"):
        asyncio.run(every_seed())
