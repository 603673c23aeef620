"""The transition table: each pair of verb and status is listed or refused, and forbidden pairs are named."""

from collections.abc import Callable
from enum import StrEnum
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from outlast.core import machine
from outlast.core.machine import (
    CHOICES,
    HELD,
    RULES,
    TABLE,
    TERMINAL,
    ApprovalStatus,
    Choice,
    DeliveryStatus,
    EffectStatus,
    LeaseStatus,
    Reason,
    RunStatus,
    SubscriptionStatus,
    WaitStatus,
    can,
)
from outlast.core.rows import run_columns
from outlast.errors import IllegalMove
from tests.core import lifecycle

LOOK_UPS: dict[type[StrEnum], Callable[..., StrEnum]] = {
    RunStatus: machine.run_target,
    EffectStatus: machine.effect_target,
    WaitStatus: machine.wait_target,
    ApprovalStatus: machine.approval_target,
    LeaseStatus: machine.lease_target,
    SubscriptionStatus: machine.subscription_target,
    DeliveryStatus: machine.delivery_target,
}
VERBS = {one: {move.verb for move in TABLE if isinstance(move.target, one)} for one in LOOK_UPS}
PAIRS = [(one, verb, source) for one in LOOK_UPS for verb, source in product(sorted(VERBS[one]), [None, *one])]


@pytest.mark.req("RUN-2")
@pytest.mark.parametrize(("kind", "verb", "source"), PAIRS)
def test_every_pair_is_in_the_table_or_refused(kind: type[StrEnum], verb: str, source: StrEnum | None) -> None:
    rows = [move for move in TABLE if (move.verb, move.source) == (verb, source) and isinstance(move.target, kind)]
    assert len(rows) <= 1
    assert can(verb, source) == bool(rows)  # type: ignore[arg-type]
    before = set(machine.fired)
    if rows:
        assert LOOK_UPS[kind](verb, source) is rows[0].target
    else:
        with pytest.raises(IllegalMove, match=f"cannot {verb} from"):
            LOOK_UPS[kind](verb, source)
        assert machine.fired == before, "a refused move has not been fired"
    machine.fired.intersection_update(before)


def test_no_verb_belongs_to_two_machines() -> None:
    names = [verb for verbs in VERBS.values() for verb in verbs]
    assert len(names) == len(set(names))


R, E, W, A, L = RunStatus, EffectStatus, WaitStatus, ApprovalStatus, LeaseStatus
FORBIDDEN = [
    *((verb, status) for status in sorted(TERMINAL) for verb in sorted(VERBS[R])),  # a terminal run never changes
    *(
        (verb, status)
        for status in sorted(set(R) - HELD)
        for verb in ("advance", "park", "flag", "complete", "hand_back")
    ),
    ("start", R.QUEUED),  # a run is born once
    ("record", E.UNCERTAIN),  # once in doubt, a late answer is evidence and a person decides
    ("record", E.REFUSED),
    ("settle", E.UNCERTAIN),
    ("mark_uncertain", E.DONE),
    ("intend", E.DONE),  # done once
    ("intend", E.UNCERTAIN),  # never two
    ("reopen", E.DONE),
    ("reopen", E.UNCERTAIN),  # it is resolved, not tried again
    ("happened", E.INTENDED),  # the call is still the holder's
    ("did_not_happen", E.INTENDED),
    ("did_not_happen", E.DONE),
    ("bind", W.BOUND),  # a binding is for good
    ("approve", A.APPROVED),  # decided once
    ("approve", A.REJECTED),
    ("approve", A.EXPIRED),
    ("approve", A.WITHDRAWN),
    ("reject", A.APPROVED),
    ("expire", A.APPROVED),
    ("consume", A.PENDING),  # nothing runs before a person said so
    ("consume", A.REJECTED),
    ("consume", A.EXPIRED),
    ("consume", A.WITHDRAWN),
    *((verb, R.COMPENSATING) for verb in ("advance", "complete", "admit", "queue", "compensate")),  # only undo is left
    ("compensate", R.WAITING),  # only its holder decides how it ends
    ("undo", E.UNDONE),  # undone once
    ("undo", E.INTENDED),  # uncertain effects are settled first
    ("undone_manually", E.INTENDED),  # the call is still the holder's
    ("withhold", E.INTENDED),
    ("renew", L.CLOSED),  # closed is closed
    ("close_lease", L.CLOSED),
]


@pytest.mark.req("RUN-2")
@pytest.mark.parametrize(("verb", "source"), FORBIDDEN)
def test_a_forbidden_transition_is_refused(verb: str, source: machine.Status) -> None:
    assert not can(verb, source)


def test_every_status_is_reached() -> None:
    assert {status for one in LOOK_UPS for status in one} == {move.target for move in TABLE}


@pytest.mark.whole
def test_every_reason_and_choice_is_used_outside_the_table() -> None:
    """A word without code would appear in help, docs and OpenAPI, but never in a run."""
    package = Path(machine.__file__).parents[1]
    sources = {path: path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    table = sources.pop(Path(machine.__file__))
    rest = "".join(sources.values())
    assert [str(each) for each in Reason if f"Reason.{each.name}" not in rest] == []
    assert [str(each) for each in Choice if f"Choice.{each.name}" not in rest + table.partition("RULES: ")[2]] == []
    del sources[Path(run_columns.__file__)]
    rest = "".join(sources.values())
    assert [kind for kind in get_args(run_columns.WaitingKind) if f'"{kind}"' not in rest] == []


def test_attention_never_ends_in_approval() -> None:
    """Nothing auto-approves: no reason offers it, and ignoring any of them approves nothing (GATE-3)."""
    assert all("approve" not in choice for choices in CHOICES.values() for choice in choices)
    assert not any("approve" in rule.if_ignored for rule in RULES.values())
    assert all(len(choices) >= 2 for choices in CHOICES.values())


def test_the_page_is_drawn_from_the_table() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "lifecycle.md"
    assert page.read_text(encoding="utf-8") == lifecycle.text(), "run scripts/lifecycle"
