"""The rules marked ◆ in docs/semantics.md, searched exhaustively over the real verbs and the real judge of commits.

Each rule holds as built, and each safeguard removed makes it fail for the reason it is there.
"""

from importlib import import_module

import pytest

from tests.models.explore import Variant, explore

RULES = {
    "s01_mailbox": ("RUN-3",),
    "s02_leases": ("REC-1", "RUN-3"),
    "s04_clocks": ("REC-6",),
    "s06_slots": ("RUN-6",),
    "s06_trees": ("RUN-6", "RUN-13"),
    "s07_batches": (),
    "s14_waits": (),
    "s17_effects": ("EFF-2", "EFF-3"),
    "s17_first_answer": ("EFF-1", "EFF-6", "EFF-9"),
    "s18_sharing": ("EFF-1", "EFF-6"),
    "s20_approvals": ("GATE-2", "GATE-9"),
    "s27_keys": ("EFF-9",),
    "s28_forks": ("RUN-10",),
    "s29_first": ("RUN-12",),
    "s28_living_ancestors": ("RUN-10",),
    "s30_budget": ("RUN-13",),
    "s30_children": ("RUN-13",),
    "s31_enough": ("RUN-14",),
    "s31_map": ("RUN-14",),
    "s32_window": ("RUN-15",),
}
CASES = [
    pytest.param(variant, id=f"{rule}: {variant.name}", marks=[pytest.mark.req(*ids)] if ids else [])
    for rule, ids in RULES.items()
    for variant in import_module(f"tests.models.{rule}").VARIANTS
]


@pytest.mark.parametrize("variant", CASES)
def test_rule(variant: Variant) -> None:
    found = explore(variant.model)
    if variant.breaks:
        assert variant.breaks in found.wrong, found
    else:
        assert not found.wrong, "\n".join([found.wrong, *found.trace])
