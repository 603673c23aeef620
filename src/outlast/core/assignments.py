"""Assignments of attention items to people: one meta row per tenant, which only operators write."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from outlast.core.approver_rule import identity, refusal_of_name
from outlast.core.attention import entries_named
from outlast.core.commit import Commit, Put
from outlast.core.keys import check_reason
from outlast.core.limits import ASSIGNMENT_BYTES_MAX, ASSIGNMENTS_MAX
from outlast.core.machine import Reason
from outlast.core.mailbox import check_unfinished
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import Run, is_over
from outlast.core.rows.store_rows import META, Meta
from outlast.errors import Corrupt, InvalidInput, LimitExceeded

ME: Final = "me"
"""Name that means the caller."""
UNASSIGNED: Final = "none"
"""Filter for items that are not assigned. No person has this name."""
_KEY: Final = "assignments"


class Assignment(NamedTuple):
    """Person who takes care of one attention item. Valid while the run has the item with the same beginning."""

    reason: str
    key: str
    since: int  # of the attention item
    to: str
    by: str
    at: int  # business
    note: str


Assignments: TypeAlias = Mapping[str, Sequence[Assignment]]
"""Assignments of a tenant by run, stale ones included."""


class AssignmentRequest(NamedTuple):
    """Request of an operator. `to` '': remove the assignment. `reason` None: the only item of the run."""

    to: str
    by: str
    at: int  # business
    note: str = ""
    reason: Reason | None = None
    key: str = ""


class AssignedItem(NamedTuple):
    """Item of a run with its assignment. `commit`: the row with the change, None if nothing changes."""

    run: Run
    entry: Attention
    assignment: Assignment | None
    commit: Commit | None


def assignments_row(tenant: str) -> Key:
    """Return the key of the meta row of a tenant's assignments."""
    return tenant, _KEY


def assignments_of(row: Meta | None) -> dict[str, list[Assignment]]:
    """Return the assignments in the meta row, by run. Raises Corrupt."""
    if row is None:
        return {}
    try:
        found = json.loads(row.value)
        if not isinstance(found, dict):
            raise ValueError(f"{type(found).__name__} instead of an object")
        return {str(run): [_loaded(*each) for each in listed] for run, listed in found.items()}
    except (ValueError, TypeError) as error:
        raise Corrupt(f"meta row {row.key}: {error!r}") from error


def _loaded(reason: Any, key: Any, since: Any, to: Any, by: Any, at: Any, note: Any) -> Assignment:
    return Assignment(str(reason), str(key), int(since), str(to), str(by), int(at), str(note))


def assignment_of(found: Assignments, run: Run, entry: Attention) -> Assignment | None:
    """Return the assignment of an item of the run. One of an earlier item with the same name is stale."""
    item = (entry.reason.value, entry.key, entry.since)
    return next((each for each in found.get(run.run, ()) if each[:3] == item), None)


def is_assigned_to(person: str, who: str, me: str) -> bool:
    """True if an item of `person` ('' = none) passes the filter `who`: a name, UNASSIGNED, or ME for the name `me`."""
    if who == UNASSIGNED:
        return not person
    return bool(person) and identity(person) == identity(me if who == ME else who)


def assign(before: Meta | None, run: Run, others: Iterable[Run], ask: AssignmentRequest) -> AssignedItem:
    """Assign an item of the run to a person, or remove its assignment.

    `others`: the runs that the row names. Assignments of items that they no longer have are dropped. The same person
    without another note changes nothing. Raises Conflict if the run has ended or has no such item, InvalidInput if it
    has several, LimitExceeded.
    """
    to = _person(ask)
    check_reason(ask.note)
    check_unfinished(run)
    entry = _item(run, ask)
    found = assignments_of(before)
    present = assignment_of(found, run, entry)
    if present is None and not to:
        return AssignedItem(run, entry, None, None)
    if present is not None and present.to == to and ask.note in ("", present.note):
        return AssignedItem(run, entry, present, None)
    made = Assignment(entry.reason.value, entry.key, entry.since, to, ask.by, ask.at, ask.note) if to else None
    kept = _valid(found, {row.run: row for row in (*others, run)})
    of_run = [each for each in kept.pop(run.run, []) if each != present] + ([made] if made is not None else [])
    row = _row(run.tenant, before, {**kept, **({run.run: of_run} if of_run else {})}, growing=made is not None)
    return AssignedItem(run, entry, made, Commit((Put(META, row, row.version - 1),), label=f"assign {run.run}"))


def _person(ask: AssignmentRequest) -> str:
    to = identity(ask.by if ask.to == ME else ask.to.strip())
    why = refusal_of_name(to) if to else ""
    if to == UNASSIGNED:
        why = "selects the items that are not assigned"
    if why:
        raise InvalidInput(f"{to!r} cannot name a person"[:300], f"the name {why}", 'give the name of a person: "ana"')
    return to


def _item(run: Run, ask: AssignmentRequest) -> Attention:
    """Return the item that is meant: with the key given, else the only one."""
    found = entries_named(run, ask.reason, ask.key)
    exact = [each for each in found if each.key == ask.key and ask.reason is not None]
    if len(found) > 1 and len(exact) != 1:
        names = ", ".join(f"{each.reason.value} {each.key}".strip() for each in found)
        fix = f"choose one with --reason-name and --key; outlast attention show {run.run}"
        raise InvalidInput(f"run {run.run} has several items", names, fix)
    return (exact or found)[0]


def _valid(found: Assignments, runs: Mapping[str, Run]) -> dict[str, list[Assignment]]:
    """Return the assignments of items that the runs have."""
    kept: dict[str, list[Assignment]] = {}
    for name, listed in found.items():
        run = runs.get(name)
        if run is None or is_over(run):
            continue
        items = {(entry.reason.value, entry.key, entry.since) for entry in run.attention}
        if valid := [each for each in listed if each[:3] in items]:
            kept[name] = valid
    return kept


def _row(tenant: str, before: Meta | None, assignments: Assignments, *, growing: bool) -> Meta:
    value = json.dumps(assignments, ensure_ascii=False, separators=(",", ":"))
    count = sum(map(len, assignments.values()))
    if growing and (count > ASSIGNMENTS_MAX or len(value.encode()) > ASSIGNMENT_BYTES_MAX):
        raise LimitExceeded(
            "too many items are assigned",
            f"a tenant has at most {ASSIGNMENTS_MAX} assignments at a time",
            "answer some of them, or remove some: outlast attention assign RUN --unassign",
        )
    return Meta(tenant, _KEY, before.version + 1 if before is not None else 1, value)
