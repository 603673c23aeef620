"""Runs that need a person: list them page by page and answer many at once."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

from outlast.core.machine import CHOICES, Choice, Reason
from outlast.core.route import meant
from outlast.core.rows import Effect, Run
from outlast.errors import Conflict, OutlastError
from outlast.flow.workflow import Workflow
from outlast.runtime.tenant_rows import TenantRows

PAGE = 500  # runs per read
AT_ONCE = 50  # concurrent answers, because they share the store's batches
EVENTS = 50  # newest events of a run that an explanation uses

Verb = Literal["happened", "did_not_happen", "give_up"]


class AnsweredRuns(NamedTuple):
    """Result of answering one page of runs: answered runs, failed runs with the error, and the next cursor."""

    done: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    cursor: str


def check_for_all(reason: Reason, choice: Choice) -> None:
    """Raise Conflict unless this choice can be made for many runs at once."""
    if meant(reason, choice) not in CHOICES[reason]:
        offered = ", ".join(c.value for c in CHOICES[reason])
        raise Conflict(f"{reason.value} does not offer {choice.value}", f"it offers {offered}", "choose one of these")
    if choice is Choice.HAPPENED:
        raise Conflict(
            "«happened» cannot be recorded for many effects at once",
            "each effect has its own id at the receiver",
            "record each one: outlast effects resolve RUN KEY --happened ID",
        )


def verb_of(choice: Choice) -> Verb:
    """Return the ledger's verb for a choice about an uncertain effect."""
    if choice is Choice.HAPPENED:
        return "happened"
    return "did_not_happen" if choice is Choice.DID_NOT_HAPPEN else "give_up"


async def answer_page(
    rows_of: TenantRows,
    reason: Reason,
    workflow: str,
    cursor: str,
    one: Callable[[str, str], Awaitable[None]],
) -> AnsweredRuns:
    """Call `one(run, key)` for each flagged run of a page; for uncertain effects, once for each key."""
    rows, further = await rows_of.flagged(reason=reason, workflow=workflow, cursor=cursor, limit=PAGE)
    done: list[str] = []
    failed: list[tuple[str, str]] = []

    async def answer(row: Run) -> None:
        entries = [a for a in row.attention if a.reason is reason]
        keys = [a.key for a in entries] if reason is Reason.EFFECT_UNCERTAIN else [""]
        try:
            for key in keys:
                await one(row.run, key)
        except OutlastError as error:
            failed.append((row.run, f"{error.what}: {error.why}" if error.why else error.what))
            return
        done.append(row.run)

    for i in range(0, len(rows), AT_ONCE):
        await asyncio.gather(*(answer(row) for row in rows[i : i + AT_ONCE]))
    return AnsweredRuns(tuple(done), tuple(failed), further)


def encoded_response(workflow: Workflow[Any] | None, effect: Effect, response: Any) -> bytes:
    """Encode a response with the activity's type if its code is loaded, else as plain JSON."""
    plain = json.dumps(response)
    if workflow is None:
        return plain.encode()
    codec = workflow.activity(effect.activity).response_codec
    return bytes(codec.dump(codec.admit(plain)))  # from JSON, so that a string is a value and not a document
