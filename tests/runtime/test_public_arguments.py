"""Every public constructor, decorator and function checks its arguments: wrong type, zero, negative, NaN, bool, text.

One option name has one type everywhere. A table names the kind of each parameter. A public name without a row fails,
and so does a parameter without a kind. So a new option has to say what it refuses.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any, Final, NamedTuple, get_args, get_type_hints

import pytest
from pydantic import BaseModel

import outlast
from outlast import Context, Failures, Retry, Workflow, activity, lookup, role, workflow
from outlast.agent import ChatCompletions, Price, RecordingModel, ScriptedModel, SubAgent, agent_workflow, provided
from outlast.client.service_client import ServiceClient
from outlast.client.service_connection import ServiceConnection
from outlast.core.approvals import Actor
from outlast.core.rows.run_columns import StatusLabels
from outlast.errors import DefinitionError, InvalidInput, LimitExceeded
from outlast.flow import (
    Allow,
    Amount,
    Budget,
    Cancel,
    Deny,
    Fail,
    Happened,
    NeedsApproval,
    NotSent,
    Perhaps,
    RateLimit,
    Refused,
    Resend,
    RetryLater,
    Unknown,
    classify,
    person,
    policy_from_file,
    resend,
    workflows_of,
)
from outlast.http import PublicOnly
from outlast.pydantic_ai import DurableTool, OutlastApprovals
from outlast.runtime.client import Client
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store
from outlast.runtime.webhook_client import WebhookClient
from outlast.testing import (
    FakeReceivers,
    ModelServer,
    approve,
    choose,
    completions,
    every_crash,
    huge,
    node,
    reject,
    resets,
    send,
    slow,
    status,
    times_out,
    too_many,
)
from outlast.testing.virtual_runtime import App

NAN: Final = float("nan")
INFINITE: Final = float("inf")


class Kind(NamedTuple):
    """Values that a parameter must refuse."""

    wrong: tuple[Any, ...]


TEXT: Final = Kind((5, True, b"x", ["a"], None, ""))
MAYBE_EMPTY: Final = Kind((5, True, b"x", ["a"], None))
NAME: Final = Kind((5, True, b"x", ["a"], None, "no name", "a/b"))
FLAG: Final = Kind(("no", 1, 0, None, (), "true"))
COUNT: Final = Kind((0, -1, True, 1.5, "3", NAN, None, [1]))
FROM_ZERO: Final = Kind((-1, True, 1.5, "3", NAN, [1]))
NUMBER: Final = Kind((0, -1, True, "3", NAN, INFINITE, [1]))
NUMBER_FROM_ZERO: Final = Kind((-1, True, "3", NAN, INFINITE, [1]))
DURATION: Final = Kind(("soon", "", "-1s", "0s", 5, 0, True, NAN, timedelta(), timedelta(-1), ["1s"]))
NOT_NONE: Final = Kind((*DURATION.wrong, None))
TEXTS: Final = Kind(("abc", b"abc", 5, True, [5], {"a": 1}, [""]))
OBJECTS: Final = Kind(("abc", 5, True, [5], ["a"], {"a": 1}))
FUNCTION: Final = Kind((5, "x", True, ()))
OBJECT: Final = Kind((5, "x", True, 0, (), {}))
MAPPING: Final = Kind((5, "ab", [1], True, {1: 2}))
RULE: Final = Kind(("finance", 5, True, None, [], ["finance"], {}))
CHOICE: Final = Kind(("nonsense", 5, True, None, ["visit"]))
MONEY: Final = Kind((-1, True, "much", NAN, INFINITE, [1]))
MODEL: Final = Kind((5, "x", dict, True))
ANY: Final = Kind(())


class Row(NamedTuple):
    """A public name: how it is called with valid arguments and one other, and the kind of each parameter."""

    call: Callable[..., Any]
    kinds: Mapping[str, Kind]
    signature: Any = None
    """Whose parameters the kinds must cover, if those of the public name itself do not say."""


class State(BaseModel):
    n: int = 0


def made(**options: Any) -> Any:
    return Workflow(**{"name": "made", "state": State, **options})


def acting(**options: Any) -> Any:
    @activity(**{"key": "act/{a}", "no_undo": "no", **options})
    async def act(a: str) -> None: ...

    return act


def looking(**options: Any) -> Any:
    @lookup(**options)
    async def look(a: str) -> None: ...

    return look


def noded(**options: Any) -> Any:
    flow = made()

    @flow.node(**options)
    async def only(ctx: Context[State]) -> None: ...

    return flow


def function(**options: Any) -> Any:
    @workflow(**options)
    async def run(ctx: Context, n: int) -> int:
        return n

    return run


def undone(**options: Any) -> Any:
    act = acting(no_undo=None)

    @act.undo(**options)
    async def undo(done: None, a: str) -> None: ...


def reconciled(**options: Any) -> Any:
    @acting().reconcile(**options)
    async def ask(a: str) -> Any: ...


def migrated(**options: Any) -> Any:
    @made(version=3).migrate(**{"from_": 2, **options})
    def old(state: Any) -> Any:
        return state


def routed(**options: Any) -> Any:
    given = {"path": "/x", **options}
    script = given.pop("script", ())
    FakeReceivers().route(given.pop("path"), *script, **given)


def agent(**options: Any) -> Any:
    return agent_workflow(**{"name": "agent", "model": "openai:gpt-5", **options})


OPTIONS: Final = {
    "version": COUNT, "ceiling": NOT_NONE, "policy": FUNCTION, "key": Kind((5, True, "", ["n"], "{gone}")),
    "objective": Kind((5, True, None, "{gone}", ["n"])),
    "attributes": Kind((5, True, None, "n", b"n", ["gone"], [5], [["n"]], {"n": 5}, {5: "n"})),
    "slot_while_waiting": FLAG,
    "when_empty": Kind(("no", 5, True)), "fails_if": OBJECT, "budget": OBJECT,
    "history": Kind((0, True, "soon", 2.5, ["n"])), "undo": Kind(("no", 5, True)), "results": Kind(("no", 5, True)),
    "dedupe_for": DURATION,
}  # fmt: skip
OF_A_CALL: Final = {
    "name": NAME, "key": TEXT, "once_per": Kind(("nonsense", 5, True, ["visit"])), "timeout": DURATION,
    "retry": OBJECT, "provider": NAME, "limit": OBJECT,
}  # fmt: skip
UNCERTAIN: Final = Kind(("nonsense", 5, True, None, ["ask_person"]))
ROWS: Final[dict[str, Row]] = {
    "Allow": Row(Allow, {"rule": MAYBE_EMPTY}),
    "Budget": Row(
        lambda **given: Budget(**{"tokens": 1, **given}),
        {"tokens": FROM_ZERO, "money": MONEY, "calls": FROM_ZERO, "minutes": NUMBER_FROM_ZERO, "children": FROM_ZERO},
    ),
    "Amount": Row(
        lambda **given: Amount(**{"name": "cents", **given}),
        {"name": TEXT, "currency": MAYBE_EMPTY, "decimals": Kind((-1, 13, True, 1.5, "2")), "words": MAYBE_EMPTY},
    ),
    "Deny": Row(lambda **given: Deny(**{"rule": "no", **given}), {"rule": MAYBE_EMPTY, "detail": MAYBE_EMPTY}),
    "Failures": Row(
        lambda **given: Failures(**{"share": 0.5, **given}),
        {"share": Kind((*NUMBER.wrong, 1.1)), "at_least": COUNT, "of": Kind((5, True, [5], [""], ["a b"], "a b"))},
    ),
    "NeedsApproval": Row(
        lambda **given: NeedsApproval(**{"rule": "r", "by": role("lead"), **given}),
        {
            "rule": MAYBE_EMPTY,
            "by": RULE,
            "summary": MAYBE_EMPTY,
            "within": NOT_NONE,
            "quorum": COUNT,
            "not_requester": FLAG,
        },
    ),
    "RateLimit": Row(
        lambda **given: RateLimit(**{"concurrent": 1, "per_second": 1, **given}),
        {"concurrent": FROM_ZERO, "per_second": NUMBER_FROM_ZERO},
    ),
    "Retry": Row(Retry, {"attempts": COUNT, "total_wait": NOT_NONE, "first": NOT_NONE, "factor": NUMBER}),
    "RetryLater": Row(RetryLater, {"detail": ANY, "after": Kind(("soon", 5, True, timedelta(-1), "-1s"))}),
    "Resend": Row(Resend, {"remembered_for": NOT_NONE}),
    "resend": Row(resend, {"remembered_for": NOT_NONE}),
    "StatusLabels": Row(
        lambda **given: noded(
            start=True, status=StatusLabels(**{"executing": "A", "calling": "B", "approval": "C", **given})
        ),
        {"executing": TEXT, "calling": TEXT, "approval": TEXT},
    ),
    "Workflow": Row(made, {**OPTIONS, "name": TEXT, "state": MODEL, "outcome": FUNCTION, "input": MODEL}),
    "Workflow.node": Row(
        noded,
        {
            "start": FLAG,
            "status": Kind((5, True, "", "no name", ())),
            "end": Kind((5, True, "", "no name", "FAILED")),
            "max_visits": Kind((0, -1, True, 1.5, "3", NAN)),
            "within": DURATION,
            "ceiling": DURATION,
            "plane": Kind(("nonsense", 5, True, None, ["decision"])),
        },
        Workflow.node,
    ),
    "Workflow.migrate": Row(
        migrated,
        {
            "from_": COUNT,
            "to": Kind((-1, "3", 1.5, NAN)),
            "renamed": Kind((5, "ab", [1])),
            "dropped": Kind(("mail", 5, [5])),
        },
        Workflow.migrate,
    ),
    "activity": Row(
        acting,
        {
            **OF_A_CALL,
            "if_uncertain": UNCERTAIN,
            "no_undo": Kind((5, True, "", " ")),
            "keep": DURATION,
            "transaction": Kind(("yes", 1, 0, None, ())),
            "show": Kind(("cents", 5, None, ("nowhere",), (5,))),
        },
    ),
    "activity.undo": Row(
        undone,
        {
            "if_uncertain": UNCERTAIN,
            "timeout": DURATION,
            "retry": OBJECT,
            "reconcile": FUNCTION,
            "settle_time": DURATION,
            "transaction": Kind(("yes", 1, 0, None, ())),
        },
        acting().undo,
    ),
    "activity.reconcile": Row(reconciled, {"settle_time": DURATION}, acting().reconcile),
    "lookup": Row(looking, {**OF_A_CALL, "key": Kind((5, True, "", b"x")), "durable": FLAG}),
    "workflow": Row(function, {"name": NAME, "end": Kind((5, True, "", "no name", "FAILED")), "options": ANY}),
    "WorkflowOptions": Row(function, OPTIONS, outlast.flow.WorkflowOptions),
    "person": Row(person, {"name": TEXT}),
    "role": Row(role, {"name": Kind((*TEXT.wrong, "no role"))}),
    "classify": Row(
        classify, {"errors": Kind((5, "x", [ValueError], {5: Refused}, {ValueError: int}, {BaseException: Refused}))}
    ),
    "policy_from_file": Row(policy_from_file, {"path": Kind((5, True, None, ["a"], "/nowhere.cedar"))}),
    "workflows_of": Row(workflows_of, {"module": Kind((5, "orders", None, True))}),
    "connect": Row(
        outlast.connect,
        {
            "target": MAYBE_EMPTY,
            "token": MAYBE_EMPTY,
            "tenant": MAYBE_EMPTY,
            "actor": Kind((5, True, ["ana"])),
            "workflows": Kind(("orders", 5, True)),
            "timeout": Kind(("soon", 0, "0s", -1, True, NAN, None, INFINITE, [1])),
        },
    ),
    "connect_sync": Row(
        lambda **given: outlast.connect_sync("memory:" if "timeout" not in given else "http://127.0.0.1:9", **given),
        {
            "target": ANY,
            "token": MAYBE_EMPTY,
            "tenant": MAYBE_EMPTY,
            "actor": Kind((5, True, ["ana"])),
            "workflows": Kind(("orders", 5, True, ["orders"], [5])),
            "timeout": Kind(("soon", 0, "0s", -1, True, NAN, None, INFINITE, [1])),
        },
    ),
    "asgi": Row(
        lambda **given: outlast.asgi(given.pop("store", object()), **given),
        {"store": Kind((5, "sqlite:x", None)), "workflows": OBJECTS, "authenticator": ANY, "bounds": OBJECT},
    ),
    # outlast.agent
    "agent_workflow": Row(
        agent,
        {
            "name": TEXT,
            "result": MODEL,
            "tools": OBJECTS,
            "agents": OBJECTS,
            "model": Kind((5, None, True)),
            "instructions": MAYBE_EMPTY,
            "description": MAYBE_EMPTY,
            "approve": Kind((5, "ab", [1], True, {1: 2}, {"act": "finance"})),
            "within": NOT_NONE,
            "max_steps": Kind((0, -1, True, 1.5, "3", NAN)),
            "settings": MAPPING,
            "stream": FLAG,
            "options": ANY,
        },
    ),
    "ChatCompletions": Row(
        lambda **given: ChatCompletions(**{"name": "m", "url": "http://127.0.0.1:9", **given}),
        {
            "name": TEXT,
            "url": Kind((*TEXT.wrong, "127.0.0.1")),
            "key": MAYBE_EMPTY,
            "timeout_s": NUMBER,
            "price": OBJECT,
            "result_by": CHOICE,
        },
    ),
    "Price": Row(lambda **given: Price(**{"input": 1, "output": 1, **given}), {"input": MONEY, "output": MONEY}),
    "ScriptedModel": Row(
        lambda **given: ScriptedModel(**{"answers": ["done"], **given}),
        {
            "answers": Kind(("done", 5, True, None)),
            "name": TEXT,
            "price": Kind((5, True, None, "cheap")),
            "result_by": CHOICE,
        },
    ),
    "RecordingModel": Row(
        lambda **given: RecordingModel(**{"inner": None, "path": "x.jsonl", **given}),
        {"inner": Kind((5, "gpt", True)), "path": Kind((5, None, True, ["a"])), "name": TEXT, "result_by": CHOICE},
    ),
    "provided": Row(provided, {"name": Kind((5, True, None, ["a"]))}),
    # outlast.pydantic_ai
    "DurableTool": Row(DurableTool, {}),
    "SubAgent": Row(
        lambda **given: SubAgent(given.pop("workflow", agent()), **given),
        {
            "workflow": Kind((5, "x", True, None)),
            "background": FLAG,
            "description": MAYBE_EMPTY,
            "no_undo": Kind((5, "")),
        },
    ),
    "OutlastApprovals": Row(
        lambda **given: OutlastApprovals(**{"by": role("lead"), "within": "1h", **given}),
        {
            "by": RULE,
            "within": NOT_NONE,
            "valid_for": NOT_NONE,
            "quorum": COUNT,
            "not_requester": FLAG,
            "risk": CHOICE,
            "editable": TEXTS,
            "summary": FUNCTION,
        },
    ),
    # outlast.testing
    "App": Row(
        lambda **given: App(**{"workflows": (), **given}),
        {"workflows": OBJECTS, "store": TEXT, "began": Kind((-1, True, 1.5, "3", NAN, None, [1]))},
    ),
    "FakeReceivers": Row(FakeReceivers, {"env": TEXT}),
    "FakeReceivers.route": Row(
        routed,
        {
            "path": TEXT,
            "script": Kind((["ok"], [5])),
            "key": MAYBE_EMPTY,
            "duplicates": CHOICE,
            "remembers": Kind(("soon", 5, True)),
            "askable": FLAG,
            "reply": ANY,
            "asked": ANY,
            "script_of": ANY,
            "encoded": ANY,
        },
        FakeReceivers.route,
    ),
    "ModelServer": Row(
        ModelServer,
        {
            "answers": Kind(("done", 5, True, None)),
            "misbehave": Kind((5, "ab", [1], {"a": []}, {-1: []}, {0: "ok"})),
            "duplicates": CHOICE,
            "env": TEXT,
        },
    ),
    "completions": Row(
        lambda **given: completions(FakeReceivers(), **{"answers": (), **given}),
        {
            "receivers": ANY,
            "answers": Kind(("done", 5, True, None)),
            "duplicates": CHOICE,
            "misbehave": Kind((5, "ab", [1], {"a": []}, {-1: []}, {0: "ok"})),
        },
    ),
    "approve": Row(approve, {"reason": MAYBE_EMPTY, "alternative": FROM_ZERO}),
    "reject": Row(reject, {"reason": MAYBE_EMPTY, "again": FLAG}),
    "choose": Row(
        lambda **given: choose(**{"choice": "continue", **given}),
        {
            "choice": CHOICE,
            "reason": MAYBE_EMPTY,
            "tokens": FROM_ZERO,
            "money": MONEY,
            "calls": FROM_ZERO,
            "children": FROM_ZERO,
            "minutes": NUMBER_FROM_ZERO,
        },
    ),
    "send": Row(lambda payloads: send(payloads), {"payloads": Kind((5, "x", None, [1]))}),
    "huge": Row(huge, {"megabytes": COUNT}),
    "slow": Row(slow, {"seconds": Kind((-1, True, "3", NAN, INFINITE, None))}),
    "status": Row(
        lambda **given: status(**{"code": 503, **given}),
        {"code": Kind((0, 99, 600, True, "503", 1.5, None)), "acts": FLAG, "retry_after": Kind(("soon", 5, True))},
    ),
    "resets": Row(resets, {"acts": FLAG}),
    "times_out": Row(times_out, {"acts": FLAG}),
    "too_many": Row(too_many, {"retry_after": Kind(("soon", 5, True))}),
    "every_crash": Row(
        lambda **given: every_crash(**{"workflow": noded(start=True), "given": {}, **given}),
        {
            "workflow": Kind((5, "orders", None)),
            "given": Kind((5, "x", None, [1])),
            "decide": Kind((5, "x", ())),
            "receivers": OBJECT,
            "pairs": Kind(("some", -1, True, 1.5, NAN, 3)),
            "seed": FROM_ZERO,
            "workers": COUNT,
            "batched": FLAG,
            "slots": FROM_ZERO,
            "attempt_timeout": NOT_NONE,
            "cases": FROM_ZERO,
        },
    ),
    "PublicOnly": Row(PublicOnly, {"allow": Kind(("10.0.0.0/8", 5, [5], ["x"])), "verify": ANY}),
}

MADE_BY_THE_PACKAGE: Final = (
    "Activity", "Approved", "BoundCall", "Call", "Client", "Context", "Decision", "Effectful", "FanOut",
    "FunctionWorkflow", "ChildFailed", "ChildHandle", "Node", "Plan", "PolicyFile", "PolicyRequest", "RecordedCall",
    "Refusal", "Rule", "RunHandle", "SyncClient", "Admitted", "AgentWorkflow", "AlreadyDone", "Proposal", "Rejected",
    "NodeResult",
    "PendingQuestion", "RunEnd", "FaultKind", "ThreadState", "TypedAnswer", "ok", "RecordedRun", "RunDiffers",
    "Story", "StoryApproval", "StoryCall", "StoryEffect", "StorySignal", "RunEvaluation", "EvaluatedRun",
    "UnmadeCall", "FailedRun", "ParentHandle",
)  # fmt: skip
"""Values that authors get and do not construct."""
CHECKED_ELSEWHERE: Final = {
    "AgentState": "pydantic", "AgentTask": "pydantic", "Message": "pydantic", "ModelAnswer": "pydantic",
    "ModelRequest": "pydantic", "OfferedTool": "pydantic", "ResultFormat": "pydantic", "ToolCall": "pydantic",
    "business_days": "tests/core/test_business_days.py", "AsyncClient": "httpx2",
    "Client": "httpx2", "checked": "httpx2", "admit": "in a node", "ask": "in a node", "propose": "in a node",
    "this_call": "no arguments", "DidNotHappen": "no arguments", "did_not_happen": "no arguments",
    "garbage": "no arguments", "cuts": "no arguments", "happened": "any value", "approve_all": "a question",
    "FaultyStore": "stores", "skip": "test below", "node": "test below", "OutlastDurability": "tests/pydantic_ai",
    "OutlastSaver": "tests/langgraph", "any_story": "tests/testing/test_any_story.py", "retell": "a decorated test",
    "recorded": "a file that `outlast runs test` has written",
    "evaluation": "tests/testing/test_evaluation.py", "evaluation_cases": "tests/testing/test_evaluation.py",
    "EvaluationInputs": "pydantic", "AsRecorded": "no arguments",
    "LangGraphGuest": "test below", "LangGraphRuntime": "test below", "TemporalGuest": "test below",
    "TemporalRuntime": "a client", "Cancel": "test below", "Fail": "test below", "Refused": "test below",
    "NotSent": "test below", "Perhaps": "test below", "Happened": "test below", "Unknown": "test below",
}  # fmt: skip
TYPES: Final = ("Approvers", "Occasion", "Policy", "Verdict", "Admission", "Model", "AppFactory")
MODULES: Final = (
    "outlast", "outlast.flow", "outlast.agent", "outlast.testing", "outlast.http", "outlast.pydantic_ai",
    "outlast.langgraph", "outlast.temporal",
)  # fmt: skip


def public_names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in MODULES:
        module = import_module(path)
        found = {**{name: getattr(module, name) for name in module.__all__}, **found}
    return found


def test_every_public_name_is_in_the_table() -> None:
    known = {*ROWS, *MADE_BY_THE_PACKAGE, *CHECKED_ELSEWHERE, *TYPES}
    assert sorted(set(public_names()) - known) == [], "say what its arguments refuse"


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.kinds])
def test_every_parameter_has_a_kind(name: str) -> None:
    """A new option of a public constructor needs a line above."""
    row = ROWS[name]
    taken = row.signature if row.signature is not None else public_names().get(name)
    assert taken is not None
    if name == "WorkflowOptions":
        parameters = set(taken.__annotations__)
    else:
        parameters = {each for each in inspect.signature(taken).parameters if each not in ("self", "fn")}
    if name == "Workflow":  # its options are declared once, in WorkflowOptions
        parameters = parameters - {"options"} | set(outlast.flow.WorkflowOptions.__annotations__)
    if name == "OutlastApprovals":
        parameters.discard("kwargs")
    assert parameters == set(row.kinds)


CASES: Final = [
    (name, parameter, value)
    for name, row in ROWS.items()
    for parameter, kind in row.kinds.items()
    for value in kind.wrong
]


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    CASES,
    ids=[f"{name}-{parameter}-{value!r}"[:60] for name, parameter, value in CASES],
)
def test_a_wrong_argument_is_refused_when_it_is_given(
    name: str, parameter: str, value: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the sentence of the package, and not with the error of a line that happens to fail on it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OUTLAST_MODEL", raising=False)
    with pytest.raises((DefinitionError, InvalidInput)) as error:
        ROWS[name].call(**{parameter: value})
    assert error.value.what and error.value.fix, "what, why, do this"


@pytest.mark.parametrize("name", list(ROWS))
def test_the_same_call_without_the_wrong_argument_is_accepted(name: str, tmp_path: Any, monkeypatch: Any) -> None:
    """Otherwise the table would prove nothing."""
    monkeypatch.chdir(tmp_path)
    right: dict[str, Any] = {
        "Resend": {"remembered_for": "1h"}, "resend": {"remembered_for": "1h"}, "Workflow.node": {"start": True},
        "person": {"name": "ana"}, "role": {"name": "lead"}, "classify": {"errors": {}}, "send": {"payloads": {"n": 1}},
        "slow": {"seconds": 0.1}, "workflows_of": {"module": inspect}, "asgi": {"store": _Store()},
    }.get(name, {})  # fmt: skip
    if name in ("policy_from_file", "provided", "RecordingModel"):
        pytest.skip("needs a file or a provider")
    made_now = ROWS[name].call(**right)
    if hasattr(made_now, "close") and name in ("App", "connect_sync"):
        made_now.close()


class _Store:
    def commit(self) -> None: ...


@pytest.mark.parametrize("wrong", [5, "x", True, ()])
@pytest.mark.parametrize(
    "decorate", [activity(key="k"), lookup(), lookup, workflow, workflow(), made().node, acting().undo]
)
def test_a_decorator_is_put_on_a_function(decorate: Any, wrong: Any) -> None:
    with pytest.raises(DefinitionError):
        decorate(wrong)


@pytest.mark.parametrize("error", [Fail, Cancel, NotSent, Perhaps, Refused, RetryLater])
def test_an_exception_takes_any_value_as_its_text(error: Any) -> None:
    """An error inside `raise Refused(404)` would hide that the receiver refused."""
    for given in (404, None, ValueError("away"), b"x"):
        raised = error(given)
        assert str(raised) == str(given)
        text = next(getattr(raised, name) for name in ("reason", "code", "detail") if hasattr(raised, name))
        assert text == str(given)


def test_answers_of_a_reconcile_function_take_numbers_and_exceptions() -> None:
    assert Happened(None, 42).external_id == "42"  # type: ignore[arg-type]
    assert Happened(None).external_id is None
    assert Unknown(ValueError("away")).why == "away"  # type: ignore[arg-type]


FLAGS: Final = ("no", 1, 0, None)
ASKED: Final[dict[str, tuple[Callable[[Operations, Any], Any], tuple[Any, ...]]]] = {
    "runs: limit": (lambda ops, given: ops.runs(limit=given), (0, -1, True, "5", 1.5, NAN, None, 10**9)),
    "runs: attention": (lambda ops, given: ops.runs(attention=given), FLAGS),
    "runs: status": (lambda ops, given: ops.runs(status=given), ("lost", 5, True)),
    "runs: workflow": (lambda ops, given: ops.runs(workflow=given), (5, True, None)),
    "ledger: limit": (lambda ops, given: ops.ledger(limit=given), (0, -1, True, "5", NAN)),
    "approvals: limit": (lambda ops, given: ops.approvals(limit=given), (0, -1, True, "5", NAN)),
    "approvals: mine": (lambda ops, given: ops.approvals(mine=given), FLAGS),
    "approvals: overdue": (lambda ops, given: ops.approvals(overdue=given), FLAGS),
    "approvals: sort": (lambda ops, given: ops.approvals(sort=given), ("oldest", 1, None)),
    "cancel: reason": (lambda ops, given: ops.cancel("r", reason=given), (5, None, "", " ")),
    "set_budget: budget": (lambda ops, given: ops.set_budget(given, reason="x"), (5, "x", {})),
    "raise_budget: tokens": (lambda ops, n: ops.raise_budget("r", tokens=n, reason="x"), (-1, True, "5", NAN)),
    "raise_budget: minutes": (lambda ops, n: ops.raise_budget("r", minutes=n, reason="x"), (-1, True, "5", NAN)),
    "signal: payload": (lambda ops, given: ops.signal("r", "x", given), (5, None, "x", [1])),
    "start: key": (lambda ops, given: ops.start(made(), {}, key=given), (5, True, None)),
    "start: run_id": (lambda ops, given: ops.start(made(), {}, run_id=given), (5, True, None)),
    "worker: concurrency": (lambda ops, n: _entered(ops.worker([made()], concurrency=n)), (0, -1, True, "3", NAN)),
    "worker: workflows": (lambda ops, given: _entered(ops.worker(given)), ("orders", [5], 5, made())),
}  # fmt: skip


async def _entered(block: Any) -> None:
    async with block:
        pass


@pytest.mark.parametrize("name", ASKED)
def test_a_client_refuses_a_wrong_argument(name: str) -> None:
    """A text as a flag selected nothing or everything, and a wrong type ended with the error of an inner line."""

    async def go() -> None:
        store = await open_store("memory:")
        ops = Operations(store, tenant="t", actor=Actor("ana"), workflows={})
        ask, wrong = ASKED[name]
        try:
            for value in wrong:
                with pytest.raises((InvalidInput, DefinitionError)):
                    await ask(ops, value)
        finally:
            await store.close()

    asyncio.run(go())


OF_AN_APPROVAL: Final[dict[str, tuple[Any, ...]]] = {
    "summary": (5, None, True), "within": (5, "soon", None, "0s", timedelta(-1)), "valid_for": (5, "soon", None, "0s"),
    "alternatives": ("abc", [5], 5), "again": (-1, "yes", 1.5, None), "risk": ("huge", None, 5),
    "not_requester": FLAGS, "quorum": (0, -1, True, "2", 1.5, None), "editable": ("a", 5, True, [5], [""], ["gone"]),
    "by": ("lead", 5, None, []),
}  # fmt: skip


@pytest.mark.parametrize(
    ("option", "wrong"), [(option, value) for option, values in OF_AN_APPROVAL.items() for value in values]
)
def test_an_approval_refuses_a_wrong_argument(option: str, wrong: Any) -> None:
    """`editable="a"` named the parameters of one letter, and `not_requester="no"` meant yes."""
    buy, seen = acting(name="buy"), list[str]()
    flow = made(outcome=lambda state: "ended")

    @flow.node(start=True)
    async def only(ctx: Context[State]) -> None:
        given = {"summary": "s", "by": role("lead"), "within": "1h", option: wrong}
        try:
            await ctx.approval(buy.plan("x"), **given)
        except (InvalidInput, DefinitionError) as error:
            seen.append(error.what)

    assert node(only, State(), workflow=flow).status == "completed"
    assert len(seen) == 1 and seen[0]


@pytest.mark.parametrize("wrong", [-1, True, "3", 1.5, NAN])
def test_collecting_refuses_a_wrong_number(wrong: Any) -> None:
    flow, seen = made(outcome=lambda state: "ended"), list[str]()

    @flow.node(start=True)
    async def only(ctx: Context[State]) -> None:
        for ask in (
            lambda: ctx.collect("bids", State, timeout="1s", limit=wrong),
            lambda: ctx.do_all([], at_most=wrong),
            lambda: ctx.emit({"n": 1}, key=wrong),
        ):
            try:
                await ask()
            except InvalidInput as error:
                seen.append(error.what)

    node(only, State(), workflow=flow)
    assert len(seen) == 2 + (not isinstance(wrong, str))


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "3", NAN])
def test_a_guest_refuses_a_wrong_number_of_slots(wrong: Any) -> None:
    from outlast.langgraph import LangGraphGuest, LangGraphRuntime
    from outlast.temporal import TemporalGuest

    for make in (
        lambda: LangGraphGuest(_Store(), [], concurrency=wrong),  # type: ignore[arg-type]
        lambda: LangGraphRuntime(_Store(), [], concurrency=wrong),  # type: ignore[arg-type]
        lambda: TemporalGuest(concurrency=wrong),
    ):
        with pytest.raises(DefinitionError):
            make()


def test_a_guest_refuses_what_is_no_workflow_and_no_durability() -> None:
    from outlast.langgraph import LangGraphGuest

    for options in ({"workflows": "orders"}, {"workflows": [5]}, {"workflows": [], "durability": "often"}):
        with pytest.raises(DefinitionError):
            LangGraphGuest(_Store(), **options)  # type: ignore[arg-type]


def test_money_may_be_a_decimal_text_or_number() -> None:
    for money in (Decimal("1.5"), "1.5", 1.5, 1):
        assert Budget(money=money).limits.money


WRONG_OF: Final[dict[Any, tuple[Any, ...]]] = {
    str: (5, True, b"x", ["a"], NAN, "\ud800", "a\0b", "x" * 10_001),
    int: ("5", True, 1.5, NAN, -1, 10**30, [1]),
    bool: FLAGS,
    float: ("5", True, NAN, INFINITE, [1]),
    Sequence[str]: ("abc", 5, [5], b"x", {"a": 1}, ["\ud800"]),
    Mapping[str, str] | None: (5, "x", {"a": 1}, {5: "a"}, {"\ud800": "a"}),
    datetime | None: (5, "2026-01-01", True),
}
BY_INTERFACE: Final = [
    (interface, method, parameter, hint)
    for interface in (Client, WebhookClient)
    for method, function in vars(interface).items()
    if inspect.isfunction(function) and not method.startswith("_") and method not in ("get", "start", "worker", "until")
    for parameter, hint in get_type_hints(function).items()
    if parameter != "return" and parameter not in ("args", "kwargs", "given", "response", "live")
]


def _wrong(hint: Any) -> tuple[Any, ...]:
    if hint in WRONG_OF:
        return WRONG_OF[hint]
    names = {each for each in get_args(hint) if each in WRONG_OF}
    return WRONG_OF[names.pop()] if len(names) == 1 and type(None) in get_args(hint) else (object(), [object()], True)


async def _first_of(called: Any) -> Any:
    """Await a call, or ask for the first member of what it yields."""
    return await (anext(called) if isinstance(called, AsyncIterator) else called)


@pytest.mark.parametrize("value", WRONG_OF[str])
def test_a_text_that_is_given_by_its_position_is_checked_too(value: Any) -> None:
    async def go() -> None:
        store = await open_store("memory:")
        ops = Operations(store, tenant="t", actor=Actor("ana"), workflows={})
        try:
            for call in (ops.signal(value, "go", {}), ops.signal("r", value, {})):
                with pytest.raises((InvalidInput, LimitExceeded), match=r"of signal|signal\("):
                    await call
        finally:
            await store.close()

    asyncio.run(go())


@pytest.mark.parametrize("remote", [False, True], ids=["store", "service"])
@pytest.mark.parametrize(
    ("interface", "method", "parameter", "hint"),
    BY_INTERFACE,
    ids=[f"{method}-{parameter}" for _, method, parameter, _ in BY_INTERFACE],
)
def test_every_method_of_a_client_checks_its_arguments(
    remote: bool, interface: Any, method: str, parameter: str, hint: Any
) -> None:
    """With what, why and do this, before anything is sent: by the annotation of the interface, in one place."""

    async def go() -> None:
        store = await open_store("memory:")
        ops = Operations(store, tenant="t", actor=Actor("ana"), workflows={})
        client = ServiceClient(ServiceConnection("http://127.0.0.1:9", "token", timeout_s=1)) if remote else ops
        call = getattr(client.webhooks if interface is WebhookClient else client, method)
        try:
            for value in _wrong(hint):
                with pytest.raises((InvalidInput, LimitExceeded)) as error:
                    await _first_of(call(**{parameter: value}))
                assert error.value.what and error.value.why and error.value.fix
                str(error.value).encode()
                assert len(str(error.value)) < 1_000
        finally:
            await client.close()
            await store.close()

    asyncio.run(go())
