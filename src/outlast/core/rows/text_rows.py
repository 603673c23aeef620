"""Rows of texts that requests to models have in common. See `all_kinds.py`."""

from typing import Final, NamedTuple

from outlast.core.rows.row_kind import Kind


class StoredModelText(NamedTuple):
    """Instructions or offered tools that requests of a tenant name by digest (core/model_texts.py)."""

    tenant: str
    digest: str
    version: int
    kind: str  # 'instructions', or 'tools' as JSON
    text: str  # its beginning if it is too long
    chars: int  # of the whole text
    lane: str  # workflow@version that sent it first
    since: int  # business; its first use
    at: int  # business; its last use, at most a day and some minutes ago


MODEL_TEXT: Final = Kind("model_text", StoredModelText, 2, True, True)
