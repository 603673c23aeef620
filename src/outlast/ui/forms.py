"""Forms from JSON Schema: the fields of a form, and the value that a submitted one gives.

A form is read by the same walk that shows it: each field has texts, either those of a value or those that were sent,
and a value made of the texts. A value that a field would alter is edited as JSON text.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

from outlast.ui.page_route import Form

DEPTH_MAX: Final = 5
ROWS_MAX: Final = 100
BUTTONS_MAX: Final = 4
"""Choices that are shown as buttons. More are a list."""
LONG: Final = 120
"""Characters from which a text has several lines."""
ROW_FIELD: Final = "row"
"""Name of the buttons that add and remove rows. Their value is the verb and the name of the rows."""
NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
DECIMAL: Final = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
WHOLE: Final = re.compile(r"-?[0-9]{1,4000}")
OFFSET: Final = re.compile(r"[+-][0-9]{2}:[0-9]{2}")
ALTERED: Final = re.compile("[\x00-\x08\x0b-\x1f\ud800-\udfff]")
"""Characters that a browser changes in a text field."""
MISSING: Final = object()
"""Value of a field that is left out."""

Kind = Literal[
    "text", "long", "whole", "number", "decimal", "yes_no", "choice", "date", "instant", "group", "rows", "json"
]


@dataclass(frozen=True)
class FormField:
    """Field of a form, as `forms.html` shows it."""

    name: str
    path: str
    """Path as errors name it: names and indices, separated by dots."""
    label: str
    kind: Kind
    hint: str = ""
    required: bool = False
    texts: tuple[str, ...] = ("",)
    options: tuple[tuple[str, str], ...] = ()
    """Values and words of a choice."""
    inside: tuple["FormField", ...] = ()
    """Fields of a group, or rows."""
    optional: bool = False
    """True if a group or a list can be left out as a whole."""
    given: bool = True
    problems: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Return the id of the control."""
        return "f-" + re.sub(r"[^A-Za-z0-9_-]", lambda m: f".{ord(m[0]):x}.", self.name.replace("/", ":"))

    @property
    def buttons(self) -> bool:
        """Return True if the choices are few enough for buttons."""
        return len(self.options) <= BUTTONS_MAX

    def all(self) -> Iterator["FormField"]:
        """Yield this field and those inside it."""
        yield self
        for each in self.inside:
            yield from each.all()


@dataclass(frozen=True)
class SchemaForm:
    """Form of a JSON Schema: its field, and the value that was sent."""

    root: FormField
    value: Any
    rows_changed: bool = False
    """True if the form was sent to add or remove a row. Nothing else is meant by it."""
    general: tuple[str, ...] = ()
    """Problems of no field."""

    @property
    def fields(self) -> tuple[FormField, ...]:
        """Return the fields at the top: those of an object, or the one of another value."""
        return self.root.inside if self.root.kind == "group" else (self.root,)

    @property
    def problems(self) -> tuple[tuple[str, str, str], ...]:
        """Return id, label and text of each problem, in the order of the fields."""
        found = [(each.id, each.label, text) for each in self.root.all() for text in each.problems]
        return (*(("", "", text) for text in self.general), *found)

    def with_problems(self, problems: Sequence[tuple[str, str]], *, under: str = "") -> "SchemaForm":
        """Return the form with problems of the server at their fields. `under`: path of the form in the request."""
        known = {each.path for each in self.root.all()}
        at: dict[str, list[str]] = {}
        general = list(self.general)
        for path, text in problems:
            place = path.removeprefix(under).strip(".") if under else path
            parts = place.split(".")
            found = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
            nearest = next((each for each in found if each in known), "")
            if nearest:
                at.setdefault(nearest, []).append(text if nearest == place else f"{place}: {text}")
            else:
                general.append(f"{path}: {text}" if path else text)
        return replace(self, root=_attached(self.root, at), general=tuple(general))


def _attached(field: FormField, at: Mapping[str, Sequence[str]]) -> FormField:
    inside = tuple(_attached(each, at) for each in field.inside)
    return replace(field, inside=inside, problems=(*field.problems, *at.get(field.path, ())))


def shown_form(schema: Mapping[str, Any], value: Any = MISSING, *, name: str = "input") -> SchemaForm:
    """Return the form of a schema with a value, or with the defaults of the schema."""
    field, made = _Walk(schema, None).field(schema, (name, name), value=value)
    return SchemaForm(_silent(field), made)


def sent_form(schema: Mapping[str, Any], form: Form, value: Any = MISSING, *, name: str = "input") -> SchemaForm:
    """Return the form as it was sent, with its value and the problems of its fields. `value`: as it was shown."""
    walk = _Walk(schema, form)
    field, made = walk.field(schema, (name, name), value=value)
    return SchemaForm(_silent(field) if walk.clicked else field, made, rows_changed=walk.clicked)


def _silent(field: FormField) -> FormField:
    return replace(field, problems=(), inside=tuple(map(_silent, field.inside)))


Names = tuple[str, str]
"""Name of a field, and the name under which it was sent, which differs after a row above it was removed."""


class _Walk:
    """Walk over a schema that makes fields, and their value."""

    def __init__(self, schema: Mapping[str, Any], sent: Form | None) -> None:
        self._definitions = {**schema.get("definitions", {}), **schema.get("$defs", {})}
        self._sent = sent
        verb, _, name = (sent.text(ROW_FIELD) if sent else "").partition(":")
        self._click = (verb, name)
        self.clicked = bool(verb)

    def field(
        self,
        given: Any,
        names: Names,
        *,
        value: Any = MISSING,
        path: str = "",
        label: str = "",
        required: bool = True,
        depth: int = 0,
    ) -> tuple[FormField, Any]:
        """Return the field of a schema, and the value of its texts."""
        schema, nullable = self._resolved(given)
        default = schema.get("default", MISSING)
        if value is MISSING:
            value = default
        kind = self._kind(schema, value, nullable, depth)
        if self._sent is not None and self._sent.text(f"{names[1]}/=") == "json":
            kind = "json"  # the value that was shown did not fit the field
        field = FormField(
            names[0],
            path,
            label or _label(schema, path),
            kind,
            _hint(schema, kind, default, required),
            required=required and not nullable,
        )
        if kind == "group":
            needed = required or isinstance(default, dict)
            return self._group(schema, field, names[1], value, nullable=nullable, required=needed, depth=depth)
        if kind == "rows":
            return self._rows(schema, field, names[1], value, nullable=nullable, required=required, depth=depth)
        if kind in ("choice", "yes_no"):
            return self._choice(schema, field, names[1], value, nullable)
        texts = self._texts(names[1], kind, value)
        field = replace(field, texts=texts)
        if not texts[0].strip() and kind not in ("text", "long"):
            return self._left_out(field, nullable)
        if kind in ("text", "long"):
            text = texts[0].replace("\r\n", "\n")
            if not text and (nullable or (not required and default in (MISSING, "", None))):
                return field, None if nullable else MISSING
            return field, text
        try:
            return field, _parsed(kind, texts)
        except ValueError as error:
            return replace(field, problems=(str(error),)), MISSING

    def _left_out(self, field: FormField, nullable: bool) -> tuple[FormField, Any]:
        if field.required:
            return replace(field, problems=("is required",)), MISSING
        return field, None if nullable else MISSING

    def _texts(self, name: str, kind: Kind, value: Any) -> tuple[str, ...]:
        if self._sent is not None:
            return tuple((self._sent.all(each) or [""])[0] for each in _controls(name, kind))
        if value is MISSING or (value is None and kind != "json"):
            return ("", "UTC") if kind == "instant" else ("",)
        if kind == "instant":
            at = datetime.fromisoformat(value).isoformat()
            return (at[:-6], at[-6:]) if OFFSET.fullmatch(at[-6:]) else (at, "UTC")
        if kind == "json":
            text = json.dumps(value, indent=2, ensure_ascii=False)
            return (json.dumps(value, indent=2) if ALTERED.search(text) else text,)
        return (value if isinstance(value, str) else json.dumps(value),)

    def _group(
        self,
        schema: Mapping[str, Any],
        field: FormField,
        read: str,
        value: Any,
        *,
        nullable: bool,
        required: bool,
        depth: int,
    ) -> tuple[FormField, Any]:
        field, known = self._given(field, read, value, nullable=nullable, required=required)
        needed = schema.get("required", ())
        made: dict[str, Any] = {}
        inside = []
        for key, each in schema["properties"].items():
            part, found = self.field(
                each,
                _names(field.name, read, key),
                value=known.get(key, MISSING),
                path=_dotted(field.path, key),
                label=_label(each, key),
                required=key in needed,
                depth=depth + 1,
            )
            inside.append(part if field.given else _silent(part))
            if found is not MISSING:
                made[key] = found
        field = replace(field, inside=tuple(inside))
        return field, made if field.given else None if nullable else MISSING

    def _given(
        self, field: FormField, read: str, value: Any, *, nullable: bool, required: bool
    ) -> tuple[FormField, dict[str, Any]]:
        optional = nullable or not required
        if self._sent is not None:
            given = not optional or bool(self._sent.all(f"{read}/?"))
        else:
            given = not optional or isinstance(value, dict | list)
        return replace(field, optional=optional, given=given), value if isinstance(value, dict) else {}

    def _rows(
        self,
        schema: Mapping[str, Any],
        field: FormField,
        read: str,
        value: Any,
        *,
        nullable: bool,
        required: bool,
        depth: int,
    ) -> tuple[FormField, Any]:
        field, _ = self._given(field, read, value, nullable=nullable, required=True)
        values = list(value) if isinstance(value, list) else []
        if self._sent is not None:
            count = self._sent.text(f"{read}/#", "0")
            numbers = list(range(min(int(count), ROWS_MAX) if WHOLE.fullmatch(count) and int(count) > 0 else 0))
            values = [MISSING] * len(numbers)
        else:
            numbers = list(range(len(values)))
        (verb, name), added = self._click, -1
        if verb == "remove" and name.rpartition("/")[0] == read:
            numbers = [n for n in numbers if str(n) != name.rpartition("/")[2]]
        elif verb == "add" and name == read and len(numbers) < ROWS_MAX:
            added = len(values)
            numbers.append(added)
            values.append(MISSING)
        made, inside = [], []
        for n, old in enumerate(numbers):
            walk = _Walk({"$defs": self._definitions}, None) if old == added else self  # a new row has the defaults
            part, found = walk.field(
                schema["items"],
                (f"{field.name}/{n}", f"{read}/{old}"),
                value=values[old],
                path=_dotted(field.path, str(n)),
                label=f"{field.label} {n + 1}",
                depth=depth + 1,
            )
            inside.append(part)
            made.append(None if found is MISSING else found)
        field = replace(field, inside=tuple(inside))
        if not field.given:
            return replace(field, inside=tuple(map(_silent, inside))), None
        return field, MISSING if not made and not required and "default" not in schema else made

    def _choice(
        self, schema: Mapping[str, Any], field: FormField, read: str, value: Any, nullable: bool
    ) -> tuple[FormField, Any]:
        if field.kind == "yes_no":
            chosen = bool(self._sent.all(read)) if self._sent is not None else value is True
            return replace(field, texts=("on" if chosen else "",)), chosen
        values = _choices(schema)
        plain = all(isinstance(each, str) and each for each in values)
        words = [each if plain else json.dumps(each, ensure_ascii=False) for each in values]
        options = [(text, _word(each)) for text, each in zip(words, values, strict=True)]
        if nullable or not field.required:
            options.append(("", "not given"))
        if self._sent is not None:
            text = self._sent.text(read)
        elif value in values:
            text = words[values.index(value)]
        else:
            text = words[0] if len(words) == 1 and field.required else ""
        field = replace(field, texts=(text,), options=tuple(options))
        if not text:
            return self._left_out(field, nullable)
        if text not in words:
            return replace(field, problems=("is not one of the choices",)), MISSING
        return field, values[words.index(text)]

    def _resolved(self, schema: Any) -> tuple[Mapping[str, Any], bool]:
        """Return the schema behind references, without `null`, and whether null is allowed."""
        found: dict[str, Any] = dict(schema) if isinstance(schema, dict) else {}
        nullable = False
        for _ in range(DEPTH_MAX * 2):
            several = next((name for name in ("anyOf", "oneOf") if name in found), "")
            if reference := found.pop("$ref", ""):
                found = {**_object(self._definitions.get(str(reference).rpartition("/")[2])), **found}
            elif len(found.get("allOf", ())) == 1:
                found = {**_object(found.pop("allOf")[0]), **found}
            elif several and any(_object(each).get("type") == "null" for each in found[several]):
                nullable = True
                found[several] = [each for each in found[several] if _object(each).get("type") != "null"]
            elif several and len(found[several]) == 1:
                found = {**_object(found.pop(several)[0]), **found}
            elif isinstance(found.get("type"), list) and "null" in found["type"]:
                nullable, kinds = True, [each for each in found["type"] if each != "null"]
                found["type"] = kinds[0] if len(kinds) == 1 else kinds
            else:
                break
        return found, nullable

    def _kind(self, schema: Mapping[str, Any], value: Any, nullable: bool, depth: int) -> Kind:
        """Return the kind of field that shows the schema and this value without loss, or `json`."""
        kind = _kind_of(schema, nullable, depth)
        if self._sent is not None or value is MISSING or value is None:
            return kind
        if not _fits(schema, kind, value):
            return "json"
        return "long" if kind == "text" and ("\n" in value or len(value) > LONG) else kind


def _fits(schema: Mapping[str, Any], kind: Kind, value: Any) -> bool:
    """Return True if a field of this kind shows the value without loss."""
    text = value if isinstance(value, str) else ""
    match kind:
        case "group":
            return isinstance(value, dict) and set(value) <= set(schema["properties"])
        case "rows":
            return isinstance(value, list) and len(value) <= ROWS_MAX
        case "choice":
            return any(value == each and type(value) is type(each) for each in _choices(schema))
        case "yes_no":
            return isinstance(value, bool)
        case "whole":
            return type(value) is int
        case "number":
            return type(value) in (int, float)
        case "decimal":
            return type(value) in (int, float) or DECIMAL.fullmatch(text) is not None
        case "date" | "instant":
            return _is_instant(text, date if kind == "date" else datetime)
        case "text" | "long":
            return isinstance(value, str) and not ALTERED.search(value)
    return True


def _kind_of(schema: Mapping[str, Any], nullable: bool, depth: int) -> Kind:
    kinds: dict[str, Kind] = {"integer": "whole", "number": "number", "string": "text", "boolean": "yes_no"}
    formats: dict[str, Kind] = {"date": "date", "date-time": "instant"}
    several = [_object(each).get("type") for each in schema.get("anyOf", ())]
    if "enum" in schema or "const" in schema or (schema.get("type") == "boolean" and nullable):
        return "choice"
    if sorted(map(str, several)) == ["number", "string"]:
        return "decimal"
    kind = schema.get("type")
    if kind == "object" and schema.get("properties") and depth < DEPTH_MAX:
        return "group"
    if kind == "array" and isinstance(schema.get("items"), dict) and "prefixItems" not in schema and depth < DEPTH_MAX:
        return "rows"
    if kind == "string" and schema.get("format") in formats:
        return formats[schema["format"]]
    if kind == "string" and schema.get("maxLength", 0) > LONG:
        return "long"
    return kinds.get(kind, "json") if isinstance(kind, str) and not several else "json"


def _object(schema: Any) -> dict[str, Any]:
    return schema if isinstance(schema, dict) else {}


def _choices(schema: Mapping[str, Any]) -> list[Any]:
    if "const" in schema:
        return [schema["const"]]
    return [*schema["enum"]] if "enum" in schema else [True, False]


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)


def _controls(name: str, kind: Kind) -> tuple[str, ...]:
    return (name, f"{name}/zone") if kind == "instant" else (name,)


def _names(name: str, read: str, key: str) -> Names:
    part = key.replace("~", "~0").replace("/", "~1")
    return f"{name}/{part}", f"{read}/{part}"


def _dotted(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _label(schema: Any, name: str) -> str:
    """Return the title of a schema, or its name as words. A title that pydantic made of the name says no more."""
    words = name.rpartition(".")[2].replace("_", " ").strip()
    title = str(_object(schema).get("title", ""))
    if title and title.lower() != words.lower():
        return title
    return words[:1].upper() + words[1:] or "Value"


def _hint(schema: Mapping[str, Any], kind: Kind, default: Any, required: bool) -> str:
    found = [str(schema["description"]).strip()] if schema.get("description") else []
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is not None and most is not None:
        found.append(f"{least} to {most}")
    elif least is not None:
        found.append(f"at least {least}" if "minimum" in schema else f"more than {least}")
    elif most is not None:
        found.append(f"at most {most}" if "maximum" in schema else f"less than {most}")
    if "maxLength" in schema:
        found.append(f"at most {schema['maxLength']:,} characters")
    if kind == "json":
        found.append("JSON")
    elif schema.get("format") == "duration":
        found.append("a duration, e.g. PT1H or P7D")
    if not required and kind not in ("group", "rows", "yes_no", "choice"):
        empty = default is MISSING or default is None or default == ""
        found.append("optional" if empty else f"{_word(default)} if left empty")
    return "; ".join(found)


def _parsed(kind: Kind, texts: tuple[str, ...]) -> Any:
    """Return the value of the texts of one field. Raises ValueError with a sentence."""
    text = texts[0].strip()
    if kind == "whole":
        if not WHOLE.fullmatch(text):
            raise ValueError("is not a whole number")
        return int(text)
    if kind == "number":
        if not NUMBER.fullmatch(text):
            raise ValueError("is not a number, e.g. 12.5")
        return json.loads(text)
    if kind == "decimal":
        if not DECIMAL.fullmatch(text):
            raise ValueError("is not a decimal number, e.g. 12.50")
        return text
    if kind == "instant":
        return _instant(text, texts[1].strip())
    if kind == "date":
        try:
            return date.fromisoformat(text).isoformat()
        except ValueError:
            raise ValueError("is not a date, e.g. 2026-11-23") from None
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"is not JSON: {error}") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _instant(text: str, zone: str) -> str:
    """Return an instant of a zone as RFC 3339. Raises ValueError with a sentence."""
    try:
        at = datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        raise ValueError("is not a date and time, e.g. 2026-11-23T17:30") from None
    if zone.upper() in ("UTC", "Z"):
        return at.replace(tzinfo=UTC).isoformat()
    if OFFSET.fullmatch(zone):
        return datetime.fromisoformat(f"{at.isoformat()}{zone}").isoformat()
    try:
        known = ZoneInfo(zone)
    except (ValueError, OSError, LookupError):
        raise ValueError(f"{zone[:60] or 'nothing'} is not a zone, e.g. UTC, +02:00 or Europe/Berlin") from None
    there = at.replace(tzinfo=known)
    if there.utcoffset() != there.replace(fold=1).utcoffset():
        raise ValueError(f"occurs twice or never in {zone}; give the zone as an offset, e.g. +02:00")
    return there.isoformat()


def _is_instant(text: str, kind: type[date]) -> bool:
    try:
        return kind.fromisoformat(text) is not None
    except ValueError:
        return False
