"""The quick check of a step refuses every text and value of an author that the whole check refuses."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.core.commit import Commit, Put
from outlast.core.limits import COMMIT_BYTES_MAX, ROW_BYTES_MAX
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import EFFECT, MEMO, Memo
from outlast.core.rows.row_kind import AnyKind
from outlast.core.rows.run_rows import EVENT, RUN
from outlast.errors import Rejected
from outlast.store import bounds
from tests import ROUTINE_BYTES
from tests.conformance.subject import T0, effect_row, event_row, moved, run_row

TEXT = st.text(max_size=5) | st.sampled_from(["", "a\0b", "\ud800", "line\nline", "ä", "\u2028"])
SIZES = [0, 1, ROUTINE_BYTES - 1, ROUTINE_BYTES, ROW_BYTES_MAX - 2_000, ROW_BYTES_MAX, COMMIT_BYTES_MAX]
BYTES = st.sampled_from([None, *(b"x" * size for size in SIZES)])
LONG = TEXT | st.sampled_from(["ä" * size for size in SIZES[:-1]])
GIVEN: dict[str, tuple[AnyKind, Row, dict[str, st.SearchStrategy[Any]]]] = {
    "event": (EVENT, event_row(), {"snapshot": BYTES}),
    "effect": (
        EFFECT,
        effect_row(),
        {"response": BYTES, "error_text": LONG, "external_id": TEXT, "allowed_by": LONG, "undo": TEXT},
    ),
    "run": (
        RUN,
        moved(run_row()),
        {"attention_text": LONG, "waiting_for_text": TEXT, "status_label": TEXT},
    ),
    "memo": (
        MEMO,
        Memo("acme", "run-1", 1, "look/1", "look", "d", b"1", "", T0),
        {"response": BYTES, "error_text": LONG, "key": TEXT},
    ),
}


def outcome(commit: Commit) -> str:
    try:
        bounds.check(commit)
    except Rejected as error:
        return str(error)
    return "lands"


@settings(max_examples=50, deadline=None)  # megabytes are slow to check
@given(st.data())
def test_what_authors_gave_is_refused_in_both_checks_alike(data: st.DataObject) -> None:
    puts = []
    for name in data.draw(st.lists(st.sampled_from(sorted(GIVEN)), min_size=1, max_size=4, unique=True)):
        kind, row, given_columns = GIVEN[name]
        changes = {column: data.draw(values) for column, values in given_columns.items()}
        puts.append(Put(kind, row._replace(**changes), 1 if kind is RUN else 0))
    commit = Commit(tuple(puts))
    whole = outcome(commit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "ROUTINE_BYTES", ROUTINE_BYTES)
        assert outcome(commit) == whole


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
@pytest.mark.parametrize(
    ("name", "column"),
    [
        *(("effect", column) for column in ("error_text", "external_id", "allowed_by", "undo", "settled_by")),
        *(("run", column) for column in ("attention_text", "waiting_for_text", "status_label")),
        *(("memo", column) for column in ("error_text", "key")),
        ("start", "correlation_id"),
        ("start", "objective"),
    ],
)
def test_a_text_that_a_store_cannot_hold_is_refused_in_a_step(
    name: str, column: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ROUTINE_BYTES", ROUTINE_BYTES)
    kind, row, _ = GIVEN.get(name, (RUN, run_row(), {}))
    step = [Put(kind, row, row[2] - 1 if kind is RUN else 0), Put(EVENT, event_row(), 0)]  # type: ignore[operator]
    assert outcome(Commit(tuple(step))) == "lands"
    step[0] = step[0]._replace(row=row._replace(**{column: text}))
    assert outcome(Commit(tuple(step))) != "lands"


@pytest.mark.parametrize(
    "writes",
    [(), [Put(EVENT, event_row(seq=n), 0) for n in range(1, 102)], [Put(RUN, run_row()._replace(due_at=2**63), 0)]],
)
def test_what_is_no_step_is_checked_whole(writes: Sequence[Put], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ROUTINE_BYTES", ROUTINE_BYTES)
    assert outcome(Commit(tuple(writes))) != "lands"


def test_a_step_is_not_checked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of verbs are only checked here, in tests, where ROUTINE_BYTES is 0."""
    wrong = Commit((Put(EFFECT, effect_row()._replace(first_at=2**63), 0),))
    assert outcome(wrong) != "lands"
    monkeypatch.setattr(bounds, "ROUTINE_BYTES", ROUTINE_BYTES)
    assert outcome(wrong) == "lands"
