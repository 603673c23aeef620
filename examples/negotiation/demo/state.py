"""Saved state of a demo, so that an interrupted demo can continue: ports, kills and clock mappings."""

import os
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from outlast.core.commit import Mapping
from outlast.core.rows.run_rows import RUN
from outlast.errors import Conflict
from outlast.store.port import Store
from outlast.store.queries import Census

FILE: Final = "demo.json"
ALONE: Final = "the demo leaves other stores alone"


class Kill(BaseModel):
    """A worker that the demo killed, at an instant of the wall clock (ms)."""

    at: int
    worker: str
    name: str
    sent: int
    """Number of invitations that had reached their suppliers."""


class DemoState(BaseModel):
    """Facts that neither the store nor the market's record hold."""

    run: str = ""
    store: str = ""
    """URL of a store outside the folder, without a password."""
    begun_at: int = 0
    market_port: int = 0
    inbox_port: int = 0
    kills: list[Kill] = []
    alive_at_decision: bool = False
    """True if a worker was alive when the approval was decided."""
    clocks: list[tuple[int, int, float]] = []
    """Mappings of business time: (base_real, base_business, rate)."""

    def add_clock(self, mapping: Mapping) -> None:
        """Remember a mapping that is in force from now on."""
        self.clocks.append((mapping.base_real, mapping.base_business, mapping.rate))

    def real(self, business: int) -> int:
        """Return the wall clock time of a business instant, by the mapping in force at that instant."""
        for base_real, base_business, rate in reversed(self.clocks):
            if business >= base_business:
                return Mapping(0, base_real, base_business, rate).real(business)
        return business

    def save(self, folder: Path) -> None:
        """Write the state to the folder, atomically."""
        path = folder / FILE
        fresh = path.with_suffix(".new")
        fresh.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        os.replace(fresh, path)


def read(folder: Path) -> DemoState:
    """Return the state saved in a folder, or an empty one. Raises Conflict if the folder holds another store."""
    path = folder / FILE
    if path.exists():
        return DemoState.model_validate_json(path.read_bytes())
    if (folder / "outlast.db").exists():
        raise Conflict(f"{folder} holds a store that is not the demo's", ALONE, "give another --folder")
    return DemoState()


async def claim(state: DemoState, store: Store, *, given: bool) -> None:
    """Bind the state to its store. `given`: the user named the store; else it is the one in the folder.

    Raises Conflict if the store belongs to other runs, because the demo moves the business time of the whole store.
    """
    name = store.url if given else ""
    if state.run and state.store != name:
        where = state.store or "the store in its folder"
        raise Conflict(f"this demo began in {where}", "", "give the same --store, or another --folder")
    if given and not state.run and (await store.query(Census(RUN, ("workflow",)))) != {}:
        raise Conflict(f"{name} holds runs already", ALONE, "give a separate schema or file: …?schema=demo")
    state.store = name
