"""The tree of errors: complete in its drawing, a code each, three lines, and an answer to «did it land?»."""

import pickle
import re

import pytest

from outlast import errors
from outlast.errors import DefinitionError, InvalidInput, OutlastError, Stale, StoreError

TREE = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OutlastError)]


def test_every_error_is_in_the_diagram_with_its_code() -> None:
    assert errors.__doc__
    drawn = dict(re.findall(r"[├└]─ (\w+) +(OUT-\d+)", errors.__doc__))
    abstract = {OutlastError, StoreError}
    assert drawn == {kind.__name__: kind.code for kind in TREE if kind not in abstract}


def test_no_two_errors_share_a_code() -> None:
    assert len({kind.code for kind in TREE}) == len(TREE)


def test_the_text_has_three_lines_a_code_and_an_anchor() -> None:
    error = DefinitionError("what", "why", "fix", where="flows.py:3")
    assert str(error) == (
        "OUT-101  what (flows.py:3)\n         why\n         → fix            https://outlast.dev/e/OUT-101"
    )
    assert str(Stale("the run moved on")) == "OUT-501  the run moved on\n         https://outlast.dev/e/OUT-501"


@pytest.mark.parametrize("kind", [kind for kind in TREE if issubclass(kind, StoreError)])
def test_a_store_error_knows_whether_the_commit_landed_and_is_cheap_to_create(kind: type[StoreError]) -> None:
    error = kind("moved")
    assert error.reason == "moved"
    assert error.landed is (None if kind.__name__ in ("Uncertain", "StoreError") else False)


def test_errors_survive_pickling_with_all_they_say() -> None:
    for error in (
        InvalidInput("bad", problems=[("a", "missing")]),
        DefinitionError("what", "why", "fix", where="flows.py:3"),
        Stale("moved"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error)
        assert vars(again) == vars(error)
