"""Runs the searches and prints their size: `python -m tests.models [--large] [--traces] [RULE …]`."""

import argparse
import sys
import time
from importlib import import_module
from pathlib import Path

from tests.measured import unmeasured
from tests.models.explore import Variant, explore


def report(variant: Variant, traces: bool) -> bool:
    """Search one variant and print what came out; False when that is not what was expected."""
    began = time.perf_counter()
    found = explore(variant.model)
    took = time.perf_counter() - began
    nothing = unmeasured(states=found.states, edges=found.edges)
    expected = not nothing and (variant.breaks in found.wrong if variant.breaks else not found.wrong)
    word = "fails" if found.wrong else "holds"
    flag = "ok" if expected else "UNEXPECTED"
    sys.stdout.write(
        f"  [{flag}] {word} {found.states:>8} states {found.edges:>9} edges {took:6.1f} s  {variant.name}\n"
    )
    if (traces and found.wrong) or not expected:
        sys.stdout.write("".join(f"         {line}\n" for line in [*nothing, found.wrong, *found.trace]))
    sys.stdout.flush()
    return expected


def main() -> int:
    """Search the rules and return the exit code: 1 if a variant has an unexpected result."""
    parser = argparse.ArgumentParser(prog="scripts/models", description="Search the rules over the real verbs.")
    parser.add_argument("rules", nargs="*", help="s01_mailbox, …; all without it")
    parser.add_argument("--large", action="store_true", help="the larger bounds as well (minutes)")
    parser.add_argument("--traces", action="store_true", help="the shortest trace of each variant that fails")
    given = parser.parse_args()
    rules = given.rules or sorted(path.stem for path in Path(__file__).parent.glob("s[0-9][0-9]_*.py"))
    fine = True
    for rule in rules:
        module = import_module(f"tests.models.{rule}")
        sys.stdout.write(f"{rule}: {module.__doc__.splitlines()[0]}\n")
        for variant in module.VARIANTS + (module.LARGE if given.large else ()):
            fine = report(variant, given.traces) and fine
    return not (fine and rules)


raise SystemExit(main())
