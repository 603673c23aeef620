"""Transition coverage is 100 %: every row of the table of moves is fired here by the verb that speaks it."""

import asyncio
from collections.abc import Callable, Iterable

import pytest

from outlast.clocks import VirtualClock
from outlast.core import approvals, effect_verbs, first_wait, machine, mailbox, recovery, run_transition
from outlast.core.commit import Commit
from outlast.core.durations import Liveness
from outlast.core.machine import TABLE, ApprovalStatus, Choice, EffectStatus, RunStatus, Transition
from outlast.core.rows.effect_rows import EFFECT, Approval, Effect
from outlast.core.rows.run_rows import Run
from outlast.core.verbs import claim
from outlast.engine.lease import Heartbeat, Lease
from outlast.store.memory import MemoryCore, MemoryStore
from tests.core.drive import INTENT, Drive
from tests.core.test_deliveries import every_move
from tests.models.world import MAPPING, at, born, find, run_of

GIVES = ("park", "retry", "await_settle", "hand_back", "requeue", "flag", "queue")
ENDS = {"complete": RunStatus.COMPLETED, "fail": RunStatus.FAILED, "cancel": RunStatus.CANCELLED}


def running() -> Drive:
    return Drive().start().claim()


def recovering() -> Drive:
    return running().take_over()


def asked() -> Drive:
    return running().ask()


def holding(make: Callable[[], Drive]) -> None:
    """Every move of a held run."""
    for verb in GIVES:
        make().give(verb)
    for outcome in ENDS.values():
        make().finish(outcome)
    make().advance()
    make().log()
    make().admit()
    make().move_version()
    make().take_over()


def effects() -> None:
    for verb in ("record", "settle", "refuse", "mark_uncertain", "defer"):
        running().intend().settle(verb)
    running().intend().intend()
    running().intend().settle("refuse").reopen().intend().settle("record")
    for verb in ("happened", "did_not_happen", "give_up"):
        running().intend().settle("mark_uncertain").resolve(verb)


def shared_effects() -> None:
    """Use a tenant-wide effect from another run; or undo it and let another run repeat it."""
    intent = INTENT._replace(visit=0, shared=True)
    for verb in ("use", "reserve_undo"):
        drive = running()
        drive.speak(effect_verbs.intend(drive.run, intent, None, ordinal=1, now=at(1)))
        drive.speak(effect_verbs.record(drive.run, shared_effect(drive), b"1", now=at(1)))
        drive.speak(born("q")).speak(claim(run_of(drive.rows, "q"), worker="v", now=at(1), claim_ms=600_000))
        other, done = run_of(drive.rows, "q"), shared_effect(drive)
        if verb == "use":
            drive.speak(effect_verbs.use(other, done, noted=False, now=at(1)))
        else:
            drive.speak(Commit((effect_verbs.reserve_undo(done),), run_transition.fence(drive.run)))
            undone = shared_effect(drive)._replace(status=EffectStatus.UNDONE)
            drive.rows = tuple(undone if isinstance(row, Effect) else row for row in drive.rows)
            drive.speak(effect_verbs.intend(other, intent, undone, ordinal=1, now=at(2)))
            again = shared_effect(drive)
            assert (again.by_run, again.attempts, again.first_at, again.redone, again.shared) == ("q", 1, 2, 1, 0)


def shared_effect(drive: Drive) -> Effect:
    row = find(drive.rows, EFFECT, "", 0, "k")
    assert isinstance(row, Effect)
    return row


def waits_and_approvals() -> None:
    drive = running().post().declare()
    drive.speak(effect_verbs.bind(drive.run, drive.wait, (1,), inbox_seq=1, complete=True))
    closed = running().declare()
    closed.speak(Commit((first_wait.closed(closed.wait),), run_transition.fence(closed.run)))
    asked().decide("reject")
    asked().decide("again")
    asked().decide("approve").intend(approved=True).settle("record")
    asked().decide("approve").finish(RunStatus.CANCELLED)
    several = asked()
    several.speak(approvals.acknowledge(several.approval, by="p").commit)
    several.speak(approvals.reassign(several.approval, who="lead", by="p", reason="on holiday").commit)
    several.rows = tuple(r._replace(quorum=2) if isinstance(r, Approval) else r for r in several.rows)
    assert several.decide("approve").approval.status is ApprovalStatus.PENDING
    assert several.decide("approve", "q").approval.status is ApprovalStatus.APPROVED
    drive = asked()
    drive.speak(mailbox.cancel(drive.run, [drive.approval], actor="p", reason="", now=at(drive.t)))
    drive = asked()
    drive.t = drive.approval.within_until
    drive.speak(approvals.expire(drive.approval, at(drive.t), fence=run_transition.fence(drive.run, inbox_seq=0)))


def answers_of_people() -> None:
    """A person's answer is corrected until it is given, or does not count because it cannot be loaded."""
    verbs = ("happened", "did_not_happen", "give_up")

    def doubtful() -> Drive:
        return running().intend().settle("mark_uncertain")

    for first in verbs:
        for second in verbs:
            drive = doubtful().resolve(first).resolve(second)
            assert drive.effect.status is (EffectStatus.DONE if second == "happened" else EffectStatus.REFUSED)
            drive.speak(effect_verbs.give(drive.run, drive.effect))
            assert drive.effect.shared == 0 and not mailbox.may_answer(drive.effect)
    drive = doubtful().resolve("happened")
    drive.speak(effect_verbs.reject_answer(drive.run, drive.effect, "no"))
    assert (drive.effect.status, drive.effect.response) == (EffectStatus.UNCERTAIN, None)
    drive.resolve("happened")


def restores() -> None:
    """Restore a backup: a person continues each run, and open effects stay open or uncertain."""
    undoing = running()
    undoing.rows = tuple(
        row._replace(status=RunStatus.COMPENSATING) if isinstance(row, Run) else row for row in undoing.rows
    )
    for drive in (Drive().start(), running(), Drive().start().claim().give("park"), recovering(), undoing):
        drive.speak(recovery.restore_run(drive.run, (), generation=2, actor="p", now=at(drive.t), mapping=MAPPING))
        assert (drive.run.owner, drive.run.restored) == ("", 2)
    reopened = running().intend().settle("refuse").reopen()
    for drive in (running().intend(), running().intend().settle("mark_uncertain"), reopened):
        doubtful = (drive.effect,)
        assert recovery.may_have_changed(drive.effect)
        drive.speak(
            recovery.restore_run(drive.run, doubtful, generation=2, actor="p", now=at(drive.t), mapping=MAPPING)
        )
        after = EffectStatus.UNCERTAIN if doubtful[0].status is EffectStatus.UNCERTAIN else EffectStatus.INTENDED
        assert (drive.effect.status, drive.effect.settled_at) == (after, 0)
        assert drive.effect.settle_after >= drive.t + recovery.QUIET, "it may have happened in the lost time"
    for verb in ("record", "refuse"):
        assert not recovery.may_have_changed(running().intend().settle(verb).effect), "a recorded answer is trusted"


def compensating() -> Drive:
    """It did `k`, and how it ends is decided."""
    return running().intend().settle("record").compensate()


def undoing() -> None:
    """An undo by a call, or by hand after it was refused, doubted, or never called."""
    for verb in GIVES:
        if verb != "queue":
            compensating().give(verb)
    compensating().take_over()
    recovering().compensate()
    for outcome in (RunStatus.FAILED, RunStatus.CANCELLED):
        compensating().intend_undo().settle_undo("record").finish(outcome)
    compensating().intend_undo().settle_undo("settle")
    for failed in ("refuse", "mark_uncertain"):
        for choice in (Choice.RETRY, Choice.DONE_BY_HAND):
            compensating().intend_undo().settle_undo(failed).answer_undo(choice)
    compensating().withhold().answer_undo(Choice.RETRY).withhold().answer_undo(Choice.DONE_BY_HAND)


def transfers() -> None:
    """Its scheduler changes while no worker holds it; the claim before can write nothing more."""
    Drive().start().transfer().claim()
    for drive in (running().give("park"), running().give("await_settle"), compensating().give("park")):
        before = drive.run
        after = drive.transfer().run
        assert (after.lane, after.epoch, after.due_at) == (
            f"temporal:{before.lane}",
            before.epoch + 1,
            at(drive.t).real,
        )
        assert (after.visit, after.status, after.owner) == (before.visit, before.status, "")


def notes_of_forks() -> None:
    """A fork is noted with and without a holder: owner, epoch, visit and wait stay, and the version rises."""
    for drive in (Drive().start(), running(), recovering(), running().give("park")):
        before = drive.run
        after = drive.note_fork().run
        assert after == before._replace(version=before.version + 1, seq=before.seq + 1, event_hash=after.event_hash)


async def leases() -> None:
    clock = VirtualClock()
    store = MemoryStore(MemoryCore(clock), "wr")
    heartbeat = Heartbeat(store, clock, Liveness(), Lease("w"), lambda: None)
    await heartbeat.open("")
    assert heartbeat.renew()
    await heartbeat.close()


def drive_everything() -> None:
    holding(running)
    holding(recovering)
    Drive().start().claim().give("park").post().claim()
    effects()
    undoing()
    answers_of_people()
    shared_effects()
    waits_and_approvals()
    restores()
    transfers()
    notes_of_forks()
    asyncio.run(leases())
    every_move()


def missing(table: Iterable[Transition]) -> list[str]:
    """The rows of a table that nothing has fired."""
    return [f"{move.verb} from {move.source}" for move in table if (move.verb, move.source) not in machine.fired]


@pytest.mark.req("RUN-2")
def test_every_row_of_the_table_is_fired(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "fired", set())
    assert len(missing(TABLE)) == len(TABLE)
    drive_everything()
    assert not missing(TABLE)
    planted = Transition("vanish", RunStatus.QUEUED, RunStatus.FAILED)
    assert missing([*TABLE, planted]) == ["vanish from queued"], "a row that no verb speaks is named"
