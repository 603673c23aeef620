"""Page of lifecycles, generated from the transition table: `python -m tests.core.lifecycle > docs/lifecycle.md`."""

import sys
from enum import StrEnum
from itertools import groupby

from outlast.core.machine import (
    RULES,
    TABLE,
    TERMINAL,
    ApprovalStatus,
    DeliveryStatus,
    EffectStatus,
    LeaseStatus,
    RunStatus,
    SubscriptionStatus,
    Transition,
    WaitStatus,
)

HEAD = """\
# Lifecycles

After reading this page you know every status of a run, an effect, a wait, an approval, a lease, a webhook and a
delivery, and every transition between them.

`scripts/lifecycle` generates this page from the transition table in `src/outlast/core/machine.py`. A test fails if they
differ. Each arrow is labelled with the verbs that make the transition. Every other transition is refused.
[Semantics](semantics.md) defines the verbs.
"""
MACHINES: dict[type[StrEnum], tuple[str, str]] = {
    RunStatus: (
        "Run",
        "A run is `recovering` if its holder died or exceeded the execution budget; a worker executes it like any "
        "running run. Needing a person is not a status: it is a mark beside one, for one of the reasons below. A "
        "run in `compensating` has decided how it ends and undoes its effects first "
        "([Compensation](compensation.md)). It keeps this status while it waits.",
    ),
    EffectStatus: (
        "Effect",
        "One row for each call of an activity. After `did_not_happen` or `reopen` the effect is refused, and the "
        "next re-run of the node writes a new intent. `give` gives a person's answer to the run. Until then a person "
        "may correct it, and `unfit` marks one that the activity's type cannot load. An undo is a separate effect; "
        "its record also moves the effect that it undoes to `undone`. `withhold` records an undo that must not be "
        "called now, `undone_manually` one that a person did.",
    ),
    WaitStatus: ("Wait", "A wait is bound once, by one commit, to messages or to its deadline."),
    ApprovalStatus: (
        "Approval",
        "`consume` uses an approval for one effect. The approval stays approved and covers no other effect.",
    ),
    LeaseStatus: (
        "Lease of a worker or a writer",
        "A closed lease never opens again. The process starts under a new id instead.",
    ),
    SubscriptionStatus: (
        "Webhook",
        "A disabled webhook keeps its position and continues from there when it is enabled. A person disables it, "
        "or the dispatcher after the receiver has answered 410.",
    ),
    DeliveryStatus: (
        "Delivery",
        "One row for each event that a webhook did not accept at the first attempt. An event accepted at once has "
        "no row.",
    ),
}


def _diagram(moves: list[Transition]) -> list[str]:
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
    """Return the text of the page."""
    parts = [HEAD]
    for machine, (title, words) in MACHINES.items():
        moves = [move for move in TABLE if isinstance(move.target, machine)]
        parts.append("\n".join([f"## {title}", "", words, "", *_diagram(moves), ""]))
    parts.append(
        "\n".join(
            [
                "## Attention",
                "",
                "| reason | choices | without an answer |",
                "|---|---|---|",
                *(
                    f"| `{reason}` | {', '.join(f'`{choice}`' for choice in rule.choices)} | {rule.if_ignored} |"
                    for reason, rule in RULES.items()
                ),
                "",
            ]
        )
    )
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(text())
