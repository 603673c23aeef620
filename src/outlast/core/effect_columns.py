"""Structured values of the ledger's columns: errors of effects and lookups, late answers, and bindings of waits."""

from collections.abc import Iterable
from json import dumps, loads
from typing import Any, Final, NamedTuple

from outlast.core.columns import Column, decoded


class EffectError(NamedTuple):
    """Refusal of a call, or the result of its last attempt if that had no outcome."""

    code: str
    detail: str
    until: int | None = None  # real; a deferred effect is not attempted before; None: it is not deferred


NO_ERROR: Final = EffectError("", "")


class EvidenceAnswer(NamedTuple):
    """Answer that a replaced holder received too late, or its proof that it has not sent an attempt."""

    status: str  # the status that this holder would have recorded, or NOT_SENT
    error: EffectError | None = None
    response_text: str | None = None  # JSON; None if there was no response
    attempt: int | None = None  # NOT_SENT: number of the attempt

    def response(self) -> Any:
        """Return the response, decoded at each call; None if there was none."""
        return None if self.response_text is None else decoded(self.response_text, "the response of a late answer")


def _dump_error(error: EffectError | None) -> str:
    if error is None:
        return ""
    plain: dict[str, object] = {"code": error.code, "detail": error.detail}
    return dumps(plain if error.until is None else {**plain, "until": error.until})


def _load_error(text: str) -> EffectError | None:
    return EffectError(**loads(text)) if text else None


def _dump_answer(answer: EvidenceAnswer) -> str:
    plain: dict[str, object] = {"status": answer.status, "error": _dump_error(answer.error)}
    if answer.response_text is not None:
        plain["response"] = answer.response_text
    if answer.attempt is not None:
        plain["attempt"] = answer.attempt
    return dumps(plain)


def _load_answer(text: str) -> EvidenceAnswer:
    plain = loads(text)
    return EvidenceAnswer(
        plain["status"], _load_error(plain.get("error", "")), plain.get("response"), plain.get("attempt")
    )


DEADLINE: Final = "deadline"
"""Column `binding` of a wait that ended by its deadline."""


def _dump_binding(messages: Iterable[int] | None) -> str:
    return DEADLINE if messages is None else dumps(list(messages))


def _load_binding(text: str) -> tuple[int, ...] | None:
    if text == DEADLINE:
        return None
    return tuple([int(n) for n in loads(text)]) if text else ()


ERROR: Final = Column("error", _dump_error, _load_error)
ANSWER: Final = Column("answer", _dump_answer, _load_answer)
BINDING: Final = Column("binding", _dump_binding, _load_binding)
