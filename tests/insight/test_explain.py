"""The sentence, the next step and the commands of an explanation, for every state a run can be in (RUN-9)."""

from string import Formatter

import pytest

from outlast.core.durations import HOUR
from outlast.core.machine import RULES, Reason
from outlast.core.rows.run_columns import ATTENTION, WAITING_FOR, Attention, WaitingFor
from outlast.insight.explanation import explain
from outlast.insight.run_facts import RunFacts
from outlast.models.runs import RunExplanation
from tests.insight.situations import EFFECT, NOW, OVERDUE, RUN, SITUATIONS, W1, T, flagged, waits

SENTENCES = {
    "queued, no worker serves": "r1 has been queued for 60m; no live worker serves refund@1.",
    "queued, a worker takes it": "r1 has been queued for 60m; w-1 takes it.",
    "queued for a slot": "r1 has been queued for a slot for 60m; 2 of 2 slots of tenant t are taken.",
    "walked": "r1 is running node pay on w-1, for 3m.",
    "recovering": "r1 is held by w-2, which settles the calls its predecessor left open in node pay, for 3m.",
    "the owner's event loop is blocked": (
        "r1 is held by w-1 and continues when its event loop runs again: a call has blocked it for 17s."
    ),
    "queued, the one worker is blocked": (
        "r1 has been queued for 60m; w-1 takes it when its event loop runs again: a call has blocked it for 17s."
    ),
    "queued, one of two workers is blocked": "r1 has been queued for 60m; w-2 takes it.",
    "the owner drains": "r1 is held by w-1, which drains: it ends its call and gives the run back.",
    "the owner is silent": (
        "r1 is held by w-1, which has been silent for 9s: takeover in 6s unless it renews its lease."
    ),
    "the owner's lease has expired": "r1 was held by w-1, whose lease expired 2s ago; w-2 takes it over now.",
    "the owner's lease has expired, no other worker": (
        "r1 was held by w-1, whose lease expired 2s ago, and no live worker serves refund@1 to take it over."
    ),
    "the owner is gone": "r1 was held by w-1, which has stopped; w-2 takes it over now.",
    "a guest chooses a worker": "r1 has been queued for 60m; temporal chooses a worker for it.",
    "every worker of a guest is dead": "r1 has been queued for 60m; no live worker serves temporal:refund@1.",
    "a guest's engine is away": (
        "r1 has been queued for 60m; temporal away for 5m: connection refused; g-2 calls it again and again."
    ),
    "a guest's engine is away from one of two workers": "r1 has been queued for 60m; temporal chooses a worker for it.",
    "the bridge to a guest's engine is silent": (
        "r1 has been queued for 60m; g-1 serves it, but its bridge to temporal has been silent for 60m; "
        "temporal's own timer finds the run."
    ),
    "the worker of a guest is dead": "r1 was held by w-1, whose lease expired 2s ago; g-1 queues it now.",
    "sleeping": "r1 sleeps (night) for another 2h.",
    "slept, and no worker took it": ("r1 continues: its timer night ended 5s ago; no live worker serves refund@1."),
    "a signal, with an end": "r1 waits for the signal paid, for another 24h.",
    "a signal, without an end": "r1 waits for the signal paid, without a deadline.",
    "a signal that did not fit": (
        "r1 waits for the signal paid, without a deadline; 1 arrived with data of another type."
    ),
    "a signal that came": "r1 continues: the signal paid arrived 3s ago; w-1 takes it.",
    "collecting": "r1 has 2 of 5 signals bids and waits for more, for another 3h.",
    "an approval": "r1 waits for finance to decide ap_1 «Refund 42 EUR», for another 95h.",
    "an approval with another round": "r1 waits for finance to decide ap_1 «Refund 42 EUR», for another 95h.",
    "decided, not taken yet": "r1 continues: ap_1 was approved by local:bo 3s ago; w-1 takes it.",
    "retry": "r1 waits for attempt 3 of 3 of issue_refund (http_503), for another 20s.",
    "settle": (
        "r1 waits another 3m, until a sent call can no longer arrive, to learn the outcome of issue_refund refund/A-17."
    ),
    "uncertain, too early": (
        "r1 needs a person: issue_refund refund/A-17 may or may not have happened (timeout: ReadTimeout); "
        "«did not happen» is accepted in 2m."
    ),
    "uncertain": (
        "r1 needs a person: issue_refund refund/A-17 may or may not have happened (timeout: ReadTimeout); "
        "«did not happen» is accepted now."
    ),
    "uncertain, and settled": (
        "r1 continues with the answers of people (refund/A-17 is settled by local:bo); w-1 takes it."
    ),
    "exception": "r1 needs a person: node pay raised RuntimeError: on fire.",
    "retries exhausted": "r1 needs a person: issue_refund refund/A-17 did not happen after 3 attempts: http_503: busy.",
    "answered": "r1 continues with the answers of people (continue by local:bo); w-1 takes it.",
    "approval timed out": (
        "r1 needs a person: ap_1 «Refund 42 EUR» was not decided in time by finance; without an answer it is "
        "cancelled in 6d23h."
    ),
    "ceiling passed": (
        "r1 passed its ceiling 2h ago (refund_total_timeout) and continues: it waits for the signal paid, "
        "without a deadline."
    ),
    "held by an operator": "r1 waits because local:bo paused activity issue_refund 2h ago (the bank is down).",
    "asked to end, walked": (
        "r1 was asked to end by local:bo 3s ago (ordered twice); w-1 stops it before its next call."
    ),
    "asked to end, no worker serves": (
        "r1 was asked to end by local:bo 3s ago (ordered twice); no live worker serves refund@1."
    ),
    "asked to end, still settling": (
        "r1 was asked to end by local:bo 3s ago (ordered twice) and first waits another 3m, until a sent call can no "
        "longer arrive, to learn the outcome of issue_refund refund/A-17."
    ),
    "poisoned": "r1 needs a person: 3 workers died, one after the other, while each held this run and no other.",
    "of a dead worker, in a group": ("r1 has been queued for 60m; w-1 takes it once it holds at most 39 others."),
    "of a dead worker, alone": "r1 has been queued for 60m; w-1 takes it once it holds no other run.",
    "stranded, without a worker": "r1 needs a person: no worker serves refund@1 any more.",
    "stranded, and served again": "r1 continues: a worker serves refund@1 again; w-1 takes it.",
    "node gone": "r1 needs a person: refund v1 has no node pay any more.",
    "completed": "r1 completed 3m ago.",
    "failed": "r1 failed 3m ago: nothing to refund.",
    "cancelled, with effects not undone": (
        "r1 was cancelled 3m ago by local:bo: ordered twice; 1 effect was not undone."
    ),
}


@pytest.mark.req("RUN-9")
@pytest.mark.parametrize("situation", SITUATIONS)
def test_one_sentence_for_every_state(situation: str) -> None:
    assert explain(SITUATIONS[situation]).sentence == SENTENCES[situation]


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (9_999, None),
        (-9_999, None),
        (6 * HOUR, "it was set 6h forward; business time follows within two heartbeats of a worker"),
        (-6 * HOUR, "it is 6h behind the store's time, which never runs backwards; timers and leases go on"),
    ],
)
def test_a_clock_step_is_reported_from_ten_seconds_on(step: int, said: str | None) -> None:
    facts = dict(explain(RunFacts(RUN._replace(due_at=T), NOW, clock_step=step)).facts)
    assert facts.get("this machine's clock") == said


@pytest.mark.parametrize(("size", "deaths", "said"), [
    (40, 0, "executed with at most 39 other runs until it advances, because workers that held it died"),
    (1, 2, "executed alone until it advances, because workers that held it died; 2 of 3 crashes alone"),
])  # fmt: skip
def test_the_facts_of_a_run_in_a_group_explain_the_group(size: int, deaths: int, said: str) -> None:
    facts = dict(explain(RunFacts(RUN._replace(due_at=T, group_max=size, crash_count=deaths), NOW)).facts)
    assert facts["group"] == said


@pytest.mark.parametrize(("situation", "said"), [
    ("queued, a worker takes it", None),
    ("a guest chooses a worker", "temporal"),
    ("every worker of a guest is dead", "temporal; no worker of it is alive"),
    ("a guest's engine is away", "temporal; temporal away for 5m: connection refused"),
    ("the bridge to a guest's engine is silent", "temporal; its bridge to temporal has been silent for 60m"),
])  # fmt: skip
def test_the_facts_name_another_scheduler_and_its_trouble(situation: str, said: str | None) -> None:
    assert dict(explain(SITUATIONS[situation]).facts).get("scheduler") == said


@pytest.mark.req("RUN-9")
@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained_by_its_rule(reason: Reason) -> None:
    """A reason without a situation in the table has its sentence, its choices and its end, too."""
    rule, rows = RULES[reason], RunFacts(flagged(reason, "the cause", key=EFFECT.key), NOW, effects=(EFFECT,))
    explained = explain(rows)
    fixed = [part for part, *_ in Formatter().parse(rule.sentence)]
    assert all(part in explained.sentence for part in fixed), explained.sentence
    assert "the cause" in explained.sentence or "{detail}" not in rule.sentence
    assert explained.sentence.startswith("r1 needs a person: ") == rule.stops
    assert explained.next == f"if ignored: {rule.if_ignored}" or not rule.stops
    commands = " ".join(explained.unblock).replace("-", "_")
    offered = rows.run.attention[0].choices()
    assert [each for each in offered if f" {each} " not in f"{commands} " and f"__{each}" not in commands] == []


def test_every_situation_has_its_sentence() -> None:
    assert list(SENTENCES) == list(SITUATIONS) and len(SITUATIONS) >= 30


def of(situation: str) -> RunExplanation:
    """Explain a situation by its name."""
    return explain(SITUATIONS[situation])


@pytest.mark.req("RUN-9")
@pytest.mark.parametrize(
    ("situation", "commands"),
    [
        ("queued, no worker serves", ["outlast worker MODULE"]),
        ("every worker of a guest is dead", ["outlast worker MODULE --runtime temporal"]),
        ("the owner's lease has expired, no other worker", ["outlast worker MODULE"]),
        ("walked", []),
        ("the owner drains", ["outlast worker MODULE"]),
        ("a signal, without an end", ["outlast signal r1 paid --data '{…}'"]),
        (
            "an approval with another round",
            [
                "outlast approvals approve ap_1 --reason …",
                "outlast approvals reject ap_1 --reason …",
                "outlast approvals reject ap_1 --again --reason …",
            ],
        ),
        (
            "uncertain, too early",
            [
                "outlast effects resolve r1 refund/A-17 --happened ID --response JSON",
                "outlast effects resolve r1 refund/A-17 --give-up --reason …",
            ],
        ),
        (
            "approval timed out",
            ["outlast attention resolve r1 ask_again --reason …", "outlast attention resolve r1 cancel --reason …"],
        ),
        (
            "ceiling passed",
            [
                "outlast signal r1 paid --data '{…}'",
                "outlast attention resolve r1 extend --by 168h --reason …",
                "outlast attention resolve r1 cancel --reason …",
            ],
        ),
        ("held by an operator", ["outlast resume activity issue_refund"]),
        ("completed", []),
    ],
)
def test_commands_that_would_unblock_a_run(situation: str, commands: list[str]) -> None:
    assert list(of(situation).unblock) == commands


@pytest.mark.req("RUN-9")
def test_the_facts_name_holder_start_and_end() -> None:
    walked = dict(of("walked").facts)
    assert walked == {
        "node": "pay, visit 2 of the run", "held by": "w-1", "since": "3m ago, 2025-12-31T23:57:00.000Z",
        "lease": "for another 12s, renewed while the worker lives", "execution": "ends within 9m",
    }  # fmt: skip
    asked = of("an approval")
    assert dict(asked.facts)["until"] == "in 95h, 2026-01-04T23:00:00.000Z"
    assert asked.next == "in 95h an operator is called (REQUIRES_ATTENTION); nothing is approved by waiting"
    assert of("approval timed out").next == "if ignored: cancelled after 7 days"
    assert dict(of("cancelled, with effects not undone").facts)["not undone"] == "issue_refund refund/A-17"


def test_two_reasons_are_told_apart_in_the_commands() -> None:
    entries = [Attention(Reason.EXCEPTION, T, "E: x"), OVERDUE]
    run = waits("attention", "a person: exception", attention_text=ATTENTION.encode(entries))
    explained = explain(RunFacts(run, NOW, workers=(W1,)))
    assert explained.sentence == (
        "r1 passed its ceiling 2h ago (refund_total_timeout); it needs a person: node pay raised E: x."
    )
    assert "outlast attention resolve r1 continue --reason-name exception --reason …" in explained.unblock
    assert "outlast attention resolve r1 extend --reason-name total_timeout --by 168h --reason …" in explained.unblock


def test_several_waits_are_one_sentence() -> None:
    both = [WaitingFor("signal", "paid", "", T), WaitingFor("timer", "night", "", T, T + HOUR, "goes on")]
    run = RUN._replace(waiting_for_text=WAITING_FOR.encode(both))
    assert explain(RunFacts(run, NOW, workers=(W1,))).sentence == (
        "r1 waits for the signal paid, without a deadline and sleeps (night) for another 60m."
    )
