"""What a crash is made of: a cell (where a process dies), an action (what a process was born for), a life, a state.

A run under test is a sequence of lives, each a process of its own. Between two of them everything is on disk.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

T0: Final = 1_772_442_000_000
"""2026-03-02T09:00:00Z: when every story begins."""
TENANT: Final = "acme"
RUN_ID: Final = "r1"


class Cell(NamedTuple):
    """A place in a life: the point, the run-verb-key it stands at, and which time it is reached there."""

    point: str
    label: str
    nth: int
    act: str = "kill"

    @property
    def where(self) -> tuple[str, str, int]:
        """The place alone, without what is done there."""
        return self.point, self.label, self.nth


class Action(NamedTuple):
    """What is done next, from when on."""

    do: str
    args: Mapping[str, Any] = MappingProxyType({})
    at: int = 0


class Life(NamedTuple):
    """How one life went."""

    action: Action
    died: int
    stopped: bool
    seen: list[Cell]
    answer: Any


class Broken(AssertionError):
    """A life ended as it must not, or a story does not come to its end."""


class Unreached(Broken):
    """A cell did not fire: the life ended well before it came to it."""


@dataclass
class State:
    """A story between two lives: its files, the time, how many lives it has had."""

    folder: Path
    at: int = T0
    lives: int = 0

    @property
    def db(self) -> Path:
        """The store."""
        return self.folder / "s.db"

    @property
    def world(self) -> Path:
        """What the world outside keeps of this story."""
        return self.folder / "world"

    @property
    def said(self) -> Path:
        """What the processes of this story printed and logged."""
        return self.folder / "said.txt"

    def copy(self, to: Path) -> "State":
        """The same story in another folder."""
        to.mkdir(parents=True)
        for file in self.folder.iterdir():
            if file.is_file() and not file.name.endswith(("-shm", ".lock", ".gate")):
                shutil.copyfile(file, to / file.name)
        return replace(self, folder=to)
