"""Safeguards, each taken out of the child by its name: what dies without it shows that it is needed.

A mutant is applied in a process of its own, so it needs no undoing.
"""

from collections.abc import Callable
from typing import Any, Final

from outlast.core.commit import Commit, Done, Fence, Put
from outlast.core.machine import EffectStatus
from outlast.core.rows import APPROVAL, RUN, Effect, Kind, Row, version_of
from outlast.engine import context, effects, guard, permission
from outlast.engine import write as writes
from outlast.engine.ledger import Ledger
from outlast.errors import Ended, Stale
from outlast.store.batch import Batch

MUTANTS: Final[dict[str, Callable[[], None]]] = {}


def mutant(fn: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[fn.__name__] = fn
    return fn


def _patch(owner: Any, name: str, value: Any) -> None:
    setattr(owner, name, value)


@mutant
def no_fence() -> None:
    """A holder that was replaced may write; a run that has ended may be written to."""
    kept = Batch._fence

    def fence(self: Batch, claim: Fence) -> Any:
        try:
            return kept(self, claim)
        except (Stale, Ended):
            return self.row(RUN, (claim.tenant, claim.run))

    _patch(Batch, "_fence", fence)


@mutant
def no_mail_check() -> None:
    """A run may fall asleep with unread mail."""
    kept = Batch._fence
    _patch(Batch, "_fence", lambda self, fence: kept(self, fence._replace(mail=None)))


@mutant
def no_validation() -> None:
    """A row is written whatever version stands there."""
    _unvalidated(lambda kind: True)


@mutant
def no_decision_compare() -> None:
    """An approval is decided whatever it was decided before."""
    _unvalidated(lambda kind: kind is APPROVAL)


def _unvalidated(which: Callable[[Kind], bool]) -> None:
    kept = Batch._put

    def put(self: Batch, write: Put, mine: Any) -> None:
        if which(write.kind):
            found = self.row(write.kind, write.row[: write.kind.key])
            if found is not None:
                write = write._replace(replaces=version_of(write.kind, found))
                write = write._replace(row=_numbered(write.row, write.replaces + 1, write.kind))
        kept(self, write, mine)

    _patch(Batch, "_put", put)


def _numbered(row: Row, version: int, kind: Kind) -> Row:
    return row._replace(version=version) if kind.versioned else row  # type: ignore[call-arg]


@mutant
def call_first() -> None:
    """The intent is written with the answer, not before the call."""
    land, submit = Ledger.land, Ledger.submit
    late: dict[int, Commit] = {}

    async def landed(self: Ledger, commit: Commit) -> Done:
        if " intend " not in commit.label:
            return await land(self, commit)
        late[id(self)] = commit
        self._apply(commit)
        return Done(self.mail_known, self.now)

    def submitted(self: Ledger, commit: Commit) -> None:
        if id(self) in late:
            submit(self, late.pop(id(self)))
        submit(self, commit)

    _patch(Ledger, "land", landed)
    _patch(Ledger, "submit", submitted)


@mutant
def no_ledger_hit() -> None:
    """A walk that comes by a done write makes it again."""
    kept = effects.perform

    async def perform(walk: Any, activity: Any, call: Any) -> Any:
        visit = walk.ledger.run.visit if activity.scope == "visit" else 0
        effect = walk.ledger.effects.get((visit, call.key))
        if isinstance(effect, Effect) and effect.status is EffectStatus.DONE:
            attempt = writes.attempt_of(walk, activity, call.args, call.kwargs, effect)
            answered: Any = await walk.share((visit, call.key), lambda: walk.around.caller.attempt(attempt))
            return answered.value
        return await kept(walk, activity, call)

    _patch(context, "perform", perform)


@mutant
def no_quiet_time() -> None:
    """«Not found» is believed while the first call may still be in the air."""
    kept = writes.moves.intend

    def intend(run: Any, what: Any, *rest: Any, **more: Any) -> Commit:
        return kept(run, what._replace(quiet_margin_ms=-(10**9)), *rest, **more)

    _patch(writes.moves, "intend", intend)


@mutant
def no_last_check() -> None:
    """A process that was frozen sends as soon as it wakes."""
    _patch(guard.Permit, "refusal", lambda self, clock: "")


@mutant
def no_digest() -> None:
    """Any approval of this run covers any call."""
    _patch(
        permission,
        "usable_approvals",
        lambda walk, plan: [a for a in walk.ledger.approvals.values() if not a.consumed_by],
    )
