"""Structured values of an approval row's columns: the calls that it offers, the votes, roles and editable arguments."""

from collections.abc import Iterable
from json import dumps, loads
from typing import Any, Final, NamedTuple

from outlast.core.business_days import DUE, TERM, BusinessDays, Due
from outlast.core.rows.columns import Column, decoded, load_names, typed
from outlast.core.shown_arguments import MainArgument, ShownArgument, main_arguments


class PlanChange(NamedTuple):
    """Change that an approver made to the arguments of an offered call."""

    of: int  # index of the offered call
    by: str
    at: int  # business
    values_text: str  # JSON {argument: new value}

    def values(self) -> dict[str, Any]:
        """Return the new values of the changed arguments, decoded at each call."""
        return dict(decoded(self.values_text, "a change of the arguments"))


class OfferedCall(NamedTuple):
    """Call that an approval offers. Approvers read it and approve its digest."""

    activity: str
    key: str
    digest: str
    arguments_text: str  # JSON, as in the effect row
    change: PlanChange | None = None
    shown: tuple[ShownArgument, ...] = ()  # main arguments that the author named; () = none

    def arguments(self) -> dict[str, Any]:
        """Return the arguments, decoded at each call."""
        return dict(decoded(self.arguments_text, f"the arguments of {self.key}"))

    def main_arguments(self) -> list[MainArgument]:
        """Return the arguments that lists show."""
        return main_arguments(self.arguments(), self.shown)


class ApprovalVote(NamedTuple):
    """Approval by one person of one offered call."""

    by: str
    claims: tuple[str, ...]  # roles of the person; () = the local operator, who holds all roles
    chosen: str  # digest of the approved call
    reason: str
    at: int  # business
    who: str  # the rule that applied at the time of the vote; a later reassignment keeps the vote


class ApprovalCalendar(NamedTuple):
    """Terms of an approval in business days: how its deadline was counted, `within`, and `valid_for`.

    The terms hold the holidays of the period in which they count, for processes without the author's container.
    """

    due: Due | None = None
    within: BusinessDays | None = None
    valid: BusinessDays | None = None


NO_CALENDAR: Final = ApprovalCalendar()


def _dump_calendar(calendar: ApprovalCalendar) -> str:
    texts = (DUE.encode(calendar.due), TERM.encode(calendar.within), TERM.encode(calendar.valid))
    return dumps(texts) if any(texts) else ""


def _load_calendar(text: str) -> ApprovalCalendar:
    due, within, valid = loads(text)
    return ApprovalCalendar(DUE.decode(due), TERM.decode(within), TERM.decode(valid))


def _dump_plans(plans: Iterable[OfferedCall]) -> str:
    return dumps([_plain_plan(plan) for plan in plans], ensure_ascii=False)


def _plain_plan(plan: OfferedCall) -> dict[str, object]:
    plain: dict[str, object] = {
        "activity": plan.activity, "key": plan.key, "digest": plan.digest, "arguments": plan.arguments_text,
    }  # fmt: skip
    if (change := plan.change) is not None:
        plain |= {"of": change.of, "changed_by": change.by, "changed_at": change.at, "changes": change.values()}
    if plan.shown:
        plain["shown"] = [list(each) for each in plan.shown]
    return plain


def _load_plans(text: str) -> tuple[OfferedCall, ...]:
    return tuple(_plan_of(**item) for item in loads(text))


def _plan_of(
    activity: str,
    key: str,
    digest: str,
    arguments: str,
    of: int = 0,
    changed_by: str = "",
    changed_at: int = 0,
    changes: dict[str, Any] | None = None,
    shown: Iterable[Iterable[Any]] = (),
) -> OfferedCall:
    change = None
    if changes is not None:
        change = PlanChange(of, changed_by, changed_at, dumps(changes, ensure_ascii=False))
    named = tuple([typed(ShownArgument(*each)) for each in shown])
    return typed(OfferedCall(activity, key, digest, arguments, change, named))


def _dump_votes(votes: Iterable[ApprovalVote]) -> str:
    plain = [vote._asdict() for vote in votes]
    return dumps(plain, ensure_ascii=False) if plain else ""


def _load_votes(text: str) -> tuple[ApprovalVote, ...]:
    return (
        tuple(typed(ApprovalVote(**{**vote, "claims": tuple(vote["claims"])})) for vote in loads(text)) if text else ()
    )


def _dump_claims(claims: Iterable[str]) -> str:
    return dumps(sorted(claims))


def _dump_editable(names: Iterable[str]) -> str:
    names = list(names)
    return dumps(names) if names else ""


PLANS: Final = Column("plans", _dump_plans, _load_plans)
VOTES: Final = Column("votes", _dump_votes, _load_votes)
CLAIMS: Final = Column("claims", _dump_claims, load_names)
CALENDAR: Final = Column("calendar", _dump_calendar, _load_calendar)
EDITABLE: Final = Column("editable", _dump_editable, load_names)
