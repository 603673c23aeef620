"""Effects: calls in the ledger, with late evidence."""

import json
from base64 import urlsafe_b64encode

from pydantic import Field

from outlast.models import Instant, Json, Model, PagedList


class LateEvidence(Model):
    """Late answer that a replaced worker recorded. It does not settle the effect."""

    epoch: int
    at: Instant | None
    status: str
    response: Json
    code: str
    detail: str


class EffectRecord(Model):
    """Effect: one activity call in the ledger."""

    id: str = Field(description="Id for POST /effects/{id}/resolve.")
    run: str
    visit: int
    once_per: str
    node: str
    effect: str
    key: str
    version: int = Field(description="Version for If-Match.")
    status: str
    outcome: str
    code: str
    detail: str
    reopened: bool
    attempts: int
    arguments: Json
    response: Json
    external_id: str
    digest: str
    approval: str
    allowed_by: str
    undo: str
    settled_at: Instant | None
    settled_by: str
    first_at_real: Instant | None
    not_after_real: Instant | None
    waited_ms: int
    evidence: list[LateEvidence]
    settle_after_real: Instant | None
    settles_in_ms: int = Field(description="Milliseconds until the outcome `did_not_happen` is accepted.")
    takes_response: bool = Field(
        False, description="The outcome `happened` needs the return value of the call, because its type is not None."
    )
    returns: str = Field("", description="Type of that return value in words. '' if none is needed.")
    correctable: bool = Field(
        False, description="A person has answered, the run goes on, and nothing has used the answer yet."
    )
    unknown: bool = Field(False, description="A person gave it up: it may have happened.")
    child: str = Field("", description="The run that it has started. '' for a call of an activity.")


class EffectList(PagedList):
    """Page of effects. Those of one run are in the order of their intents, those of all runs newest first."""

    effects: list[EffectRecord]


def effect_id(run: str, visit: int, key: str) -> str:
    """Return the opaque id of an effect."""
    return urlsafe_b64encode(json.dumps([run, visit, key], separators=(",", ":")).encode()).decode()
