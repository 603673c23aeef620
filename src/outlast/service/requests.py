"""What the service is asked, typed: the bodies of requests. A field that is not named here is refused (S18)."""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from fastapi import Header, Path, Query
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from outlast.core.limits import (
    IDEMPOTENCY_KEY_CHARS_MAX,
    KEY_BYTES_MAX,
    NAME,
    NAME_CHARS_MAX,
    NAME_PATTERN,
    TEXT_CHARS_MAX,
)
from outlast.core.machine import Choice, Reason
from outlast.engine.pauses import What
from outlast.errors import NotFound

_NAME = rf"^({NAME_PATTERN})$"
Name = Annotated[str, StringConstraints(pattern=_NAME)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=TEXT_CHARS_MAX, pattern=r"\S")]
Word = Annotated[str, StringConstraints(max_length=NAME_CHARS_MAX)]
Key = Annotated[str, StringConstraints(max_length=KEY_BYTES_MAX)]
SignalId = Annotated[str, StringConstraints(max_length=IDEMPOTENCY_KEY_CHARS_MAX, pattern=r"^[\x21-\x7e]*$")]
EXTENSION_MAX = timedelta(days=3_650)
SINCE_MAX = timedelta(days=36_500)
RunId = Annotated[str, Path(pattern=_NAME, description="The run's id.", examples=["refu_0c9k2m4x7q1z"])]
ApprovalId = Annotated[str, Path(pattern=_NAME, description="The approval's id.", examples=["ap_91c2f03b7d"])]
PathName = Annotated[str, Path(pattern=_NAME, description="The name in the code.", examples=["refund"])]
WebhookId = Annotated[str, Path(pattern=_NAME, description="The webhook's id.", examples=["wh_catfh4b9q1da"])]
EffectId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_=-]{1,2000}$", description="The id that GET …/effects shows.")]
Cursor = Annotated[str, Query(max_length=4_000, description="`next_cursor` of the page before.")]
Limit = Annotated[int, Query(ge=1, le=1_000, description="At most so many.")]
Since = Annotated[
    timedelta | None,
    Query(gt=timedelta(0), le=SINCE_MAX, description="No older than this: a duration of ISO 8601.", examples=["PT24H"]),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=IDEMPOTENCY_KEY_CHARS_MAX,
        description="The same key, operation and body is answered once, and again with `Idempotent-Replayed: true`.",
        examples=["7b0c1f4e-6d0b-4a53-9d3e-1f2a3b4c5d6e"],
    ),
]
PauseName = Annotated[str, StringConstraints(max_length=KEY_BYTES_MAX, pattern=r"^[!-~]*$")]


class RequestBody(BaseModel):
    """A body."""

    model_config = ConfigDict(extra="forbid")


class StartRun(RequestBody):
    """Start a run."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"input": {"order_id": "A-17", "cents": 4200}}]}
    )

    input: dict[str, Any] = Field(default_factory=dict, description="Checked against the workflow's `input_schema`.")
    id: Name | None = Field(None, description="The run's id; a new one where it is left out.")
    correlation_id: Word = ""
    trace_id: Word = ""


class ReasonBody(RequestBody):
    """A reason, for the history; people will read it."""

    reason: Text = Field(examples=["the customer called"])


class CancelRun(ReasonBody):
    """End a run; what it did is undone, the latest first."""


class ContinueRun(RequestBody):
    """Answer a run's attention with «continue»."""

    reason: Annotated[str, StringConstraints(max_length=TEXT_CHARS_MAX)] = Field("", examples=["the supplier is back"])


class ExtendRun(ReasonBody):
    """Give a run that has passed its ceiling more time."""

    by: timedelta = Field(
        gt=timedelta(0), le=EXTENSION_MAX, description="ISO 8601, or seconds.", examples=["P7D", "PT24H"]
    )


class MoveRun(RequestBody):
    """Let a run go on in another version of its workflow."""

    workflow: Word = Field(examples=["refund"], description="Its own: said again so that no other is meant.")
    version: int = Field(ge=1, le=2**31, examples=[4])
    node: Word = Field("", description="Where it goes on; where it stands, if left out.", examples=["review"])
    reason: Annotated[str, StringConstraints(max_length=TEXT_CHARS_MAX)] = Field("", examples=["version 3 is gone"])


class CreatePause(ReasonBody):
    """Stop new calls of an activity, of a provider or of a workflow, or everything of the tenant."""

    what: What = Field(examples=["activity"])
    name: PauseName = Field("", examples=["erp.reserve"], description="Of the activity, provider or workflow.")


class EndPause(RequestBody):
    """Resume after a pause or an open circuit breaker."""

    what: What = Field(examples=["activity"])
    name: PauseName = Field("", examples=["erp.reserve"])


class SendSignal(RequestBody):
    """Leave a signal in a run's mailbox."""

    payload: dict[str, Any] = Field(default_factory=dict, examples=[{"bid": 184200}])
    signal_id: SignalId = Field("", description="The same id arrives once; the Idempotency-Key where it is left out.")


class DecideApproval(RequestBody):
    """Decide an approval. Who decides is told by the credential, never by the body (S5)."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"decision": "approve", "reason": "4 % under budget"}]}
    )

    decision: Literal["approve", "reject", "again"]
    reason: Text
    alternative: int = Field(0, ge=0, le=1_000, description="Which plan; 0 is the one asked for.")
    changes: dict[str, Any] | None = Field(None, description="Arguments with other values, where they may be changed.")


class ReassignApproval(ReasonBody):
    """Let others decide."""

    to: Annotated[str, StringConstraints(min_length=1, max_length=2_000)] = Field(examples=["lead", "finance & senior"])


class ResolveAttention(ReasonBody):
    """Answer one reason of a run's attention."""

    choice: Choice
    attention: Reason | None = Field(None, description="Which reason, where the run has several.")
    key: Key = Field("", description="Which effect's, where one reason stands for several.")
    by: timedelta | None = Field(None, gt=timedelta(0), le=EXTENSION_MAX, description="With `extend`: by how much.")


class ResolveEffect(ReasonBody):
    """Say what became of an uncertain effect."""

    outcome: Literal["happened", "did_not_happen", "give_up"]
    external_id: Annotated[str, StringConstraints(max_length=500)] = Field("", description="Of what happened.")
    response: Any = Field(None, description="What the receiver answered, where it happened.")


KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{KEY_BYTES_MAX}}}")  # values are percent-encoded in keys


def effect_id(run: str, visit: int, key: str) -> str:
    """One word for an effect, as addresses take it."""
    return urlsafe_b64encode(json.dumps([run, visit, key], separators=(",", ":")).encode()).decode()


def with_id(view: dict[str, Any]) -> dict[str, Any]:
    """The view of an effect, with the word for it."""
    return {"id": effect_id(view["run"], view["visit"], view["key"]), **view}


def parse_effect_id(id_: str) -> tuple[str, int, str]:
    """Run, visit and key. Raises NotFound for a word that names none."""
    try:
        run, visit, key = json.loads(urlsafe_b64decode(id_))
    except (ValueError, TypeError, RecursionError):
        raise _none(id_) from None
    sound = isinstance(run, str) and NAME.fullmatch(run) and type(visit) is int and 0 <= visit < 2**31
    if not sound or not isinstance(key, str) or not KEY.fullmatch(key):
        raise _none(id_)
    return run, visit, key


def _none(id_: str) -> NotFound:
    return NotFound(f"no effect {id_[:100]}", "ids are those that GET …/effects shows", "list them first")
