"""`outlast runs`, complete: what lists and shows them, and what an operator does while time passes."""

from outlast.cli.extend import extend
from outlast.cli.runs import runs
from outlast.cli.tail import tail

runs.add_command(tail)
runs.add_command(extend)

__all__ = ["runs"]
