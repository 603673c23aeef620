"""Actions on one run: answers to its attention, and a menu with the consequence and the command of each action."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from outlast.clocks import new_id
from outlast.core.durations import RUN_CEILING, span
from outlast.core.lanes import SCHEDULERS, version_in
from outlast.core.machine import Choice, Reason
from outlast.engine.commands import check_seen
from outlast.errors import Conflict, InvalidInput, NotStorable, OutlastError
from outlast.models.attention import verb_of
from outlast.models.runs import RunDetail, RunSummary
from outlast.runtime.operations import Operations
from outlast.service.problems import status_of
from outlast.service.request_parts import PathName, RunId
from outlast.service.service_state import Ops, State
from outlast.ui.forms import SchemaForm, sent_form, shown_form
from outlast.ui.page_route import Form, PageRoute, form_of, see_other
from outlast.ui.rendering import render, stamp
from outlast.ui.routes.effect_pages import settle_typed
from outlast.ui.routes.run_pages import overview
from outlast.ui.run_header import RunHeader, header_of

router = APIRouter(prefix="/ui/runs/{run}", route_class=PageRoute)
SETTLED: Final = frozenset({Choice.HAPPENED, Choice.DID_NOT_HAPPEN, Choice.GIVE_UP})
PAYLOAD: Final = "payload"
MORE_TIME: Final = span(RUN_CEILING)
DETACH: Final = "detach"


class ActionField(NamedTuple):
    """Field of the form of an action."""

    name: str
    label: str
    hint: str = ""
    """Its hint, in which `{run.…}` is a field of the run's summary."""
    default: str = ""
    mode: str = "text"
    """Kind of keyboard: `numeric`, `decimal`."""


class RunAction(NamedTuple):
    """Action of an operator on a run: its form on the page of actions, its route and its command."""

    name: str
    """Name of its form, and the last part of its path."""
    operation: str
    """Operation whose roles may use it."""
    title: str
    consequence: str
    """Sentence above the form, in which `{run.…}` is a field of the run's summary, and `{version}` its version."""
    button: str
    done: str
    """Line that the page of the run shows afterwards."""
    command: tuple[str, ...]
    """Words of the command that does the same, of which `{run.run}` is the run's id."""
    do: Callable[[Operations, str, Form], Awaitable[object]]
    fields: tuple[ActionField, ...] = ()
    reason: Literal["required", "optional", "none"] = "required"
    versioned: bool = True
    """True if the form is for the version of the run that it was made for."""


async def _move(ops: Operations, run: str, form: Form) -> None:
    found = await ops.run_summary(run)
    to, node, reason = form.number("to"), form.text("node"), form.text("reason")
    await ops.move_run(run, found.workflow, to, node=node, reason=reason, version=form.version())


ACTIONS: Final = (
    RunAction(
        Choice.CONTINUE,
        "continue_run",
        "Continue",
        "Answers its attention with “continue”: it goes on in the same visit.",
        "Continue the run",
        "Answered: continue. A worker takes the run up again.",
        ("outlast", "runs", Choice.CONTINUE, "{run.run}", "--reason", "…"),
        lambda ops, run, form: ops.continue_run(run, reason=form.text("reason"), version=form.version()),
        reason="optional",
    ),
    RunAction(
        Choice.EXTEND,
        "extend_run",
        "Extend",
        "Gives a run that has passed its ceiling more time, from now on.",
        "Extend the run",
        "Gave the run more time.",
        ("outlast", "runs", Choice.EXTEND, "{run.run}", "--by", MORE_TIME, "--reason", "…"),
        lambda ops, run, form: ops.extend(
            run, by=form.text("by") or MORE_TIME, reason=form.text("reason"), version=form.version()
        ),
        (ActionField("by", "More time", "For example 24h or 7d.", MORE_TIME),),
    ),
    RunAction(
        Choice.RAISE,
        "raise_budget",
        "Raise the budget",
        "Adds amounts to its budget. A run that waits for its budget goes on without repeating a call that was paid.",
        "Raise the budget",
        "Raised the budget of the run.",
        ("outlast", "runs", Choice.RAISE, "{run.run}", "--tokens", "…", "--reason", "…"),
        lambda ops, run, form: ops.raise_budget(
            run,
            tokens=form.number("tokens"),
            money=form.text("money") or "0",
            calls=form.number("calls"),
            minutes=form.number("minutes"),
            children=form.number("children"),
            reason=form.text("reason"),
            version=form.version(),
        ),
        (
            ActionField("tokens", "Tokens", mode="numeric"),
            ActionField("money", "Money", "In the currency of the budget, e.g. 0.25.", mode="decimal"),
            ActionField("calls", "Calls", mode="numeric"),
            ActionField("minutes", "Minutes", mode="numeric"),
            ActionField("children", "Child runs", mode="numeric"),
        ),
    ),
    RunAction(
        Choice.MOVE,
        "move_run",
        "Move to another version",
        "It continues in another version of {run.workflow}, at a node of it. It is in version {version} now; "
        "state, waits, approvals and effects stay.",
        "Move the run",
        "Asked the run to continue in another version.",
        ("outlast", "versions", "move", "{run.workflow}", "VERSION", "{run.run}", "--reason", "…"),
        _move,
        (
            ActionField("to", "Version", mode="numeric"),
            ActionField("node", "Node", "Empty: its present node, {run.node}."),
        ),
        reason="optional",
    ),
    RunAction(
        "scheduler",
        "move_run_to_scheduler",
        "Move to another scheduler",
        "Another engine decides when and where it is executed; now it is {run.scheduler}. No worker may execute it at "
        "this moment. State, waits and effects stay.",
        "Move the run",
        "Asked the run to continue under another scheduler.",
        ("outlast", "runs", "move", "{run.run}", "--to", "temporal", "--reason", "…"),
        lambda ops, run, form: ops.move_to(
            run,
            form.text("scheduler"),
            reason=form.text("reason"),
            force=bool(form.text("force")),
            version=form.version(),
        ),
        reason="optional",
    ),
    RunAction(
        DETACH,
        "detach_run",
        "Detach from its parent",
        "Run {run.parent} goes on without this run, as if it had failed. This run goes on, and keeps its attention. "
        "Its parent never undoes it.",
        "Detach the run",
        "Its parent goes on without it.",
        ("outlast", "runs", DETACH, "{run.run}", "--reason", "…"),
        lambda ops, run, form: ops.detach(run, reason=form.text("reason")),
        versioned=False,  # the child may change all the time, and a second request changes nothing
    ),
    RunAction(
        Choice.CANCEL,
        "cancel_run",
        "Cancel",
        "Its approvals can no longer be decided. It ends once a worker has settled its open effects and undone the "
        "others, latest first.",
        "Cancel the run",
        "Asked the run to stop. Its effects are undone first, and nothing new is called.",
        ("outlast", "runs", "cancel", "{run.run}", "--reason", "…"),
        lambda ops, run, form: ops.cancel(run, reason=form.text("reason")),
        versioned=False,  # a run that works changes all the time, and a second request changes nothing
    ),
)
"""Actions in the order of the page. Its template shows more above the forms of four of them.

An action that needs nothing more is one entry here: its route, its form and its command follow.
"""


@router.get("/actions", operation_id="ui:get_run")
async def show_actions(ops: Ops, request: Request, run: RunId) -> Response:
    """Show the possible actions, with the consequence and the command of each action."""
    return await menu(ops, request, run)


async def menu(ops: Operations, request: Request, run: str, *, status_code: int = 200, **refused: Any) -> Response:
    """Return the actions. `refused`: the form that was refused, with its input and its error."""
    head = await header_of(ops, request, run)
    found, over = head.run, head.over
    undone, remain = ([], []) if over else (await ops.to_undo(run), await ops.not_undone(run))
    lanes = [] if over else [each for each in await ops.versions() if each.workflow == found.workflow]
    offered = {each.name for each in ACTIONS if each.name != DETACH or refused}
    return await render(
        request,
        "run_actions.html",
        title=f"Actions on {run}",
        live=head.live,
        versions={"tab": stamp(found.version), "head": head.version},
        status_code=status_code,
        tab="actions",
        undone=undone,
        remain=remain,
        lanes=lanes,
        actions=[shown_for(each, found) for each in ACTIONS if found.parent or each.name in offered],
        schedulers=SCHEDULERS,
        reasons=[each.reason for each in found.attention],
        more_time=MORE_TIME,
        refused=refused,
        **head.shown(),
    )


def shown_for(action: RunAction, run: RunSummary) -> RunAction:
    """Return an action with its texts for a run."""
    filled = partial(str.format, run=run, version=version_in(run.lane))
    return action._replace(
        consequence=filled(action.consequence),
        command=tuple(filled(word) for word in action.command),
        fields=tuple(field._replace(hint=filled(field.hint)) for field in action.fields),
    )


async def act(ops: Operations, request: Request, run: str, action: RunAction) -> Response:
    """Carry out an action and lead to the run. A refused action shows its form again, with its input and the error."""
    form = form_of(request)
    try:
        await action.do(ops, run, form)
    except (Conflict, InvalidInput) as error:
        return await menu(ops, request, run, status_code=status_of(error), form=action.name, error=error, given=form)
    return see_other(request, f"/ui/runs/{run}", action.done)


def add_route(action: RunAction) -> None:
    """Serve the form of an action."""

    @router.post(f"/{action.name}", operation_id=f"ui:{action.operation}")
    async def carry_out(ops: Ops, request: Request, run: RunId) -> Response:
        """Carry out the action and lead to the run."""
        return await act(ops, request, run, action)


for _each in ACTIONS:
    add_route(_each)


@router.post("/answer", operation_id="ui:resolve_attention")
async def answer(ops: Ops, state: State, request: Request, run: RunId) -> Response:
    """Answer one reason for attention with one of its choices."""
    form = form_of(request)
    try:
        await answer_one(ops, run, form)
    except (Conflict, InvalidInput) as error:
        return await overview(
            ops, state, request, run, status_code=status_of(error), form="answer", error=error, **typed_answer(form)
        )
    return see_other(request, f"/ui/runs/{run}", answered(run, form))


def answered(run: str, form: Form) -> str:
    """Return the line about an answer to a run's attention."""
    choice, reason, key = (form.text(name).replace("_", " ") for name in ("choice", "reason", "key"))
    return f"Answered {reason}{' of ' + key if key else ''} of run {run}: {choice}. A worker carries it out."


def typed_answer(form: Form) -> dict[str, str]:
    """Return the fields of an answer as they were typed."""
    return {name: form.text(name) for name in ("reason", "key", "text", "external_id", "response", "by")}


async def answer_one(ops: Operations, run: str, form: Form) -> None:
    """Answer one reason of a run as a form says. Raises InvalidInput, Conflict, Forbidden, ProblemError."""
    choice = member(Choice, "choice", form.text("choice"))
    reason = member(Reason, "reason", form.text("reason"))
    typed, version = typed_answer(form), form.version()
    if reason is Reason.EFFECT_UNCERTAIN and choice in SETTLED:
        effect = await ops.effect(run, typed["key"])  # before the run: a later visit's effect needs a later run
        check_seen(ops.shown(run, version), await ops.run_row(run))
        happened = choice is Choice.HAPPENED
        given = {name: typed[name] if happened else "" for name in ("external_id", "response")}
        await settle_typed(
            ops, effect.id, {"outcome": verb_of(choice), "reason": typed["text"], **given}, effect.version
        )
        return
    by = (typed["by"] or MORE_TIME) if choice is Choice.EXTEND else None
    await ops.answer(run, choice, reason=reason, key=typed["key"], text=typed["text"], by=by, version=version)


def member(of: Any, name: str, text: str) -> Any:
    """Return the member of an enumeration that a form names. Raises InvalidInput."""
    try:
        return of(text)
    except ValueError:
        raise InvalidInput(f"{name} is {text[:100]!r}", f"it is one of {', '.join(of)}", "reload the page") from None


@router.get("/signals/{name}", operation_id="ui:signal_run")
async def show_signal(ops: Ops, request: Request, run: RunId, name: PathName) -> Response:
    """Show the form of a signal, from the schema of the wait if the run awaits it."""
    head = await header_of(ops, request, run)
    return await _signal_page(request, head, name, shown_form(schema_of(head.run, name), name=PAYLOAD), new_id("ui_"))


@router.post("/signals/{name}", operation_id="ui:signal_run")
async def send_signal(ops: Ops, request: Request, run: RunId, name: PathName) -> Response:
    """Send a signal with the payload of the form, once for its id."""
    head, sent = await header_of(ops, request, run), form_of(request)
    form, signal_id = sent_form(schema_of(head.run, name), sent, name=PAYLOAD), sent.text("signal_id")
    if form.rows_changed or form.problems:
        return await _signal_page(request, head, name, form, signal_id, 200 if form.rows_changed else 422)
    try:
        if not isinstance(form.value, dict):
            raise InvalidInput("the payload is not a JSON object", "", 'write {"name": value}')
        await ops.signal(run, name, form.value, signal_id=signal_id)
    except (Conflict, InvalidInput, NotStorable) as error:
        return await _signal_page(request, head, name, form, signal_id, status_of(error), error)
    return see_other(request, f"/ui/runs/{run}", f"Sent the signal {name}. It is stored until the run reads it.")


def schema_of(run: RunDetail, signal: str) -> Mapping[str, Any]:
    """Return the JSON Schema of a signal that the run awaits; empty if it is unknown."""
    waits = (wait for wait in run.waiting_for if (wait.kind, wait.what) == ("signal", signal))
    return next((wait.schema_ for wait in waits if wait.schema_), {})


async def _signal_page(
    request: Request,
    head: RunHeader,
    name: str,
    form: SchemaForm,
    signal_id: str,
    status_code: int = 200,
    error: OutlastError | None = None,
) -> Response:
    awaited = any((wait.kind, wait.what) == ("signal", name) for wait in head.run.waiting_for)
    return await render(
        request,
        "run_signal.html",
        title=f"Signal {name}",
        live=head.live,
        versions={"head": head.version},
        status_code=status_code,
        tab="",
        name=name,
        form=form,
        signal_id=signal_id,
        error=error,
        awaited=awaited,
        **head.shown(),
    )
