"""The page of lifecycles, drawn from the one table of moves: `python -m tests.core.lifecycle > docs/lifecycle.md`."""

import sys
from enum import StrEnum
from itertools import groupby

from outlast.core.machine import (
    CHOICES,
    TABLE,
    TERMINAL,
    ApprovalStatus,
    DeliveryStatus,
    EffectStatus,
    LeaseStatus,
    Move,
    RunStatus,
    SubscriptionStatus,
    WaitStatus,
    if_ignored,
)

HEAD = """\
# Lifecycles

Drawn from the table of moves in `src/outlast/core/machine.py` by `scripts/lifecycle`; a test fails when the two differ.
Whatever is not an arrow here is refused. What the verbs promise is told in [Semantics](semantics.md).
"""
MACHINES: dict[type[StrEnum], tuple[str, str]] = {
    RunStatus: (
        "Run",
        "`recovering` is a run whose holder died or outlasted its slice; it is walked like any other. Being in the "
        "hands of a person is no status: it is a mark beside one (the reasons stand below). A run in `compensating` "
        "has decided how it ends and undoes what it did first ([Compensation](compensation.md)); it keeps this status "
        "while it waits.",
    ),
    EffectStatus: (
        "Effect",
        "One row for each write on the world. `did_not_happen` and `reopen` leave a refusal that the next walk intends "
        "anew. An undo is an effect of its own, and its record leads what it undoes to `undone`; `withhold` is an undo "
        "that must not be called as things stand, `by_hand` one that a person did.",
    ),
    WaitStatus: ("Wait", "Bound once, by one commit, to notes or to its deadline."),
    ApprovalStatus: ("Approval", "`consume` spends an approval on one effect; it stays approved and covers no other."),
    LeaseStatus: (
        "Lease of a worker or a writer",
        "Closed once, it never comes back: that process starts under a new id.",
    ),
    SubscriptionStatus: (
        "Webhook",
        "A disabled one keeps its place: enabled again, it is told what happened meanwhile. `disable` is spoken by a "
        "person, or by the dispatcher once the receiver answered 410.",
    ),
    DeliveryStatus: (
        "Delivery",
        "A row for an event that a webhook did not accept at the first attempt; what is accepted at once leaves none.",
    ),
}


def _diagram(moves: list[Move]) -> list[str]:
    lines = ["```mermaid", "stateDiagram-v2"]
    arrows = [(move.source.value if move.source else "[*]", move.target.value, move.verb) for move in moves]
    order = list(dict.fromkeys((source, target) for source, target, _ in arrows))
    arrows.sort(key=lambda arrow: order.index(arrow[:2]))
    for (source, target), group in groupby(arrows, key=lambda arrow: arrow[:2]):
        lines.append(f"    {source} --> {target}: {', '.join(verb for *_, verb in group)}")
    sources = {move.source for move in moves}
    lines += [f"    {status.value} --> [*]" for status in type(moves[0].target) if status in TERMINAL - sources]
    return [*lines, "```"]


def text() -> str:
    """The whole page."""
    parts = [HEAD]
    for machine, (title, words) in MACHINES.items():
        moves = [move for move in TABLE if isinstance(move.target, machine)]
        parts.append("\n".join([f"## {title}", "", words, "", *_diagram(moves), ""]))
    parts.append(
        "\n".join(
            [
                "## Attention",
                "",
                "| reason | a person may answer | if nobody does |",
                "|---|---|---|",
                *(
                    f"| `{reason}` | {', '.join(f'`{choice}`' for choice in choices)} | {if_ignored(reason)} |"
                    for reason, choices in CHOICES.items()
                ),
                "",
            ]
        )
    )
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(text())
