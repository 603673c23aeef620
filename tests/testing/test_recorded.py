"""A recorded run plays again as it went, and a change of the code is found at the place where the run differs."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow, activity
from outlast.core.machine import EffectStatus
from outlast.errors import Conflict, InvalidInput, LimitExceeded
from outlast.runtime.operations import Operations
from outlast.testing import App, AppFactory, RecordedRun, RunDiffers, RunEnd, recorded
from outlast.testing.recorded_calls import RecordedAnswers
from outlast.testing.recorded_runs import RecordedPlay
from outlast.testing.virtual_runtime import AppRun
from outlast.upkeep import recording as recordings
from outlast.upkeep.export import ExportedRows
from outlast.upkeep.recording import Recording, recording_of, without_secrets
from outlast.upkeep.stand_ins import StandIns
from tests.testing import recorded_flows
from tests.testing.recorded_flows import Code, flow, given

Change = Callable[[pytest.MonkeyPatch], None]


def finished(app: App, order: str = "A-1") -> AppRun[Any]:
    """Run an order to its end, with a signal after 5 hours and two votes."""
    run = app.start(flow, given(order))
    app.clock.skip("5h")
    run.signal("note", {"text": f"deliver {order} early"})
    app.clock.skip("20h")
    run.approve(by="ana")
    run.approve(by="bob")
    app.clock.skip("12h")
    return run


def record(app: App, run: AppRun[Any]) -> Recording:
    """Return the recording of an ended run."""
    return app.do(recording_of(app.runtime.operations, run.id))


def again(recording: Recording) -> RecordedRun[Any]:
    """Return the recorded run as it is read from its file, with the arguments of its lookups from a first play."""
    with RecordedPlay(flow, recording) as play:
        assert play.run() is None
    written = without_secrets(recording.with_arguments(play.arguments))
    read = Recording.load(written.dump(), "run.json")
    assert read == written
    return RecordedRun(flow, read, Path("run.json"))


@pytest.fixture
def order(outlast_app: AppFactory) -> RecordedRun[Any]:
    app = outlast_app(flow)
    run = finished(app)
    assert run.status == "completed", run.waiting_for
    return again(record(app, run))


# --- as it went ---------------------------------------------------------------------------------------
@pytest.mark.req("TEST-1", "TEST-2")
def test_a_run_plays_as_recorded(order: RecordedRun[Any]) -> None:
    order.play()
    kinds = [act.kind for act in order.recording.acts]
    assert kinds == ["signal", "approve", "approve"]
    assert [act.by for act in order.recording.acts[1:]] == ["ana", "bob"]


def test_each_end_of_a_run_plays_as_recorded(outlast_app: AppFactory) -> None:
    app = outlast_app(flow)
    rejected = app.start(flow, given("A-2"))
    app.clock.skip("25h")  # no note comes
    rejected.approve(by="ana")
    rejected.reject("too dear", by="bob")
    assert rejected.status == "failed"
    cancelled = app.start(flow, given("A-3"))
    app.clock.skip("1h")
    cancelled.cancel("not wanted")
    assert cancelled.status == "cancelled"
    refused = finished(app, "refused")
    assert refused.status == "completed"
    expired = app.start(flow, given("A-4"))
    app.clock.skip("24h")
    app.clock.skip("96h")
    assert expired.attention == ["approval_timeout"]
    expired.answer("approval_timeout", "ask_again")
    expired.approve(by="ana")
    expired.approve(by="bob")
    app.clock.skip("12h")
    assert expired.status == "completed"
    for run in (rejected, cancelled, refused, expired):
        again(record(app, run)).play()


def test_the_undo_of_a_failed_run_is_played(outlast_app: AppFactory) -> None:
    app = outlast_app(flow)
    run = app.start(flow, given())
    app.clock.skip("24h")
    run.reject("too dear", by="ana")
    recording = record(app, run)
    assert {call.key: (call.kind, call.status) for call in recording.calls if call.kind != "lookup"} == {
        "reserve/A-1/A": ("activity", "undone"),
        "undo/reserve/A-1/A": ("undo", "done"),
    }
    again(recording).play()


# --- where it differs ---------------------------------------------------------------------------------
def changed(name: str, value: Any) -> Change:
    return lambda patch: patch.setattr(Code, name, value)


CHANGES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "prompt": (changed("prompt", "What costs {order}?"), ("node plan, visit 1, lookup price_of", "arguments.prompt")),
    "argument": (changed("cents", 4_300), ("node pay, visit 2, approval", "arguments.cents: 4300 instead of 4200")),
    "argument of a call": (
        lambda patch: (patch.setattr(Code, "asks", False), patch.setattr(Code, "cents", 4_300)),
        ("node pay, visit 2, activity charge", "arguments.cents: 4300 instead of 4200"),
    ),
    "key": (changed("key", "B"), ("node plan, visit 1, activity reserve (reserve/A-1/B)", "arguments.part: 'B'")),
    "further call": (changed("mails", 2), ("node tell, visit 3, activity mail (mail/A-1/1)", "did not make this call")),
    "missing call": (changed("mails", 0), ("node tell, visit 3, activity mail (mail/A-1/0)", "this one did not")),
    "no approval": (changed("asks", False), ("approve ", "is not pending")),
    "outcome": (changed("label", "settled"), ("the end, at node tell", "notes[2]: 'settled' instead of 'paid'")),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_found_where_the_run_differs(
    order: RecordedRun[Any], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    change, expected = CHANGES[name]
    change(monkeypatch)
    with pytest.raises(RunDiffers) as differs:
        order.play()
    for text in expected:
        assert text in str(differs.value), str(differs.value)


def test_a_deadline_that_passed_is_not_met_by_a_later_signal(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Time passes as it did: without the note, the run goes on after 24 hours and not before."""
    app = outlast_app(flow)
    run = app.start(flow, given())
    app.clock.skip("24h")
    run.approve(by="ana")
    run.approve(by="bob")
    app.clock.skip("12h")
    recording = record(app, run)
    assert recording.end.state["notes"][1] == "no note"
    again(recording).play()
    early = [act for act in recording.acts if act.kind == "approve"]
    assert early[0].at - recording.began >= 24 * 3_600_000


def test_each_act_comes_at_its_own_time(order: RecordedRun[Any]) -> None:
    """Also if a call takes longer than until the next act."""
    recording = order.recording
    with RecordedPlay(flow, recording) as play:
        run = play._start()
        play._app.do(play.pass_to(recording.ended))
        (signal, *_) = play._app.rows(run.id).messages
    assert abs(signal.at - recording.acts[0].at) < 1_000


# --- secrets ------------------------------------------------------------------------------------------
def test_a_secret_is_replaced_by_one_stand_in_wherever_it_occurs(outlast_app: AppFactory) -> None:
    app = outlast_app(flow)
    run = again(record(app, finished(app)))
    recording = run.recording
    text = recording.dump()
    assert Code.token not in text
    charge = next(call for call in recording.calls if call.activity == "charge")
    assert (charge.key, charge.answer) == ("charge/A-1/redacted-1", "receipt of A-1 with redacted-1")
    assert charge.arguments is not None and charge.arguments["token"] == "redacted-1"
    assert recording.state["token"] == recording.end.state["token"] == "redacted-1"
    (only,) = recording.replaced
    assert only["stand_in"] == "redacted-1" and "input.token" in only["places"]
    run.play()


def test_a_secret_of_the_test_counts_as_its_stand_in(outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code may take a secret from its environment: the play has another one than the run, and always the same."""
    tokens = {"first": "sk-test-aaaaaaaaaaaa", "second": ""}
    node = flow.nodes["pay"]
    before = node.fn

    async def pay(ctx: Any) -> Any:
        ctx.state.token = tokens["first"]
        return await before(ctx)

    app = outlast_app(flow)
    recording = record(app, finished(app))
    run = again(recording)
    monkeypatch.setitem(vars(node), "fn", pay)
    run.play()
    tokens["first"] = "no secret by its form"
    run.play()


def test_two_secrets_do_not_count_as_one(outlast_app: AppFactory) -> None:
    stand_ins = StandIns()
    found = stand_ins.replace({"token": "sk-live-aaaaaaaaaaaa", "api_key": "sk-live-bbbbbbbbbbbb", "pin": "1"}, "x")
    assert found == {"token": "redacted-1", "api_key": "redacted-2", "pin": "1"}
    assert stand_ins.known_replaced("charge/sk-live-bbbbbbbbbbbb") == "charge/redacted-2"
    assert stand_ins.replace({"password": 7, "n": 7}, "y") == {"password": 3, "n": 7}


def test_a_stand_in_is_that_of_one_secret(order: RecordedRun[Any]) -> None:
    was = {"first": {"token": "redacted-1"}, "second": {"token": "redacted-1"}}
    same = {"first": {"token": "sk-test-aaaaaaaa"}, "second": {"token": "sk-test-aaaaaaaa"}}
    assert RecordedAnswers(order.recording).different(was, same) is None
    other = {**same, "second": {"token": "sk-test-bbbbbbbb"}}
    different = RecordedAnswers(order.recording).different(was, other)
    assert different is not None and different.startswith("second.token: another secret"), different


# --- refused ------------------------------------------------------------------------------------------
def test_a_run_that_goes_on_is_refused(outlast_app: AppFactory) -> None:
    app = outlast_app(flow)
    with pytest.raises(Conflict, match="has not ended"):
        record(app, app.start(flow, given()))


def with_effect(status: EffectStatus) -> Callable[[ExportedRows], ExportedRows]:
    def changed_rows(found: ExportedRows) -> ExportedRows:
        first, *rest = found.rows.effects
        return found._replace(rows=found.rows._replace(effects=(first._replace(status=status), *rest)))

    return changed_rows


def forked(found: ExportedRows) -> ExportedRows:
    return found._replace(rows=found.rows._replace(run=found.rows.run._replace(forked_from="order-16")))


def moved(found: ExportedRows) -> ExportedRows:
    first, *rest = found.events
    return found._replace(events=[first._replace(kind="run.moved"), *rest])


UNFIT: dict[str, tuple[Callable[[ExportedRows], ExportedRows], str]] = {
    "uncertain": (with_effect(EffectStatus.UNCERTAIN), "whose outcome is not known"),
    "intended": (with_effect(EffectStatus.INTENDED), "whose outcome is not known"),
    "forked": (forked, "is a fork of order-16"),
    "moved": (moved, "was moved to another version or node"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_run_that_no_test_can_play_is_refused(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    change, text = UNFIT[name]
    app = outlast_app(flow)
    run = finished(app)
    read = recordings.rows_to_export

    async def rows(ops: Operations, run_id: str) -> ExportedRows:
        return change(await read(ops, run_id))

    monkeypatch.setattr(recordings, "rows_to_export", rows)
    with pytest.raises(Conflict, match=text):
        record(app, run)


def test_a_recording_of_another_workflow_or_none_is_refused(tmp_path: Path, order: RecordedRun[Any]) -> None:
    file = tmp_path / "test_x.py"
    with pytest.raises(InvalidInput, match="cannot be read"):
        recorded(flow, file)
    file.with_suffix(".json").write_text("{}")
    with pytest.raises(InvalidInput, match="is not a recording"):
        recorded(flow, file)
    file.with_suffix(".json").write_text(order.recording.dump())
    recorded(flow, file).play()
    with pytest.raises(InvalidInput, match="is a run of recorded-order"):
        recorded(Workflow("other", state=recorded_flows.Order), file)
    newer = json.loads(order.recording.dump()) | {"format_version": 99}
    file.with_suffix(".json").write_text(json.dumps(newer))
    with pytest.raises(InvalidInput, match="its version is 99"):
        recorded(flow, file)


def test_a_large_answer_is_stored_once_and_a_large_recording_is_refused(
    outlast_app: AppFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Code, "mails", 3)
    app = outlast_app(flow)
    recording = record(app, finished(app))
    text = recording.dump()
    assert text.count("x" * 1_000) == 1
    assert Recording.load(text, "run.json") == recording
    monkeypatch.setattr(recordings, "RECORDING_BYTES_MAX", 1_000)
    with pytest.raises(LimitExceeded, match="too large for a test"):
        recording.dump()


# --- with crashes -------------------------------------------------------------------------------------
RUN = recorded(flow, Path(__file__).with_name("recorded_run.json"))


@RUN.every_crash(cases=3)
@pytest.mark.req("TEST-1")
def test_a_recorded_run_survives_crashes(end: RunEnd) -> None:
    """The recording was written by `python -m tests.testing.recorded_run`."""
    RUN.check(end)
    end.receivers.assert_effects_once()
    assert end.receivers.executed("reserve/A-1/A") == end.receivers.executed("mail/A-1/0") == 1


def test_another_end_after_a_crash_is_found() -> None:
    good = RUN.recording.end
    nodes = tuple(good.nodes)
    effects = {call.key: call.status for call in RUN.recording.calls if call.kind != "lookup"}
    record_ = RunEnd("r1 advance", good.status, good.outcome, good.reason, good.state, nodes, effects, (), None)  # type: ignore[arg-type]
    RUN.check(record_)
    for wrong in ({"status": "failed"}, {"nodes": nodes[:1]}, {"effects": {**effects, "mail/A-1/1": "done"}}):
        with pytest.raises(RunDiffers, match="the end after r1 advance"):
            RUN.check(RunEnd(**{**vars(record_), **wrong}))


# --- sets of calls that ended early -------------------------------------------------------------------
@activity(name="recorded-quote", key="quote/{name}", no_undo="it asks")
async def quote(name: str, seconds: float = 0) -> str:
    """Answer after a while."""
    await asyncio.sleep(seconds)
    return name


class Quotes(BaseModel):
    said: list[str] = []


quotes = Workflow("recorded_quotes", state=Quotes)


@quotes.node(start=True)
async def ask_some(ctx: Context[Quotes]) -> None:
    plans = {"a": quote.plan("a", 0.2), "b": quote.plan("b"), "c": quote.plan("c"), "d": quote.plan("d")}
    done = await ctx.do_all(plans, at_most=2, min_successful=2)
    ctx.state.said = [f"{name} {status}" for name, status in done.statuses.items()]


@pytest.mark.req("TEST-1", "RUN-14")
def test_a_set_that_ended_early_plays_with_the_same_calls(outlast_app: AppFactory) -> None:
    """The slow answer of `a` came when `c` had been asked. In a play each answer is there at once."""
    app = outlast_app(quotes)
    run = app.start(quotes, {})
    assert run.outcome["said"] == ["a completed", "b completed", "c completed", "d not_started"]
    recording = Recording.load(record(app, run).dump(), "run.json")
    with RecordedPlay(quotes, recording) as play:
        assert play.run() is None
    with RecordedPlay(quotes, replace(recording, sets=[])) as play:
        assert "quote/c" in str(play.run())
