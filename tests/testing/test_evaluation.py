"""An evaluation forks recorded runs in separate stores: changes are seen, and no write is made."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from outlast.core.forks import ForkTerms
from outlast.errors import InvalidInput
from outlast.testing import (
    App,
    AppFactory,
    EvaluatedRun,
    EvaluationInputs,
    RunEvaluation,
    UnmadeCall,
    evaluation,
    evaluation_cases,
)
from outlast.testing.recorded_runs import RecordedPlay
from outlast.testing.virtual_runtime import AppRun
from outlast.upkeep.recorded_test import evaluation_case, evaluation_files, evaluation_set
from outlast.upkeep.recording import Recording, recording_of, without_secrets
from tests.mutants import remove
from tests.testing.evaluated_flows import ACTED, Code, flow, given


def finished(app: App, order: str = "A-1") -> AppRun[Any]:
    """Run an order to its end, with a signal after 5 hours."""
    run = app.start(flow, given(order))
    app.clock.skip("5h")
    run.signal("note", {"text": f"deliver {order} early"})
    if Code.asks:
        run.approve()
    app.clock.skip("12h")
    return run


def written(app: App, run: AppRun[Any], folder: Path) -> RunEvaluation:
    """Write the data set of an ended run, as `outlast runs test --evals` does."""
    recording = app.do(recording_of(app.runtime.operations, run.id))
    with RecordedPlay(flow, recording) as play:
        assert play.run() is None
    recording = without_secrets(recording.with_arguments(play.arguments))
    files = evaluation_files(folder / "orders.json", [run.id], force=False)
    files.folder.mkdir()
    file = files.recording(run.id)
    file.write_text(recording.dump())
    files.data.write_text(evaluation_set(flow.name, [evaluation_case(recording, file.relative_to(folder))]))
    ACTED.clear()
    return evaluation(flow, files.data)


@pytest.fixture
def orders(outlast_app: AppFactory, tmp_path: Path) -> RunEvaluation:
    app = outlast_app(flow)
    run = finished(app)
    assert run.status == "completed", run.attention
    return written(app, run, tmp_path)


def evaluated(orders: RunEvaluation, **state: Any) -> EvaluatedRun:
    """Return the result of the only case, with another first state if one is given."""
    (case,) = evaluation_cases(orders.file).cases
    inputs = case.inputs.model_copy(update={"state": {**case.inputs.state, **state}})
    return asyncio.run(orders.run(inputs))


def test_unchanged_code_ends_as_recorded_and_calls_nothing(orders: RunEvaluation) -> None:
    found = evaluated(orders)
    (case,) = evaluation_cases(orders.file).cases
    assert found == case.expected_output
    assert found.outcome["notes"] == ["deliver A-1 early", "receipt-A-1", "no_address"]
    assert ACTED == []


Change = Callable[[pytest.MonkeyPatch], None]


def changed(name: str, value: Any) -> Change:
    return lambda patch: patch.setattr(Code, name, value)


PROMPT = "How much is {order} worth?"
CHARGED: dict[str, Any] = {"order": "A-1", "part": "desk", "cents": 100 * len(Code.prompt.format(order="A-1"))}
CHANGES: dict[str, tuple[Change, UnmadeCall, list[str]]] = {
    "prompt": (
        changed("prompt", PROMPT),
        UnmadeCall(
            activity="charge",
            key="charge/A-1/desk",
            arguments={**CHARGED, "cents": 100 * len(PROMPT.format(order="A-1"))},
        ),
        [f"worth {PROMPT.format(order='A-1')}"],
    ),
    "argument": (
        changed("more", 1),
        UnmadeCall(activity="charge", key="charge/A-1/desk", arguments={**CHARGED, "cents": CHARGED["cents"] + 1}),
        [],
    ),
    "key": (
        changed("part", "lamp"),
        UnmadeCall(activity="charge", key="charge/A-1/lamp", arguments={**CHARGED, "part": "lamp"}),
        [],
    ),
    "key once per run": (
        changed("key", "B"),
        UnmadeCall(
            activity="reserve",
            key="reserve/A-1/B",
            arguments={"order": "A-1", "part": "B", "token": "redacted-1"},
        ),
        [],
    ),
    "a further call": (
        changed("mails", 2),
        UnmadeCall(activity="mail", key="mail/A-1/1", arguments={"order": "A-1", "n": 1, "text": "deliver A-1 early"}),
        [],
    ),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.req("TEST-2")
def test_a_change_ends_the_case_at_the_write_that_it_would_make(
    name: str, orders: RunEvaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, unmade, made = CHANGES[name]
    change(monkeypatch)
    found = evaluated(orders)
    assert (found.status, found.would_have_called) == ("stopped", [unmade])
    assert found.reason == f"would have called {unmade}"
    assert made == ACTED, "only the model may be asked"


def test_a_changed_model_is_seen_when_lookups_are_made_again(
    orders: RunEvaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def another(prompt: str) -> int:
        return 7

    monkeypatch.setattr(flow.activities["worth"], "fn", another)
    assert evaluated(orders).status == "completed"
    live = evaluated(evaluation(flow, orders.file, lookups="live"))
    assert [call.arguments["cents"] for call in live.would_have_called] == [7]
    assert [made.partition("/")[0] for made in live.made_lookups] == ["worth worth"]


def test_another_first_state_is_a_fork_with_it(orders: RunEvaluation) -> None:
    found = evaluated(orders, order="A-2")
    assert [call.key for call in found.would_have_called] == ["reserve/A-2/A"]


def test_an_approval_ends_the_case_also_if_it_was_given_then(
    outlast_app: AppFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Code, "asks", True)
    app = outlast_app(flow)
    orders = written(app, finished(app), tmp_path)
    found = evaluated(orders)
    assert (found.status, found.would_have_called) == ("stopped", [])
    assert (
        found.reason
        == 'asks lead to approve charge with {"cents": 1800, "order": "A-1", "part": "desk"}, as the recorded run did'
    )
    monkeypatch.setattr(Code, "more", 1)
    assert evaluated(orders).would_have_called[0].arguments["cents"] == CHARGED["cents"] + 1
    assert ACTED == []


def test_undone_effects_answer_and_a_stopped_fork_undoes_nothing(
    outlast_app: AppFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Code, "fails", True)
    app = outlast_app(flow)
    run = finished(app)
    assert run.status == "failed" and "release A-1" in ACTED
    orders = written(app, run, tmp_path)
    assert (evaluated(orders).status, evaluated(orders).reason) == ("failed", "no stock")
    monkeypatch.setattr(Code, "mails", 2)
    assert evaluated(orders).status == "stopped"
    assert ACTED == []


def test_a_run_without_its_signal_goes_on_after_the_deadline(outlast_app: AppFactory, tmp_path: Path) -> None:
    app = outlast_app(flow)
    run = app.start(flow, given())
    app.clock.skip("24h")
    app.clock.skip("12h")
    found = evaluated(written(app, run, tmp_path))
    assert found.outcome["notes"] == ["no note", "receipt-A-1", "no_address"]


@pytest.mark.req("TEST-2")
def test_a_write_that_waits_for_no_one_is_refused_by_the_caller(
    orders: RunEvaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ForkTerms, "asks", False)
    monkeypatch.setattr(Code, "more", 1)
    found = evaluated(orders)
    assert [call.arguments["cents"] for call in found.would_have_called] == [CHARGED["cents"] + 1]
    assert ACTED == []


# --- the data set -------------------------------------------------------------------------------------
def test_a_report_says_what_differs(orders: RunEvaluation, monkeypatch: pytest.MonkeyPatch) -> None:
    (same,) = asyncio.run(evaluation_cases(orders.file).evaluate(orders.run, progress=False)).cases
    assert {name: result.value for name, result in same.assertions.items()} == {
        "same_status": True,
        "same_outcome": True,
        "no_other_write": True,
    }
    monkeypatch.setattr(Code, "more", 1)
    (other,) = asyncio.run(evaluation_cases(orders.file).evaluate(orders.run, progress=False)).cases
    assert [result.value for result in other.assertions.values()] == [False, False, False]
    says = 'would have called charge with {"cents": 1801, "order": "A-1", "part": "desk"}'
    assert other.assertions["no_other_write"].reason == says


def test_mistakes_are_named(orders: RunEvaluation, tmp_path: Path) -> None:
    (case,) = evaluation_cases(orders.file).cases
    none = EvaluationInputs(run="r", recording="orders/none.json", state={})
    with pytest.raises(InvalidInput, match=r"none\.json cannot be read"):
        asyncio.run(orders.run(none))
    file = tmp_path / case.inputs.recording
    other = Recording.load(file.read_text(), str(file)).dump().replace(flow.name, "another")
    file.write_text(other)
    with pytest.raises(InvalidInput, match="is a run of another"):
        evaluated(orders)
    with pytest.raises(InvalidInput, match="lookups"):
        evaluation(flow, orders.file, lookups="made")  # type: ignore[arg-type]
    orders.file.write_text("{}")
    with pytest.raises(InvalidInput, match="is not a data set of recorded runs"):
        evaluation_cases(orders.file)


@pytest.mark.parametrize("removed", ["evaluations_write", "evaluations_decide", "forks_ask_nobody"])
def test_without_a_safeguard_its_test_fails(
    removed: str, orders: RunEvaluation, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove(removed, monkeypatch)
    check = {
        "evaluations_write": test_a_write_that_waits_for_no_one_is_refused_by_the_caller,
        "evaluations_decide": partial(test_a_change_ends_the_case_at_the_write_that_it_would_make, "argument"),
        "forks_ask_nobody": partial(test_a_change_ends_the_case_at_the_write_that_it_would_make, "argument"),
    }[removed]
    with pytest.raises(AssertionError):
        check(orders, monkeypatch)
