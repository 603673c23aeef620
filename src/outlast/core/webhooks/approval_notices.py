"""Messages to approvers: who receives one about which approval, when a reminder is due, and the text.

A message is decided from approval rows at the moment of sending. If they are decided by then, there is no message.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from outlast.core.approvals import approved_instead
from outlast.core.approver_rule import Rule, identity
from outlast.core.durations import DAY, MINUTE, SECOND, span
from outlast.core.events import FAR_FROM, FAR_TEXT, TYPES, EventType, iso
from outlast.core.machine import ApprovalStatus, Reason
from outlast.core.rows.effect_rows import Approval
from outlast.core.rows.run_rows import Event, Run
from outlast.core.visible import INVISIBLE

ASKED: Final = TYPES + "approval.asked"
REMINDER: Final = TYPES + "approval.reminder"
ESCALATED: Final = TYPES + "approval.escalated"
KINDS: Final = (ASKED, REMINDER, ESCALATED)
"""Kinds of messages; the types of their deliveries."""
CARRIED_BY: Final = {
    ASKED: EventType.PARKED.value,
    REMINDER: EventType.PARKED.value,
    ESCALATED: EventType.FLAGGED.value,
}
"""Type of the event after which a message is due or, for a reminder, scheduled."""

EVERY: Final = "*"
"""Audience of a subscription to every approval."""
ROLE: Final = "role:"
NAMED: Final = "person:"

REMIND_LEAST: Final = 5 * MINUTE
REMIND_MOST: Final = DAY
REMIND_PART: Final = 4  # a reminder comes when this part of the time is left

REMINDERS: Final = 10**12
"""Added to the number of an event: the number of the delivery of its reminder."""


NoticeId = tuple[str, str]
"""Kind and approval of a message."""


class Notice(NamedTuple):
    """Message about approvals, not yet written out."""

    kind: str
    approvals: tuple[Approval, ...]

    @property
    def key(self) -> str:
        """Return the key by which a reader knows a repeated message: `asked:ap_1,ap_2`."""
        return f"{short(self.kind)}:{','.join(row.id for row in self.approvals)}"

    @property
    def ids(self) -> frozenset[NoticeId]:
        """Return the kind with each of its approvals."""
        return frozenset((self.kind, row.id) for row in self.approvals)


class NoticeText(NamedTuple):
    """Message as plain text."""

    title: str
    body: str
    key: str


def short(kind: str) -> str:
    """Return the last word of a kind: `asked`."""
    return kind.rpartition(".")[2]


def announced_in(key: str) -> tuple[str, frozenset[str]]:
    """Return the short kind and the approvals of a message's key."""
    kind, _, ids = key.partition(":")
    return kind, frozenset(filter(None, ids.split(",")))


def event_of(seq: int) -> int:
    """Return the number of the event that a delivery belongs to."""
    return seq % REMINDERS


def is_reminder(seq: int) -> bool:
    """Return True if a delivery of this number is a reminder."""
    return seq >= REMINDERS


# --- audiences -------------------------------------------------------------------------------
def concerns(audience: str, approval: Approval) -> bool:
    """Return True if the audience may decide the approval by its rule, or hears of every approval."""
    if audience == EVERY:
        return True
    rule = Rule.parse(approval.who)
    if audience.startswith(ROLE):
        return rule.names_role(audience.removeprefix(ROLE))
    return identity(audience.removeprefix(NAMED)) in rule.persons


def awaits_approval(event: Event) -> bool:
    """Return True if a run was parked until an approval is decided."""
    waits = event.data().get("waiting_for") or [] if event.type == EventType.PARKED else []
    return any(each.get("kind") == "approval" for each in waits)


def reports_timeout(event: Event) -> bool:
    """Return True if the event says that an approval was not decided in time."""
    return event.type == EventType.FLAGGED and Reason.APPROVAL_TIMEOUT.value in (event.data().get("reasons") or [])


def new_notice(
    audience: str, event: Event, approvals: Iterable[Approval], run: Run | None, earlier: Iterable[str]
) -> Notice:
    """Return the message after an event; without approvals if there is nothing to tell. `earlier`: keys of messages
    of this run and subscription.
    """
    mine = [row for row in approvals if concerns(audience, row)]
    if awaits_approval(event):
        open_ = [row for row in mine if row.status is ApprovalStatus.PENDING]
        return _untold(ASKED, open_, earlier)
    over = frozenset(a.since for a in run.attention if a.reason is Reason.APPROVAL_TIMEOUT) if run else frozenset()
    expired = [row for row in mine if row.status is ApprovalStatus.EXPIRED and row.within_until in over]
    return _untold(ESCALATED, expired if reports_timeout(event) else [], earlier)


def _untold(kind: str, approvals: Iterable[Approval], earlier: Iterable[str]) -> Notice:
    also = (short(kind), short(REMINDER)) if kind == ASKED else (short(kind),)  # a reminder follows an announcement
    announced = {each for known, ids in map(announced_in, earlier) if known in also for each in ids}
    return Notice(kind, tuple(sorted((row for row in approvals if row.id not in announced), key=lambda row: row.id)))


def still_open(kind: str, key: str, audience: str, approvals: Iterable[Approval], run: Run | None) -> Notice:
    """Return the message of a key with those of its approvals that are still undecided."""
    ids = announced_in(key)[1]
    mine = [row for row in approvals if row.id in ids and concerns(audience, row)]
    wanted = ApprovalStatus.EXPIRED if kind == ESCALATED else ApprovalStatus.PENDING
    ended = run is None or run.ended_at > 0
    return Notice(kind, () if ended else tuple(row for row in mine if row.status is wanted))


def waiting(
    audience: str,
    kinds: Iterable[str],
    approvals: Iterable[tuple[Approval, Run | None]],
    earlier: Iterable[str],
    now: int,
) -> frozenset[NoticeId]:
    """Return the messages that an audience has not received about these approvals and their runs.

    `earlier`: keys of accepted messages; `now`: business.
    """
    announced = {(kind, each) for kind, ids in map(announced_in, earlier) for each in ids}
    found = set[NoticeId]()
    for row, run in approvals:
        kind = _due(row, run) if run is not None and run.ended_at == 0 and concerns(audience, row) else ""
        if kind == ASKED and (short(ASKED), row.id) in announced:
            kind = REMINDER if (at := remind_at(row)) is not None and at <= now else ""
        if kind in kinds and (short(kind), row.id) not in announced:
            found.add((kind, row.id))
    return frozenset(found)


def _due(row: Approval, run: Run) -> str:
    if row.status is ApprovalStatus.PENDING:
        return ASKED
    over = any(each.reason is Reason.APPROVAL_TIMEOUT and each.since == row.within_until for each in run.attention)
    return ESCALATED if row.status is ApprovalStatus.EXPIRED and over else ""


def why_not(key: str, approvals: Iterable[Approval]) -> str:
    """Return why a message was not needed."""
    ids = announced_in(key)[1]
    found = [f"{row.id} is {row.status.value}" for row in approvals if row.id in ids]
    return f"not sent: {', '.join(found) or 'the approval was purged'}"


# --- when -------------------------------------------------------------------------------------
def remind_at(approval: Approval) -> int | None:
    """Return when a reminder is due (business): when a quarter of the time is left, at least 5 minutes and at most a
    day before the deadline. None if that is not after the request.
    """
    whole = approval.within_until - approval.asked_at
    at = approval.within_until - min(max(whole // REMIND_PART, REMIND_LEAST), REMIND_MOST)
    return at if at > approval.asked_at else None


def first_reminder(approvals: Iterable[Approval]) -> int | None:
    """Return when the first of these approvals is to be recalled (business); None if none is."""
    return min((at for row in approvals if (at := remind_at(row)) is not None), default=None)


# --- text -------------------------------------------------------------------------------------
ASKS_CHARS_MAX: Final = 300
TITLE_CHARS_MAX: Final = 100
LISTED_MAX: Final = 5
_STOPS: Final = str.maketrans({
    "@": "\uff20", "<": "\u2039", ">": "\u203a", "[": "(", "]": ")", "`": "'", "|": "/", "*": "\u2217", "~": "\u223c",
    "\\": "\u29f5",
})  # fmt: skip
_MARKS: Final = re.compile(
    r"_(?![^\W_])|(?<![^\W_])_"  # emphasis, unless within a word
    r"|&(?=#?\w+;)"  # a character reference
    r"|\{(?=\{)"  # a function of Adaptive Cards: {{DATE(...)}}
    r"|\A(?:[-+#]+|\d+[.)])(?!\S)"  # an item of a list, a heading
)
"""Signs that format a text of Slack, or of Teams as Markdown, only in these places; `_STOPS` has the others."""
_DOUBLES: Final = str.maketrans("_&{-+#.)", "\uff3f\uff06\uff5b\u2010\uff0b\uff03\u2024\uff09")
_DOT: Final = "[.\u3002\uff0e\uff61]"  # browsers read each of these as a dot
_FILES: Final = r"(?!(?:pdf|csv|txt|json|xml|png|jpe?g|xlsx?|docx?|pptx?|html?)(?![.-]?\w))"  # no domains end so
_LINKS: Final = re.compile(
    rf"(?i)://|\bwww\.|\bmailto:|(?<=\S){_DOT}{_FILES}(?=[^\W\d_]{{2}})"
    rf"|(?<!\d)\d{{1,3}}(?:{_DOT}\d{{1,3}}){{3}}(?!\d)"
)
"""Beginnings of links, dots before a label of two letters, with which mail and chat programs make links, and IPv4
addresses.
"""
_TITLES: Final = {ASKED: "Approval", REMINDER: "Reminder", ESCALATED: "Not decided in time"}


def inert_text(text: str, chars_max: int = ASKS_CHARS_MAX) -> str:
    """Return a text of a workflow or model as one line that mentions no one, links nowhere and formats nothing.

    Control, invisible and direction characters become spaces. Signs that mention, link or format get harmless doubles.
    Addresses of the web, domain names and IPv4 addresses are broken by brackets.
    """
    cut = text[: 4 * chars_max]
    seen = INVISIBLE.sub(" ", cut)
    shown = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in seen).translate(_STOPS)
    shown = _MARKS.sub(lambda found: found[0].translate(_DOUBLES), " ".join(shown.split()))
    shown = _LINKS.sub(_broken, shown)
    return shown if len(shown) <= chars_max and cut == text else shown[: chars_max - 1].rstrip() + "\u2026"


def _broken(found: re.Match[str]) -> str:
    """Return a text that would begin or make a link, in brackets; of an IPv4 address each dot."""
    if found[0][0].isdigit():
        return re.sub(_DOT, lambda dot: f"({dot[0]})", found[0])
    return f"({found[0]})"


def write(notice: Notice, now: int, public_url: str, more: int = 0) -> NoticeText:
    """Write a message out: for each approval a sentence, who may decide until when, and a link to its page.

    `now`: business. `public_url`: address of the service for people; '' = the message names the command instead.
    `more`: messages that this one takes the place of.
    """
    first, *rest = notice.approvals
    title = f"{_TITLES[notice.kind]}: {inert_text(_asks(first), TITLE_CHARS_MAX)}"
    if rest:
        title += f" (and {len(rest)} more)"
    parts = [_about(notice.kind, row, now, public_url) for row in notice.approvals[:LISTED_MAX]]
    if len(notice.approvals) > LISTED_MAX:
        parts.append(f"{len(notice.approvals) - LISTED_MAX} more: {_page(public_url, '') or 'outlast approvals ls'}")
    if more:
        wait = "1 more item waits" if more == 1 else f"{more} more items wait"
        parts.append(f"{wait}: {_page(public_url, '') or 'outlast approvals ls'}")
    return NoticeText(title, "\n\n".join([*parts, f"({_listed(notice.key)})"]), notice.key)


def _listed(key: str) -> str:
    return key if len(key) <= ASKS_CHARS_MAX else key[: ASKS_CHARS_MAX - 1] + "\u2026"


def _asks(row: Approval) -> str:
    """Return what the approvers decide: the call that a vote has changed, otherwise the summary."""
    return approved_instead(row) or row.summary


def _about(kind: str, row: Approval, now: int, public_url: str) -> str:
    asks, who, until = inert_text(_asks(row)), inert_text(row.who), _minute(row.within_until)
    if kind == ESCALATED:
        text = f"{asks}: {who} did not decide until {until}. Run {inert_text(row.run)} needs an operator."
    else:
        left = f", {span(max(row.within_until - now, SECOND))} left" if row.within_until < FAR_FROM else ""
        waits = "still waits" if kind == REMINDER else "waits"
        text = f"{asks}: {waits} for {who} until {until}{left}. Without a decision nothing is approved."
    return f"{text}\n{_page(public_url, row.id) or f'outlast approvals show {row.id}'}"


def _minute(at: int) -> str:
    return iso(at)[:16].replace("T", " ") + " UTC" if at < FAR_FROM else FAR_TEXT


def _page(public_url: str, approval: str) -> str:
    return f"{public_url.rstrip('/')}/ui/approvals{'/' + approval if approval else ''}" if public_url else ""


def accepted_audience(role: str, person: str, every: bool) -> Sequence[str]:
    """Return the audiences that a caller named; exactly one is correct."""
    return [text for text in (role and ROLE + role, person and NAMED + identity(person), every and EVERY) if text]


assert all(kind in CARRIED_BY for kind in KINDS)
