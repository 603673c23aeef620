"""Invariants, checked with every commit, every request and every action of a receiver.

No check asks the code under test. Each compares the rows before and after, their writer, the store's clock, and the
records of the receivers.
"""

import json
from collections import defaultdict
from typing import Any, Final

from outlast.core.commit import Instant
from outlast.core.compensation import can_undo
from outlast.core.keys import idempotency_key
from outlast.core.machine import (
    ENDED,
    OVERLAY_ONLY,
    TABLE,
    TERMINAL,
    ApprovalStatus,
    EffectStatus,
    LeaseStatus,
    Reason,
    RunStatus,
    WaitStatus,
)
from outlast.core.mailbox import REOPENED
from outlast.core.quarantine import group_of
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, WAIT, Approval, Effect, Wait
from outlast.core.rows.limit_rows import SLOT, Slot
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import EVENT, MESSAGE, RUN, Event, Message, Run
from outlast.core.rows.store_rows import STORE, WORKER, Worker
from outlast.store.batch import Batch
from outlast.store.memory import MemoryStore
from outlast.upkeep.fsck import violations
from tests.simulation.environment import IN_THE_AIR, Environment
from tests.simulation.loop import PROC
from tests.simulation.people import People, allowed
from tests.simulation.receivers import Receivers

LEGAL: Final = frozenset((move.source, move.target) for move in TABLE)
OPEN: Final = (EffectStatus.INTENDED, EffectStatus.UNCERTAIN)


class Watch:
    """Invariants of one seed."""

    def __init__(self, env: Environment, receivers: Receivers, people: People) -> None:
        self.env = env
        self.rows = env.core.rows
        self.receivers = receivers
        self.people = people
        self.ended = 0
        self._effects: dict[str, tuple[str, str, int, str]] = {}  # idempotency key -> key of its row
        self._human: dict[str, int] = defaultdict(int)  # decisions of people that allow one more execution
        self._flags: dict[tuple[str, str], list[Attention]] = defaultdict(list)
        self._consumed: dict[str, str] = {}
        self._intended_at: dict[str, Instant] = {}  # the last attempt of each effect
        self._drifted: dict[tuple[Any, ...], str] = {}  # key of the first call that a body with wrong keys has sent
        self._cancelled_first: set[str] = set()  # intents that landed after a cancel
        env.core.seen = self._seen
        receivers.on_send = self._sent
        receivers.on_execute = self._executed

    def wrong(self, number: str, what: str) -> None:
        self.env.fail(f"{number}: {what}")

    # --- commits -----------------------------------------------------------------------------------
    def _seen(self, batch: Batch) -> None:
        changes = batch.changes
        for key, left in changes[RUN.name].items():
            self._run(self.rows.get(RUN, key), left.row, batch)  # type: ignore[arg-type]
        for key, left in changes[EFFECT.name].items():
            self._effect(self.rows.get(EFFECT, key), left.row, batch)  # type: ignore[arg-type]
        for key, left in changes[APPROVAL.name].items():
            self._approval(self.rows.get(APPROVAL, key), left.row, batch)  # type: ignore[arg-type]
        for key, left in changes[WAIT.name].items():
            self._wait(self.rows.get(WAIT, key), left.row, batch)  # type: ignore[arg-type]
        for key, left in changes[WORKER.name].items():
            self._worker(self.rows.get(WORKER, key), left.row, batch)  # type: ignore[arg-type]
        for left in changes[MESSAGE.name].values():
            self._note(left.row)  # type: ignore[arg-type]
        if changes[SLOT.name]:
            self._slots(batch)

    def _holds(self, run: Run | None, what: str) -> None:
        """Check that the writing process holds the run."""
        by = self.env.core.landing
        if run is None or (by.worker and run.owner != by.name):
            self.wrong(
                "I11", f"{by.name} wrote {what}, which is held by {run.owner or 'no worker' if run else 'no worker'}"
            )

    def _run(self, old: Run | None, new: Run, batch: Batch) -> None:
        if old is None:
            self.people_about(new)
            return
        now, by = batch.now, self.env.core.landing
        if old.owner == ENDED:
            self.wrong("I10", f"{new.run} has ended and was written")
        if new.version == old.version:
            if old._replace(inbox_seq=new.inbox_seq, due_at=new.due_at) != new or new.inbox_seq < old.inbox_seq:
                self.wrong("I9", f"{new.run} changed without a version")
            return
        self.env.say("%s: %s -> %s v%d epoch %d owner %s due %s", new.run, old.status.value, new.status.value,
                        new.version, new.epoch, new.owner, new.due_at and new.due_at - now.real)  # fmt: skip
        if new.version != old.version + 1 or new.epoch < old.epoch:
            self.wrong("I9", f"{new.run} went from version {old.version} to {new.version}, epoch {new.epoch}")
        if (old.status, new.status) not in LEGAL:
            self.wrong("I10", f"{new.run} went from {old.status} to {new.status}")
        seqs = sorted(key[2] for key in batch.changes[EVENT.name] if key[:2] == new[:2])
        if seqs != list(range(old.seq + 1, new.seq + 1)) or not seqs:
            self.wrong("I21", f"{new.run}: events {seqs} between {old.seq} and {new.seq}")
        if not by.worker:
            self.wrong("I12", f"{by.name} moved {new.run}")
        if new.owner == by.name and (old.owner != by.name or new.epoch != old.epoch):
            self._claimed(old, new, now.real)
            self._together(new)
        elif by.worker and new.owner == "" and old.owner not in ("", by.name):
            self._claimed(old, new, now.real)  # queued for any worker: the same conditions
        else:
            self._holds(old, new.run)
            if new.owner == "" and (new.due_at is None or new.due_at > now.real):
                self._asleep(new, batch)
        self._attention(old, new)
        if new.status in TERMINAL:
            self._ended(new, batch)

    def _claimed(self, old: Run, new: Run, real: int) -> None:
        if new.epoch <= old.epoch:
            self.wrong("I11", f"{new.run} was claimed at the same epoch {new.epoch}")
        due = old.due_at is not None and old.due_at <= real
        owner = self.rows.get(WORKER, (STORE, old.owner)) if old.owner else None
        closed = isinstance(owner, Worker) and owner.status is LeaseStatus.CLOSED
        if not due and not closed:
            self.wrong("I12", f"{new.run} was taken from {old.owner or 'no worker'}, not due and not closed")

    def _together(self, new: Run) -> None:
        """Check that no worker owns more runs than any of them allows (S-5)."""
        held = [run for run in self.rows.owned(new.owner) if run[:2] != new[:2]]
        groups = [group for run in (*held, new) if (group := group_of(run))]
        if groups and len(held) + 1 > min(groups):
            self.wrong("S-5", f"{new.owner} took {new.run} beside {len(held)} others; of a group of {min(groups)}")

    def _asleep(self, new: Run, batch: Batch) -> None:
        """Check that a parked run has no unread message (S-1)."""
        notes = [n for n in self.rows.under(MESSAGE, new[:2]) if isinstance(n, Message)]
        stops = [a for a in new.attention if a.reason not in OVERLAY_ONLY]
        if stops or new.status is not RunStatus.WAITING:
            return
        if any(n.kind == "cancel" for n in notes):
            self.wrong("S-1", f"{new.run} sleeps with a cancel unread")
        waits = [w for w in self.rows.under(WAIT, new[:2]) if isinstance(w, Wait)]
        spent = {n for w in waits for n in w.binding or ()}
        for wait in waits:
            asks = wait.visit == new.visit and wait.status is WaitStatus.OPEN and wait.kind == "receive"
            if asks and any(_fits(n, wait) and n.n not in spent for n in notes):
                self.wrong("S-1", f"{new.run} sleeps though {wait.name} has come")

    def _attention(self, old: Run, new: Run) -> None:
        """Check that a flagged run continues only after an answer (I6)."""
        before = old.attention
        for each in new.attention:
            if each not in before:
                self.env.say("%s calls: %s %s", new.run, each.reason.value, each.detail[:300])
                if each.reason not in OVERLAY_ONLY:
                    self._flags[new[:2]].append(each)
                if not allowed(new.workflow, each.reason):
                    self.wrong("engine", f"{new.run} calls a person for {each.reason.value}: {each.detail}")
        if new.attention and new.attention != before:
            self.people.flagged(new)
        if new.visit == old.visit and new.status is not RunStatus.COMPLETED:
            return
        for each in self._flags.pop(new[:2], []):
            if not self._answered(new, each):
                self.wrong("I6", f"{new.run} moved on without an answer to {each.reason.value} {each.key}")

    def _answered(self, run: Run, each: Attention) -> bool:
        if each.reason is Reason.EFFECT_UNCERTAIN:
            effect = self.rows.get(EFFECT, (run.tenant, run.run, each.visit, each.key))
            key = idempotency_key(run.tenant, run.run, each.visit, each.key)
            return isinstance(effect, Effect) and effect.status not in OPEN and self._human[key] > 0
        notes = self.rows.under(MESSAGE, run[:2])
        return any(isinstance(n, Message) and n.n > each.seen and n.kind in ("continue", "answer") for n in notes)

    def _ended(self, new: Run, batch: Batch) -> None:
        self.ended += 1
        for row in self.rows.under(EFFECT, new[:2]):
            assert isinstance(row, Effect)
            if row.status in OPEN:
                self.wrong("I35", f"{new.run} ended {new.status} with {row.key} {row.status}")

    # --- effects -----------------------------------------------------------------------------------
    def _effect(self, old: Effect | None, new: Effect, batch: Batch) -> None:
        by, now = self.env.core.landing, batch.now
        key = idempotency_key(new.tenant, new.run, new.visit, new.key)
        self._effects[key] = new[:4]
        run = self.rows.get(RUN, new[:2])
        assert isinstance(run, Run)
        source = old.status if old else None
        self.env.say("effect %s: %s -> %s attempt %d %s", key, source and source.value, new.status.value,
                        new.attempts, new.error_text)  # fmt: skip
        if (source, new.status) not in LEGAL or new.version != (old.version if old else 0) + 1:
            self.wrong("I10", f"{key} went from {source} to {new.status}, version {new.version}")
        if run.owner == ENDED:
            self.wrong("I10", f"{key} was written after the end of its run")
        if by.worker:
            self._holds(run, key)
            if source is EffectStatus.UNCERTAIN:
                self.wrong("I5", f"{key} is no longer uncertain, and no person said so")
        elif source is EffectStatus.UNCERTAIN or (source is EffectStatus.REFUSED and REOPENED in new.error_text):
            self._human[key] += 1
            assert old is not None
            if source is EffectStatus.UNCERTAIN and REOPENED in new.error_text and now.real < old.settle_after:
                self.wrong(
                    "EFF-3", f"{key}: «did not happen» {old.settle_after - now.real} ms before the settle time ends"
                )
        elif new.status is not EffectStatus.UNDONE and not new.undoes:  # undone by hand: the person says so
            self.wrong("I5", f"{by.name} settled {key}, which was {source}")
        if new.status is EffectStatus.INTENDED and (old is None or new.attempts > old.attempts):
            self._intended(key, new, run)
            self._intended_at[key] = now
        if new.approval and self._consumed.setdefault(new.approval, key) != key:
            self.wrong("I27", f"{new.approval} was consumed by {self._consumed[new.approval]} and by {key}")

    def _intended(self, key: str, new: Effect, run: Run) -> None:
        if new.epoch != run.epoch:
            self.wrong("I11", f"{key} was intended at epoch {new.epoch}, the run is at {run.epoch}")
        notes = self.rows.under(MESSAGE, new[:2])
        if new.attempts == 1 and not new.undoes and any(isinstance(n, Message) and n.kind == "cancel" for n in notes):
            self._cancelled_first.add(key)

    def _sent(self, key: str, args: dict[str, Any]) -> None:
        """Check a request: intended with exactly these arguments, and within its deadline (I2, I7, S-4)."""
        place = self._effects.get(key)
        row = self.rows.get(EFFECT, place) if place else None
        if not isinstance(row, Effect):
            self.wrong("I2", f"{key} is sent, and no intent is durable")
            return
        if row.status is not EffectStatus.INTENDED:
            self.wrong("I2", f"{key} is sent while it is {row.status}")
        now = self.env.now()
        if now >= row.not_after:
            self.wrong("I2", f"{key} is sent {now - row.not_after} ms after its last moment")
        run = self.rows.get(RUN, row[:2])
        proc = PROC.get(self.env.home)
        if isinstance(run, Run) and run.owner != proc.name:
            self.wrong("I12", f"{key} is sent by {proc.name}, and its run is held by {run.owner or 'no worker'}")
        if row.undoes:
            self._undo_sent(key, row)
        if (
            key in self._cancelled_first and row.attempts == 1
        ):  # a successor repeats what it finds open, to undo it (S-19)
            self.wrong("I35", f"{key} is sent though a cancel came before its intent")
        if str(args["what"]).startswith("drift-"):
            site = (*row[:3], row.activity)
            if self._drifted.setdefault(site, row.key) != row.key:
                self.wrong("EFF-9", f"{row.key} is sent after {self._drifted[site]}, in the same visit")
        if json.loads(row.args) != args:
            self.wrong("I3", f"{key} is sent with {args}, intended with {row.args!r}")
        if row.activity == "pay":
            self._approved(key, row)

    def _undo_sent(self, key: str, undo: Effect) -> None:
        """Check that undo goes backwards over finished effects, once nothing is open (I34)."""
        for row in self.rows.under(EFFECT, undo[:2]):
            assert isinstance(row, Effect)
            if row.undoes:
                continue
            this = f"{row.visit}:{row.key}" == undo.undoes
            if row.status in OPEN or (this and row.status is not EffectStatus.DONE):
                self.wrong("I34", f"{key} is sent while {row.key} is {row.status}")
            if row.status is EffectStatus.DONE and can_undo(row) and not this and row.ordinal > self._ordinal(undo):
                self.wrong("I34", f"{key} is sent before what came after it, {row.key}, is undone")

    def _ordinal(self, undo: Effect) -> int:
        visit, _, key = undo.undoes.partition(":")
        row = self.rows.get(EFFECT, (undo.tenant, undo.run, int(visit), key))
        return row.ordinal if isinstance(row, Effect) else 0

    def _approved(self, key: str, row: Effect) -> None:
        approval = self.rows.get(APPROVAL, (row.tenant, row.run, row.approval)) if row.approval else None
        if not isinstance(approval, Approval) or approval.status is not ApprovalStatus.APPROVED:
            self.wrong("I7", f"{key} is sent without an approval")
            return
        plan = next(p for p in approval.plans if p.digest == approval.chosen)
        if plan.arguments() != json.loads(row.args):
            self.wrong("I27", f"{key} is sent with {row.args!r}, approved was {plan.arguments_text}")
        at = self._intended_at[key]  # the holder cannot know of a skip that lands after the intent
        if at.business + self.env.now() - at.real >= approval.valid_until:
            self.wrong("S-20", f"{key} is sent after its approval lapsed")

    def _executed(self, key: str) -> None:
        """Check that the receiver acted once, unless a person or a call in flight explains it (I1)."""
        times = len(self.receivers.executed[key])
        late = self.receivers.longest_air[key] > IN_THE_AIR and self.receivers.modes[key] != "ask"
        if times > 1 + self._human[key] and not late:
            self.wrong("I1", f"{key} was executed {times} times, after {self._human[key]} decisions of people")

    # --- approvals, waits, notes, workers, slots -------------------------------------------------------
    def _approval(self, old: Approval | None, new: Approval, batch: Batch) -> None:
        by, now = self.env.core.landing, batch.now
        source = old.status if old else None
        self.env.say("approval %s: %s -> %s", new.id, source and source.value, new.status.value)
        if (source, new.status) not in LEGAL:
            self.wrong("I26", f"{new.id} went from {source} to {new.status}")
        if old is None:
            self.people.asked(new)
            self._holds(self.rows.get(RUN, new[:2]), new.id)  # type: ignore[arg-type]
            return
        if old.decided_by and (new.decided_by, new.decided_at, new.chosen) != (
            old.decided_by, old.decided_at, old.chosen,
        ):  # fmt: skip
            self.wrong("I26", f"{new.id} was decided by {old.decided_by} and then by {new.decided_by}")
        decided = source is ApprovalStatus.PENDING and new.status in (
            ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.AGAIN,
        )  # fmt: skip
        if decided and (by.worker or not new.decided_by or now.business >= new.within_until):
            self.wrong("I28", f"{new.id} was {new.status} by {new.decided_by or by.name}, "
                              f"{now.business - new.within_until} ms after it expired")  # fmt: skip
        if new.status is ApprovalStatus.EXPIRED and now.business < new.within_until:
            self.wrong("I28", f"{new.id} expired {new.within_until - now.business} ms too early")

    def _wait(self, old: Wait | None, new: Wait, batch: Batch) -> None:
        self._holds(self.rows.get(RUN, new[:2]), new.key)  # type: ignore[arg-type]
        if old is None:
            self.people.waits(new)
            return
        if (old.status, new.status) not in LEGAL:
            self.wrong("S-14", f"{new.run} {new.key} went from {old.status} to {new.status}")
        others = [w for w in self.rows.under(WAIT, new[:2]) if isinstance(w, Wait) and w[:4] != new[:4]]
        spent = {n for w in others for n in w.binding or ()}
        if spent & set(new.binding or ()):
            self.wrong("S-14", f"{new.run} {new.key} is bound to a note that another wait was bound to")
        if new.binding is not None:
            return
        if batch.now.business < new.deadline:
            self.wrong("S-14", f"{new.run} {new.key} ended {new.deadline - batch.now.business} ms too early")
        notes = [n for n in self.rows.under(MESSAGE, new[:2]) if isinstance(n, Message)]
        if new.kind == "receive" and any(_fits(n, new) and n.n not in spent for n in notes):
            self.wrong("S-14", f"{new.run} {new.key} ended by its deadline, and a note had come before")

    def _note(self, new: Message) -> None:
        if new.signal_id and any(
            isinstance(n, Message) and n.signal_id == new.signal_id for n in self.rows.under(MESSAGE, new[:2])
        ):
            self.wrong("EFF-6", f"signal {new.signal_id} was left twice")

    def _worker(self, old: Worker | None, new: Worker, batch: Batch) -> None:
        if old is None:
            return
        if old.status is LeaseStatus.CLOSED:
            self.wrong("I12", f"{new.id} was closed and was written")
        by = self.env.core.landing
        if new.status is LeaseStatus.CLOSED and by.name != new.id and old.lease_until > batch.now.real:
            self.wrong("I12", f"{by.name} closed {new.id}, whose lease lasts {old.lease_until - batch.now.real} ms")

    def _slots(self, batch: Batch) -> None:
        for row in self.rows.under(SLOT, ()):
            left = batch.changes[SLOT.name].get(row[:2])
            slot = left.row if left else row
            assert isinstance(slot, Slot)
            if not slot.holder:
                continue
            place = (slot.holder_tenant, slot.holder)
            moved = batch.changes[RUN.name].get(place)
            run = moved.row if moved else self.rows.get(RUN, place)
            if not isinstance(run, Run) or run.status in TERMINAL:
                self.wrong("I32", f"slot {slot.tenant}/{slot.i} is held by {slot.holder}, which has ended")
        names = [name for row in self.rows.under(RUN, ()) if isinstance(row, Run) for name in row.slots]
        if len(set(names)) < len(names):
            self.wrong("I32", f"two runs were admitted to one slot: {names}")

    def people_about(self, run: Run) -> None:
        """Record that a run was started."""
        self.env.say("%s of %s is started", run.run, run.workflow)

    # --- the end -----------------------------------------------------------------------------------
    def ask_fsck(self) -> None:
        """Run `outlast fsck` on the rows of every run."""
        core = self.env.core
        for run in self.rows.under(RUN, ()):
            rows = self.people.store.snapshot(run[:2])
            history = [row for row in self.rows.under(EVENT, run[:2]) if isinstance(row, Event)]
            for found in violations(rows, history, mapping=core.mapping(), skew=MemoryStore.skew):
                self.wrong(f"fsck {found.check}", f"{found.kind} {found.key}: {found.text}")

    def at_the_end(self) -> None:
        """Check at the end that the ledger matches the receivers and nothing is left."""
        for row in self.rows.under(EFFECT, ()):
            assert isinstance(row, Effect)
            key = idempotency_key(row.tenant, row.run, row.visit, row.key)
            done = self.receivers.executed.get(key, [])
            answer = row.response if row.status is EffectStatus.DONE and not row.undoes else None
            if answer is not None and json.loads(answer) not in [each.response for each in done]:
                self.wrong("I4", f"{key} is recorded as done, {row.response!r}; executed: {done}")
            run = self.rows.get(RUN, row[:2])
            early = isinstance(run, Run) and run.status in (RunStatus.CANCELLED, RunStatus.FAILED)
            if early and row.status is EffectStatus.DONE and can_undo(row) and not row.undoes:
                self.wrong("I34", f"{key} is not undone, and its run ended early")
            in_time = [each for each in done if each.air_ms <= IN_THE_AIR]
            if row.status is EffectStatus.REFUSED and in_time and not self._human[key]:
                self.wrong("I4", f"{key} is recorded as refused, {row.error_text}; it was executed")
        left = {(n.run, n.signal_id) for n in self.rows.under(MESSAGE, ()) if isinstance(n, Message)}
        if lost := self.people.acknowledged - left:
            self.wrong("I8", f"signals {sorted(lost)} were acknowledged and are gone")
        for slot in self.rows.under(SLOT, ()):
            assert isinstance(slot, Slot)
            if slot.holder:
                self.wrong("I32", f"slot {slot.tenant}/{slot.i} is still held by {slot.holder}")


def _fits(note: Message, wait: Wait) -> bool:
    return note.kind == "signal" and note.name == wait.name and (not wait.deadline or note.at < wait.deadline)
