"""Columns that hold structured values: an unreadable text is Corrupt, with the kind, the key and the column."""

import json
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.core.commit import Instant
from outlast.core.durations import Liveness
from outlast.core.machine import WaitStatus
from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.columns import CACHED_CHARS_MAX, Column
from outlast.core.rows.effect_columns import ANSWER, EvidenceAnswer
from outlast.core.rows.effect_rows import Evidence, Memo, Wait
from outlast.core.rows.map_rows import MapOutcome
from outlast.core.rows.run_columns import VISITS, entered_visits, placed_visits
from outlast.core.rows.run_rows import Event, Floor, Message
from outlast.core.webhooks.deliveries import subscribe
from outlast.core.webhooks.webhook_details import SubscriptionTerms
from outlast.engine.lease import opened
from outlast.errors import Corrupt
from tests.core.drive import Drive

RUN = Drive().start().run
ROWS: dict[str, Row] = {
    "run": RUN,
    "approval": Drive().start().claim().ask().approval,
    "effect": Drive().start().claim().intend().effect,
    "memo": Memo("t", "r", 1, "m", "look", "d", b"1", "", 1),
    "evidence": Evidence("t", "r", 1, "k", 1, ANSWER.encode(EvidenceAnswer("done")), 1),
    "floor": Floor("t", "r", 1, 1, "", 1, 1, "", 1, 0),
    "map_outcome": MapOutcome("t", "r", 1, "m", 0, "c", b"1", ""),
    "worker": opened("w", name="", lanes="a@1", now_real=1, now_business=1, live=Liveness()),
    "subscription": subscribe(
        "t",
        "wh_1",
        SubscriptionTerms("https://example.com/", headers=(("x-a", "b"),), from_start=True),
        secret="whsec_a",
        since=0,
        by="ann",
        now=Instant(1, 1, 0),
    ),
    "wait": Wait("t", "r", 1, "bid", 1, WaitStatus.OPEN, "receive", "bid", 50, 0, "", 1),
}
BROKEN = ("{", '[{"reason": "none of ours"}]', "[[1]]", "7", "[7]", "[" * 100_000)


def structured() -> list[tuple[str, str]]:
    """Return kind and name of each column with a structured value."""
    return [
        (kind.name, column)
        for kind in KINDS
        for field, column in zip(kind.row._fields, kind.columns, strict=True)
        if field != column
    ]


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:30])
@pytest.mark.parametrize(("kind", "column"), structured())
def test_an_unreadable_text_is_corrupt(kind: str, column: str, text: str) -> None:
    if (kind, text) == ("wait", "[7]"):
        return  # a binding to message 7
    if column == "secret":
        text = f"whsec_a\n{text}"
    row = ROWS[kind]._replace(**{f"{column}_text": text})
    with pytest.raises(Corrupt) as raised:
        getattr(row, column)
    assert raised.value.row is not None and raised.value.row[0] == kind
    assert all(part in raised.value.what for part in (kind, *map(str, raised.value.row[1]), column))


@pytest.mark.parametrize(("kind", "column"), structured())
def test_a_value_is_immutable(kind: str, column: str) -> None:
    check_immutable(getattr(ROWS[kind], column))


def check_immutable(value: object) -> None:
    if isinstance(value, tuple):
        for each in value:
            check_immutable(each)
    else:
        hash(tuple(value.items()) if isinstance(value, MappingProxyType) else value)


def test_the_names_of_the_columns_have_no_suffix() -> None:
    assert all(not name.endswith("_text") for kind in KINDS for name in kind.columns)


def test_a_text_is_decoded_once() -> None:
    decoded: list[str] = []

    def decode(text: str) -> Any:
        decoded.append(text)
        return json.loads(text)

    column = Column("example", json.dumps, decode)
    long = json.dumps("x" * CACHED_CHARS_MAX)
    for text in ("[1]", "[1]", "[2]", long, long):
        column.decode(text)
    assert decoded == ["[1]", "[2]", long, long]


@pytest.mark.parametrize(("row", "read"), [("effect", "arguments"), ("effect", "answer")])
def test_unreadable_data_of_an_author_is_corrupt(row: str, read: str) -> None:
    broken = ROWS[row]._replace(**{"args" if read == "arguments" else "response": b"{"})
    with pytest.raises(Corrupt, match=f"{row} t/r/1/.*its (args|response) cannot be read"):
        getattr(broken, read)()


@pytest.mark.parametrize("text", BROKEN, ids=lambda text: text[:30])
@pytest.mark.parametrize("read", ["reason", "answer"])
def test_an_unreadable_message_of_a_person_is_corrupt(read: str, text: str) -> None:
    message = Message("t", "r", 3, "answer", "exception", text.encode(), "", "ana", 1)
    with pytest.raises(Corrupt, match="message t/r/3: its payload cannot be read"):
        getattr(message, read)


@pytest.mark.parametrize("details", [b"{", b"[]", b"\xff", b"1"])
def test_an_event_without_data_is_corrupt(details: bytes) -> None:
    with pytest.raises(Corrupt, match="event t/r/1: its details cannot be read"):
        Event("t", "r", 1, "workflow.completed", 1, "n", 1, 2, 1, "w", "", "", details, "", None).data()


def entered_as_first_written(text: str, node: str) -> str:
    visits = json.loads(text) if text else {}
    return json.dumps({**visits, node: visits.get(node, 0) + 1}, ensure_ascii=False, separators=(",", ":"))


@given(st.dictionaries(st.text(max_size=5), st.integers(1, 10_000), max_size=5), st.text(max_size=5), st.booleans())
def test_the_visits_after_a_node_is_entered_keep_their_bytes(visits: dict[str, int], node: str, placed: bool) -> None:
    text = placed_visits(visits) if placed else VISITS.encode(visits)
    assert entered_visits(text, node) == entered_as_first_written(text, node)
    assert entered_visits("", node) == entered_as_first_written("", node)


def test_unreadable_visits_are_corrupt_when_a_node_is_entered() -> None:
    with pytest.raises(Corrupt, match="visits"):
        entered_visits("{", "plan")
