"""The preview of a fork: it writes nothing, and the fork then does exactly what it says."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from outlast import Context, Workflow
from outlast.core.forks import CopiedCall, ForkTerms, outcomes_in_fork
from outlast.engine import fork_start
from outlast.engine.fork_start import ForkRequest, PreviewedFork
from outlast.errors import InvalidInput, NotFound
from outlast.models.fork_answers import ForkPreview
from outlast.telemetry.redact import GONE, redacted, restored
from outlast.testing.virtual_runtime import App
from tests.engine.test_forks import Outside, app, decide, ended, fork, hears, loops, orders, outside, run_of
from tests.mutants import remove

pytestmark = pytest.mark.req("RUN-10")
__all__ = ["app", "outside"]
POINTS = ("begin", "buy", "deliver")
MADE = ("asked", "policy", "made")
"""Outcomes of calls that reach the receivers."""


class Safe(BaseModel):
    """State with a secret."""

    password: str
    opened: int = 0
    keys: dict[str, list[str]] = {}


safes = Workflow("fork-safes", state=Safe)


@safes.node(start=True)
async def open_safe(ctx: Context[Safe]) -> None:
    """Count the opening."""
    ctx.state.opened += 1


def previewed(app: App, of: str, point: str, workflow: Any = orders, **given: Any) -> PreviewedFork:
    """Return the preview of a fork with an approver."""
    asked = ForkRequest(of, point, **{"approvers": "lead", **given})
    return app.do(fork_start.preview(app.store, workflow, asked, tenant=app.runtime.operations.tenant))


def shown(app: App, of: str, point: str, **given: Any) -> ForkPreview:
    """Return the preview as clients see it."""
    return app.do(app.runtime.operations.fork_preview(of, point, **{"approvers": "lead", **given}))


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("effects", ["ask", "recorded", "live"])
def test_the_fork_does_what_the_preview_says(app: App, outside: Outside, point: str, effects: str) -> None:
    """Each request of the fork is a call that the preview names as made or asked for, and no other call is."""
    of = ended(app)
    found = previewed(app, of, point, effects=effects)
    words = {call.key.partition("/")[0] for call, outcome in found.later if outcome in MADE}
    before = len(outside.writes), len(outside.reads)
    started = fork(app, of, point, effects=effects)
    for _ in range(5):
        if run_of(app, started.run).status == "completed":
            break
        decide(app, started.run)
    assert run_of(app, started.run).status == "completed"
    assert {each.split()[0] for each in outside.writes[before[0] :]} == words
    assert len(outside.reads) == before[1], "lookups are recorded"
    assert (started.copied and len(found.past)) == sum(call.past for call in started.copied)


@pytest.mark.parametrize("point", POINTS)
def test_a_live_lookup_is_previewed_as_made(app: App, outside: Outside, point: str) -> None:
    of = ended(app)
    found = previewed(app, of, point, effects="live", lookups="live")
    made, before = [call for call, outcome in found.later if outcome == "made"], len(outside.reads)
    fork(app, of, point, effects="live", lookups="live")
    assert len(outside.reads) - before == len(made)


def test_an_answer_is_previewed_for_one_call_only(app: App) -> None:
    """The run paid the same in both rounds: each of its two answers serves one call."""
    of = app.start(loops, {"item": "pen", "rounds": 2}).id
    found = previewed(app, of, "prepare", loops, effects="recorded")
    outcomes = [(call.activity, outcome) for call, outcome in found.later if call.activity == "pay_for"]
    assert outcomes == [("pay_for", "answered")] * 2
    asked = previewed(app, of, "prepare", loops, effects="ask")
    assert [outcome for call, outcome in asked.later if call.activity == "pay_for"] == ["asked"] * 2


def test_an_answer_that_serves_an_earlier_call_is_previewed_once() -> None:
    """The first of two equal calls was undone: the answer of the second serves it, and none is left for the second."""
    call = CopiedCall(1, "r", 1, "write", "visit", 2, "pay", "pay/pen", "d", False, "undone", "", "", b"1")
    calls = [call, call._replace(n=2, visit=3, status="done")]
    terms = ForkTerms("r", "r", 1, effects="recorded", approvers="lead")
    assert [outcome for _, outcome in outcomes_in_fork(terms, calls)] == ["answered", "asked"]
    accepted = terms._replace(accept_undone=True)
    assert [outcome for _, outcome in outcomes_in_fork(accepted, calls)] == ["answered", "answered"]
    open_once = [call._replace(once_per="run", status="uncertain"), call._replace(n=2, once_per="tenant", key="i")]
    assert [outcome for _, outcome in outcomes_in_fork(terms, open_once)] == ["waits", "shared"]


def test_a_preview_writes_nothing_and_names_every_refusal(app: App) -> None:
    of = app.start(loops, {"item": "pen", "fails": True}).id
    before = app.rows(of), app.events(of)
    found = shown(app, of, "again", approvers="")
    assert (app.rows(of), app.events(of)) == before
    assert app.do(app.runtime.operations.runs(forked_from=of)).runs == []
    lacks, undone = found.refused
    assert lacks.startswith("a fork needs approvers") and "may not be in force" in undone
    assert found.to_accept == ["reserve reserve/pen: undone"]
    assert shown(app, of, "again", accept_undone=True).refused == []


def test_the_difference_of_the_state_is_shown_and_a_wrong_one_names_its_field(app: App) -> None:
    of = ended(app)
    found = shown(app, of, "buy", state={"item": "ink", "price": 5})
    assert [(each.path, each.checkpoint, each.fork) for each in found.changes][:2] == [
        ("item", '"pen"', '"ink"'),
        ("price", "101", "5"),
    ]
    assert found.state == {"item": "pen", "price": 101, "paid": "", "sent": "", "seen": ["announce pen no. 2"]}
    with pytest.raises(InvalidInput) as refused:
        shown(app, of, "buy", state={"item": "pen", "price": "many"})
    assert [path for path, _ in refused.value.problems] == ["price"]


def test_signals_after_the_checkpoint_are_offered(app: App) -> None:
    run = app.start(hears, {"item": "pen"})
    run.signal("word", {"text": "one"}, signal_id="w-1")
    run.signal("word", {"text": "two"}, signal_id="w-2")
    assert run.status == "completed"
    points = app.do(app.runtime.operations.fork_points(run.id)).points
    offered = shown(app, run.id, str(points[-1].checkpoint), signals=["w-2"]).signals
    assert [(each.signal, each.name, each.sent) for each in offered] == [("w-2", "word", True)]
    with pytest.raises(NotFound):
        shown(app, run.id, "second", signals=["w-9"])


def test_what_cannot_be_forked_has_no_preview(app: App) -> None:
    run = app.start(hears, {"item": "pen"})
    found = shown(app, run.id, "first")
    assert found.in_flight and "it is waiting and may still act, as the fork may" in " ".join(found.refused)
    with pytest.raises(NotFound):
        shown(app, ended(app), "nowhere")


def test_a_redacted_value_that_stays_is_that_of_the_checkpoint(outlast_app: Callable[..., App]) -> None:
    """`runs show --state` redacts. A person edits that text, and the fork began with the mark as its password."""
    app = outlast_app(safes)
    of = app.start(safes, {"password": "s3cret-of-ana", "keys": {"token": ["a-1", "b-2"]}}).id
    found = shown(app, of, "open_safe")
    assert found.redacted and found.state["password"] == GONE
    edited = {**found.state, "opened": 7}
    assert [each.path for each in shown(app, of, "open_safe", state=edited).changes] == ["opened"]
    fork_id = app.do(app.runtime.operations.fork_run(of, "open_safe", approvers="lead", state=edited)).fork
    app.settle()
    state = json.loads(app.events(fork_id)[0].snapshot or b"")
    assert state == {"password": "s3cret-of-ana", "opened": 7, "keys": {"token": ["a-1", "b-2"]}}
    moved = {"password": "new", "opened": 1, "keys": {"other": [GONE]}}
    with pytest.raises(InvalidInput) as refused:
        shown(app, of, "open_safe", state=moved)
    assert [path for path, _ in refused.value.problems] == ["keys.other.0"]


@pytest.mark.parametrize(
    "value",
    [
        {"password": "abcdef", "n": [1, True, None, 1.5]},
        {"a": [{"secret": "x1"}, {"secret": "x2"}], "token": {"b": ["c", "d"]}},
        {"text": "password=abc", "inside": '{"api_key": "k-1"}', "pin_secret": 17},
        {},
    ],
)
def test_what_was_redacted_comes_back(value: dict[str, Any]) -> None:
    assert restored(redacted(value), value) == value


@pytest.mark.parametrize("given", [{"password": [GONE]}, {"n": GONE}, {"more": {"x": f"a {GONE}"}}, {"l": [1, GONE]}])
def test_a_mark_without_a_value_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"password|n|more\.x|l\.1"):
        restored(given, {"password": "abcdef", "n": 1, "l": [1]})


REMOVED: dict[str, Callable[[Callable[..., App]], None]] = {
    "redacted_marks_kept": lambda apps: test_a_redacted_value_that_stays_is_that_of_the_checkpoint(apps),
    "answers_previewed_for_ever": lambda apps: test_an_answer_that_serves_an_earlier_call_is_previewed_once(),
}
"""The test that fails without each safeguard."""


@pytest.mark.parametrize("removed", REMOVED)
def test_without_a_safeguard_its_test_fails(
    outlast_app: Callable[..., App], monkeypatch: pytest.MonkeyPatch, removed: str
) -> None:
    remove(removed, monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        REMOVED[removed](outlast_app)


def test_clients_see_at_which_checkpoint_a_fork_began(app: App) -> None:
    of = ended(app)
    started = fork(app, of, "deliver")
    assert run_of(app, started.run).forked_at == started.point.seq
    assert run_of(app, of).forked_at == 0
