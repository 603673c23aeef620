"""`outlast runs`, complete: what lists and shows them, and what an operator does while time passes."""

from outlast.cli.ending import input_, outcome
from outlast.cli.extend import extend
from outlast.cli.graph import graph
from outlast.cli.runs import runs
from outlast.cli.tail import tail

runs.add_command(tail)
runs.add_command(extend)
runs.add_command(graph)
runs.add_command(input_)
runs.add_command(outcome)

__all__ = ["runs"]
