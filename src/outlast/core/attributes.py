"""Attributes of a run: values of its input or state by which lists find it, such as the customer.

The row of the run has all of them. One row for each name beside it is the index: the commit that starts the run writes
these rows, and the commit of a checkpoint those whose value has changed. They are clear text, also if the state holds
secrets.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple

from outlast.core.commit import Put
from outlast.core.limits import ATTRIBUTE_CHARS_MAX
from outlast.core.rows.columns import stored_text
from outlast.core.rows.run_columns import ATTRIBUTES, AttributeValue, StoredAttribute
from outlast.core.rows.run_rows import ATTRIBUTE, Attribute, Run

AttributeValues = Mapping[str, AttributeValue]
NO_ATTRIBUTES: Final[AttributeValues] = MappingProxyType({})


class AttributeChange(NamedTuple):
    """Attributes of a run as a commit leaves them: the column of its row, and the rows of those that changed."""

    text: str
    puts: tuple[Put, ...]


def attribute_value(value: object) -> AttributeValue:
    """Return a value as attributes hold it. Never raises, because a state may hold what its types deny."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, datetime):
        at = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
        return at.isoformat(timespec="seconds").replace("+00:00", "Z")
    if value is None or isinstance(value, bool | int):
        return value
    return stored_text(value, ATTRIBUTE_CHARS_MAX)


def attribute_text(value: AttributeValue) -> str:
    """Return the text by which a list asks for a value; '' for None."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else stored_text(str(value), ATTRIBUTE_CHARS_MAX)


def first_attributes(tenant: str, run: str, values: AttributeValues, at: int) -> AttributeChange:
    """Return the attributes of a run that starts now."""
    kept = [StoredAttribute(name, value, 1) for name, value in values.items()]
    rows = [Put(ATTRIBUTE, Attribute(tenant, run, name, 1, attribute_text(value), at), 0) for name, value, _ in kept]
    return AttributeChange(ATTRIBUTES.encode(kept), tuple(rows))


def changed_attributes(run: Run, values: AttributeValues) -> AttributeChange | None:
    """Return the attributes of a run with these values; None if none differs. Others of the run stay."""
    known = {each.name: each for each in run.attributes}
    puts: list[Put] = []
    for name, value in values.items():
        before = known.get(name)
        if before is not None and before.value == value and type(before.value) is type(value):
            continue
        changes = 1 if before is None else before.changes + 1
        known[name] = StoredAttribute(name, value, changes)
        row = Attribute(run.tenant, run.run, name, changes, attribute_text(value), run.created_at)
        puts.append(Put(ATTRIBUTE, row, changes - 1))
    return AttributeChange(ATTRIBUTES.encode(known.values()), tuple(puts)) if puts else None


def attribute_values(run: Run) -> dict[str, AttributeValue]:
    """Return the attributes of a run that have a value."""
    return {each.name: each.value for each in run.attributes if each.value is not None}


def has_attributes(run: Run, pairs: Sequence[tuple[str, str]]) -> bool:
    """Return True if the run has each of these attributes, given as name and text."""
    texts = {each.name: attribute_text(each.value) for each in run.attributes}
    return all(texts.get(name) == stored_text(value, ATTRIBUTE_CHARS_MAX) for name, value in pairs)
