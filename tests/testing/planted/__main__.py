"""Find each planted fault with ten seeds, and nothing without it: `python -m tests.testing.planted`.

Each broken workflow gets 5,000 stories with each of ten fixed seeds, and each healthy one as many with one. A fault
counts as found within 60 s of CPU. Exits with 1 unless 9 of 10 seeds find each fault, and no healthy one is reported.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

from outlast.testing.story import StoryOptions
from outlast.testing.story_search import STEPS, StoryReport, sources_of, tell
from tests.testing.planted.faults import PLANTED, Planted, module_of

SEEDS = range(10)
STORIES = 5_000
CPU_S = 60.0


def stories_of(planted: Planted, folder: Path, *, broken: bool, seed: int, stories: int) -> tuple[StoryReport, float]:
    """Tell stories of one workflow until one fails. Return the report and the seconds of CPU."""
    workflow = vars(module_of(planted, folder, broken=broken))[planted.workflow]
    sources = sources_of(StoryOptions(workflow, (planted.holds,)), planted.given, {}, STEPS)
    began = time.process_time()
    report = tell(sources, stories=stories, seed=seed)
    return report, time.process_time() - began


def main(seeds: range, stories: int, only: str) -> int:
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for planted in (each for each in PLANTED if only in each.name):
            found = 0
            for seed in seeds:
                report, cpu = stories_of(planted, folder, broken=True, seed=seed, stories=stories)
                found += report.error is not None and cpu <= CPU_S
                at, acts = report.failed_at or "-", len(report.lines)
                print(f"{planted.name}, seed {seed}: story {at}, {acts} acts, {cpu:.1f} s of CPU", flush=True)  # noqa: T201
            report, cpu = stories_of(planted, folder, broken=False, seed=0, stories=stories)
            verdict = (
                f"found by {found} of {len(seeds)}; without it {report.error or 'nothing'} in {report.stories} stories"
            )
            print(f"{planted.name}: {verdict}, {cpu:.1f} s of CPU", flush=True)  # noqa: T201
            for line in report.lines:
                print(f"    {line}", flush=True)  # noqa: T201
            wrong += report.error is not None or found < 0.9 * len(seeds)
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stories", type=int, default=STORIES)
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    sys.exit(main(range(given.seeds), given.stories, given.only))
