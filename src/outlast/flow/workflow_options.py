"""Options of workflows: limits, start key, objective, and when a run that completes fails instead."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from string import Formatter
from types import UnionType
from typing import Annotated, Any, Final, Generic, Literal, Protocol, TypedDict, TypeVar, Union, get_args, get_origin
from urllib.parse import quote

from pydantic import BaseModel

from outlast.core.argument_checks import Arguments, positive
from outlast.core.attributes import attribute_value
from outlast.core.durations import Duration, Term, ms_of
from outlast.core.failed_calls import FailureLimit, WhenEmpty
from outlast.core.keys import KeyTemplate
from outlast.core.limits import ATTRIBUTES_MAX, KEY_BYTES_MAX, NAME, OBJECTIVE_CHARS_MAX, TEXT_CHARS_MAX, VISITS_MAX
from outlast.core.rows.columns import stored_text
from outlast.core.rows.run_columns import AttributeValue
from outlast.core.run_filters import ATTRIBUTE_NAME, RESERVED_TERMS
from outlast.core.usage import Budget
from outlast.core.visible import code_point
from outlast.core.window import DEDUPE_FOR, ResultsTerm, UndoTerm, WindowTerms
from outlast.errors import DefinitionError, LimitExceeded
from outlast.flow.functions import NeverAwaited, refuse_unrun, refuse_unrun_function
from outlast.flow.policy import Policy

Given = TypeVar("Given", bound=BaseModel)
CEILING: Final = "168h"
NO_CEILING: Final = "36525d"
"""Ceiling of a workflow whose history is a window, if it names no other one: 100 years."""


class _WithName(Protocol):
    @property
    def name(self) -> str: ...


@dataclass(frozen=True, init=False)
class Failures:
    """Failed calls from which a run that completes fails instead, counted from its rows when it ends.

    - `share`: part of the settled calls, above 0 and at most 1.
    - `at_least`: number of failed calls below which the share does not count.
    - `of`: count only calls of these activities and lookups, or of those names (default: all).

    The run fails if both numbers are reached. A call has failed if it was refused or used up its attempts, also if the
    node caught the exception.
    """

    limit: FailureLimit

    def __init__(self, share: float, *, at_least: int = 1, of: Iterable["_WithName | str"] = ()) -> None:
        """Raises DefinitionError."""
        if type(share) not in (int, float) or not 0 < share <= 1:
            raise DefinitionError(f"share of Failures() is {share!r}", "it is a part of the calls", "e.g. share=0.5")
        if type(at_least) is not int or at_least < 1:
            raise DefinitionError(
                f"at_least of Failures() is {at_least!r}", "it is a number of failed calls", "e.g. at_least=10"
            )
        listed = [of] if isinstance(of, str) or not isinstance(of, Iterable) else list(of)
        names = frozenset(one if isinstance(one, str) else str(getattr(one, "name", "")) for one in listed)
        if not all(NAME.fullmatch(name) for name in names):
            raise DefinitionError(
                f"of= of Failures() is {of!r}", "it names no activities", "list activities and lookups: of=[fetch]"
            )
        self.__dict__.update(limit=FailureLimit(float(share), at_least, names))


class WorkflowOptions(TypedDict, Generic[Given], total=False):
    """Options of `Workflow`, `@workflow` and `agent_workflow`, as keyword arguments. `Given` is the run's input."""

    version: int
    """Raise it if running runs could not continue with the new code [1]."""
    ceiling: Term
    """Limit of the business time of a run; a person is called when it passes [168h; none with `history`]."""
    policy: Policy | None
    """Policy that is asked before each write [allow]."""
    key: str | Callable[[Given], str] | None
    """Start key of a run: a template over the fields of the input ("rfq/{category}/{deadline}"), or a function of the
    validated input that returns the same text for the same input. A start without a key uses it, so that a second start
    with the same key is the same run; with another input it is refused (Conflict)."""
    objective: str | Callable[[Given], str]
    """Purpose of a run for people, shown in lists: a template over the fields of the input ("Work incident {incident}")
    or a function of the validated input. Stored at the start, at most 200 characters."""
    attributes: Mapping[str, str] | Sequence[str]
    """Values by which lists find a run, at most eight: names of fields of the state or the input, or a name for each
    field or field of a field ({"customer": "order.customer"}). A field is a text, an integer, a yes or no, an instant
    or an enumeration, or may be None. Those of the state follow its checkpoints, those of the input alone stay as they
    began. They are stored and shown as clear text, at most 200 characters each."""
    slot_while_waiting: bool
    """False returns the admission slot of a run while it waits [True]."""
    when_empty: WhenEmpty | None
    """Reaction if a run is about to complete without a result (`ctx.emit`) although calls of it failed: "complete",
    "ask_person" (attention `results_missing`) or "fail". By default it fails if each call failed, or if some failed and
    a node mentions `emit`; it completes with a returned value, or in an end with its own name."""
    fails_if: Failures | None
    """Share of failed calls from which a run that is about to complete fails, e.g. `Failures(0.5)`."""
    budget: Budget | None
    """Limits of the usage of each run; a run that has used one up parks until a person raises it."""
    history: Duration | int
    """Window of the history that a run keeps while it lives: the last `1_000` visits, or those of the last "30d" of
    business time. Rows before it are purged, so a run may go on for years. Without it everything is kept."""
    undo: UndoTerm | None
    """With `history`: rule for calls behind the window that have an undo. "keep": their rows stay, so that the
    end of the run can undo them. "window": they count as kept for good. Without it, no activity that the code mentions
    may have an undo."""
    results: ResultsTerm
    """With `history`: "purge" deletes results that were emitted before the window ["keep"]."""
    dedupe_for: Duration
    """With `history`: how long the ids of signals are remembered, in business time [30d]."""


def window_terms(options: WorkflowOptions[Any], title: str, where: str) -> WindowTerms | None:
    """Return the window of the history of a workflow; None if it keeps everything. Raises DefinitionError."""
    given: object = options.get("history")
    check = Arguments("Workflow", where)
    if given is None:
        if named := [name for name in _OF_WINDOW if name in options]:
            value = dict(options)[named[0]]
            raise check.wrong(named[0], value, "it belongs to a window of history", f'history="30d", {named[0]}=…')
        return None
    undo, results = options.get("undo"), options.get("results", "keep")
    if undo is not None:
        check.one_of("undo", undo, get_args(UndoTerm))
    check.one_of("results", results, get_args(ResultsTerm))
    dedupe = options.get("dedupe_for", timedelta(milliseconds=DEDUPE_FOR))
    dedupe_ms = ms_of("dedupe_for", positive(f"dedupe_for of {title}", dedupe, where=where), any_length=True)
    if isinstance(given, int):
        check.number("history", given, 1, VISITS_MAX)
        return WindowTerms(given, 0, undo, results, dedupe_ms)
    try:
        kept = positive(f"history of {title}", options["history"], where=where)  # type: ignore[arg-type]
    except DefinitionError as error:
        fix = 'history="30d", or a number of visits: history=1_000'
        raise DefinitionError(error.what, error.why, fix, where=where) from None
    return WindowTerms(0, ms_of("history", kept, any_length=True), undo, results, dedupe_ms)


_OF_WINDOW: Final = ("undo", "results", "dedupe_for")


class StartKey:
    """Start key that a workflow derives from its input: a template over the fields, or a function of the input."""

    def __init__(self, key: str | Callable[[Any], str], model: type[BaseModel], title: str, where: str) -> None:
        """`model` is the type of the input. Raises DefinitionError."""
        self.title: Final = title
        self.where: Final = where
        self._function: Callable[[Any], object] | None = None
        if isinstance(key, str):
            types = {name: field.annotation for name, field in model.model_fields.items()}
            self._names: Final = tuple(types)
            self._template: Final = KeyTemplate.parse(key, types, where=where, of=title, noun="field")
        elif callable(key):
            refuse_unrun_function(f"key= of {title}", key, "write it as a plain def", where=where)
            self._function = key
        else:
            raise self._wrong(f"is {key!r}", "write a template of fields, or a function of the input that returns text")

    def of(self, given: BaseModel) -> str:
        """Return the key of a validated input. Raises InvalidInput, LimitExceeded, DefinitionError."""
        if self._function is None:
            return self._template.render([getattr(given, name) for name in self._names])
        try:
            key = self._function(given)
            refuse_unrun(key, self._function, plain=True)
            again = self._function(given)
        except NeverAwaited as error:
            raise self._wrong("does not run", str(error)) from error
        except Exception as error:  # code of the author
            raise self._wrong(f"raised {_head(error)}", "let it return a text for every valid input") from None
        if not isinstance(key, str) or not key:
            raise self._wrong(f"returned {_head(key)}", "let it return a text that is not empty")
        if key != again:
            raise self._wrong(
                f"returned {_head(key)} and {_head(again)} for one input", "compute it from the input alone"
            )
        written = quote(key, safe=_UNCHANGED, errors="backslashreplace")
        if len(written) > KEY_BYTES_MAX:
            raise LimitExceeded(
                f"the start key of {self.title} has {len(written)} bytes",
                f"a key has 1 to {KEY_BYTES_MAX} bytes",
                "return a hash: hashlib.sha256(…).hexdigest()",
            )
        return written

    def _wrong(self, why: str, fix: str) -> DefinitionError:
        return DefinitionError(f"key= of {self.title} {why}", self.where, fix, where=self.where)


class Objective:
    """Purpose of a run for people: a template over the fields of its input, or a function of the input."""

    def __init__(self, text: str | Callable[[Any], str], model: type[BaseModel], title: str, where: str) -> None:
        """`model` is the type of the input. Raises DefinitionError."""
        self.title: Final = title
        self.where: Final = where
        self._function: Callable[[Any], object] | None = None
        self._pieces: tuple[tuple[str, str], ...] = ()  # literal text, and the field that follows it
        if isinstance(text, str):
            self._pieces = self._parsed(text, model)
        elif callable(text):
            refuse_unrun_function(f"objective= of {title}", text, "write it as a plain def", where=where)
            self._function = text
        else:
            raise self._wrong(
                f"is {text!r}", "write a template of fields, or a function of the input that returns text"
            )

    def of(self, given: BaseModel) -> str:
        """Return the text of a validated input, on one line and cut with `…` if it is too long.

        Raises DefinitionError.
        """
        if self._function is None:
            return one_line("".join(literal + _spelled(given, name) for literal, name in self._pieces))
        try:
            text = self._function(given)
            refuse_unrun(text, self._function, plain=True)
        except NeverAwaited as error:
            raise self._wrong("does not run", str(error)) from error
        except Exception as error:  # code of the author
            raise self._wrong(f"raised {_head(error)}", "let it return a text for every valid input") from None
        if not isinstance(text, str):
            raise self._wrong(f"returned {_head(text)}", "let it return a text")
        return one_line(text)

    def _parsed(self, text: str, model: type[BaseModel]) -> tuple[tuple[str, str], ...]:
        known, pieces = ", ".join(model.model_fields) or "none", list[tuple[str, str]]()
        try:
            for literal, name, spec, conversion in Formatter().parse(text):
                if name is not None and (name not in model.model_fields or spec or conversion):
                    raise self._wrong(f"has {{{name}}}", f"name a field of the input alone: {known}")
                pieces.append((literal, name or ""))
        except ValueError as error:
            raise self._wrong(f"cannot be read: {error}", "close every brace; {{ stands for a brace") from error
        return tuple(pieces)

    def _wrong(self, why: str, fix: str) -> DefinitionError:
        return DefinitionError(f"objective= of {self.title} {why}", self.where, fix, where=self.where)


class Attributes:
    """Values of a run by which lists find it, each a field of its state or of its input."""

    def __init__(
        self,
        given: Mapping[str, str] | Sequence[str],
        state: type[BaseModel],
        input: type[BaseModel] | None,  # noqa: A002 - the word that authors expect
        title: str,
        where: str,
    ) -> None:
        """Raises DefinitionError for a name that is taken, and for a field that is missing or of another type."""
        self.title: Final = title
        self.where: Final = where
        if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
            raise self._wrong(
                f"is {given!r}", 'list fields: attributes=["customer"], or {"customer": "order.customer"}'
            )
        paths = given if isinstance(given, Mapping) else {name: name for name in map(str, given)}
        if len(paths) > ATTRIBUTES_MAX:
            raise self._wrong(f"names {len(paths)} fields", f"name at most {ATTRIBUTES_MAX}")
        self.names: Final = tuple(paths)
        self._of_state: Final[dict[str, tuple[str, ...]]] = {}
        self._of_input: Final[dict[str, tuple[str, ...]]] = {}
        for name, path in paths.items():
            self._check_name(name)
            if not isinstance(path, str):
                raise self._wrong(f"has {path!r} for {name!r}", f"name a field: {name}={name!r}")
            parts = tuple(path.split("."))
            if _type_at(state, parts) is not None:
                self._of_state[name] = parts
            elif input is not None and _type_at(input, parts) is not None:
                self._of_input[name] = parts
            else:
                known = ", ".join(dict.fromkeys([*state.model_fields, *(input.model_fields if input else ())]))
                raise self._wrong(f"names {path!r}, which is no field", f"name one of {known or 'none'}")
            found = _type_at(state, parts) or _type_at(input, parts)
            if not _is_attribute(found):
                raise self._wrong(
                    f"names {path!r}, which is {getattr(found, '__name__', found)}",
                    "a list finds texts, integers, yes or no, instants and enumerations",
                )

    def of_start(self, state: BaseModel, given: BaseModel) -> dict[str, AttributeValue]:
        """Return the values of a run that starts."""
        found = {name: attribute_value(_value_at(given, parts)) for name, parts in self._of_input.items()}
        return found | self.of_state(state)

    def of_state(self, state: BaseModel) -> dict[str, AttributeValue]:
        """Return the values that a state has."""
        return {name: attribute_value(_value_at(state, parts)) for name, parts in self._of_state.items()}

    def _check_name(self, name: object) -> None:
        if not isinstance(name, str) or not ATTRIBUTE_NAME.fullmatch(name):
            raise self._wrong(f"has the name {name!r}", "a name is letters, digits and _, and begins with no digit")
        if name in RESERVED_TERMS:
            raise self._wrong(
                f"has the name {name!r}, a term of every list of runs", f'another name: {{"{name}_": "{name}"}}'
            )

    def _wrong(self, why: str, fix: str) -> DefinitionError:
        return DefinitionError(f"attributes= of {self.title} {why}", self.where, fix, where=self.where)


def _type_at(model: object, parts: Sequence[str]) -> Any:
    """Return the type of a field, or of a field of its model; None if there is none."""
    found: Any = model
    for part in parts:
        fields = getattr(_without_none(found), "model_fields", {})
        if part not in fields:
            return None
        found = fields[part].annotation
    return found


def _without_none(hint: Any) -> Any:
    left = [each for each in get_args(hint) if each is not type(None)] if _is_union(hint) else [hint]
    return left[0] if len(left) == 1 else hint


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _is_attribute(hint: Any) -> bool:
    hint = _without_none(hint)
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) is Literal:
        return all(isinstance(each, str | int) for each in get_args(hint))
    return isinstance(hint, type) and issubclass(hint, str | int | datetime | Enum)


def _value_at(value: object, parts: Sequence[str]) -> object:
    for part in parts:
        value = getattr(value, part, None)
    return value


def _head(value: object) -> str:
    """Return the beginning of the `repr` of a value of the author's code, which may repeat a whole input."""
    try:
        return stored_text(repr(value), TEXT_CHARS_MAX)
    except Exception:  # because the __repr__ of an author's class may raise anything
        return f"a {type(value).__name__}"


def one_line(text: str) -> str:
    """Return text on one line: white space as one space, others that do not print as code points, cut with `…`."""
    line = " ".join(text.split())
    if not line.isprintable():
        line = "".join(char if char.isprintable() else f"[{code_point(char)}]" for char in line)
    return line if len(line) <= OBJECTIVE_CHARS_MAX else line[: OBJECTIVE_CHARS_MAX - 1].rstrip() + "…"


def _spelled(given: BaseModel, name: str) -> str:
    value = getattr(given, name) if name else ""
    return str(value.value if isinstance(value, Enum) else value)


_UNCHANGED: Final = "".join(chr(code) for code in range(0x21, 0x7F) if code != ord("%"))
"""Characters of a function's key that percent-encoding leaves as they are."""
