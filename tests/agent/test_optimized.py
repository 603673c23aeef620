"""Tools under `python -OO`, which compiles no docstrings: a model is offered the same descriptions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = '''
import json, sys
from outlast import activity, lookup
from outlast.agent.proposal import offer_of


def named(fn):
    return fn


class Shop:
    @lookup
    @named
    async def find(ref: str) -> str:
        """Find an order
        by its number."""
        return ref


@activity(key="pay/{ref}", no_undo="paid is paid")
async def pay(ref: str) -> str:
    """Pay an order.

    Only once.
    """
    return ref


@lookup
def plain(ref: str) -> str:
    return ref


made = {}
exec("async def shout(ref: str) -> str:\\n    'A text.'\\n    return ref", made)
print(json.dumps([sys.flags.optimize, [offer_of(each).description for each in (Shop.find, pay, plain)]]))
print(json.dumps(offer_of(lookup(made["shout"])).name))
'''


@pytest.mark.parametrize("option", ["-B", "-O", "-OO"])
def test_a_tool_keeps_its_description(option: str, tmp_path: Path) -> None:
    """Under `-OO` each tool had an empty description, and a model chose by the name alone."""
    program = tmp_path / "shop.py"
    program.write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, option, program], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    descriptions = '["Find an order\\nby its number.", "Pay an order.\\n\\nOnly once.", ""]'
    assert done.stdout.splitlines() == [f"[{['-B', '-O', '-OO'].index(option)}, {descriptions}]", '"shout"']
