"""Safeguards, each taken out of the child by its name: what dies without it shows that it is needed.

A mutant is applied in a process of its own, so it needs no undoing.
"""

from collections.abc import Callable
from typing import Any, Final

from outlast.core.commit import Commit, Done, Put
from outlast.core.rows import APPROVAL, Kind, Row, version_of
from outlast.engine import effect_executor as writes
from outlast.engine import permission
from outlast.engine.run_session import RunSession
from outlast.store.batch import Batch
from tests.failures import removed

MUTANTS: Final[dict[str, Callable[[], None]]] = {}


def mutant(fn: Callable[[], None]) -> Callable[[], None]:
    MUTANTS[fn.__name__] = fn
    return fn


@mutant
def no_fence() -> None:
    """A holder that was replaced may write; a run that has ended may be written to."""
    removed.fence()


@mutant
def no_mail_check() -> None:
    """A run may fall asleep with unread mail."""
    removed.mail_check()


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

    removed.replace(Batch, "_put", put)


def _numbered(row: Row, version: int, kind: Kind) -> Row:
    return row._replace(version=version) if kind.versioned else row  # type: ignore[call-arg]


@mutant
def call_first() -> None:
    """The intent is written with the answer, not before the call."""
    land, submit = RunSession.land, RunSession.submit
    late: dict[int, Commit] = {}

    async def landed(self: RunSession, commit: Commit) -> Done:
        if " intend " not in commit.label:
            return await land(self, commit)
        late[id(self)] = commit
        self._apply(commit)
        return Done(self.inbox_known, self.now)

    def submitted(self: RunSession, commit: Commit) -> None:
        if id(self) in late:
            submit(self, late.pop(id(self)))
        submit(self, commit)

    removed.replace(RunSession, "land", landed)
    removed.replace(RunSession, "submit", submitted)


@mutant
def no_ledger_hit() -> None:
    """A walk that comes by a done write makes it again."""
    removed.ledger_hit()


@mutant
def no_quiet_time() -> None:
    """«Not found» is believed while the first call may still be in the air."""
    kept = writes.moves.intend

    def intend(run: Any, what: Any, *rest: Any, **more: Any) -> Commit:
        return kept(run, what._replace(settle_margin_ms=-(10**9)), *rest, **more)

    removed.replace(writes.moves, "intend", intend)


@mutant
def no_last_check() -> None:
    """A process that was frozen sends as soon as it wakes."""
    removed.last_check()


@mutant
def no_digest() -> None:
    """Any approval of this run covers any call."""
    removed.replace(
        permission,
        "usable_approvals",
        lambda execution, plan: [a for a in execution.session.approvals.values() if not a.consumed_by],
    )
