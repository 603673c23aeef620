"""Assignments of attention items: one valid as long as its item, in one row that stays small."""

import json

import pytest

from outlast.core.assignments import (
    ME,
    UNASSIGNED,
    AssignedItem,
    Assignment,
    AssignmentRequest,
    assign,
    assignment_of,
    assignments_of,
    assignments_row,
    is_assigned_to,
)
from outlast.core.commit import Put
from outlast.core.limits import ASSIGNMENTS_MAX
from outlast.core.machine import Reason, RunStatus
from outlast.core.rows.run_columns import ATTENTION, Attention
from outlast.core.rows.run_rows import Run
from outlast.core.rows.store_rows import META, Meta
from outlast.errors import Conflict, Corrupt, InvalidInput, LimitExceeded
from tests.conformance.subject import TENANT, run_row

BROKEN = Attention(Reason.EXCEPTION, 1_000)
ONE, TWO = (Attention(Reason.EFFECT_UNCERTAIN, 2_000, key=f"pay/{n}", visit=1) for n in (1, 2))
ANA = Assignment("exception", "", 1_000, "ana", "local:ben", 5_000, "she knows it")


def flagged(*entries: Attention, run: str = "run-1") -> Run:
    return run_row(run, attention_text=ATTENTION.encode(list(entries)))


def ask(to: str = "ana", note: str = "she knows it", reason: Reason | None = None, key: str = "") -> AssignmentRequest:
    return AssignmentRequest(to, "local:ben", 5_000, note, reason, key)


def landed(item: AssignedItem, before: Meta | None) -> Meta:
    """Return the row that the commit writes."""
    assert item.commit is not None
    (put,) = item.commit.writes
    assert isinstance(put, Put) and put.kind is META and isinstance(put.row, Meta)
    assert put.replaces == (before.version if before else 0)
    return put.row


@pytest.mark.req("GATE-8")
def test_an_item_is_assigned_with_the_name_of_the_operator() -> None:
    run = flagged(BROKEN)
    item = assign(None, run, (), ask())
    row = landed(item, None)
    assert item[:3] == (run, BROKEN, ANA) and (row.tenant, row.key) == assignments_row(TENANT)
    assert assignments_of(row) == {"run-1": [ANA]}
    assert json.loads(row.value) == {"run-1": [["exception", "", 1_000, "ana", "local:ben", 5_000, "she knows it"]]}


def test_the_same_person_again_changes_nothing() -> None:
    run = flagged(BROKEN)
    row = landed(assign(None, run, (), ask()), None)
    for again in (ask(), ask(note=""), ask("local:ana"), ask(" ana ")):
        assert assign(row, run, (), again) == (run, BROKEN, ANA, None)
    noted = landed(assign(row, run, (), ask(note="she called")), row)
    assert [each.note for each in assignments_of(noted)["run-1"]] == ["she called"]


def test_another_person_replaces_the_first_and_no_name_removes_it() -> None:
    run = flagged(BROKEN)
    row = landed(assign(None, run, (), ask()), None)
    cleo = landed(assign(row, run, (), ask("cleo", "")), row)
    assert [each.to for each in assignments_of(cleo)["run-1"]] == ["cleo"]
    item = assign(cleo, run, (), ask(""))
    assert item.assignment is None and assignments_of(landed(item, cleo)) == {}
    assert assign(None, run, (), ask("")).commit is None, "there was none"


def test_me_is_the_caller_by_the_name_that_rules_use() -> None:
    item = assign(None, flagged(BROKEN), (), ask(ME))
    assert item.assignment is not None and (item.assignment.to, item.assignment.by) == ("ben", "local:ben")
    assert is_assigned_to("ben", ME, "local:ben") and is_assigned_to("ben", "local:ben", "x")
    assert is_assigned_to("", UNASSIGNED, "x") and not is_assigned_to("ben", UNASSIGNED, "x")
    assert not is_assigned_to("", ME, "") and not is_assigned_to("ben", "bo", "ben")


def test_a_stale_assignment_is_neither_shown_nor_kept() -> None:
    """The run was answered and asks again for the same reason: this is another item."""
    run, again = flagged(BROKEN), flagged(BROKEN._replace(since=9_000))
    row = landed(assign(None, run, (), ask()), None)
    assert assignment_of(assignments_of(row), run, BROKEN) == ANA
    assert assignment_of(assignments_of(row), again, again.attention[0]) is None
    assert assign(row, again, (), ask("")).commit is None
    after = landed(assign(row, again, (), ask("cleo")), row)
    assert [(each.to, each.since) for each in assignments_of(after)["run-1"]] == [("cleo", 9_000)]


def test_stale_assignments_of_other_runs_are_dropped() -> None:
    runs = [flagged(BROKEN, run=f"run-{n}") for n in range(4)]
    row = None
    for run in runs[:3]:
        row = landed(assign(row, run, runs, ask()), row)
    others = [runs[0], runs[1]._replace(attention_text=""), runs[2]._replace(status=RunStatus.COMPLETED)]
    after = landed(assign(row, runs[3], others, ask()), row)
    assert set(assignments_of(after)) == {"run-0", "run-3"}
    assert set(assignments_of(landed(assign(after, runs[1], (), ask()), after))) == {"run-1"}, "purged runs, too"


def test_an_item_is_named_by_reason_and_key_if_there_are_several() -> None:
    run = flagged(BROKEN, ONE, TWO)
    assert assign(None, run, (), ask(reason=Reason.EXCEPTION)).entry == BROKEN
    assert assign(None, run, (), ask(key="pay/2")).entry == TWO
    row = landed(assign(None, run, (), ask(reason=Reason.EFFECT_UNCERTAIN, key="pay/1")), None)
    both = landed(assign(row, run, (), ask("bo", reason=Reason.EXCEPTION)), row)
    assert [(each.key, each.to) for each in assignments_of(both)["run-1"]] == [("pay/1", "ana"), ("", "bo")]
    for vague in (ask(), ask(reason=Reason.EFFECT_UNCERTAIN)):
        with pytest.raises(InvalidInput, match="several items") as refused:
            assign(None, run, (), vague)
        assert "pay/1" in refused.value.why
    mixed = flagged(BROKEN, BROKEN._replace(key="x"))
    assert assign(None, mixed, (), ask(reason=Reason.EXCEPTION)).entry == BROKEN, "the one without a key is meant"


def test_an_item_that_is_not_there_is_refused() -> None:
    with pytest.raises(Conflict, match="needs no attention"):
        assign(None, run_row(), (), ask())
    with pytest.raises(Conflict, match="not flagged poisoned"):
        assign(None, flagged(BROKEN), (), ask(reason=Reason.POISONED))
    with pytest.raises(Conflict, match="ended"):
        assign(None, flagged(BROKEN)._replace(status=RunStatus.FAILED), (), ask())


@pytest.mark.parametrize("name", ["a\nb", "x" * 201, UNASSIGNED, "\ud800"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="cannot name a person"):
        assign(None, flagged(BROKEN), (), ask(name))


def test_a_note_is_bounded() -> None:
    with pytest.raises(LimitExceeded, match="too long"):
        assign(None, flagged(BROKEN), (), ask(note="x" * 2_001))


def full(note: str, n: int) -> tuple[Meta, list[Run]]:
    """Return a row of n valid assignments, and the runs."""
    runs = [flagged(BROKEN, run=f"run-{i}") for i in range(n)]
    value = json.dumps({run.run: [ANA._replace(note=note)] for run in runs}, ensure_ascii=False)
    return Meta(*assignments_row(TENANT), 7, value), runs  # type: ignore[arg-type, call-arg]


@pytest.mark.parametrize(("note", "n"), [("", ASSIGNMENTS_MAX), ("ß" * 2_000, 90)])
def test_their_number_and_size_are_bounded(note: str, n: int) -> None:
    row, runs = full(note, n)
    with pytest.raises(LimitExceeded, match="too many items are assigned") as refused:
        assign(row, flagged(BROKEN, run="further"), runs, ask(note=note or "x"))
    assert "--unassign" in refused.value.fix
    assert assign(row, runs[3], runs, ask("")).commit is not None, "what makes room is possible"
    assert assign(row, flagged(BROKEN, run="further"), runs[1:-5], ask(note=note)).commit is not None, "stale ones go"
    assert n < ASSIGNMENTS_MAX or assign(row, runs[3], runs, ask("cleo", "")).commit is not None, "it replaces one"


@pytest.mark.parametrize(
    "value", ["", "[]", "{", '{"r": 1}', '{"r": [["exception", ""]]}', '{"r": [["e","","x","","",0,""]]}']
)
def test_a_damaged_row_is_reported(value: str) -> None:
    with pytest.raises(Corrupt, match="assignments"):
        assignments_of(Meta(TENANT, "assignments", 1, value))
