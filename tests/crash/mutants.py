"""Safeguards, each taken out by its name: what dies without it shows that it is needed."""

from collections.abc import Callable
from typing import Final

MUTANTS: Final[dict[str, Callable[[], None]]] = {}
