"""The negotiations: a purchase for each route, slow suppliers, and the answers of an approver."""

import json
from typing import Any, Literal, NamedTuple

from examples.negotiation.record import APPROACHES, Arrived
from tests.examples.helpers import ROOT

SCENARIOS = ROOT / "examples" / "negotiation" / "scenarios"
Answer = Literal["approve", "again"]


class Case(NamedTuple):
    """One route, and the approver's answers in runs with an even or an odd seed."""

    route: str
    sample: str
    suppliers: dict[str, Any]
    answers: tuple[tuple[Answer, ...], tuple[Answer, ...]]

    def will_bid(self, asked: Arrived) -> bool:
        """True if the supplier bids for this request."""
        rules = self.suppliers[asked.supplier].get("rules", [])
        return not any(
            rule["does"] == "silent"
            and asked.kind in _kinds(rule)
            and asked.round in (rule.get("rounds") or [asked.round])
            for rule in rules
        )


def _kinds(rule: dict[str, Any]) -> tuple[str, ...]:
    kind = rule.get("kind", "invitations")
    return APPROACHES if kind == "approaches" else (kind,)


def _suppliers(name: str, after: float, **rules: list[dict[str, Any]]) -> dict[str, Any]:
    suppliers: dict[str, Any] = json.loads((SCENARIOS / f"{name}.json").read_text(encoding="utf-8"))["suppliers"]
    for n, (supplier, is_) in enumerate(suppliers.items()):
        is_["bids_after"] = round(after * (n + 1), 2)
        if supplier in rules:
            is_["rules"] = rules[supplier]
    return suppliers


ONCE_MORE: tuple[tuple[Answer, ...], tuple[Answer, ...]] = (("approve",), ("again", "approve"))

CASES = {
    case.route: case
    for case in (
        Case("spot", "spot", _suppliers("spot", 0.4), ((), ())),
        Case(
            "leverage",
            "leverage",
            _suppliers("calm", 0.1, elmtree=[{"does": "silent", "rounds": [4]}]),
            ONCE_MORE,
        ),
        Case("bottleneck", "bottleneck", _suppliers("bottleneck", 0.3), ONCE_MORE),
        Case(
            "strategic",
            "strategic",
            _suppliers("strategic", 0.2, dunlin=[{"does": "silent", "rounds": [2], "kind": "proposals"}]),
            ONCE_MORE,
        ),
    )
}
