"""Rows of a recorded run in a store of a test, so that the run can be forked there.

The rows say what the recording says: the calls with their answers, and an end. The digests are those of the recorded
arguments, which have stand-ins in place of secrets, as the state has.
"""

from collections.abc import Iterator
from typing import Any, Final

from outlast.core.commit import Put
from outlast.core.keys import OncePer
from outlast.core.machine import ENDED, EffectStatus, RunStatus
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import EFFECT, MEMO, Effect, Memo
from outlast.core.rows.run_rows import RUN, Run
from outlast.flow.workflow import Workflow
from outlast.upkeep.recording import AnsweredCall, Recording

_TEXTS: Final = ("node", "external_id", "approval", "allowed_by", "undo", "undoes", "by_run")
_NUMBERS: Final = ("waited_ms", "epoch", "first_at", "not_after", "settle_after", "covered_until")


def rows_of_ancestor(recording: Recording, workflow: Workflow[Any, Any, Any], run: Run) -> Iterator[Put]:
    """Yield the writes that make a started `run` the recorded one, with its calls and its end; the end comes last."""
    for n, call in enumerate(recording.calls, 1):
        if call.kind == "activity":
            yield Put(EFFECT, _effect(call, n, run, _once_per(workflow, call)), 0)
        elif call.kind == "lookup" and not call.observed:
            yield Put(MEMO, _memo(call, run), 0)
    yield Put(RUN, _ended(run, recording), run.version)


def _once_per(workflow: Workflow[Any, Any, Any], call: AnsweredCall) -> OncePer:
    """Return the scope of a call. The recording has no mark of a call once per tenant, so the present code says it."""
    if call.scope:
        return "visit"
    activity = workflow.activities.get(call.activity)
    return "tenant" if activity is not None and activity.once_per == "tenant" else "run"


def _effect(call: AnsweredCall, n: int, run: Run, once_per: OncePer) -> Effect:
    shared = once_per == "tenant"
    plain: dict[str, Any] = {**dict.fromkeys(_TEXTS, ""), **dict.fromkeys(_NUMBERS, 0)}
    plain |= {
        "tenant": run.tenant,
        "run": "" if shared else run.run,
        "visit": call.scope,
        "key": call.key,
        "version": 1,
        "status": EffectStatus(call.status),
        "activity": call.activity,
        "digest": call.digest_of,
        "args": call.argument_bytes,
        "node": call.node,
        "response": None if call.error is not None else call.response,
        "error_text": _error_text(call),
        "external_id": call.external_id,
        "attempts": 1,
        "ordinal": n,
        "settled_at": call.at,
        "settled_by": "call",
        "by_run": run.run if shared else "",
        "first_visit": call.visit,
    }
    return Effect(**plain)


def _memo(call: AnsweredCall, run: Run) -> Memo:
    response = None if call.error is not None else call.response
    digest = call.digest or call.digest_of
    return Memo(run.tenant, run.run, call.scope, call.key, call.activity, digest, response, _error_text(call), call.at)


def _error_text(call: AnsweredCall) -> str:
    return ERROR.encode(EffectError(*call.error)) if call.error is not None else ""


def _ended(run: Run, recording: Recording) -> Run:
    return run._replace(
        version=run.version + 1,
        status=RunStatus(recording.end.status),
        owner=ENDED,
        due_at=None,
        queue="",
        waiting_for_text="",
        slots_text="",
        timers_text="",
        ended_at=max(recording.ended, run.created_at),
    )
