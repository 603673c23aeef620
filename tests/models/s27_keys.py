"""S-27: a re-run that asks for other keys than the executions before it sends nothing.

One visit of one run, executed again after a wait and after each death of its holder. Bodies with a wrong key ask for
another one in each execution; honest bodies ask for the same keys, in any order. `core/divergence.py` decides over the
rows that the verbs of effects write.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from outlast.core import divergence, effect_verbs, verbs
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.run_rows import Run
from tests.models.explore import Variant
from tests.models.world import SLICE, TENANT, Rows, at, born, find, fresh, land, run_of, seen_by

T: Final = 1
EXECUTIONS: Final = 3
Call = tuple[str, str]  # activity and key
Branch = tuple[Call, ...]  # calls one after the other


class Body(NamedTuple):
    """Branches of the body in an execution, and whether all calls of a branch are asked for when it begins."""

    branches: tuple[Branch, ...]
    together: bool = False


def body_of(name: str, n: int) -> Body:
    """Return what a body does in its execution `n`."""
    wrong, a, b, c = ("A", f"k{n}"), ("A", "a"), ("B", "b"), ("A", "c")
    return {
        "a key of a clock": Body(((wrong,),)),
        "a key of a clock beside another activity": Body(((wrong,), (b,))),
        "a gather": Body(((a,), (c,)) if n % 2 else ((c,), (a,))),
        "a call behind another activity": Body(((a,), (b, c))),
        "do_all with at_most=1": Body(((a, c) if n % 2 else (c, a),), together=True),
        "a call added to a gather": Body((*((("A", "new"),),) * (n > 1), (a,), (b, c))),
    }[name]


HONEST: Final = (
    "a gather", "a call behind another activity", "do_all with at_most=1", "a call added to a gather",
)  # fmt: skip


class B(NamedTuple):
    """A branch: the calls that have ended, and how far the present one is."""

    done: int = 0
    at: str = "new"  # new, begun, intended, sent


class S(NamedTuple):
    """The world."""

    rows: Rows
    crashes: int
    n: int = 0  # executions so far
    view: Run | None = None  # the holder's
    missing: frozenset[str] = frozenset()
    branches: tuple[B, ...] = ()
    sent: frozenset[str] = frozenset()  # keys of A that reached the receiver
    questions: frozenset[str] = frozenset()  # keys of A for which approvers were asked
    over: str = ""  # returned, or flagged
    err: str = ""


@dataclass(frozen=True)
class Keys:
    """The rule, or the rule with a safeguard removed."""

    body: str
    crashes: int = 2
    shared: bool = False  # A is once per tenant
    counts: str = "any status"  # or "settled": effects without an answer do not count
    tenant: bool = True  # False: shared effects do not count
    asks: str = "after the hold"  # or "before it"
    drops: bool = False  # the hold ends when a call of another activity settles
    window: bool = True  # False: plans of a do_all count as asked for when they start

    def first(self) -> tuple[S, ...]:
        return (S(fresh(land((), born(), T).rows), self.crashes),)

    def good(self, s: S) -> bool:
        return bool(s.over)

    def bad(self, s: S) -> str:
        if s.err:
            return s.err
        if self.body in HONEST:
            return "an honest body was put to a person" if s.over == "flagged" else ""
        if len(s.sent) > 1:
            return "a second call was sent under another key"
        return "approvers were asked about a call that is held" if len(s.questions) > 1 else ""

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        if s.over or s.err:
            return
        if s.view is None:
            yield self._claim(s)
            return
        if s.crashes:
            yield "the holder dies", s._replace(view=None, branches=(), missing=frozenset(), crashes=s.crashes - 1)
        moved = False
        for i in range(len(s.branches)):
            for label, after in self._branch(s, i):
                moved = True
                yield label, after
        if moved:
            return
        if any(b.at != "new" for b in s.branches):
            yield "the body can go no further", s._replace(over="flagged")
        elif s.n < EXECUTIONS:
            yield "the node waits", s._replace(view=None, branches=(), missing=frozenset())
        else:
            yield "the node returns", s._replace(over="flagged" if s.missing else "returned")

    # --- the holder ------------------------------------------------------------------------------
    def _claim(self, s: S) -> tuple[str, S]:
        run, n = run_of(s.rows), min(s.n + 1, EXECUTIONS)
        closed = {run.owner: 0} if run.owner else {}
        commit = verbs.claim(run, worker="w", now=at(T), claim_ms=SLICE, closed=closed)
        assert commit is not None
        rows = fresh(land(s.rows, commit, T).rows)
        effects = [row for row in rows if isinstance(row, Effect) and self._counts(row)]
        found = divergence.recorded(run_of(rows), effects, (), (), (), lambda name: False, divergence.Dropped())
        branches = tuple(B() for _ in body_of(self.body, n).branches)
        return f"execution {n} begins", s._replace(
            rows=rows, n=n, view=run_of(rows), missing=frozenset(found), branches=branches
        )

    def _counts(self, row: Effect) -> bool:
        return (self.counts != "settled" or row.settled_at > 0) and (self.tenant or not row.by_run)

    def _branch(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        body, b = body_of(self.body, s.n), s.branches[i]
        branch = body.branches[i]
        if b.done == len(branch):
            return
        activity, key = branch[b.done]
        row = self._row(s, activity, key)
        if b.at == "new":
            names = branch if body.together and self.window else (branch[b.done],)
            asked = {f"{activity}?{key}" for activity, key in names}
            yield (
                f"asks for {activity} {key}",
                self._at(s._replace(missing=s.missing - asked), i, b._replace(at="begun")),
            )
        elif b.at == "begun" and row is not None and row.settled_at:
            yield f"{activity} {key} is answered from the ledger", self._at(s, i, B(b.done + 1))
        elif b.at == "begun":
            yield from self._begin(s, i, b, activity, key, row)
        elif b.at == "intended":
            sent = s.sent | {key} if activity == "A" else s.sent
            yield f"{activity} {key} is sent", self._at(s._replace(sent=sent), i, b._replace(at="sent"))
        elif b.at == "sent":
            assert row is not None and s.view is not None
            after = self._land(s, effect_verbs.record(s.view, row, b"1", now=at(T)))
            if self.drops and activity == "B":
                after = after._replace(missing=frozenset())
            yield f"{activity} {key} is done", self._at(after, i, B(b.done + 1))

    def _begin(self, s: S, i: int, b: B, activity: str, key: str, row: Effect | None) -> Iterator[tuple[str, S]]:
        held = row is None and any(name.startswith(f"{activity}?") for name in s.missing)
        asked = s.questions | {key} if activity == "A" else s.questions
        if self.asks == "before it" and row is None and asked != s.questions:
            yield f"approvers are asked about {activity} {key}", s._replace(questions=asked)
        if held:
            return
        assert s.view is not None
        shared = self.shared and activity == "A"
        what = effect_verbs.Intent(
            visit=0 if shared else s.view.visit, key=key, activity=activity, digest=key, args=b"{}", undo="no: a test",
            timeout_ms=1, start_budget_ms=1, settle_margin_ms=1, shared=shared, noted=row is not None,
        )  # fmt: skip
        ordinal = row.ordinal if row is not None else 1 + sum(isinstance(x, Effect) for x in s.rows)
        after = self._land(s, effect_verbs.intend(s.view, what, row, ordinal=ordinal, now=at(T)))
        yield f"intends {activity} {key}", self._at(after, i, b._replace(at="intended"))

    def _row(self, s: S, activity: str, key: str) -> Effect | None:
        assert s.view is not None
        shared = self.shared and activity == "A"
        owner, visit = ("", 0) if shared else ("r", s.view.visit)
        found = find(s.rows, EFFECT, owner, visit, key)
        assert found is None or isinstance(found, Effect)
        return found

    def _land(self, s: S, commit: effect_verbs.Commit) -> S:
        left = land(s.rows, commit, T)
        assert not left.refused, left.refused
        rows = fresh(left.rows)
        return s._replace(rows=rows, view=seen_by(s.view, run_of(left.rows)), err=s.err or left.broke)

    @staticmethod
    def _at(s: S, i: int, b: B) -> S:
        return s._replace(branches=(*s.branches[:i], b, *s.branches[i + 1 :]))


assert TENANT == "t"
CLOCK, BESIDE = "a key of a clock", "a key of a clock beside another activity"
VARIANTS = (
    Variant(CLOCK, Keys(CLOCK)),
    Variant(f"{CLOCK}, once per tenant", Keys(CLOCK, shared=True)),
    Variant(BESIDE, Keys(BESIDE)),
    *(Variant(f"honest: {name}", Keys(name, crashes=1)) for name in HONEST),
    *(Variant(f"honest: {name}, once per tenant", Keys(name, crashes=1, shared=True)) for name in HONEST[:3]),
    Variant("only settled effects count", Keys(CLOCK, counts="settled"), "under another key"),
    Variant("shared effects are left out", Keys(CLOCK, shared=True, tenant=False), "under another key"),
    Variant("the hold comes after the approval", Keys(CLOCK, asks="before it"), "approvers were asked"),
    Variant("the hold ends when another activity settles", Keys(BESIDE, drops=True), "under another key"),
    Variant("plans that wait for their turn count as new", Keys("do_all with at_most=1", window=False), "honest body"),
)
LARGE = tuple(Variant(f"honest: {name}, two deaths", Keys(name)) for name in HONEST)
