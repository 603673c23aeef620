"""S-30: the budget of a tree. Two runs below a root make calls, and park once the limit of the root is used up.

A run below looks, then calls or parks. The root's holder reads its messages, the sum and the runs that wait, then
lets runs look again one by one, and parks. A person raises the limit at any time. Any holder may crash. The timer of a
waiting run is left out, so that it hides no lost answer.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

from outlast.core import budget, verbs
from outlast.core.attention import answered
from outlast.core.commit import Commit, append_to_inbox
from outlast.core.machine import RunStatus
from outlast.core.route import WalkOn, route
from outlast.core.rows.run_columns import Attention, Descent, WaitingFor
from outlast.core.rows.run_rows import Message, Run, is_due, is_over
from outlast.core.run_transition import fence
from outlast.core.usage import Amounts, Limits
from outlast.core.verbs import AT_TOP, NewRun, TreePlace
from tests.models.explore import Variant
from tests.models.world import LANE, MAPPING, SLICE, SLICE_END, TENANT, Rows, at, land, renumbered

NOW = at(2)
ROOT = "p"
LIMITS = Limits(calls=0)
ONE_RUN = (("c", 2),)
"""Runs below the root, and the calls that each makes."""
TWO_RUNS = (("c", 1), ("d", 1))
ENOUGH = 2  # raises of one call each: with these, every call is covered
ONE = Amounts(calls=1)


class Holder(NamedTuple):
    """Holder of a run, and what it has read."""

    pc: str
    view: Run
    over: tuple[budget.Spent, ...] = ()
    told: tuple[Run, ...] = ()  # runs to let look again
    reason: Attention | None = None


class S(NamedTuple):
    """The world. `used`: calls that each run below has made."""

    rows: Rows
    used: tuple[int, ...]
    crashes: int
    raises: int = ENOUGH
    holders: tuple[tuple[str, Holder], ...] = ()
    err: str = ""


@dataclass(frozen=True)
class TreeBudget:
    """The rule, or the rule with a safeguard removed."""

    wanted: tuple[tuple[str, int], ...] = TWO_RUNS
    crashes: int = 0
    checks: bool = True
    asks: Literal["as it parks", "before it parks", "never"] = "as it parks"
    tells: Literal["before it parks", "after it parks"] = "before it parks"
    finds: Literal["all that wait", "the last that asked"] = "all that wait"
    parks_by_mail: bool = True  # the root

    def first(self) -> tuple[S, ...]:
        rows: Rows = ()
        rows = land(rows, _born(ROOT, AT_TOP), 1).rows
        for name, _ in self.wanted:
            place = TreePlace(ROOT, 1, 1, Descent(ROOT, f"0:{name}", LIMITS))
            rows = land(rows, _born(name, place), 1).rows
        return (S(_plain(rows), (0,) * len(self.wanted), self.crashes),)

    def good(self, s: S) -> bool:
        return is_over(_run(s.rows, ROOT))

    def bad(self, s: S) -> str:
        if sum(s.used) > ENOUGH - s.raises + len(self.wanted) - 1:
            return "more was used than the limit and one call for each run in flight"
        return s.err

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        root, held = _run(s.rows, ROOT), dict(s.holders)
        if s.raises and not is_over(root):
            raised = budget.person_raises(root, ONE, actor="op", reason="worth it")
            yield "a person raises the limit", _landed(s._replace(raises=s.raises - 1), raised)[1]
        for run in _runs(s.rows):
            if is_over(run):
                continue
            holder = held.get(run.run)
            if holder is None:
                if run.owner or is_due(run, NOW.real):
                    yield self._claim(s, run)
                continue
            if s.crashes:
                yield f"the holder of {run.run} crashes", _without(s, run.run)._replace(crashes=s.crashes - 1)
            hold = self._root if run.run == ROOT else self._below
            yield hold(s, run.run, holder)

    def _claim(self, s: S, run: Run) -> tuple[str, S]:
        claimed = verbs.claim(run, worker="w", now=NOW, claim_ms=SLICE, closed={"w": 0})
        assert claimed is not None
        ok, after = _landed(s, claimed)
        assert ok
        return f"{run.run} is taken", _with(after, run.run, Holder("looks", _run(after.rows, run.run)))

    # --- a run below -----------------------------------------------------------------------------------
    def _below(self, s: S, name: str, h: Holder) -> tuple[str, S]:
        i = [each for each, _ in self.wanted].index(name)
        if h.pc == "looks":
            if s.used[i] == self.wanted[i][1]:
                return f"{name} has made its calls", _with(s, name, h._replace(pc="ends"))
            over = budget.spent_of_tree(LIMITS, self._spending(s), NOW) if self.checks else ()
            view = _run(s.rows, name)
            if over and self.asks == "before it parks":
                return f"{name} meets the limit", _with(s, name, h._replace(pc="asks", view=view, over=over))
            return f"{name} looks", _with(s, name, h._replace(pc="parks" if over else "calls", view=view, over=over))
        if h.pc == "calls":
            used = tuple(n + (j == i) for j, n in enumerate(s.used))
            return f"{name} calls", _with(s._replace(used=used), name, h._replace(pc="looks"))
        if h.pc == "asks":
            ask = budget.ask_root(Commit((), fence(h.view)), h.view, [self._waiting(h)])
            ok, after = _landed(s, ask)
            return f"{name} asks the root", _with(after, name, h._replace(pc="parks" if ok else "looks"))
        if h.pc == "parks":
            commit = verbs.park(
                h.view, "park", inbox_seq=h.view.inbox_seq, waiting=[self._waiting(h)], timers=(), now=NOW,
                mapping=MAPPING,
            )  # fmt: skip
            if self.asks == "as it parks":
                commit = budget.ask_root(commit, h.view, [self._waiting(h)])
            ok, after = _landed(s, commit)
            return f"{name} parks", _without(after, name) if ok else _with(after, name, h._replace(pc="looks"))
        run = _run(s.rows, name)
        ok, after = _landed(s, _finish(s.rows, run))
        return f"{name} ends", _without(after, name) if ok else s

    def _waiting(self, h: Holder) -> WaitingFor:
        return budget.waiting_for_tree(h.view, h.over, NOW)

    def _spending(self, s: S) -> budget.TreeSpending:
        return budget.TreeSpending(Amounts(calls=sum(s.used)), 1, budget.raises_of(_messages(s.rows, ROOT)))

    # --- the root --------------------------------------------------------------------------------------
    def _root(self, s: S, name: str, h: Holder) -> tuple[str, S]:
        if h.pc == "looks":
            return "the root reads", _with(s, name, self._read(s))
        if h.pc == "tells" and h.told:
            (first,) = budget.look_again_below(h.view, h.told[:1])
            ok, after = _landed(s, first)
            then = h._replace(told=h.told[1:]) if ok else h._replace(pc="looks")
            return f"the root lets {h.told[0].run} look again", _with(after, name, then)
        if h.pc == "told late":
            ok, after = _landed(s, budget.look_again_below(_run(s.rows, ROOT), h.told[:1])[0]._replace(fence=None))
            left = h._replace(told=h.told[1:])
            return "the root answers late", _with(after, name, left) if left.told else _without(after, name)
        run, _ = budget.after_answers(h.view, h.reason, h.view.inbox_seq)
        if all(is_over(_run(s.rows, each)) for each, _ in self.wanted):
            ok, after = _landed(s, _finish(s.rows, run))
            return "the root ends", _without(after, name) if ok else _with(after, name, h._replace(pc="looks"))
        seq = h.view.inbox_seq if self.parks_by_mail else _run(s.rows, ROOT).inbox_seq
        commit = verbs.park(
            run, "park", inbox_seq=seq, waiting=[WaitingFor("child", "c")], timers=(), now=NOW, mapping=MAPPING
        )
        ok, after = _landed(s, commit)
        if not ok:
            return "the root is refused", _with(after, name, h._replace(pc="looks"))
        if self.tells == "after it parks" and h.told:
            return "the root parks", _with(after, name, h._replace(pc="told late"))
        return "the root parks", _without(after, name)

    def _read(self, s: S) -> Holder:
        """Read the inbox, answer what people said, then read the sum and the runs that wait."""
        run, messages = _run(s.rows, ROOT), _messages(s.rows, ROOT)
        way = route(run, messages, {}, NOW.business)
        assert isinstance(way, WalkOn)
        if way.answers:
            run, _ = answered(run, way.left, way.answers, now=NOW)
        asked = budget.asked_by(messages)
        if self.finds == "the last that asked":
            asked = [message.name for message in messages if message.kind == budget.TREE][-1:]
        waiting = [each for each in _runs(s.rows) if each.run in asked and budget.waits_for_tree(each) == ROOT]
        over = budget.spent_of_tree(LIMITS, self._spending(s), NOW)
        if not waiting or not over:
            return Holder("tells" if self.tells == "before it parks" else "acts", run, told=tuple(waiting))
        reason = budget.flagged_for_tree(run, over, len(waiting), seen=run.inbox_seq, now=NOW)
        return Holder("acts", run, reason=reason)


# --- rows ------------------------------------------------------------------------------------------------
def _born(name: str, place: TreePlace) -> Commit:
    new = NewRun(TENANT, name, "w", LANE, "a", "", b"{}", SLICE_END, "tester", place=place)
    return verbs.start(new, at(1), limited=False)


def _finish(rows: Rows, run: Run) -> Commit:
    commit = verbs.finish(
        run, RunStatus.COMPLETED, inbox_seq=run.inbox_seq, state=b"{}", result=None, reason="", not_undone=(),
        approvals=(), slots=(), now=NOW,
    )  # fmt: skip
    if not run.root:
        return commit
    return commit._replace(writes=(*commit.writes, append_to_inbox(TENANT, ROOT, "child", run.run, "")))


def _landed(s: S, commit: Commit) -> tuple[bool, S]:
    left = land(s.rows, commit, NOW.real)
    if left.refused:
        return False, s
    return True, s._replace(rows=_plain(left.rows), err=s.err or left.broke)


def _plain(rows: Rows) -> Rows:
    """Return the rows with their counters at one value each, and without messages that nothing reads."""
    kept = (budget.TREE, budget.RAISED)
    return tuple(
        renumbered(row)._replace(waiting_for_text=row.waiting_for_text, status=_running(row.status))
        if isinstance(row, Run)
        else row._replace(at=0)
        if isinstance(row, Message)
        else row
        for row in rows
        if isinstance(row, Run) or (isinstance(row, Message) and row.run == ROOT and row.kind in kept)
    )


def _running(status: RunStatus) -> RunStatus:
    return RunStatus.RUNNING if status is RunStatus.RECOVERING else status


def _runs(rows: Rows) -> list[Run]:
    return [row for row in rows if isinstance(row, Run)]


def _run(rows: Rows, name: str) -> Run:
    return next(run for run in _runs(rows) if run.run == name)


def _messages(rows: Rows, run: str) -> list[Message]:
    return sorted((row for row in rows if isinstance(row, Message) and row.run == run), key=lambda row: row.n)


def _with(s: S, name: str, h: Holder) -> S:
    return s._replace(holders=tuple(sorted((dict(s.holders) | {name: h}).items())))


def _without(s: S, name: str) -> S:
    return s._replace(holders=tuple(each for each in s.holders if each[0] != name))


STUCK = "stuck"
VARIANTS = (
    Variant("as built, two runs below", TreeBudget()),
    Variant("as built, one run below and two crashes", TreeBudget(ONE_RUN, crashes=2)),
    Variant("a run does not look before it calls", TreeBudget(checks=False), "more was used"),
    Variant("a run parks and does not ask", TreeBudget(asks="never"), STUCK),
    Variant("a run asks before it parks", TreeBudget(ONE_RUN, asks="before it parks"), STUCK),
    Variant("the root answers after it has parked", TreeBudget(ONE_RUN, 1, tells="after it parks"), STUCK),
    Variant("the root answers the last run that asked", TreeBudget(finds="the last that asked"), STUCK),
    Variant("the root parks without its inbox number", TreeBudget(ONE_RUN, parks_by_mail=False), STUCK),
)
LARGE = (Variant("as built, two runs below and a crash", TreeBudget(crashes=1)),)
