"""Presence: who has an approval open. It is passed between processes as deltas are, held in memory, never stored."""

import json
from collections.abc import Callable
from typing import Final, NamedTuple

from outlast.core.state.delta_packets import Delta, DeltaOrigin

PRESENCE_S: Final = 30.0
"""Time after which a page is forgotten unless its process has announced it again."""
RENEWALS: Final = 3
"""Announcements of a page in this time, so that one lost announcement changes nothing."""


class OpenPage(NamedTuple):
    """Page of an approval that a person has open. `page` is unique among the pages of all processes."""

    tenant: str
    approval: str
    person: str
    page: str


class PresenceNote(NamedTuple):
    """Announcement of a page; `page` is None if a process asks the others to announce theirs."""

    page: OpenPage | None
    is_open: bool = True


ASKED: Final = PresenceNote(None)


def as_delta(note: PresenceNote) -> Delta:
    """Return a note as a delta of no run, which no listener of a run receives."""
    tenant, approval, person, page = note.page or ("", "", "", "")
    text = json.dumps([person, page, note.is_open]) if note.page is not None else ""
    return Delta(DeltaOrigin(tenant, "", "", 0, 0, approval, 0), text)


def note_of(delta: Delta) -> PresenceNote | None:
    """Return the note in a delta, None if it is the text of a run or not readable."""
    origin = delta.origin
    if origin.run:
        return None
    if not delta.text:
        return ASKED
    try:
        person, page, is_open = json.loads(delta.text)
    except (ValueError, TypeError):
        return None
    if not (isinstance(person, str) and isinstance(page, str) and isinstance(is_open, bool)):
        return None
    return PresenceNote(OpenPage(origin.tenant, origin.key, person, page), is_open)


PAGES_MAX: Final = 10_000
"""Open pages that one process remembers; further ones are not shown."""


class PresenceTable:
    """Open pages of all processes, as this process knows them. Times are arguments."""

    def __init__(self, kept_s: float = PRESENCE_S) -> None:
        self._kept_s = kept_s
        self._until: dict[OpenPage, float] = {}

    def note(self, note: PresenceNote, now: float) -> bool:
        """Record an announcement. Return True if the people who have the approval open may differ now."""
        page = note.page
        if page is None:
            return False
        known = page in self._until
        if note.is_open and (known or len(self._until) < PAGES_MAX):
            self._until[page] = now + self._kept_s
            return not known
        return self._until.pop(page, None) is not None

    def expired(self, now: float) -> list[OpenPage]:
        """Forget the pages that were not announced in time, and return them."""
        found = [page for page, until in self._until.items() if until <= now]
        for page in found:
            del self._until[page]
        return found

    def people(self, tenant: str, wanted: Callable[[str], bool], me: str, now: float) -> dict[str, list[str]]:
        """Return by approval who has it open, without `me`, in the order of their names."""
        found: dict[str, set[str]] = {}
        for page, until in self._until.items():
            if page.tenant == tenant and page.person != me and until > now and wanted(page.approval):
                found.setdefault(page.approval, set()).add(page.person)
        return {approval: sorted(people) for approval, people in found.items()}
