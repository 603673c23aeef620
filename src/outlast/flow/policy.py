"""Policy: the request, the verdicts and the occasions on which it is asked (GATE-6)."""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from outlast.core.approver_rule import Rule
from outlast.core.argument_checks import Arguments, positive_term
from outlast.core.business_days import BusinessDays
from outlast.core.durations import Term
from outlast.core.limits import NAME_CHARS_MAX, QUORUM_MAX
from outlast.core.rows.columns import stored_text
from outlast.flow.approval_rule import Approvers, rule_of

Occasion: TypeAlias = Literal["offer", "proposal", "decision", "commit", "resume", "consume"]
"""Occasions on which a policy is asked:

- `offer`: may a model be offered this activity? The arguments are not known yet (`ctx.allowed`).
- `proposal`: would this plan be allowed? Nothing is called (`ctx.check`).
- `decision`: a person approves with changed arguments, and this is the changed plan.
- `commit`: the intent of this write is about to be recorded.
- `resume`: as `commit`, in a visit that has waited or was taken over, so that facts may have changed.
- `consume`: as `commit`, and the write would use up an approval of this plan (`approval` describes it).
"""


@dataclass(frozen=True)
class Approved:
    """The approval that a write would consume: its `id`, its approvers, and the time of the decision (`at`, UTC).

    `by` holds every person whose vote counted. `roles` are those of the person who decided; empty for the local
    operator, who holds every role.
    """

    id: str
    by: tuple[str, ...]
    roles: tuple[str, ...]
    at: datetime


@dataclass(frozen=True)
class PolicyRequest:
    """A call that is proposed or about to be made, with its run.

    - `activity`, `key`, `arguments`: the call. `arguments` is empty on the occasion `offer`.
    - `tenant`, `workflow`, `version`, `run_id`, `node`, `visit`: the place that makes it.
    - `requested_by`: the person or program that started the run.
    - `moment`: business time (UTC).
    - `occasion`: why policy is asked now.
    - `approval`: the approval that the write would consume, on the occasion `consume`.
    - `proposed_by`: the name given to `ctx.check`, for instance of a model.
    - `policy_version`: version of the policy that is asked.
    """

    activity: str
    key: str
    arguments: Mapping[str, JsonValue]
    tenant: str
    workflow: str
    version: int
    run_id: str
    node: str
    visit: int
    requested_by: str
    moment: datetime
    occasion: Occasion = "commit"
    approval: Approved | None = None
    proposed_by: str = ""
    policy_version: str = ""


@dataclass(frozen=True)
class Allow:
    """Verdict: make the call. `rule` is stored with the effect as the rule that allowed it."""

    rule: str = "default"

    def __post_init__(self) -> None:
        """Raises DefinitionError."""
        Arguments("Allow").is_text("rule", self.rule, 'Allow("orders below 100 euros")')


@dataclass(frozen=True)
class Deny:
    """Verdict: do not make the call. `ctx.do` sends the run to attention with `rule` and `detail`, or raises them."""

    rule: str
    detail: str = ""

    def __post_init__(self) -> None:
        """Raises DefinitionError."""
        check = Arguments("Deny")
        check.is_text("rule", self.rule, 'Deny("no-weekends", "it is Sunday")')
        check.is_text("detail", self.detail, 'Deny("no-weekends", "it is Sunday")')


@dataclass(frozen=True, init=False)
class NeedsApproval:
    """Verdict: make the call only if `quorum` different people who satisfy `by` approve exactly this plan.

    `rule` is stored as the rule that demanded it. `summary` is shown to the approvers. `within` is the time for their
    decision. With `not_requester`, the person who requested the run is not one of them.
    """

    rule: str
    by: Rule
    summary: str
    within: timedelta | BusinessDays
    quorum: int
    not_requester: bool

    def __init__(
        self,
        rule: str,
        by: Approvers,
        summary: str = "",
        within: Term = "96h",
        quorum: int = 1,
        not_requester: bool = False,
    ) -> None:
        """Raises DefinitionError."""
        check = Arguments("NeedsApproval")
        check.is_text("rule", rule, 'NeedsApproval("large-orders", by=role("lead"))')
        check.is_text("summary", summary, 'summary="an order above 100 euros"')
        check.number("quorum", quorum, 1, QUORUM_MAX)
        check.flag("not_requester", not_requester)
        check.term("within", within)
        self.__dict__.update(
            rule=rule,
            by=rule_of("NeedsApproval()", by),
            summary=summary,
            within=positive_term("within of NeedsApproval()", within),
            quorum=quorum,
            not_requester=not_requester,
        )


Verdict: TypeAlias = Allow | Deny | NeedsApproval
Policy: TypeAlias = Callable[[PolicyRequest], Verdict]
"""A plain function: fast, without side effects, and deterministic.

Its attribute `version` (text), if present, is stored in the ledger as the version of the policy.
"""

VERSION_CHARS: Final = 12


def policy_version(policy: Policy | None) -> str:
    """Return the version of a policy: its `version`, else a hash of the function's source; '' for no policy.

    The hash does not cover functions that the policy calls. Give a policy of several functions a `version`.
    """
    if policy is None:
        return ""
    declared = getattr(policy, "version", "")
    if isinstance(declared, str) and declared:
        return stored_text(declared, NAME_CHARS_MAX)
    try:
        text = inspect.getsource(policy)
    except (OSError, TypeError):  # defined in a shell, or an object without source
        text = getattr(policy, "__qualname__", type(policy).__qualname__)
    return hashlib.sha256(text.encode()).hexdigest()[:VERSION_CHARS]
