"""The acts of callers across runs, from the messages in the inboxes of runs and from rows of the tenant."""

from collections.abc import Iterator
from itertools import product
from typing import Final, NamedTuple, get_args

from outlast.core.approvals import approved_instead
from outlast.core.approver_rule import LOCAL, identity
from outlast.core.budget import NAMES, RAISED, SHOWN, amount_text, raises_of
from outlast.core.children import CHILD_KIND
from outlast.core.durations import ms_of
from outlast.core.machine import ApprovalStatus, Choice, SubscriptionStatus
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.core.rows.limit_rows import PAUSE, TENANT_BUDGET
from outlast.core.rows.outbox_rows import SUBSCRIPTION, Subscription
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_rows import MESSAGE, RUN, Message
from outlast.core.usage import EACH_DAY, NOTHING_USED, Amounts
from outlast.core.webhooks.deliveries import GONE
from outlast.engine.known_pauses import BY_THE_ENGINE
from outlast.errors import Corrupt, InvalidInput
from outlast.insight.labels import said_in
from outlast.insight.tenant_rows import TenantRows
from outlast.models import exact_instant
from outlast.models.audit_entries import AuditEntry, AuditKind, AuditList
from outlast.models.effects import effect_id
from outlast.operations.audit_operations import ListAudit
from outlast.store.open_rows import OpenRows, open_place
from outlast.store.queries import cursor_at, place_after

MESSAGES: Final[dict[AuditKind, tuple[str, ...]]] = {
    "decision": ("decision",), "reassign": ("reassign",), "effect": ("resolve",),
    "attention": ("answer", Choice.CONTINUE.value), "cancel": ("cancel",), "budget": (RAISED,), "signal": ("signal",),
    "fork": ("fork",), "job": ("job",), "detach": (CHILD_KIND,),
}  # fmt: skip
"""Kinds of acts on a run, and the kinds of the messages that they leave."""
_KINDS: Final = {each: act for act, kinds in MESSAGES.items() for each in kinds}
_BEFORE_RUNS: Final = "!"
"""Beginning of the places of acts without a run, which no id of a run has."""


class _Placed(NamedTuple):
    """Act with its position in the list: instant, run and number, as those of messages."""

    place: Key
    entry: AuditEntry


async def audit_page(of: TenantRows, asked: ListAudit) -> AuditList:
    """Return one page of the acts of callers, newest first. Raises InvalidInput for a cursor or a kind of no list."""
    if asked.kind is not None and asked.kind not in get_args(AuditKind):
        raise InvalidInput(f"kind is {asked.kind!r}", f"it is one of {', '.join(get_args(AuditKind))}", "choose one")
    since = 0 if asked.since is None else (await of.store.now()).business - ms_of("since", asked.since)
    after = place_after(MESSAGE, asked.cursor)
    names = {identity(asked.by), LOCAL + identity(asked.by)} if asked.by else {""}

    def fits(each: _Placed) -> bool:
        entry = each.entry
        return (
            (after is None or each.place < after)
            and each.place[0] >= since  # type: ignore[operator]
            and (not asked.by or entry.by in names)
            and asked.kind in (None, entry.kind)
        )

    found = [each for each in await _of_tenant(of) if fits(each)]
    kinds = ("",) if asked.kind is None else MESSAGES.get(asked.kind, ())
    for name, kind in product(sorted(names), kinds):
        found += await _of_runs(of, asked, name, kind, since)
    found.sort(key=lambda each: each.place, reverse=True)
    page = found[: asked.limit]
    more = len(found) > len(page)
    return AuditList(entries=[each.entry for each in page], next_cursor=cursor_at(page[-1].place) if more else "")


# --- acts on runs ---------------------------------------------------------------------------------
async def _of_runs(of: TenantRows, asked: ListAudit, actor: str, kind: str, since: int) -> list[_Placed]:
    """Return the first acts of a page that are messages, and one more if there is one."""
    where = tuple((name, value) for name, value in (("actor", actor), ("kind", kind)) if value)
    found: list[Message] = []
    cursor = asked.cursor
    while True:
        page = await of.store.query(OpenRows(MESSAGE, of.tenant, where, cursor, asked.limit + 1))
        found += [row for row in page.rows if row.at >= since and not _follows(row)]
        cursor = page.cursor
        if not cursor or len(found) > asked.limit or page.rows[-1].at < since:
            break
    keys: list[Key] = [(row.tenant, row.run, row.name) for row in found if row.kind == "decision"]
    rows = await of.store.load_many(APPROVAL, list(dict.fromkeys(keys)), listed=True) if keys else ()
    approvals = {(row.run, row.id): row for row in rows if row is not None}
    jobs: list[Key] = [(row.tenant, row.run) for row in found if row.kind == "job"]
    runs = await of.store.load_many(RUN, jobs, listed=True) if jobs else ()
    objectives = {row.run: row.objective for row in runs if row is not None}
    return [
        _Placed(
            open_place(MESSAGE, row),
            message_entry(row, approvals.get((row.run, row.name)), objectives.get(row.run, "")),
        )
        for row in found
    ]


def _follows(message: Message) -> bool:
    """Return True for the message to a run that waited for a budget which a person has set: the budget is the act."""
    try:
        return message.kind == RAISED and _raised(message) == NOTHING_USED
    except Corrupt:
        return False


def message_entry(message: Message, approval: Approval | None = None, objective: str = "") -> AuditEntry:
    """Return the act that left a message. `approval`: of a decision. `objective`: that of a job."""
    try:
        what, about, reason = _words(message, approval, objective)
    except Corrupt:
        what, about, reason = "cannot be read", "", ""
    return AuditEntry(
        at=exact_instant(message.at),
        by=message.actor,
        kind=_KINDS[message.kind],
        what=what,
        run=message.run,
        about=about,
        reason=reason,
    )


def _words(message: Message, approval: Approval | None, objective: str) -> tuple[str, str, str]:
    """Return the words of an act, what it concerns, and its reason."""
    said = said_in(message)
    match message.kind:
        case "decision":
            return _decided(message, approval), message.name, approval.reason if approval is not None else ""
        case "reassign":
            return _reassigned(message, said.about), said.about, said.reason
        case "resolve":
            stated = message.stated
            return said.about, effect_id(message.run, stated.visit, stated.key), said.reason
        case "fork":
            return f"forked from run {message.name}", "", said.reason
        case "job":
            return f"started a job: {objective}", "", said.reason
    what = {
        "cancel": "cancelled the run",
        Choice.CONTINUE.value: "let the run continue",
        CHILD_KIND: f"detached the child {message.name}",
    }
    if message.kind == RAISED:
        return f"raised the budget by {amounts_text(_raised(message))}", "", said.reason
    return what.get(message.kind, said.about), "", said.reason


def _decided(message: Message, approval: Approval | None) -> str:
    if approval is None:
        return f"decided {message.name}"
    verb = (ApprovalStatus.APPROVED if approval.chosen else ApprovalStatus.REJECTED).value
    instead = approved_instead(approval) if approval.chosen else ""
    others = ", ".join(f"{vote.by} ({vote.reason})" for vote in approval.votes if vote.by != message.actor)
    votes = f", with the votes of {others}" if others else ""
    return f"{verb}: {approval.summary}{f' → {instead}' if instead else ''}{votes}"


def _reassigned(message: Message, about: str) -> str:
    given = MESSAGE.decode_object("payload", message.payload, message)
    return f"reassigned {about} from {given.get('from')} to {given.get('to')}"


def _raised(message: Message) -> Amounts:
    return raises_of([message])[0].amounts


def amounts_text(amounts: Amounts) -> str:
    """Return added amounts for people: «50,000 tokens, 3 reported calls»."""
    named = zip(NAMES, amounts[:-1], strict=True)
    return ", ".join(f"{amount_text(name, amount)} {SHOWN[name]}" for name, amount in named if amount) or "nothing"


# --- acts on the tenant ---------------------------------------------------------------------------
async def _of_tenant(of: TenantRows) -> list[_Placed]:
    """Return the last change of each pause, webhook, budget and assignment."""
    pauses = await of.store.rows(PAUSE, (of.tenant,), listed=True)
    webhooks = await of.store.rows(SUBSCRIPTION, (of.tenant,), listed=True)
    budget = await of.store.load(TENANT_BUDGET, (of.tenant, EACH_DAY))
    found: list[_Placed] = []

    def add(at: int, by: str, kind: AuditKind, what: str, about: str = "", reason: str = "", run: str = "") -> None:
        place = (at, f"{_BEFORE_RUNS}{kind}/{run or about}", len(found))
        entry = AuditEntry(at=exact_instant(at), by=by, kind=kind, what=what, run=run, about=about, reason=reason)
        found.append(_Placed(place, entry))

    for each in pauses:
        if each.by != BY_THE_ENGINE:
            verb: AuditKind = "pause" if each.up else "resume"
            add(each.since, each.by, verb, f"{verb}d {each.key}", each.key, each.reason)
    for row in webhooks:
        for at, by, what in _changes(row):
            add(at, by, "webhook", what, row.subscription)
    if budget is not None:
        limits = [(name, n) for name, n in zip(NAMES, budget.limits, strict=False) if n is not None]
        text = ", ".join(f"{amount_text(name, n)} {SHOWN[name]}" for name, n in limits)
        what = f"set the daily budget to {text}" if text else "removed the daily budget"
        add(budget.since, budget.by, "budget", what, "", budget.reason)
    for run, assigned in (await of.assignments()).items():
        for one in assigned:
            add(one.at, one.by, "assign", f"assigned {one.reason} to {one.to}", "", one.note, run)
    return found


def _changes(row: Subscription) -> Iterator[tuple[int, str, str]]:
    """Yield creation and last change of a webhook or of a notification."""
    named = f"{'webhook' if not row.audience else 'notification'} {row.name or row.subscription}"
    yield row.created_at, row.created_by, f"added the {named}"
    if row.changed_at > row.created_at and row.why != GONE:
        verb = row.status.value if row.status is SubscriptionStatus.REMOVED else "changed"
        yield row.changed_at, row.changed_by, f"{verb} the {named}"
