"""Page that forks a run: its checkpoints, the terms, the preview of the fork, and its start.

A fork is started only with the terms whose preview the person has seen. The form carries the digest of that preview. If
the terms or the run have changed since, the page shows the new preview and starts nothing.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any, Final, Literal, NamedTuple, cast, get_args

from fastapi import APIRouter, Query
from markupsafe import escape
from starlette.requests import Request
from starlette.responses import Response

from outlast.clocks import new_id
from outlast.core.durations import SECOND
from outlast.errors import Conflict, InvalidInput, NotFound, OutlastError
from outlast.insight.fork_words import OUTCOMES
from outlast.models import milliseconds
from outlast.models.fork_answers import ForkPreview, PreviewedCall, RunForked
from outlast.operations.field_types import Word
from outlast.runtime.operations import Operations
from outlast.service.identity import is_permitted
from outlast.service.problems import status_of
from outlast.service.request_parts import RunId
from outlast.service.service_state import Ops
from outlast.ui.page_route import Form, PageRoute, form_of, see_other
from outlast.ui.rendering import document, render
from outlast.ui.run_header import RunHeader, header_of
from outlast.ui.shown_text import CONTROLS, isolated

router = APIRouter(prefix="/ui/runs/{run}", route_class=PageRoute)
Effects = Literal["ask", "recorded", "live"]
Lookups = Literal["recorded", "live"]
From = Annotated[Word, Query(alias="from")]
STATE_HTML_MAX: Final = 12_000
"""Characters of HTML of a state that the form shows. A larger one is fetched by its link, and replaced by pasting."""
ROWS_HTML_MAX: Final = 16_000
"""Characters of HTML of all calls, signals and changes of a page."""
ROWS: Final = 50
POINTS: Final = 50
FORKS: Final = 10
CUT: Final = 200
"""Characters of a text of an author in a row."""
CHANGED: Final = "The terms or the run have changed since they were shown. Nothing was started: see what happens now."


@dataclass(frozen=True)
class ForkDraft:
    """Terms of a fork as a person typed them."""

    point: str
    state: str = ""
    effects: Effects = "ask"
    lookups: Lookups = "recorded"
    approvers: str = ""
    signals: tuple[str, ...] = ()
    accept_undone: bool = False
    both_go_on: str = ""
    fork_id: str = ""
    generated: str = ""
    """Id of the fork if the person types none. It is in the form, so a form that is sent twice starts one fork."""
    seen: str = ""
    """Digest of the preview that the person has seen."""

    @classmethod
    def sent(cls, form: Form) -> "ForkDraft":
        """Return the terms of a form. Raises InvalidInput for a mode that does not exist."""
        effects, lookups = form.text("effects", "ask"), form.text("lookups", "recorded")
        for name, value, of in (("effects", effects, Effects), ("lookups", lookups, Lookups)):
            if value not in get_args(of):
                raise InvalidInput(
                    f"{name} is {value[:100]!r}", f"it is one of {', '.join(get_args(of))}", "choose one"
                )
        return cls(
            form.text("from"),
            form.text("state").replace("\r\n", "\n"),
            cast(Effects, effects),
            cast(Lookups, lookups),
            form.text("approvers"),
            tuple(form.all("signal")),
            bool(form.text("accept_undone")),
            form.text("both_go_on"),
            form.text("id"),
            form.text("generated"),
            form.text("seen"),
        )

    def terms(self) -> dict[str, Any]:
        """Return the terms as the client takes them, but the state."""
        approvers = {} if self.effects == "live" else {"approvers": self.approvers}
        more = {"signals": self.signals, "accept_undone": self.accept_undone, "both_go_on": self.both_go_on}
        return {"lookups": self.lookups, **approvers, **more}

    def given_state(self, shown: object) -> dict[str, Any] | None:
        """Return the state that was typed; None if it is the `shown` one of the checkpoint. Raises InvalidInput."""
        if not self.state:
            return None
        try:
            found = json.loads(self.state)
        except (ValueError, RecursionError) as error:
            raise _wrong_state(f"is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise _wrong_state("is not a JSON object")
        return None if _same_json(found, shown) else found

    def digest_of(self, found: ForkPreview) -> str:
        """Return the digest of these terms and of what a fork does with them."""
        text = json.dumps([self.terms(), self.state, self.fork_id, found.model_dump(mode="json")], sort_keys=True)
        return sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _wrong_state(why: str) -> InvalidInput:
    return InvalidInput("the state is wrong", "", "write a JSON object", problems=[("", why)])


def _same_json(a: object, b: object) -> bool:
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


class ShownCall(NamedTuple):
    """A call of the ancestor after the checkpoint, and what the fork does with it."""

    call: PreviewedCall
    words: str


class ShownPreview(NamedTuple):
    """Preview of a fork, as far as a page has room. `left_out`: calls, signals and changes that are not shown."""

    found: ForkPreview
    calls: Sequence[ShownCall]
    signals: Sequence[Any]
    changes: Sequence[Any]
    left_out: tuple[int, int, int]
    state: str
    """State of the checkpoint as JSON text; '' if it is too long for the form."""
    size: int


def shown_preview(found: ForkPreview) -> ShownPreview:
    """Return a preview as far as a page has room for it."""
    left = ROWS_HTML_MAX
    kept: list[list[Any]] = []
    for rows in (found.changes, found.signals, found.calls):
        shown: list[Any] = []
        for each in rows[:ROWS]:
            left -= sum(_size(text[:CUT]) for text in each.model_dump(mode="json").values() if isinstance(text, str))
            if left < 0:
                break
            shown.append(each)
        kept.append(shown)
    changes, signals, calls = kept
    text = json.dumps(found.state, indent=1, ensure_ascii=False)
    text = CONTROLS.sub(lambda char: f"\\u{ord(char[0]):04x}", text)  # JSON has them in texts only
    return ShownPreview(
        found,
        [ShownCall(each, OUTCOMES[each.outcome]) for each in calls],
        signals,
        changes,
        (
            len(found.calls) + found.more_calls - len(calls),
            len(found.signals) - len(signals),
            len(found.changes) + found.more_changes - len(changes),
        ),
        text if len(escape(text)) <= STATE_HTML_MAX else "",
        len(text),
    )


def _size(text: str) -> int:
    return len(escape(isolated(text)))


# --- pages -----------------------------------------------------------------------------------------
@router.get("/fork", operation_id="ui:preview_fork")
async def show_fork(ops: Ops, request: Request, run: RunId, point: From = "") -> Response:
    """Show the form of a fork and what it would do. Without a checkpoint, offer the checkpoints."""
    head = await header_of(ops, request, run)
    if point:
        return await _page(ops, request, head, ForkDraft(point, generated=new_id(f"{head.run.workflow[:4]}_")))
    try:
        points = (await ops.fork_points(run)).points
    except (Conflict, NotFound) as error:
        return await _impossible(request, head, error)
    age = (await ops.store.now()).business - milliseconds(head.run.created_at) if head.run.created_at else 0
    forks = (await ops.runs(forked_from=run, since=timedelta(milliseconds=age + SECOND), limit=FORKS)).runs
    return await _shown(request, head, points=points[::-1][:POINTS], more=len(points) - POINTS, forks=forks)


@router.get("/fork/state", operation_id="ui:preview_fork")
async def get_fork_state(ops: Ops, run: RunId, point: From = "") -> Response:
    """Return the state of a checkpoint as JSON. Values like secrets are redacted."""
    return document((await ops.fork_preview(run, point)).state)


@router.post("/fork-preview", operation_id="ui:preview_fork")
async def preview_fork(ops: Ops, request: Request, run: RunId) -> Response:
    """Show what a fork with the terms of the form would do. Nothing is started."""
    head = await header_of(ops, request, run)
    return await _page(ops, request, head, ForkDraft.sent(form_of(request)), sent=True)


@router.post("/fork", operation_id="ui:fork_run")
async def fork_run(ops: Ops, request: Request, run: RunId) -> Response:
    """Start a fork whose writes a person or the recording permits, if its preview was seen."""
    return await _start(ops, request, run, ("ask", "recorded"))


@router.post("/fork-live", operation_id="ui:fork_run_live")
async def fork_run_live(ops: Ops, request: Request, run: RunId) -> Response:
    """Start a fork whose writes the policy alone permits, if its preview was seen."""
    return await _start(ops, request, run, ("live",))


async def _start(ops: Operations, request: Request, run: str, allowed: tuple[str, ...]) -> Response:
    head, draft = await header_of(ops, request, run), ForkDraft.sent(form_of(request))
    try:
        shown = await ops.fork_preview(run, draft.point)
        state = draft.given_state(shown.state)
        found = await ops.fork_preview(run, draft.point, effects=draft.effects, state=state, **draft.terms())
        if draft.seen != draft.digest_of(found) or draft.effects not in allowed:
            return await _page(ops, request, head, draft, sent=True, note=CHANGED)
        started = await _fork(ops, run, draft, state)
    except (Conflict, InvalidInput) as error:
        return await _page(ops, request, head, draft, sent=True, error=error)
    verb = "Forked" if started.created else "This fork was started before"
    done = f"{verb} from run {run} at checkpoint {started.checkpoint}. It begins with {started.node}."
    return see_other(request, f"/ui/runs/{started.fork}", done)


async def _fork(ops: Operations, run: str, draft: ForkDraft, state: dict[str, Any] | None) -> RunForked:
    fork_id = draft.fork_id or draft.generated or None
    if draft.effects == "live":
        return await ops.fork_run_live(run, draft.point, state=state, fork_id=fork_id, **draft.terms())
    return await ops.fork_run(run, draft.point, effects=draft.effects, state=state, fork_id=fork_id, **draft.terms())


async def _page(
    ops: Operations,
    request: Request,
    head: RunHeader,
    draft: ForkDraft,
    *,
    sent: bool = False,
    note: str = "",
    error: OutlastError | None = None,
) -> Response:
    """Return the form with a draft and its preview. A wrong state is named, and what was typed stays in the form."""
    terms = {"effects": draft.effects, **draft.terms()}
    try:
        plain = found = await ops.fork_preview(head.run.run, draft.point)
    except (Conflict, NotFound) as refused:
        return await _impossible(request, head, refused)
    try:
        found = await ops.fork_preview(head.run.run, draft.point, state=draft.given_state(plain.state), **terms)
    except (Conflict, InvalidInput) as refused:
        found = await ops.fork_preview(head.run.run, draft.point, **terms)
        error = error or refused
    if sent:  # an id that was used for other terms would be refused
        seen = draft.digest_of(found) if error is None else ""
        fresh = draft.generated if seen and seen == draft.seen else new_id(f"{head.run.workflow[:4]}_")
        draft = replace(draft, seen=seen, generated=fresh)
    shown = shown_preview(found)
    return await _shown(
        request,
        head,
        status_code=status_of(error) if error is not None else 200,
        draft=draft,
        shown=shown,
        state=draft.state if sent else shown_preview(plain).state,
        error=error,
        problems=getattr(error, "problems", ()),
        note=note,
        ready=sent and error is None and not found.refused,
        options=_options(draft, found),
    )


async def _impossible(request: Request, head: RunHeader, error: OutlastError) -> Response:
    """Return the page of a run that cannot be forked, with the reason."""
    return await _shown(request, head, status_code=status_of(error), impossible=error)


async def _shown(request: Request, head: RunHeader, *, status_code: int = 200, **values: Any) -> Response:
    given = {"impossible": None, "points": None, "more": 0, "forks": (), "draft": None, **values}
    return await render(
        request,
        "run_fork.html",
        title=f"Fork {head.run.run}",
        live=head.live,
        versions={"head": head.version},
        status_code=status_code,
        tab="",
        live_allowed=is_permitted(request.state.principal, "fork_run_live"),
        cut=CUT,
        **head.shown(),
        **given,
    )


def _options(draft: ForkDraft, found: ForkPreview) -> list[str]:
    """Return the options of the command that does the same."""
    words = ["--from", str(found.checkpoint)]
    words += ["--effects", draft.effects] if draft.effects != "ask" else []
    words += ["--approvers", draft.approvers or "RULE"] if draft.effects != "live" else []
    words += ["--lookups", draft.lookups] if draft.lookups != "recorded" else []
    words += ["--state", "FILE"] if found.changes else []
    words += ["--signals", ",".join(draft.signals)] if draft.signals else []
    words += ["--accept-undone"] if draft.accept_undone else []
    words += ["--both-go-on", draft.both_go_on or "REASON"] if found.in_flight else []
    return words
