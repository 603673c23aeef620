"""Reads of a store answer the row class of their kind, for strict type checkers."""

from typing import assert_type

from outlast.core.rows.all_kinds import KINDS, Row
from outlast.core.rows.effect_rows import APPROVAL, Approval
from outlast.core.rows.run_rows import EVENT, RUN, Event, Run
from outlast.store.port import Store
from outlast.store.queries import Page


async def read(store: Store) -> None:
    assert_type(await store.load(RUN, ("acme", "r1")), Run | None)
    assert_type(await store.load_many(EVENT, [("acme", "r1", 1)]), tuple[Event | None, ...])
    assert_type(await store.rows(APPROVAL, ("acme", "r1")), tuple[Approval, ...])
    assert_type(await store.page(RUN, "acme", {}), Page[Run])
    for kind in KINDS:
        assert_type(await store.load(kind, ("acme", "r1")), Row | None)
