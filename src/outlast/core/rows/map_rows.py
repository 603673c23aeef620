"""Rows of maps: many child runs of one call, of which a window lives at a time (S-31). See `all_kinds.py`."""

from typing import Any, Final, NamedTuple

from outlast.core.rows import effect_columns
from outlast.core.rows.row_kind import Kind


class MapInputs(NamedTuple):
    """A portion of the inputs of a map, which its first execution has written."""

    tenant: str
    run: str
    visit: int
    name: str  # of the map: its key, and the digest of all its inputs
    first: int  # place of its first input
    data: bytes  # JSON: for each input its key, the arguments as text, and the planned undo or null

    def inputs(self) -> list[list[Any]]:
        """Return the inputs, decoded at each call."""
        found: list[list[Any]] = MAP_INPUTS.decode_data("data", self.data, self)
        return found


class MapProgress(NamedTuple):
    """How far a map has come: one letter for each input, in their order (core/maps.py)."""

    tenant: str
    run: str
    visit: int
    key: str  # name of the map
    version: int
    states: str
    decided: str  # why no further child is started; '' while some may be
    settled: int  # business; the children that were started have ended, so that its node goes on; 0 = not yet


class MapOutcome(NamedTuple):
    """How one child of a map has ended. It takes the place of the child's row in the ledger."""

    tenant: str
    run: str
    visit: int
    key: str  # name of the map
    place: int  # of its input
    child: str  # id of its run; '' = it could not be started
    response: bytes | None
    error_text: str

    @property
    def error(self) -> effect_columns.EffectError | None:
        """Return why it did not complete; None if it did."""
        return MAP_OUTCOME.decode(effect_columns.ERROR, self.error_text, self) if self.error_text else None

    @property
    def is_detached(self) -> bool:
        """True if it was counted because an operator had detached it: its run goes on alone."""
        return self.error is not None and self.error.code == effect_columns.DETACHED

    def answer(self) -> Any:
        """Return the outcome of the child, decoded at each call; None without one."""
        return None if self.response is None else MAP_OUTCOME.decode_data("response", self.response, self)


MAP_INPUTS: Final = Kind("map_inputs", MapInputs, 5, False, False)
MAP_PROGRESS: Final = Kind("map_progress", MapProgress, 4, True, False)
MAP_OUTCOME: Final = Kind("map_outcome", MapOutcome, 5, False, False)
MAP_KINDS: Final[tuple[Kind[Any], ...]] = (MAP_INPUTS, MAP_PROGRESS, MAP_OUTCOME)
