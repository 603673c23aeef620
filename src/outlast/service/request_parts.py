"""Parameters and headers of requests, and the opaque ids of effects. Bodies come from the declarations."""

import json
import re
from base64 import urlsafe_b64decode
from typing import Annotated, Final

from fastapi import Header, Path, Query
from pydantic import AwareDatetime

from outlast.core.limits import IDEMPOTENCY_KEY_CHARS_MAX, KEY_BYTES_MAX, NAME
from outlast.errors import NotFound
from outlast.operations.field_types import NAME_ONLY

RunId = Annotated[str, Path(pattern=NAME_ONLY, description="Id of the run.", examples=["refu_0c9k2m4x7q1z"])]
ApprovalId = Annotated[str, Path(pattern=NAME_ONLY, description="Id of the approval.", examples=["ap_91c2f03b7d"])]
PathName = Annotated[str, Path(pattern=NAME_ONLY, description="Name in the workflow code.", examples=["refund"])]
WebhookId = Annotated[str, Path(pattern=NAME_ONLY, description="Id of the webhook.", examples=["wh_catfh4b9q1da"])]
WorkerId = Annotated[str, Path(pattern=NAME_ONLY, description="Id of the worker.", examples=["w-1204-6f1c3a"])]
CauseId = Annotated[str, Path(pattern=NAME_ONLY, description="Id of the cause.", examples=["3f2a9c01d7be"])]
PromptId = Annotated[
    str, Path(pattern=NAME_ONLY, description="Digest of the instructions or tools.", examples=["3f2a9c01d7be4a5b"])
]
EffectId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9_=-]{1,2000}$", description="Id of the effect, as GET …/effects shows it.")
]
DeliveryId = Annotated[
    str, Path(pattern=r"^[A-Za-z0-9._:-]{1,350}$", description="Id of the delivery (WEBHOOK:RUN:SEQ), as listed.")
]
Cursor = Annotated[str, Query(max_length=4_000)]
Limit = Annotated[int, Query(ge=1, le=1_000, description="Maximum number of items.")]
At = AwareDatetime | None
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=IDEMPOTENCY_KEY_CHARS_MAX,
        description="Repetitions with the same key get the stored answer, with `Idempotent-Replayed: true`.",
        examples=["7b0c1f4e-6d0b-4a53-9d3e-1f2a3b4c5d6e"],
    ),
]
KEY: Final = re.compile(rf"[\x21-\x7e]{{1,{KEY_BYTES_MAX}}}")  # values are percent-encoded in keys


def parse_effect_id(id_: str) -> tuple[str, int, str]:
    """Return run, visit and key of an effect id. Raises NotFound if the id is malformed."""
    try:
        run, visit, key = json.loads(urlsafe_b64decode(id_))
    except (ValueError, TypeError, RecursionError):
        raise _no_effect(id_) from None
    sound = isinstance(run, str) and NAME.fullmatch(run) and type(visit) is int and 0 <= visit < 2**31
    if not sound or not isinstance(key, str) or not KEY.fullmatch(key):
        raise _no_effect(id_)
    return run, visit, key


def _no_effect(id_: str) -> NotFound:
    return NotFound(f"no effect {id_[:100]}", "GET …/effects shows the ids", "list the effects first")
