"""The summary of a tenant for the header of every page: a pure function of the rows that wait for a person."""

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from outlast.core.approvals import Actor, waits_by_rule, waits_for
from outlast.core.causes import causes_in
from outlast.core.commit import Instant, Mapping
from outlast.core.durations import DAY
from outlast.core.lanes import version_in, workflow_in
from outlast.core.machine import IF_IGNORED, RULES, EffectStatus, Reason
from outlast.core.rows.limit_rows import Pause
from outlast.core.rows.outbox_rows import Subscription
from outlast.core.webhooks.deliveries import GONE, is_active, shown_url
from outlast.engine.known_pauses import BREAKER
from outlast.insight.attention_reads import AWAY, BREAKER_IGNORED
from outlast.models import exact_instant, instant, milliseconds
from outlast.models.service import ActiveStop, ReasonCount, StatusSummary, TroubledWebhook, UnservedLane
from outlast.store.open_rows import FlaggedRuns, GivenUp, SummaryRows

VERSION_CHARS: Final = 16


class _Item(NamedTuple):
    """Items of attention of a reason: the first beginning, the first end without an answer (0 = never), the number."""

    reason: str
    since: int
    until: int
    if_ignored: str
    runs: int = 1


def status_summary(rows: SummaryRows, actor: Actor, now: Instant, mapping: Mapping) -> StatusSummary:
    """Return the counts of a tenant for one caller. `version` is a digest of everything else but the time."""
    ahead = [row.within_until for row in rows.voted if now.business < row.within_until]
    voted_late = len(rows.voted) - len(ahead)
    late = voted_late + sum(each.late for each in rows.pending)
    soon = voted_late + sum(until <= now.business + DAY for until in ahead) + sum(each.soon for each in rows.pending)
    ahead += [each.next_until for each in rows.pending if each.next_until]
    mine = sum(each.approvals for each in rows.pending if waits_by_rule(each.who, _names(each.excluded), actor))
    expired = sum(each.runs for each in rows.flagged if Reason.APPROVAL_TIMEOUT in _reasons_in(each.causes))
    runs = sum(each.runs for each in rows.flagged)
    breakers = [pause for pause in rows.pauses if pause.up and pause.kind == BREAKER]
    webhooks = _webhooks(rows.subscriptions, rows.dead)
    found = StatusSummary(
        version="",
        now=exact_instant(0),
        count_max=rows.most,
        at_least=_at_least(rows, late, soon),
        approvals_pending=len(rows.voted) + sum(each.approvals for each in rows.pending),
        approvals_mine=mine + sum(waits_for(row, actor) for row in rows.voted),
        approvals_overdue=late + expired,
        approvals_due=soon - late,
        next_deadline=instant(min(ahead, default=0)),
        attention=runs + len(breakers) + len(webhooks),
        attention_runs=runs,
        reasons=_reasons(
            [*_items(rows.flagged), *map(_of_breaker, breakers), *map(_of_webhook, webhooks)],
            {*([] if rows.flagged_all else Reason), *([] if rows.dead_all else [Reason.WEBHOOK_DEAD])},
        ),
        uncertain=rows.uncertain,
        unserved=[
            UnservedLane(lane=lane, workflow=workflow_in(lane), version=version_in(lane), runs=runs)
            for lane, runs in sorted(rows.unserved.items())
        ],
        pauses=[_stop(pause, mapping) for pause in rows.pauses if pause.up],
        webhooks=webhooks,
    )
    version = sha256(found.model_dump_json().encode()).hexdigest()[:VERSION_CHARS]
    return found.model_copy(update={"version": version, "now": exact_instant(now.business)})


def _names(excluded: str) -> list[str]:
    return [excluded] if excluded else []


def _at_least(rows: SummaryRows, late: int, soon: int) -> list[str]:
    """Return the names of the counts that are lower bounds.

    `late`: approvals past their deadline; `soon`: these and those due within a day. If not all were read, those with
    the earliest deadline were.
    """
    some = not rows.approvals_all
    bounds = {
        "approvals_pending": some,
        "approvals_mine": some,
        "approvals_overdue": not rows.flagged_all or (some and late >= rows.most),
        "approvals_due": some and soon >= rows.most,
        "attention": not (rows.flagged_all and rows.dead_all),
        "attention_runs": not rows.flagged_all,
        "reasons": not (rows.flagged_all and rows.dead_all),
        EffectStatus.UNCERTAIN.value: rows.uncertain >= rows.most,
        "webhooks": not rows.dead_all,
    }
    return [name for name, least in bounds.items() if least]


def _items(flagged: Iterable[FlaggedRuns]) -> list[_Item]:
    """Return each reason of flagged runs, with its first beginning and its first end."""
    found: list[_Item] = []
    for of in flagged:
        for reason in _reasons_in(of.causes):
            if_ignored = RULES[reason].if_ignored
            until = 0 if if_ignored == IF_IGNORED else of.until  # of another reason of the same runs
            found.append(_Item(reason.value, of.since, until, if_ignored, of.runs))
    return found


def _reasons_in(causes: str) -> list[Reason]:
    """Return the reasons in the column `causes` of flagged runs, each once."""
    named = dict.fromkeys(each.reason for each in causes_in(causes))
    return [reason for reason in Reason if reason.value in named] or [Reason.CONTRADICTION]


def _of_breaker(pause: Pause) -> _Item:
    return _Item(AWAY, pause.since, 0, BREAKER_IGNORED)


def _of_webhook(webhook: TroubledWebhook) -> _Item:
    return _Item(Reason.WEBHOOK_DEAD.value, milliseconds(webhook.since), 0, RULES[Reason.WEBHOOK_DEAD].if_ignored)


def _reasons(items: Iterable[_Item], at_least: Collection[str]) -> list[ReasonCount]:
    """Count items by reason: the nearest consequence first, then the oldest. `at_least`: reasons with more items."""
    grouped: dict[str, list[_Item]] = {}
    for item in items:
        grouped.setdefault(item.reason, []).append(item)
    found: list[tuple[tuple[bool, int, int], ReasonCount]] = []
    for reason, of_reason in grouped.items():
        until = min((item.until for item in of_reason if item.until), default=0)
        since = min(item.since for item in of_reason)
        count = ReasonCount(
            reason=reason,
            count=sum(item.runs for item in of_reason),
            at_least=reason in at_least,
            since=instant(since),
            until=instant(until),
            if_ignored=of_reason[0].if_ignored,
        )
        found.append(((not until, until, since), count))
    return [count for _, count in sorted(found, key=lambda each: (each[0], each[1].reason))]


def _stop(pause: Pause, mapping: Mapping) -> ActiveStop:
    return ActiveStop(
        paused=pause.key.replace("/", " ", 1),
        kind=pause.kind,
        by=pause.by,
        since=instant(pause.since),
        again_at=instant(mapping.business(pause.again_at)) if pause.again_at else None,
        reason=pause.reason,
    )


def _webhooks(subscriptions: Sequence[Subscription], dead: Sequence[GivenUp]) -> list[TroubledWebhook]:
    of_webhook = {each.subscription: each for each in dead}
    found = []
    for row in subscriptions:
        given_up = of_webhook.get(row.subscription)
        by_itself = not is_active(row) and row.why == GONE
        if given_up is not None or by_itself:
            since = given_up.since if given_up is not None else row.changed_at
            found.append(
                TroubledWebhook(
                    webhook=row.subscription,
                    url=shown_url(row.url),
                    events=given_up.events if given_up else 0,
                    since=exact_instant(since),
                    detail=row.why if given_up is None or by_itself else given_up.error,
                )
            )
    return found
