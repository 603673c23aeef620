"""Texts that requests to models have in common: instructions and offered tools, each stored once for a tenant.

A request names its texts by digest in its row of usage. The rows of texts belong to no run: a worker writes one when it
first sends the text, and gives it a new instant once a day while it is in use. A text goes when it was not used for the
time for which ended runs are kept (decision 0279).
"""

from collections.abc import Sequence
from typing import Final

from outlast.core.codec import compact, digest
from outlast.core.commit import Commit, Erase, Expect, Put
from outlast.core.durations import DAY
from outlast.core.limits import MODEL_TEXT_CHARS_MAX
from outlast.core.rows.row_kind import Key, key_of
from outlast.core.rows.text_rows import MODEL_TEXT, StoredModelText
from outlast.core.usage import INSTRUCTIONS, TOOLS, ModelText

CONFIRMED_EVERY: Final = DAY
"""Business time after which the use of a text gives its row a new instant."""
SPARE: Final = 2 * CONFIRMED_EVERY
"""A text is kept so much longer: its instant may be that much before its last use."""
DIGEST_CHARS: Final = 32


def model_text(kind: str, text: str) -> ModelText:
    """Return a text of requests with its digest, cut at MODEL_TEXT_CHARS_MAX."""
    clean = text.encode(errors="replace").decode().replace("\0", "\ufffd")
    return ModelText(digest(kind, clean)[:DIGEST_CHARS], kind, clean[:MODEL_TEXT_CHARS_MAX], len(clean))


def texts_of_request(instructions: str, tools: Sequence[object]) -> tuple[ModelText, ModelText]:
    """Return the texts of a request: its instructions, and the tools that it offers, as plain JSON data."""
    return model_text(INSTRUCTIONS, instructions), model_text(TOOLS, compact(tools) if tools else "")


def confirmed(row: StoredModelText | None, text: ModelText, tenant: str, lane: str, now: int) -> Commit | None:
    """Return the commit that a use of a text writes; None if its row is of this day. `row`: the stored one.

    The first row names the version of the workflow that sent it first.
    """
    if row is not None and now - row.at < CONFIRMED_EVERY:
        return None
    if row is None:
        after = StoredModelText(tenant, text.digest, 1, text.kind, text.text, text.chars, lane, now, now)
    else:
        after = row._replace(version=row.version + 1, at=now)
    return Commit((Put(MODEL_TEXT, after, after.version - 1),), label=f"model text {text.digest}")


def is_unused(row: StoredModelText, before: int) -> bool:
    """True if a text was last used before a business instant."""
    return row.at < before - SPARE


def forgotten(row: StoredModelText) -> Commit:
    """Return the commit that deletes a text, unless a worker uses it now."""
    key: Key = key_of(MODEL_TEXT, row)
    size = len(row.text.encode())
    return Commit(
        (Erase(MODEL_TEXT, key, size),), expects=(Expect(MODEL_TEXT, key, row.version),), label=f"forget {row.digest}"
    )
