"""A holder's session with one run: its rows, the chain of its commits, and its late records.

`held_run` keeps the rows, `commit_chain` brings commits into the store, `late_records` writes facts that need no
claim. Each begins with its faults and why they do no harm. The session makes the three, and reads beside them.
"""

from collections.abc import Collection, Sequence

from outlast.core import budget
from outlast.core.clock_port import Clock
from outlast.core.commit import Commit, Put, actions_of, in_portions
from outlast.core.failed_calls import EffectKey
from outlast.core.limits import ACTIONS_MAX, LARGE_ITEMS_MAX
from outlast.core.rows.run_rows import EVENT, MESSAGE, STATE_CHUNK, Event, Message
from outlast.core.run_transition import fence
from outlast.core.state.snapshot_codec import StateChunk
from outlast.core.usage import Amounts, Used
from outlast.engine.commit_chain import CommitChain, ConditionFailed, RunLost
from outlast.engine.held_run import HeldRun
from outlast.engine.holder_clock import HolderClock
from outlast.engine.late_records import LateRecords
from outlast.engine.snapshots import SnapshotStore
from outlast.store.port import RunRows, Store
from outlast.store.usage_sums import RunUsage, TreeUsage
from outlast.telemetry.observer import Observer


class RunSession:
    """The parts of one held run. Other modules change its parts through their methods alone."""

    __slots__ = ("_owner", "_snapshots", "chain", "clock", "held", "late", "newest", "store")

    def __init__(
        self,
        store: Store,
        rows: RunRows,
        clock: Clock,
        watch: Observer | None = None,
        newest: Event | None = None,
    ) -> None:
        """Create the session of a claimed run. `newest`: the last event of its history, if it was read."""
        self.store = store
        self.clock = HolderClock(store, clock, rows.now)
        self.held = HeldRun(rows)
        self.late = LateRecords(store, rows.run.run, self.clock)
        self.chain = CommitChain(store, self.held, self.late, self.clock, watch)
        self.newest = newest
        self._owner = rows.run.owner
        self._snapshots = SnapshotStore(store, rows.run.tenant, rows.run.run)

    async def reload(self) -> None:
        """Read all rows again. Raises RunLost if this holder no longer holds the run."""
        run = self.held.run
        (rows,) = await self.store.run_rows([(run.tenant, run.run)])
        if rows is None or rows.run.epoch != run.epoch or rows.run.owner != self._owner:
            raise RunLost
        self.chain.begin()
        self.held.renew(rows)
        self.clock.hear(rows.now)

    async def abandon(self) -> None:
        """Wait for submitted commits of a lost run. Answers that came too late become evidence."""
        unsent = self.late.give_up()  # first: no call may begin while the chain settles
        try:
            await self.chain.settled()
        except (RunLost, ConditionFailed):
            pass  # expected: the run is lost
        await self.late.record_unsent(unsent)

    async def newest_event(self) -> Event | None:
        """Return the last event according to the run row, or None if it is missing. Raises StoreError, Corrupt."""
        run, newest = self.held.run, self.newest
        self.newest = None
        if newest is not None and newest.seq == run.seq:
            return newest
        return await self.store.load(EVENT, (run.tenant, run.run, run.seq))

    # --- usage ----------------------------------------------------------------------------------
    async def used(self) -> Amounts:
        """Return the sum of the run's usage rows. Raises StoreError."""
        held = self.held
        if held.usage_before is not None:
            return held.usage_before.plus(held.usage_since)
        run, until = held.run, held.usage_read
        return held.add_usage_before(await self.store.query(RunUsage(run.tenant, run.run, run.epoch, until)))

    async def used_in_tree(self) -> Amounts:
        """Return the sum of the usage rows of the run's tree. Raises StoreError."""
        run = self.held.run
        others = await self.store.query(TreeUsage(run.tenant, run.root or run.run, but=run.run))
        return others.plus(await self.used())

    def usage_puts(self, ident: EffectKey, activity: str, used: list[Used]) -> tuple[Put, ...]:
        """Return the rows of usage that a call has reported, and empty the list."""
        return self.held.usage_puts(ident, activity, used, self.clock.now)

    def submit_usage(self, ident: EffectKey, activity: str, used: list[Used]) -> None:
        """Commit the usage of an attempt that leaves no other row, without waiting."""
        self.chain.submit(budget.record_usage(self.held.run, self.usage_puts(ident, activity, used)))

    # --- states ---------------------------------------------------------------------------------
    def state_in_memory(self) -> bytes | None:
        """Return the state in the newest checkpoint, or None if `state` must read it."""
        return self._snapshots.in_memory(self.held.last.snapshot)

    async def state(self) -> bytes:
        """Return the state in the newest checkpoint. Raises Corrupt if a chunk does not match its hash."""
        return await self._snapshots.read(self.held.last.snapshot)

    async def snapshot_of(self, state: bytes) -> tuple[bytes, tuple[StateChunk, ...]]:
        """Return the snapshot of a state, and the chunks that `with_chunks` adds to the commit (CKP-3)."""
        return await self._snapshots.write(state, self.clock.now.business)

    async def with_chunks(self, commit: Commit, values: Sequence[StateChunk]) -> Commit:
        """Return a commit together with the chunks that its snapshot names.

        Chunks that do not fit land before it, under the same claim. If the holder dies in between, no snapshot names
        them; the next one to write the same state finds them. Raises RunLost, ConditionFailed, StoreAway.
        """
        groups = in_portions(Put(STATE_CHUNK, value, 0) for value in values)
        fits = groups and actions_of(commit, LARGE_ITEMS_MAX) + len(groups[-1]) <= ACTIONS_MAX
        for puts in groups[:-1] if fits else groups:
            run = self.held.run
            await self.chain.land(Commit(puts, fence(run), label=f"{run.run} keep {run.node}#{run.visit}"))
            groups = groups[1:]
        return commit._replace(writes=(*commit.writes, *groups[0])) if groups else commit

    # --- messages -------------------------------------------------------------------------------
    async def new_messages(self) -> tuple[Message, ...]:
        """Read the messages after those of this execution. They do not become part of it."""
        from_ = (self.held.run.tenant, self.held.run.run)
        return await self.store.rows(MESSAGE, from_, after=(*from_, self.held.inbox_read))

    async def pass_over(self, asked: Collection[str]) -> bool:
        """Read the new messages, and count them as read if they concern none of the `asked` waits (S-1).

        Returns True if a commit that was refused because of them may be tried again.
        """
        messages = await self.new_messages()
        if not messages or any(n.kind != "signal" or n.name in asked for n in messages):
            return False
        await self.chain.go_on()
        self.held.add_messages(messages)
        return True
