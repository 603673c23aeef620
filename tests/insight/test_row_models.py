"""Rows as people and programs read them: complete models, in the right words."""

import json

import pytest

from outlast.core.commit import Instant
from outlast.core.machine import ENDED, EffectStatus, Reason, RunStatus
from outlast.core.mailbox import GIVEN_UP, REOPENED
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.run_columns import (
    ATTENTION,
    WAITING_FOR,
    Attention,
    StatusLabels,
    WaitingFor,
    WaitingKind,
    stored_label,
)
from outlast.core.rows.run_rows import Run
from outlast.insight import row_models
from outlast.insight.labels import shown_status, waiting_text

NOW = Instant(10_000, 10_000, 0)
RUN = Run(
    tenant="t", run="r1", version=3, epoch=1, owner="", inbox_seq=0, due_at=None, lane="claim@1", queue="",
    status=RunStatus.WAITING, workflow="claim", node="pay", status_label="", visit=2, entered_at=5_000, seq=3,
    event_hash="",
    attention_text="", waiting_for_text="", timers_text="", visits_text='{"look": 1, "pay": 1}', crash_count=0,
    slots_text="", ceiling_at=0, created_at=1_000, ended_at=0, requested_by="local:ana", correlation_id="", trace_id="",
)  # fmt: skip
EFFECT = Effect(
    tenant="t", run="r1", visit=2, key="pay/7", version=2, status=EffectStatus.DONE, activity="pay", digest="d",
    node="pay", args=b'{"cents": 5}', response=b'"ok"', error_text="", external_id="", attempts=1,
    waited_ms=0, ordinal=1, epoch=1, first_at=2_000, not_after=3_000, settle_after=12_000, covered_until=0, approval="",
    allowed_by="", undo="", settled_at=4_000, settled_by="call",
)  # fmt: skip


def waiting(kind: WaitingKind, what: str, who: str = "", until: int = 0) -> Run:
    """The run, waiting for this."""
    return RUN._replace(waiting_for_text=WAITING_FOR.encode([WaitingFor(kind, what, who, 2_000, until, "goes on")]))


def waiting_for_children(number: int) -> Run:
    """The run, waiting for a timer and for some children."""
    timer = WaitingFor("timer", "sleep", "", 2_000, 9_000, "continues")
    children = [WaitingFor("child", f"quote {n}", f"run-{n}", 2_000, 0, "goes on") for n in range(number)]
    return RUN._replace(waiting_for_text=WAITING_FOR.encode([timer, *children]))


@pytest.mark.parametrize(
    ("run", "serving", "text"),
    [
        (waiting("worker", "a worker"), [], "no worker serves claim@1"),
        (waiting("worker", "a worker"), ["claim@1"], "a worker that serves claim@1"),
        (waiting("approval", "ap_1 «Pay five» now", "lead"), [], "approval ap_1 by lead"),
        (waiting("signal", "answer"), [], "signal answer"),
        (waiting("timer", "a night"), [], "timer a night"),
        (waiting("retry", "attempt 2 of 3 of pay", "http_503"), [], "attempt 2 of 3 of pay: http_503"),
        (waiting("settle", "the outcome of pay pay/7"), [], "the outcome of pay pay/7: a call may still land"),
        (waiting("attention", "a person: exception"), [], "you: exception"),
        (waiting("slot", "a free slot"), [], "a free slot"),
        (waiting("child", "quote ada", "run-1"), [], "child quote ada (run-1)"),
        (waiting_for_children(2), [], "timer sleep + 2 children"),
        (RUN._replace(status=RunStatus.RUNNING, owner="w-2", due_at=1), [], "node pay, visit 2 of the run (w-2)"),
        (RUN._replace(status=RunStatus.COMPLETED, owner=ENDED, ended_at=9_000), [], ""),
    ],
)
def test_waits_of_a_run_in_one_line(run: Run, serving: list[str], text: str) -> None:
    assert waiting_text(run, serving) == text
    assert row_models.run_summary(run, serving, 0).waiting_text == text


@pytest.mark.req("RUN-2")
@pytest.mark.parametrize(
    ("run", "shown"),
    [
        (waiting("signal", "answer"), "WAITING"),
        (waiting("approval", "ap_1", "lead"), "PENDING_APPROVAL"),
        (waiting("approval", "ap_1", "lead")._replace(status_label="ON_THE_DESK"), "ON_THE_DESK"),
        (
            RUN._replace(attention_text=ATTENTION.encode([Attention(Reason.EXCEPTION, 3_000)]), status_label="X"),
            "REQUIRES_ATTENTION",
        ),
        (RUN._replace(status=RunStatus.FAILED, owner=ENDED, ended_at=9_000, status_label="X"), "FAILED"),
        (RUN._replace(status=RunStatus.COMPLETED, owner=ENDED, ended_at=9_000, status_label=""), "COMPLETED"),
        (RUN._replace(status=RunStatus.COMPLETED, owner=ENDED, ended_at=9_000, status_label="PAID"), "PAID"),
    ],
)
def test_the_status_that_is_shown(run: Run, shown: str) -> None:
    assert shown_status(run) == shown


LABELS = stored_label(StatusLabels("PLANNING", calling="WAITING_FOR_TOOL", approval="WAITING_FOR_APPROVAL"))
HELD_RUN = RUN._replace(status=RunStatus.RUNNING, owner="w-2", due_at=1, epoch=3)


@pytest.mark.req("RUN-2", "OBS-4")
@pytest.mark.parametrize(
    ("run", "oldest_call", "shown"),
    [
        (RUN._replace(status=RunStatus.QUEUED, due_at=1), 0, "QUEUED"),
        (HELD_RUN, 0, "PLANNING"),
        (HELD_RUN, 3, "WAITING_FOR_TOOL"),
        (HELD_RUN, 2, "WAITING_FOR_TOOL"),  # a retry, before its intent is written again
        (HELD_RUN._replace(status=RunStatus.RECOVERING), 2, "RECOVERING"),
        (HELD_RUN._replace(status=RunStatus.RECOVERING), 3, "WAITING_FOR_TOOL"),
        (HELD_RUN._replace(status=RunStatus.RECOVERING), 0, "PLANNING"),
        (waiting("worker", "a worker")._replace(status=RunStatus.RECOVERING, due_at=1), 0, "RECOVERING"),
        (waiting("settle", "the outcome of pay")._replace(status=RunStatus.RECOVERING), 0, "WAITING_FOR_TOOL"),
        (waiting("retry", "attempt 2 of 3 of pay", "http_503"), 0, "WAITING_FOR_TOOL"),
        (waiting("effect", "pay pay/7", "run r2"), 0, "WAITING_FOR_TOOL"),
        (waiting("approval", "ap_1", "lead"), 0, "WAITING_FOR_APPROVAL"),
        (waiting("timer", "a night"), 0, "PLANNING"),
        (waiting("pause", "activity/outlast.model"), 0, "PLANNING"),
        (
            waiting("approval", "ap_1")._replace(attention_text=ATTENTION.encode([Attention(Reason.EXCEPTION, 3_000)])),
            0,
            "REQUIRES_ATTENTION",
        ),
        (HELD_RUN._replace(status=RunStatus.COMPENSATING), 3, "COMPENSATING"),
        (RUN._replace(status=RunStatus.FAILED, owner=ENDED, ended_at=9_000), 0, "FAILED"),
        (RUN._replace(status=RunStatus.CANCELLED, owner=ENDED, ended_at=9_000), 0, "CANCELLED"),
    ],
)
def test_the_status_of_a_node_with_labels(run: Run, oldest_call: int, shown: str) -> None:
    assert shown_status(run._replace(status_label=LABELS), oldest_call) == shown


def test_a_run_as_json() -> None:
    flagged = waiting("attention", "a person: exception")._replace(
        attention_text=ATTENTION.encode([Attention(Reason.EXCEPTION, 3_000, "it broke")])
    )
    plain = row_models.run_summary(flagged, [], 0).model_dump(mode="json")
    assert plain["attention"] == [
        {
            "reason": "exception", "since": "1970-01-01T00:00:03.000Z", "detail": "it broke", "key": "",
            "trigger": "",
            "choices": ["continue", "fail", "cancel"], "if_ignored": "stays as it is", "name": "",
            "cause": "exception",
        }
    ]  # fmt: skip
    assert plain["ended_at"] is None and plain["waiting_for"][0]["since"] == "1970-01-01T00:00:02.000Z"


CHILD: dict[str, object] = {"child_text": '{"close":"cancel"}', "external_id": "run-7", "settle_after": 0}


def error(code: str) -> str:
    """Return the error column of an effect."""
    return json.dumps({"code": code, "detail": "why"})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "executed"),
        ({"attempts": 3}, "executed, called again ×2"),
        ({"settled_by": "reconcile"}, "executed (the receiver was asked)"),
        ({"settled_by": "local:ana"}, "executed (stated by local:ana)"),
        ({"status": EffectStatus.REFUSED, "error_text": error("http_404")}, "refused http_404"),
        (
            {"status": EffectStatus.REFUSED, "error_text": error(REOPENED), "settled_by": "local:ana"},
            "will be called again (stated by local:ana)",
        ),
        (
            {"status": EffectStatus.REFUSED, "error_text": error(GIVEN_UP), "settled_by": "local:ana"},
            "given up, outcome unknown (stated by local:ana)",
        ),
        ({"status": EffectStatus.REFUSED, "error_text": error(GIVEN_UP)}, "refused given_up"),
        ({"status": EffectStatus.UNCERTAIN, "error_text": error("timeout")}, "UNCERTAIN timeout"),
        ({"status": EffectStatus.INTENDED}, "in progress"),
        (
            {"status": EffectStatus.INTENDED, "settle_after": 0, "error_text": error("http_503")},
            "will be called again after http_503",
        ),
        ({"status": EffectStatus.UNDONE}, "undone"),
        (CHILD | {"status": EffectStatus.INTENDED}, "in progress, runs as run-7"),
        (
            CHILD | {"status": EffectStatus.INTENDED, "attempts": 2},
            "in progress, runs as run-7, started again ×1",
        ),
        (
            CHILD | {"status": EffectStatus.REFUSED, "error_text": error(REOPENED), "settled_by": "local:ana"},
            "will be started again (stated by local:ana)",
        ),
    ],
)
def test_the_outcome_of_an_effect(changes: dict[str, object], words: str) -> None:
    assert row_models.effect_record(EFFECT._replace(**changes), NOW).outcome == words  # type: ignore[arg-type]


def test_an_open_effect_of_a_run_that_no_worker_holds_is_not_in_progress() -> None:
    left = EFFECT._replace(status=EffectStatus.INTENDED, attempts=2)
    said = {
        held: row_models.effect_record(left, NOW, held={left.run} if held else set()).outcome for held in (True, False)
    }
    assert said == {True: "in progress, called again ×1", False: "left open, called again ×1: it may have happened"}


def test_the_time_until_did_not_happen_is_accepted() -> None:
    doubtful = EFFECT._replace(status=EffectStatus.UNCERTAIN, error_text=error("timeout"))
    assert row_models.effect_record(doubtful, NOW).settles_in_ms == 2_000
    assert row_models.effect_record(doubtful, Instant(12_000, 0, 0)).settles_in_ms == 0
    assert row_models.effect_record(EFFECT, NOW).settles_in_ms == 0
