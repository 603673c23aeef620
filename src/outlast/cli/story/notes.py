"""What the teller writes down beside the store, so that a story broken off can be told on: ports, kills, clocks."""

import os
from pathlib import Path

from pydantic import BaseModel

from outlast.core.commit import Mapping
from outlast.core.rows import RUN
from outlast.errors import Conflict
from outlast.store.port import Store

FILE = "story.json"
ALONE = "the demo leaves other stores alone"


class Kill(BaseModel):
    """A worker that was killed on purpose, at a real instant of the wall clock (ms)."""

    at: int
    worker: str
    name: str
    sent: int
    """Invitations that had reached their suppliers by then."""


class Notes(BaseModel):
    """Everything the store and the market's record do not know."""

    run: str = ""
    store: str = ""
    """Where it is, where that is not in the folder; without a password."""
    begun_at: int = 0
    market_port: int = 0
    inbox_port: int = 0
    kills: list[Kill] = []
    clocks: list[tuple[int, int, float]] = []
    """The mappings of business time: (base_real, base_business, rate)."""

    def ran(self, mapping: Mapping) -> None:
        """Note a mapping that is in force from now on."""
        self.clocks.append((mapping.base_real, mapping.base_business, mapping.rate))

    def real(self, business: int) -> int:
        """The wall clock's instant at a business instant, by the mapping that was in force then."""
        for base_real, base_business, rate in reversed(self.clocks):
            if business >= base_business:
                return Mapping(0, base_real, base_business, rate).real(business)
        return business

    def save(self, folder: Path) -> None:
        """Whole or not at all."""
        path = folder / FILE
        fresh = path.with_suffix(".new")
        fresh.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        os.replace(fresh, path)


def read(folder: Path) -> Notes:
    """The notes in a folder; blank where no story was begun. Raises Conflict where the store is somebody else's."""
    path = folder / FILE
    if path.exists():
        return Notes.model_validate_json(path.read_bytes())
    if (folder / "outlast.db").exists():
        raise Conflict(f"{folder} holds a store, but no story of the demo", ALONE, "give another --folder")
    return Notes()


async def claim(notes: Notes, store: Store, *, given: bool) -> None:
    """Write down where the story is told. Raises Conflict where the store is not this story's: business time is moved
    in it, for every run it has.

    `given`: somebody named the store; else it is the one in the folder.
    """
    name = store.url if given else ""
    if notes.run and notes.store != name:
        raise Conflict(
            f"this story is told in {notes.store or 'the store beside it'}",
            "",
            "give the same --store, or another --folder",
        )
    if given and not notes.run and await store.census(RUN, ("workflow",)):
        raise Conflict(f"{name} holds runs already", ALONE, "give a schema or a file of its own: …?schema=demo")
    notes.store = name
