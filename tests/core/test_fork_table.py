"""The table of S-28 says what `core/forks.py` decides: each cell is derived from the decisions and compared."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple, get_args

import pytest

from outlast.core import forks
from outlast.core.events import EventType
from outlast.core.forks import (
    CopiedCall,
    Effects,
    ForkAnswer,
    ForkLedger,
    ForkPoint,
    ForkTerms,
    FromRecording,
    Lookups,
    RecordedOtherwise,
    WaitForAncestor,
    answer_in_fork,
    check_accepted,
    copies_of,
    points_of,
    use_of,
)
from outlast.core.keys import OncePer
from outlast.core.machine import EffectStatus
from outlast.core.mailbox import REOPENED
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import Effect, Memo
from outlast.core.rows.run_rows import Event, Run
from outlast.errors import Conflict
from tests.test_tidy import ROOT

pytestmark = pytest.mark.req("RUN-10")
PAGE: Final = (ROOT / "docs" / "semantics.md").read_text(encoding="utf-8")
CHECKPOINT: Final = EventType.CHECKPOINT.removeprefix("dev.outlast.")
POINT: Final = 2
"""The visit of the checkpoint. A call of before it is of visit 1, one of after it of visit 2."""
MODES: Final[tuple[Effects, ...]] = get_args(Effects)


class Case(NamedTuple):
    """Calls that a row of the table is about."""

    kind: Literal["write", "lookup"]
    once_per: OncePer
    statuses: tuple[EffectStatus, ...]
    reopened: bool = False


DONE, REFUSED, UNDONE = EffectStatus.DONE, EffectStatus.REFUSED, EffectStatus.UNDONE
OPEN: Final = (EffectStatus.INTENDED, EffectStatus.UNCERTAIN)
ROWS: Final[dict[str, Case]] = {
    "once per visit, done or refused": Case("write", "visit", (DONE, REFUSED)),
    "once per visit, undone": Case("write", "visit", (UNDONE,)),
    "once per visit, open or uncertain": Case("write", "visit", OPEN),
    "once per run, done": Case("write", "run", (DONE,)),
    "once per run, refused": Case("write", "run", (REFUSED,)),
    "once per run, undone": Case("write", "run", (UNDONE,)),
    "once per run, open or uncertain": Case("write", "run", OPEN),
    "reopened by a person, once per visit": Case("write", "visit", (REFUSED,), reopened=True),
    "reopened by a person, once per run": Case("write", "run", (REFUSED,), reopened=True),
    "once per tenant": Case("write", "tenant", (DONE, REFUSED)),
    "lookup, once per visit": Case("lookup", "visit", (DONE, REFUSED)),
    "lookup, once per run": Case("lookup", "run", (DONE,)),
}
"""The rows of the table, by their first cell."""


def table(page: str) -> dict[str, list[str]]:
    """Return the cells of the table of S-28, by the first cell of each row."""
    section = page.partition("### S-28")[2].partition("### S-29")[0]
    lines = re.findall(r"^\|(.*)\|$", section, re.MULTILINE)
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    assert rows[0][1:] == ["before the point", "after it, `ask`", "after it, `recorded`", "after it, `live`"]
    return {name: cells for name, *cells in rows[2:]}


# --- what the decisions say -------------------------------------------------------------------------------
def run(visit: int) -> Run:
    """Return the row of a fork in a visit."""
    return Run(**{**dict.fromkeys(Run._fields, ""), "tenant": "t", "run": "f", "visit": visit})  # type: ignore[arg-type]


def effect_of(case: Case, status: EffectStatus, visit: int) -> Effect:
    """Return the row of the call in the ledger of the ancestor."""
    plain: dict[str, Any] = dict.fromkeys(Effect._fields, 0)
    plain |= {"tenant": "t", "run": "a", "key": "k", "activity": "pay", "digest": "d", "args": b"{}"}
    plain |= {"undoes": "", "by_run": "", "error_text": "", "external_id": "", "undo": "reverse", "version": 4}
    plain |= {"visit": visit if case.once_per == "visit" else 0, "first_visit": visit, "status": status}
    if case.once_per == "tenant":
        plain |= {"run": "", "by_run": "a"}
    if case.reopened:
        plain["error_text"] = ERROR.encode(EffectError(REOPENED, ""))
    return Effect(**plain | {"ordinal": 1, "response": b"1"})


def copied(case: Case, status: EffectStatus, visit: int, *, accepts: bool) -> tuple[ForkPoint, list[CopiedCall]]:
    """Return the checkpoint and the copied call. Raises Conflict if the checkpoint has to be accepted."""
    plain: dict[str, Any] = dict.fromkeys(Event._fields, "")
    plain |= {"kind": CHECKPOINT, "snapshot": b"{}", "seq": 3, "visit": POINT, "at": 5}
    effects: list[Effect] = []
    memos: list[Memo] = []
    if case.kind == "write":
        effects = [effect_of(case, status, visit)]
    else:
        error = "" if status is DONE else ERROR.encode(EffectError("no", "it is refused"))
        of = visit if case.once_per == "visit" else 0
        memos = [Memo("t", "a", of, "k", "pay", "d", b"1", error, 4 if visit < POINT else 6)]
    (point,) = points_of([Event(**plain)], effects)
    check_accepted(point, accepted=accepts)
    return point, copies_of(run(0), point, effects, memos, None)


def word(case: Case, call: CopiedCall, answer: ForkAnswer, terms: ForkTerms) -> str:
    """Return an answer in the words of the table."""
    if isinstance(answer, FromRecording):
        assert answer.call == call
        return "its refusal" if case.statuses == (REFUSED,) else "its answer"
    if isinstance(answer, WaitForAncestor):
        return "waits"
    assert answer is None
    if case.kind == "lookup":
        return "made"
    return "a person" if terms.asks else "the policy"


def twice(
    case: Case, status: EffectStatus, visit: int, effects: Effects, *, accepts: bool, lookups: Lookups = "live"
) -> str:
    """Return what a fork does with the call, and in a later visit with the same one, in the words of the table."""
    try:
        _, calls = copied(case, status, visit, accepts=accepts)
    except Conflict:
        return "needs `accept_undone`"
    terms = ForkTerms("a", "a", 3, effects, lookups, "lead", accept_undone=accepts)
    ledger, found = ForkLedger(terms, calls), list[str]()
    for at in (POINT, POINT + 1):
        answer = answer_in_fork(ledger, case.kind, case.once_per, at, "k", lambda call: True)
        if isinstance(answer, FromRecording) and answer.records:
            ledger.add(use_of(run(at), answer.call, 0 if case.once_per == "run" else at, 7))
        found.append(word(case, calls[0], answer, terms))
    first, second = found
    return first if first == second else f"{first}, once; then {second}"


def both(case: Case, status: EffectStatus, visit: int, effects: Effects) -> str:
    """Return the cell of a mode, without and with `accept_undone`."""
    plain, accepted = (twice(case, status, visit, effects, accepts=accepts) for accepts in (False, True))
    if plain == accepted:
        return plain
    return f"{plain}, then {accepted}" if plain.startswith("needs") else f"{plain}; with `accept_undone` {accepted}"


def before(case: Case, status: EffectStatus) -> str:
    """Return the cell of a call of before the point. It has no mode, so it names each answer of the modes once."""
    cells = [both(case, status, 1, effects) for effects in MODES]
    if case.once_per == "visit":  # the fork asks for a call of a later visit, which is another call
        assert not any("its" in cell for cell in cells)
        return cells[0].partition(", then")[0] if cells[0].startswith("needs") else "never asked for again"
    head = next((f"{first}, then " for cell in cells if (first := cell.partition(", then ")[0]) != cell), "")
    return head + " or ".join(dict.fromkeys(cell.removeprefix(head) for cell in cells))


def derived(case: Case, status: EffectStatus) -> list[str]:
    """Return the cells of a row, as the decisions have them."""
    if case.once_per == "tenant":
        found = {twice(case, status, visit, mode, accepts=False) for visit in (1, 2) for mode in MODES}
        assert found == {"a person", "the policy"}, "the recording answers none"
        return ["S-18"] * 4
    if case.kind == "write":
        return [before(case, status), *(both(case, status, 2, effects) for effects in MODES)]
    recorded, live = (
        {twice(case, status, 2, mode, accepts=False, lookups=lookups) for mode in MODES}
        for lookups in get_args(Lookups)
    )
    assert len(recorded) == len(live) == 1, "the mode of the writes is not that of the lookups"
    after = "`lookups`" if (recorded, live) == ({"its answer, once; then made"}, {"made"}) else recorded.pop()
    return [before(case, status), *[after] * 3]


def differences(page: str) -> Iterator[str]:
    """Yield each cell of the page that is not what the decisions say."""
    found = table(page)
    if found.keys() != ROWS.keys():
        yield f"rows: {sorted(found.keys() ^ ROWS.keys())}"
    for name in found.keys() & ROWS.keys():
        for status in ROWS[name].statuses:
            for cell, says in zip(found[name], derived(ROWS[name], status), strict=True):
                if cell != says:
                    yield f"{name} ({status.value}): the page has {cell!r}, the decisions {says!r}"


# --- tests ------------------------------------------------------------------------------------------------
def test_each_cell_is_what_the_decisions_say() -> None:
    assert [*differences(PAGE)] == []


def test_each_status_has_a_row() -> None:
    for once_per in ("visit", "run"):
        named = {
            s for case in ROWS.values() if (case.kind, case.once_per) == ("write", once_per) for s in case.statuses
        }
        assert {*EffectStatus} == named


@pytest.mark.parametrize("name", ROWS)
def test_a_cell_that_says_something_else_is_found(name: str) -> None:
    for n, cell in enumerate(table(PAGE)[name]):
        row = [name, *table(PAGE)[name]]
        row[n + 1] = "waits" if cell != "waits" else "its answer"
        old = " | ".join((name, *table(PAGE)[name]))
        assert [*differences(PAGE.replace(f"| {old} |", f"| {' | '.join(row)} |"))] != []


@pytest.mark.parametrize("name", [name for name, case in ROWS.items() if case.once_per == "run"])
@pytest.mark.parametrize("effects", MODES)
def test_a_key_once_per_run_with_other_arguments_is_a_conflict(name: str, effects: Effects) -> None:
    """Also while it is open. Only a call that was undone, or refused after the point, leaves its key free."""
    case = ROWS[name]
    for status in case.statuses:
        for visit in (1, POINT):
            _, calls = copied(case, status, visit, accepts=True)
            ledger = ForkLedger(ForkTerms("a", "a", 3, effects, "live", "lead", accept_undone=True), calls)
            answer = answer_in_fork(ledger, case.kind, "run", POINT, "k", lambda call: False)
            refused_later = status is REFUSED and not case.reopened and visit == POINT
            free = status is UNDONE or refused_later
            assert answer == (None if free else RecordedOtherwise(calls[0]))


CHANGED: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "undone answers serve": ("_is_replayable", lambda call, terms: not call.is_open),
    "open answers serve": ("_is_replayable", lambda call, terms: True),
    "no call once per run is found": ("_once_per_run", lambda named, same: None),
    "each checkpoint is offered": ("_is_certain", lambda effect: True),
}
"""Decisions of `core/forks.py` that are replaced, and by what."""


@pytest.mark.parametrize("changed", CHANGED)
def test_a_changed_decision_is_found(monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    monkeypatch.setattr(forks, *CHANGED[changed])
    assert [*differences(PAGE)] != []
