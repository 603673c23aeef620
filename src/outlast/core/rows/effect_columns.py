"""Structured values of the ledger's columns: errors of effects and lookups, late answers, and bindings of waits."""

from collections.abc import Iterable
from json import dumps, loads
from typing import Any, Final, NamedTuple

from outlast.core.limits import NAME_CHARS_MAX, TEXT_CHARS_MAX
from outlast.core.rows.columns import Column, decoded, stored_text, typed


class UnstoredAnswer(NamedTuple):
    """Answer of a call that was done, which cannot be stored."""

    size: int  # bytes; 0 = unknown
    limit: int  # bytes that are stored at most
    head: str  # its first characters


class FailedRun(NamedTuple):
    """Run that did not complete, on the path from a child down to the run whose failure ended it."""

    workflow: str
    key: str
    """Its key in its parent."""
    run: str
    code: str
    """`failed`, `cancelled` or `detached`."""
    detail: str


class EffectError(NamedTuple):
    """Refusal of a call, or the result of its last attempt if that had no outcome."""

    code: str
    detail: str
    until: int | None = None  # real; a deferred effect is not attempted before; None: it is not deferred
    unstored: UnstoredAnswer | None = None  # of a call that was done: the answer that its row does not have
    below: tuple[FailedRun, ...] = ()  # of a child: the runs below it whose failure ended it, the deepest last

    @property
    def text(self) -> str:
        """Return the detail for people, with the head of an answer that is not stored."""
        return f"{self.detail}; it begins with {self.unstored.head}" if self.unstored else self.detail


NO_ERROR: Final = EffectError("", "")
ANSWER_NOT_STORED: Final = "answer_not_stored"
"""Code of an effect that is done without a response, because its answer cannot be stored."""
HEAD_CHARS: Final = 1_000
ERROR_CHARS_MAX: Final = TEXT_CHARS_MAX + 500  # a text of the receiver, and what follows from it


def unstored(detail: str, *, size: int, limit: int, head: str) -> EffectError:
    """Return the error of a call that was done and whose answer cannot be stored. Texts are cut to their limits."""
    return EffectError(
        ANSWER_NOT_STORED,
        stored_text(detail, TEXT_CHARS_MAX),
        unstored=UnstoredAnswer(size, limit, stored_text(head[:HEAD_CHARS], HEAD_CHARS)),
    )


class EvidenceAnswer(NamedTuple):
    """Answer that a replaced holder received too late, or its proof that it has not sent an attempt."""

    status: str  # the status that this holder would have recorded, or NOT_SENT
    error: EffectError | None = None
    response_text: str | None = None  # JSON; None if there was no response
    attempt: int | None = None  # NOT_SENT: number of the attempt

    def response(self) -> Any:
        """Return the response, decoded at each call; None if there was none."""
        return None if self.response_text is None else decoded(self.response_text, "the response of a late answer")


class ChildUndo(NamedTuple):
    """Call or child run that undoes a completed child run, as its parent planned it."""

    activity: str  # or workflow
    arguments: str  # JSON
    digest: str
    is_run: bool = False


DETACHED: Final = "detached"
"""Code of a child for which its parent waits no longer, because an operator has detached it."""


class ChildTerms(NamedTuple):
    """Terms between a run and a child that it has started (S-30)."""

    close: str = "cancel"
    """The fate of a living child when its parent ends: `cancel` or `abandon`."""
    stop: str = ""
    """Why the parent has asked the child to end; '' = it has not."""
    undo: ChildUndo | None = None
    detached: bool = False
    """True if an operator has detached the child: it goes on alone, and the parent does not wait for it."""
    map: str = ""
    """Name of the map that has started the child (S-31); '' = the node has started it."""
    place: int = 0
    """Place of its input in the map."""


NO_CHILD: Final = ChildTerms()


def _dump_error(error: EffectError | None) -> str:
    if error is None:
        return ""
    detail = stored_text(error.detail, ERROR_CHARS_MAX)
    plain: dict[str, object] = {"code": stored_text(error.code, NAME_CHARS_MAX), "detail": detail}
    if error.until is not None:
        plain["until"] = error.until
    if error.unstored is not None:
        plain["unstored"] = error.unstored._asdict()
    if error.below:
        plain["below"] = error.below
    return dumps(plain)


def _load_error(text: str) -> EffectError | None:
    if not text:
        return None
    plain = loads(text)
    answer, below = plain.pop("unstored", None), plain.pop("below", None)
    error = EffectError(**plain)
    if answer is not None:
        error = error._replace(unstored=typed(UnstoredAnswer(**answer)))
    if below is not None:
        error = error._replace(below=tuple(typed(FailedRun(*each)) for each in below))
    return typed(error)


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


def _dump_child(terms: ChildTerms) -> str:
    plain: dict[str, object] = {"close": terms.close}
    if terms.stop:
        plain["stop"] = stored_text(terms.stop, TEXT_CHARS_MAX)
    if terms.undo is not None:
        plain["undo"] = terms.undo._asdict()
    if terms.detached:
        plain["detached"] = True
    if terms.map:
        plain |= {"map": terms.map, "place": terms.place}
    return dumps(plain)


def _load_child(text: str) -> ChildTerms:
    plain = loads(text)
    undo, detached = plain.pop("undo", None), bool(plain.pop("detached", False))
    return typed(ChildTerms(**plain, undo=None if undo is None else typed(ChildUndo(**undo)), detached=detached))


ERROR: Final = Column("error", _dump_error, _load_error)
ANSWER: Final = Column("answer", _dump_answer, _load_answer)
BINDING: Final = Column("binding", _dump_binding, _load_binding)
CHILD: Final = Column("child", _dump_child, _load_child)
