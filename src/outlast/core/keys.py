"""Names and keys. A key identifies a call by its business identity, never by the order of calls (S-18)."""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from hashlib import sha256
from string import Formatter
from types import NoneType
from typing import Annotated, Any, Final, Literal, NewType, TypeAlias, get_args, get_origin
from urllib.parse import quote

from outlast.core.limits import IDEMPOTENCY_KEY_CHARS_MAX, KEY_BYTES_MAX, NAME, NAME_CHARS_MAX, TEXT_CHARS_MAX
from outlast.errors import DefinitionError, InvalidInput, LimitExceeded

OncePer: TypeAlias = Literal["visit", "run", "root", "tenant"]

_PLAIN: Final = re.compile(r"[A-Za-z0-9._~-]*").fullmatch  # characters that percent-encoding leaves unchanged
_LITERAL: Final = re.compile(r"[A-Za-z0-9._~/:@,=+-]*").fullmatch
_SEPARATOR: Final = re.compile(r"[/:@,=+]").search  # characters that no encoded value contains


def check_name(kind: str, value: object) -> str:
    """Return `value` if it is a valid name of a `kind` (workflow, node, run, tenant, …). Raises InvalidInput."""
    if isinstance(value, str) and NAME.fullmatch(value):
        return value
    raise InvalidInput(
        f"{value!r} cannot name a {kind}",
        f"a name has 1 to {NAME_CHARS_MAX} letters, digits, dots, dashes or underscores, and is not . or ..",
        "choose such a name",
    )


def check_key(what: str, key: object, example: str) -> None:
    """Raise InvalidInput, which says `what` the key is of, unless it is printable text that a row can have as key."""
    if not isinstance(key, str) or not key.isprintable() or not 0 < len(key.encode(errors="replace")) <= KEY_BYTES_MAX:
        raise InvalidInput(
            f"{what} cannot have the key {key!r}"[:200],
            f"a key is printable text of 1 to {KEY_BYTES_MAX} bytes",
            example,
        )


def check_reason(reason: str) -> None:
    """Raise LimitExceeded or InvalidInput if a reason cannot be stored."""
    check_text("the reason", reason)
    if len(reason) > TEXT_CHARS_MAX:
        raise LimitExceeded("the reason is too long", f"at most {TEXT_CHARS_MAX:,} characters", "say it shorter")


def check_given_reason(act: str, shown: str, reason: str) -> None:
    """Raise InvalidInput or LimitExceeded without a reason that can be stored. `shown`: where people read it."""
    check_reason(reason)
    if not reason.strip():
        raise InvalidInput(f"{act} needs a reason", shown, "say why")


def check_text(what: str, text: object) -> None:
    """Raise InvalidInput for a value that is no text, or holds half a character (a lone surrogate) or NUL."""
    if not isinstance(text, str):
        raise InvalidInput(f"{what} is {text!r}"[:200], "it is text", "give a text")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InvalidInput(f"{what} is not text that can be stored", str(error), "decode it properly") from None
    if "\0" in text:
        raise InvalidInput(f"{what} is not text that can be stored", "it has the character NUL", "leave it out")


class KeyTemplate:
    """Key template over the parameters of an activity or the fields of an input: `invite/{supplier_id}/{round}`.

    Values are percent-encoded, and a character that no encoded value contains separates parameters. So two different
    lists of values never render the same key. Created by `parse`; immutable.
    """

    __slots__ = ("_format", "_indices", "_only", "parameters", "text")

    def __init__(self, text: str, pattern: str, indices: tuple[int, ...], parameters: tuple[str, ...]) -> None:
        self.text: Final = text
        self.parameters: Final = parameters
        self._format: Final = pattern
        self._indices: Final = indices
        self._only: Final = len(indices)

    @classmethod
    def parse(
        cls, text: str, parameters: Mapping[str, Any], *, where: str = "", of: str = "", noun: str = "parameter"
    ) -> "KeyTemplate":
        """Parse the template `text` over `parameters`, a mapping of names to annotations in the order of `render`.

        Errors name `where` (file:line) and `of` (the owner of the key), and call a parameter a `noun`. Raises
        DefinitionError if the text is empty; if a placeholder is no parameter, positional, an attribute or index
        access, a conversion or a format specification; if a parameter is not text, an integer, a bool or an enum of
        those; if no separator is between two parameters; or if literal text needs encoding.
        """

        def wrong(why: str, fix: str) -> DefinitionError:
            return DefinitionError(f'key "{text}"{f" of {of}" if of else ""} {why}', where, fix, where=where)

        if not text:
            raise wrong("is empty", 'name the business identity, e.g. key="invite/{supplier_id}/{round}"')
        try:
            pieces = list(Formatter().parse(text))
        except ValueError as error:
            raise wrong(f"cannot be read: {error}", "close every brace; a key holds no literal braces") from error
        names = list(parameters)
        literals, used = [""], list[str]()
        for literal, field, spec, conversion in pieces:
            literals[-1] += literal
            if field is None:
                continue
            _check_placeholder(field, spec or "", conversion or "", parameters, noun, wrong)
            used.append(field)
            literals.append("")
        _check_literals(literals, used, wrong)
        pattern = "%s".join(literals)
        if literals[0].startswith(UNDO):
            raise wrong(f"begins with {UNDO}, as the engine's own keys do", "begin with another word")
        if len(pattern) > KEY_BYTES_MAX:
            raise wrong(f"is longer than {KEY_BYTES_MAX} characters", "choose a shorter one")
        return cls(text, pattern, tuple(names.index(name) for name in used), tuple(used))

    def render(self, values: Sequence[object]) -> str:
        """Return the key for `values`, in the order of the parameters given to `parse`. Raises LimitExceeded."""
        parts: list[object] = []
        for i in self._indices:
            value = values[i]
            if type(value) is int or (type(value) is str and _PLAIN(value)):
                parts.append(value)  # written as it is; most values are
            else:
                parts.append(_written(value))
        key = self._format % tuple(parts)
        if not 0 < len(key) <= KEY_BYTES_MAX:  # the key is ASCII
            raise LimitExceeded(
                f'key "{self.text}" renders to {len(key)} bytes',
                f"a key has 1 to {KEY_BYTES_MAX} bytes",
                "use a shorter business identity, e.g. an id instead of a text",
            )
        if key.startswith(UNDO):
            raise InvalidInput(
                f'key "{self.text}" renders to {key}', "such keys are the engine's own", "begin with another word"
            )
        return key

    def __repr__(self) -> str:
        return f"KeyTemplate({self.text!r})"


def idempotency_key(tenant: str, run: str, visit: int, key: str) -> str:
    """Return the idempotency key of an effect: equal for all its attempts, different for any other effect.

    `visit` is 0 for a call once per run. For a call once per tenant `run` is '' and `visit` counts calls repeated after
    an undo, because a receiver that remembers the first key would ignore them. A key of up to 255 characters is
    readable; a longer one is a hash.
    """
    readable = f"{tenant}:{run}:{visit}:{key}"
    if len(readable) <= IDEMPOTENCY_KEY_CHARS_MAX:
        return readable
    return f"{tenant}:{sha256(readable.encode()).hexdigest()}"


MODEL: Final = "outlast.model"
"""Stored activity name of every request to a language model. Such a request is a durable lookup."""

ADMISSION: Final = "outlast.admission"
"""Stored activity name of the memos that record how the calls of a model's answer were decided."""

LINEAGE: Final = "lineage?"
"""Prefix of the key of a call once per run that the runs of a lineage share (S-28). No template renders a ?."""


def lineage_key(root: str, key: str) -> str:
    """Return the key under which a lineage shares a call once per run. `root`: the oldest ancestor."""
    return f"{LINEAGE}{root}/{key}"


TREE: Final = "tree?"
"""Prefix of the key of a call once per root, which the runs of a tree share (S-18)."""


def tree_key(root: str, key: str) -> str:
    """Return the key under which the runs of a tree share a call once per root."""
    return f"{TREE}{root}/{key}"


def tree_of_key(key: str) -> str:
    """Return the root that names the tree of a shared call; '' for a call that no tree shares."""
    return key.removeprefix(TREE).partition("/")[0] if key.startswith(TREE) else ""


def plain_key(key: str) -> str:
    """Return the key of a call as its activity renders it."""
    return key.partition("/")[2] if key.startswith((LINEAGE, TREE)) else key


def scope_of_shared(key: str) -> OncePer:
    """Return the scope of a row that several runs share, as people see it."""
    return "root" if tree_of_key(key) else "tenant"


UNDO: Final = "undo/"
"""Prefix of the key of an undo; the key of the effect follows."""


def is_engine_key(key: str) -> bool:
    """True for a key of the engine's own rows: of an undo, or of a call that a lineage or a tree shares."""
    return key.startswith((UNDO, LINEAGE, TREE))


def undo_key(key: str) -> str:
    """Return the key of the undo of an effect: `undo/KEY`, with a hash in place of a key that is too long."""
    whole = UNDO + key
    return whole if len(whole) <= KEY_BYTES_MAX else f"{UNDO}{sha256(key.encode()).hexdigest()}"


def _written(value: object) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if not isinstance(value, str):
        raise InvalidInput(f"a {type(value).__name__} cannot be part of a key", "", "pass text or a whole number")
    if _PLAIN(value):
        return value
    try:
        return quote(value, safe="")
    except UnicodeEncodeError as error:
        raise InvalidInput(
            "text that is not valid Unicode cannot be part of a key", "", "decode it properly"
        ) from error


def _check_placeholder(
    name: str, spec: str, conversion: str, parameters: Mapping[str, Any], noun: str, wrong: Any
) -> None:
    if not name or name.isdigit():
        raise wrong("has a placeholder without a name", f"name a {noun}: {{supplier_id}}")
    if spec or conversion:
        raise wrong(f"formats {{{name}}}", f"write {{{name}}} alone; format the value before it becomes a {noun}")
    if name not in parameters:
        if re.search(r"[.\[]", name):
            raise wrong(f"looks into {{{name}}}", f"pass the part you need as a {noun}")
        known = ", ".join(parameters) or "none"
        raise wrong(f"names {{{name}}}, which is no {noun}", f"use one of its {noun}s: {known}")
    if not _may_stand_in_key(parameters[name]):
        raise wrong(
            f"uses {{{name}}}, which is neither text, a whole number, a truth value nor an enum of those",
            f"use an id of it, a {noun} of type str (now: {parameters[name]!r})",
        )


def _check_literals(literals: list[str], used: list[str], wrong: Any) -> None:
    for literal in literals:
        if not _LITERAL(literal):
            raise wrong("has characters that do not belong in a key", "use letters, digits and . _ ~ / : @ , = + -")
    for left, literal, right in zip(used, literals[1:-1], used[1:], strict=False):
        if not _SEPARATOR(literal):
            raise wrong(
                f"puts nothing between {{{left}}} and {{{right}}} that their values cannot contain",
                f"separate them: {{{left}}}/{{{right}}}",
            )


def _may_stand_in_key(kind: Any) -> bool:
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        elif hasattr(kind, "__value__"):  # `type X = …` of Python 3.12
            kind = kind.__value__
        else:
            break
    if get_origin(kind) is Literal:
        return all(isinstance(value, (str, int, Enum)) for value in get_args(kind))
    if not isinstance(kind, type) or kind is NoneType:
        return False
    if issubclass(kind, Enum):
        return all(isinstance(member.value, (str, int)) for member in kind)
    return issubclass(kind, (str, int))
