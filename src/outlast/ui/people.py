"""Acts of people and programs in a run: its start, their requests and their decisions."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple

from outlast.core.rows.run_rows import Message
from outlast.insight.labels import call_of, said_in
from outlast.models import exact_instant
from outlast.models.approvals import ApprovalSummary
from outlast.models.runs import RunSummary

DECISIONS: Final = "decision"
"""Kind of the messages that approvals tell better."""


class Act(NamedTuple):
    """One act of a person, its object and its reason."""

    at: datetime
    who: str
    what: str
    about: str
    reason: str
    approval: str


def people_of(run: RunSummary, messages: Iterable[Message], approvals: Iterable[ApprovalSummary]) -> list[Act]:
    """Return the acts of people and programs in order of time."""
    found = []
    if run.created_at is not None:
        found.append(Act(run.created_at, run.requested_by, "start", run.lane, "", ""))
    found += [_of_message(each) for each in messages if each.kind != DECISIONS]
    for approval in approvals:
        if approval.quorum > 1:
            found += [
                Act(vote.at, vote.by, "vote", call_of(approval, vote.chosen), vote.reason, approval.approval)
                for vote in approval.votes
                if vote.at is not None
            ]
        if approval.decided_at is not None and approval.decided_by:
            found.append(
                Act(
                    approval.decided_at,
                    approval.decided_by,
                    approval.status,
                    call_of(approval),
                    approval.reason,
                    approval.approval,
                )
            )
    return sorted(found, key=lambda act: act.at)


def _of_message(message: Message) -> Act:
    said = said_in(message)
    return Act(exact_instant(message.at), message.actor, said.verb, said.about, said.reason, "")
