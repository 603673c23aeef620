"""Small hands on real verbs: one run driven through its moves, each landed by the real judge."""

from dataclasses import dataclass, field
from typing import Any, Literal

from outlast.core import (
    approvals,
    attention,
    compensation,
    effect_verbs,
    living_forks,
    mailbox,
    run_transition,
    verbs,
    version_move,
)
from outlast.core.commit import Commit
from outlast.core.machine import ApprovalStatus, Choice, Reason, RunStatus, WaitStatus
from outlast.core.rows.effect_rows import APPROVAL, EFFECT, WAIT, Approval, Effect, Wait
from outlast.core.rows.limit_rows import Slot
from outlast.core.rows.run_columns import Attention, Ending, WaitingFor
from outlast.core.rows.run_rows import RUN, Run
from outlast.core.rows.store_rows import STORE
from tests.models.world import MAPPING, TENANT, Rows, at, born, find, land

INTENT = effect_verbs.Intent(1, "k", "pay", "d", b"[]", "reverse", 1_000, 2_000, 500)
WAITING = [WaitingFor("signal", "bid", since=1)]


@dataclass
class Drive:
    """The rows of one run, and the time."""

    t: int = 1
    rows: Rows = ()
    events: int = 0
    broke: list[str] = field(default_factory=list)

    def speak(self, commit: Commit | None) -> "Drive":
        """Land a commit that must land; every invariant is checked as it does."""
        assert commit is not None
        left = land(self.rows, commit, self.t)
        assert not left.refused, left.refused
        assert not left.broke, left.broke
        self.rows = left.rows
        return self

    @property
    def run(self) -> Run:
        """Current row of the run `r`."""
        row = find(self.rows, RUN, "r")
        assert isinstance(row, Run)
        return row

    @property
    def effect(self) -> Effect:
        """Current row of the effect `k`."""
        row = find(self.rows, EFFECT, "r", 1, "k")
        assert isinstance(row, Effect)
        return row

    @property
    def approval(self) -> Approval:
        """Current row of the approval `ap`."""
        row = find(self.rows, APPROVAL, "r", "ap")
        assert isinstance(row, Approval)
        return row

    @property
    def wait(self) -> Wait:
        """Current row of the wait `bid`."""
        row = find(self.rows, WAIT, "r", 1, "bid")
        assert isinstance(row, Wait)
        return row

    # --- verbs, with the arguments that do not matter here -------------------------------------------
    def start(self) -> "Drive":
        return self.speak(born())

    def claim(self, *, closed: dict[str, int] | None = None, claim_ms: int = 600_000) -> "Drive":
        return self.speak(
            verbs.claim(self.run, worker=f"w{self.t}", now=at(self.t), claim_ms=claim_ms, closed=closed or {})
        )

    def take_over(self) -> "Drive":
        return self.claim(closed={self.run.owner: 0})

    def give(self, verb: str) -> "Drive":
        now, inbox_seq = at(self.t), self.run.inbox_seq
        if verb in ("park", "retry", "await_settle"):
            commit = verbs.park(
                self.run, verb, inbox_seq=inbox_seq, waiting=WAITING, timers=(), now=now, mapping=MAPPING
            )
        elif verb == "flag":
            commit = attention.flag(
                self.run, [Attention(Reason.EXCEPTION, 1)], inbox_seq=inbox_seq, now=now, mapping=MAPPING
            )
        elif verb == "queue":
            commit = run_transition.queue(self.run, (), now=now, mapping=MAPPING)
        elif verb == "requeue":
            commit = verbs.requeue(self.run, now=now, closed={self.run.owner: 1})
        else:
            assert verb == "hand_back"
            commit = verbs.hand_back(self.run, inbox_seq=inbox_seq, now=now, mapping=MAPPING, why="drained")
        return self.speak(commit)

    def admit(self) -> "Drive":
        slot = Slot(STORE, 0, 1, "", "")
        self.rows = (*(row for row in self.rows if not isinstance(row, Slot)), slot)
        return self.speak(run_transition.admit(self.run, [slot], now=at(self.t)))

    def log(self) -> "Drive":
        entry = run_transition.LogEntry("line", "a line", {"n": 1})
        return self.speak(run_transition.write_log(self.run, [entry], now=at(self.t)))

    def advance(self, **changes: Any) -> "Drive":
        return self.speak(
            verbs.advance(self.run, node="b", status_label="", state=b"{}", now=at(self.t), claim_ms=600_000, **changes)
        )

    def move_version(self) -> "Drive":
        run = self.run
        lane = version_move.lane_of(run.workflow, version_move.version_in(run.lane) + 1)
        to = version_move.MoveTarget(lane, "renamed", "", {"renamed": 1}, b"{}", "p", "")
        return self.speak(version_move.move_to_version(run, to, now=at(self.t)))

    def transfer(self) -> "Drive":
        return self.speak(version_move.transfer(self.run, "temporal", now=at(self.t), by="p", reason=""))

    def note_fork(self) -> "Drive":
        note = living_forks.ForkNote("f", "p", "both go on", 1, 1, self.run.visit, "ask")
        return self.speak(living_forks.note_fork(self.run, note, 0, now=at(self.t)))

    def finish(self, outcome: RunStatus) -> "Drive":
        approvals = [row for row in self.rows if isinstance(row, Approval)]
        commit = verbs.finish(
            self.run, outcome, inbox_seq=self.run.inbox_seq, state=b"{}", result=None, reason="", not_undone=(),
            approvals=approvals, slots=(), now=at(self.t),
        )  # fmt: skip
        return self.speak(commit)

    def post(self, name: str = "bid") -> "Drive":
        commit = mailbox.append_message(tenant=TENANT, run="r", kind="signal", name=name, actor="a", now=at(self.t))
        return self.speak(commit)

    def intend(self, *, approved: bool = False) -> "Drive":
        row = find(self.rows, EFFECT, "r", 1, "k")
        previous = row if isinstance(row, Effect) else None
        approval = self.approval if approved else None
        return self.speak(effect_verbs.intend(self.run, INTENT, previous, ordinal=1, now=at(self.t), approval=approval))

    def settle(self, verb: str) -> "Drive":
        run, effect, now = self.run, self.effect, at(self.t)
        commits = {
            "record": lambda: effect_verbs.record(run, effect, b"1", now=now),
            "settle": lambda: effect_verbs.settle(run, effect, b"1", now=now),
            "refuse": lambda: effect_verbs.refuse(run, effect, "no", "", now=now),
            "mark_uncertain": lambda: effect_verbs.mark_uncertain(run, effect, "reset", "", now=now),
            "defer": lambda: effect_verbs.defer(run, effect, "busy", "", 10, happened=False, now=now),
        }
        return self.speak(commits[verb]())

    # --- undo ----------------------------------------------------------------------------------------
    def compensate(self) -> "Drive":
        effects = [row for row in self.rows if isinstance(row, Effect)]
        approvals = [row for row in self.rows if isinstance(row, Approval)]
        ending = Ending(RunStatus.CANCELLED, "enough", "p")
        return self.speak(
            compensation.compensate(
                self.run, ending, effects, inbox_seq=self.run.inbox_seq, approvals=approvals, now=at(self.t)
            )
        )

    @property
    def undo(self) -> Effect:
        """The undo of the effect `k`."""
        row = find(self.rows, EFFECT, "r", 1, "undo/k")
        assert isinstance(row, Effect)
        return row

    def intend_undo(self) -> "Drive":
        row = find(self.rows, EFFECT, "r", 1, "undo/k")
        previous = row if isinstance(row, Effect) else None
        what = INTENT._replace(key="undo/k")
        return self.speak(compensation.intend_undo(self.run, what, previous, self.effect, ordinal=2, now=at(self.t)))

    def settle_undo(self, verb: str) -> "Drive":
        run, undo, original, now = self.run, self.undo, self.effect, at(self.t)
        commits = {
            "record": lambda: compensation.record_undo(run, undo, original, now=now),
            "settle": lambda: compensation.settle_undo(run, undo, original, now=now),
            "refuse": lambda: effect_verbs.refuse(run, undo, "no", "", now=now),
            "mark_uncertain": lambda: effect_verbs.mark_uncertain(run, undo, "reset", "", now=now),
        }
        return self.speak(commits[verb]())

    def withhold(self) -> "Drive":
        row = find(self.rows, EFFECT, "r", 1, "undo/k")
        previous = row if isinstance(row, Effect) else None
        return self.speak(compensation.withhold(self.run, self.effect, previous, "gone", "", ordinal=2, now=at(self.t)))

    def answer_undo(self, choice: Choice) -> "Drive":
        self.t = max(self.t, self.undo.settle_after)
        return self.speak(
            compensation.answer_undo(self.run, self.undo, self.effect, choice, actor="p", text="did it", now=at(self.t))
        )

    def resolve(self, verb: str) -> "Drive":
        self.t = max(self.t, self.effect.settle_after)
        commit = mailbox.resolve_effect(self.effect, verb, by="p", reason="", now=at(self.t), response=b"1")
        return self.speak(commit)

    def reopen(self) -> "Drive":
        return self.speak(mailbox.go_on(self.run, [self.effect], actor="p", reason="", now=at(self.t)))

    def declare(self) -> "Drive":
        row = Wait(TENANT, "r", 1, "bid", 1, WaitStatus.OPEN, "receive", "bid", 50, 0, "", self.t)
        return self.speak(effect_verbs.open_wait(self.run, row))

    def ask(self) -> "Drive":
        row = Approval(
            tenant=TENANT, run="r", id="ap", version=1, status=ApprovalStatus.PENDING, visit=1, wait="ok",
            plans_text="[]",
            summary="", risk="", again=0, who="", requested_by="",
            asked_at=self.t, within_until=self.t + 100, valid_ms=1_000,
            decided_at=0, decided_by="", claims_text="", reason="", chosen="", valid_until=0, consumed_by="",
        )  # fmt: skip
        return self.speak(approvals.ask(row, fence=run_transition.fence(self.run, inbox_seq=self.run.inbox_seq)))

    def decide(self, verb: Literal["approve", "reject", "again"], by: str = "p") -> "Drive":
        move = approvals.decide(
            self.approval, verb=verb, chosen="d", by=by, claims=("finance",), reason="", now=at(self.t)
        )
        return self.speak(move.commit)
