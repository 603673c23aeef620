"""What a policy is asked before a model decides, after it, and before each write; and its three verdicts (GATE-6)."""

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from outlast.flow.approval_rule import Rule

Occasion: TypeAlias = Literal["offer", "proposal", "decision", "commit", "resume", "consume"]
"""When a policy is asked:

- `offer`: may a model be offered this activity here? No arguments are known yet (`ctx.allowed`).
- `proposal`: would this plan be allowed? It is not made (`ctx.check`).
- `decision`: a person approves with changed arguments; this is the changed plan.
- `commit`: this write is about to be intended.
- `resume`: the same, in a visit that has waited or was taken over since it began: facts may have changed.
- `consume`: the same, and an approval of exactly this plan would be used up by it (`approval` says whose).
"""


@dataclass(frozen=True)
class Approved:
    """The approval that a write would consume: its id, who approved with which roles, and when (business time, UTC).

    `by` has everyone whose vote counted. `roles`: those held by the one who decided; empty for the local operator,
    who holds them all.
    """

    id: str
    by: tuple[str, ...]
    roles: tuple[str, ...]
    at: datetime


@dataclass(frozen=True)
class PolicyRequest:
    """One call that is thought of, or about to be made: what, with which arguments, in which run, when (UTC).

    `arguments` is empty on the occasion `offer`. `proposed_by` is whoever `ctx.check` named (a model, say).
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
    """Do it. `rule` is kept with the effect as who allowed it."""

    rule: str = "default"


@dataclass(frozen=True)
class Deny:
    """Never do it; recorded. From `ctx.do` the run goes to attention with `rule` and `detail`."""

    rule: str
    detail: str = ""


@dataclass(frozen=True)
class NeedsApproval:
    """Do it only when people who satisfy `by` have approved exactly this plan: `quorum` different ones.

    `not_requester`: whoever requested the run is none of them.
    """

    rule: str
    by: Rule
    summary: str = ""
    within: timedelta = timedelta(hours=96)
    quorum: int = 1
    not_requester: bool = False


Verdict: TypeAlias = Allow | Deny | NeedsApproval
Policy: TypeAlias = Callable[[PolicyRequest], Verdict]
"""A plain function: fast, without side effects, the same answer for the same request.

An attribute `version` (text), where it has one, is what the ledger names as the version of the policy.
"""

VERSION_CHARS: Final = 12


def policy_version(policy: Policy | None) -> str:
    """What identifies this policy's rules: its `version`, else a hash of the function's own source text; '' for none.

    The source's hash does not see what the function calls: give a policy of several functions a `version`.
    """
    if policy is None:
        return ""
    declared = getattr(policy, "version", "")
    if isinstance(declared, str) and declared:
        return declared
    try:
        text = inspect.getsource(policy)
    except (OSError, TypeError):  # typed in a shell, or an object without source
        text = getattr(policy, "__qualname__", type(policy).__qualname__)
    return hashlib.sha256(text.encode()).hexdigest()[:VERSION_CHARS]
