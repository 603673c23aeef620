"""Ids of steps, and the outcomes that only steps and bars have."""

from typing import Final

from outlast.core.effect_verbs import UNANSWERED
from outlast.core.keys import MODEL
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import Approval, Effect, Memo
from outlast.engine.policy_gate import MEMOS as VERDICTS

ANSWERED: Final = "answered"
NOT_ANSWERED: Final = "unanswered"  # a lookup whose attempts are used up
DENIED: Final = "denied"
UNKNOWN: Final = "unknown"  # a call that a person gave up: it may have happened
_PROPOSED: Final = {
    "admitted": "allowed", "not_admitted": "not allowed", "already_done": "already done",
    "needs_approval": "needs an approval",
}  # fmt: skip
_OF_MODELS: Final = (f"{VERDICTS}offer/", f"{VERDICTS}proposal/")
"""Keys of verdicts before and after a model, which belong to its decision."""


def lookup_step(memo: Memo) -> str:
    """Return the id of the step of a lookup, or of an answer of a model."""
    return f"lookup/{memo.visit}/{memo.key}"


def call_step(effect: Effect) -> str:
    """Return the id of the step of a call."""
    return f"call/{effect.visit}/{effect.key}"


def denial_step(memo: Memo) -> str:
    """Return the id of the step of a call that policy denied."""
    return f"verdict/{memo.visit}/{memo.key}"


def request_step(approval: Approval | str) -> str:
    """Return the id of the step of a request to a person, by its row or its id."""
    return f"{approval if isinstance(approval, str) else approval.id}/request"


def is_denial(memo: Memo) -> bool:
    """Return True if a memo is the verdict that stopped a call."""
    return not memo.digest and memo.key.startswith(VERDICTS) and not memo.key.startswith(_OF_MODELS)


def lookup_outcome(memo: Memo) -> str:
    """Return how a lookup or a request to a model ended."""
    if memo.key.startswith(UNANSWERED):
        return NOT_ANSWERED
    if memo.error_text:
        return EffectStatus.REFUSED.value
    return ANSWERED if memo.activity == MODEL else EffectStatus.DONE.value


def proposal_text(outcome: str) -> str:
    """Return in words what became of a call that a model proposed."""
    return _PROPOSED.get(outcome, outcome.replace("_", " "))
