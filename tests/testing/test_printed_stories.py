"""The test that `any_story` prints of each planted fault fails alone, and passes without the fault."""

import subprocess
from pathlib import Path

import pytest

from outlast.testing import story_search
from outlast.testing.story import StoryOptions
from outlast.testing.story_search import STEPS, sources_of, tell
from tests import forked
from tests.testing.planted.faults import PLANTED, Planted, module_of

SHRINKS = 60
SEEDS = (3, 3, 0, 4, 9)
"""For each fault, one that finds it in few stories."""
CHECKS = """
from pathlib import Path

from outlast.testing import Story, any_story
from tests.testing.planted.faults import PLANTED, module_of

planted = next(each for each in PLANTED if each.name == {name!r})
module = module_of(planted, Path(__file__).parent, broken={broken})


@any_story(vars(module)[planted.workflow], planted.given)
def test_planted(story: Story) -> None:
    planted.holds(story)
"""
PLAIN = ("-p", "no:cacheprovider", "-p", "no:schemathesis", "-p", "no:anyio")


def output_of(folder: Path, planted: Planted, *, broken: bool) -> str:
    """Run the printed test alone, over the broken or the healthy workflow, and return the output."""
    checks = CHECKS.format(name=planted.name, broken=broken)
    (folder / "stories_of_the_fault.py").write_text(checks, encoding="utf-8")
    done = forked.run("pytest", *PLAIN, "test_alone.py", cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return str(done.stdout.decode())


def decorated() -> None:
    """Give the printed test the names of the decorated one."""


decorated.__module__, decorated.__name__ = "stories_of_the_fault", "test_planted"


@pytest.mark.req("TEST-2")
@pytest.mark.parametrize(
    ("planted", "seed"), list(zip(PLANTED, SEEDS, strict=True)), ids=[each.name for each in PLANTED]
)
def test_the_printed_test_of_a_planted_fault_fails_alone(planted: Planted, seed: int, tmp_path: Path) -> None:
    workflow = vars(module_of(planted, tmp_path, broken=True))[planted.workflow]
    sources = sources_of(StoryOptions(workflow, (planted.holds,)), planted.given, {}, STEPS)
    report = tell(sources, stories=500, seed=seed, shrinks=SHRINKS)
    assert isinstance(report.error, AssertionError)
    printed = story_search.test_of(report.lines, decorated)
    (tmp_path / "test_alone.py").write_text(printed, encoding="utf-8")
    broken = output_of(tmp_path, planted, broken=True)
    assert "1 failed" in broken and planted.holds.__name__ in broken, broken
    assert str(report.error).splitlines()[0] in broken, broken
    assert "1 passed" in output_of(tmp_path, planted, broken=False)
