"""Words of providers of models for the end of an answer, and what they mean (OUT-4)."""

from collections.abc import Mapping
from typing import Final, Literal

Finish = Literal["stop", "cut", "filtered", "refusal", "too_large"]

_CUT: Final = (
    "length max_tokens max_output_tokens model_length max_length token_limit incomplete "
    "model_context_window_exceeded context_length_exceeded "
    "error network_error insufficient_system_resource cancelled abort aborted timeout time_limit"
)
_FILTERED: Final = (
    "content_filter content_filtered safety recitation blocklist prohibited_content spii language image_safety "
    "guardrail_intervened sensitive error_toxic"
)
FINISHES: Final[Mapping[str, Finish]] = {
    **dict.fromkeys(_CUT.split(), "cut"),
    **dict.fromkeys(_FILTERED.split(), "filtered"),
    "refusal": "refusal",
}
"""Reasons of providers, in lower case, that need an answer of the workflow. Others are the ordinary end."""


def finish_of(reason: str) -> Finish:
    """Return what the word of a provider for the end of an answer means."""
    return FINISHES.get(reason.lower(), "stop")
