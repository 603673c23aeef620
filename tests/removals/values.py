"""Safeguards of values: a written value comes back as it went in (CKP-8)."""

import dataclasses
from typing import Any

from outlast.core import codec, round_trip
from outlast.core.business_days import BusinessDays, Due
from outlast.core.codec import Codec
from outlast.engine import commands, former_digests
from tests.removals import Patch, replace


def values_not_compared(patch: Patch) -> None:
    replace(patch, Codec._compare, lambda self, value, loaded: None)


def classes_not_checked(patch: Patch) -> None:
    replace(patch, round_trip.are_as_declared, lambda checks, value: True)


def states_not_loaded(patch: Patch) -> None:
    def store(self: Any, value: Any) -> tuple[bytes, Any]:
        data = self.dump(value, check=False)
        return data, value

    replace(patch, Codec.store, store)


def sets_as_iterated(patch: Patch) -> None:
    replace(patch, round_trip.in_order, lambda given, plain, key: plain)


def former_digests_not_decoded(patch: Patch) -> None:
    replace(patch, former_digests._rewritten, lambda activity, arguments: None)


def former_inputs_not_decoded(patch: Patch) -> None:
    async def never(*_: Any) -> bool:
        return False

    replace(patch, commands._began_alike, never)


def defaults_not_checked(patch: Patch) -> None:
    replace(patch, codec.Codec.check_exact, lambda self, value: None)


def weekends_counted(patch: Patch) -> None:
    replace(patch, BusinessDays._on_weekday, lambda self, day: True)


def holidays_counted(patch: Patch) -> None:
    replace(patch, BusinessDays._free, lambda self, day: False)


def counted_from_the_request(patch: Patch) -> None:
    kept = BusinessDays.due

    def due(self: BusinessDays, from_ms: int) -> Due:
        return kept(dataclasses.replace(self, since_ms=None), from_ms)

    replace(patch, BusinessDays.due, due)
