"""Bytes of events: valid CloudEvents, fixed across versions, chained and numbered without a gap."""

import json
from datetime import UTC, datetime

import pytest
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from outlast.core.events import EventType, chain_hash, iso, trace_of
from outlast.core.rows.run_rows import Event, Run
from outlast.core.run_transition import event
from tests.core.drive import Drive

RUN = Drive().start().claim().run._replace(
    tenant="acme", run="neg-1", workflow="negotiation", version=7, epoch=3, seq=5, event_hash="abc", node="award",
    visit=2, correlation_id="c-9", trace_id="",
)  # fmt: skip
AT = 1_767_225_600_123
# Never edit these: later versions must read events that were signed and chained by earlier ones.
GOLDEN = (
    '{"specversion":"1.0","id":"neg-1/5","source":"/acme/negotiation","type":"dev.outlast.workflow.checkpoint",'
    '"subject":"neg-1","time":"2026-01-01T00:00:00.123Z","datacontenttype":"application/json","sequence":"0000000005",'
    '"previous":"0000000004","correlationid":"c-9","traceid":"-","data":{"version":7,"epoch":3,"node":"award","visit":2,'
    '"completed":"größe","next":"send"}}'
).encode()


def made() -> bytes:
    return event(RUN, EventType.CHECKPOINT, AT, {"completed": "größe", "next": "send"}).body


@pytest.mark.req("OUT-1", "OUT-3")
def test_the_bytes_are_these_for_ever() -> None:
    assert made() == GOLDEN
    row = event(RUN, EventType.CHECKPOINT, AT, {"completed": "größe", "next": "send"}, b"{}")
    assert (row.seq, row.at, row.node, row.visit, row.snapshot) == (5, AT, "award", 2, b"{}")
    assert row.hash == chain_hash("abc", GOLDEN)


def as_first_written(run: Run, type_: EventType, at: int, data: dict[str, object]) -> bytes:
    """Return the bytes by the code that first wrote them, with nothing prepared or cached."""

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=False)

    plain = json.dumps(data, ensure_ascii=False, separators=(",", ":"))[1:-1]
    return (
        f'{{"specversion":"1.0","id":"{run.run}/{run.seq}","source":"/{run.tenant}/{run.workflow}",'
        f'"type":"{type_.value}","subject":"{run.run}","time":"{iso(at)}","datacontenttype":"application/json",'
        f'"sequence":"{run.seq:010d}","previous":"{run.seq - 1:010d}",'
        f'"correlationid":{text(run.correlation_id or run.run)},'
        f'"traceid":{text(trace_of(run.trace_id) or "-")},'
        f'"data":{{"version":{run.version},"epoch":{run.epoch},"node":"{run.node}","visit":{run.visit}'
        f"{',' if data else ''}{plain}}}}}"
    ).encode()


def test_the_hash_is_sha256_over_predecessor_and_bytes() -> None:
    assert chain_hash("", b"x") == "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"


@pytest.mark.req("OUT-1")
@pytest.mark.parametrize("type_", list(EventType))
def test_every_type_is_read_by_the_cloudevents_library(type_: EventType) -> None:
    read = JSONFormat().read(CloudEvent, event(RUN, type_, AT, {"k": [1, None, "ü"]}).body)
    assert read.get_id() == "neg-1/5" and read.get_source() == "/acme/negotiation"
    assert read.get_type() == type_.value and read.get_specversion() == "1.0" and read.get_subject() == "neg-1"
    assert read.get_time() == datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC)
    extensions = {name: read.get_extension(name) for name in ("sequence", "previous", "correlationid", "traceid")}
    assert extensions == {"sequence": "0000000005", "previous": "0000000004", "correlationid": "c-9", "traceid": "-"}
    data = read.get_data()
    assert isinstance(data, dict) and data["k"] == [1, None, "ü"] and data["version"] == 7


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@settings(deadline=None)
@given(
    data=st.dictionaries(st.text(st.sampled_from("xyz"), min_size=1), JSON, max_size=3), correlation=TEXT, trace=TEXT
)
def test_any_data_is_valid_json_of_one_line(data: dict[str, object], correlation: str, trace: str) -> None:
    run = RUN._replace(correlation_id=correlation, trace_id=trace)
    try:
        body = event(run, EventType.LOGGED, AT, data).body
    except UnicodeEncodeError:
        return  # lone surrogates are refused, never stored
    read = json.loads(body)
    assert read["correlationid"] == (correlation or "neg-1") and read["traceid"] == (trace or "-")
    assert {name: read["data"][name] for name in data} == data
    assert b"\n" not in body


ROUTINE: tuple[dict[str, object], ...] = (
    {}, {"completed": "plan", "next": "send"}, {"worker": "w-1", "new_epoch": 3}, {"waiting_for": [{"kind": "sleep"}]},
    {"outcome": {"a": [1.5, None, "größe"]}, "reason": 'said "no"\n', "not_undone": []},
)  # fmt: skip


@pytest.mark.req("OUT-3")
@pytest.mark.parametrize("type_", list(EventType))
@settings(max_examples=40, deadline=None)
@given(
    data=st.sampled_from(ROUTINE) | st.dictionaries(st.text(), JSON, max_size=3),
    correlation=TEXT,
    trace=TEXT | st.just("00-" + "a" * 32 + "-" + "b" * 16 + "-01"),
    counts=st.tuples(*[st.integers(1, 2**40)] * 4),
    at=st.integers(0, 4_102_444_800_000),
)
def test_the_columns_give_the_bytes_that_rows_held_before(
    type_: EventType, data: dict[str, object], correlation: str, trace: str, counts: tuple[int, int, int, int], at: int
) -> None:
    version, epoch, seq, visit = counts
    run = RUN._replace(correlation_id=correlation, trace_id=trace, version=version, epoch=epoch, seq=seq, visit=visit)
    try:
        row = event(run, type_, at, data)
    except UnicodeEncodeError:
        return  # lone surrogates are refused, never stored
    again = Event._make([type(value)(value) for value in row[:-1]] + [None])
    assert again.body == as_first_written(run, type_, at, data)
    assert again.hash == chain_hash(run.event_hash, again.body)
    assert type(again.type) is str and again.type == type_
    assert again.data() == json.loads(again.body)["data"]


def test_a_value_outside_json_is_refused() -> None:
    with pytest.raises(ValueError, match="JSON"):
        event(RUN, EventType.LOGGED, AT, {"x": float("nan")})


@given(st.integers(0, 4_102_444_800_000))
def test_instants_are_rfc_3339_to_the_millisecond(at: int) -> None:
    text = iso(at)
    assert text.endswith("Z") and len(text) == len("2026-01-01T00:00:00.000Z")
    assert round(datetime.fromisoformat(text).timestamp() * 1000) == at
