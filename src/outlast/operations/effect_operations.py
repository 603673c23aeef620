"""Operations on effects: list those of one run or of all, settle one that is uncertain."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints

from outlast.core.machine import EffectStatus
from outlast.models.attention import Verb
from outlast.models.effects import EffectList, EffectRecord, effect_id
from outlast.operations.declaration import Operation, OperationRequest, Sent, part, recorded
from outlast.operations.field_types import Cursor, Limit, Reasoned, Since
from outlast.operations.run_operations import RUN

OF_EFFECT: Final = Sent(of="effect")


@dataclass(frozen=True)
class ListEffects(OperationRequest[Sequence[EffectRecord]]):
    """List the effects of a run in the order of their intents."""

    run: str


def _effects(found: EffectList) -> Sequence[EffectRecord]:
    return found.effects


LIST_EFFECTS: Final = Operation(
    "list_effects",
    ListEffects,
    part(EffectList, _effects),
    "GET",
    "/runs/{run}/effects",
    ("viewer",),
    ListEffects(RUN),
    summary="Effects of a run",
    tag="history",
    description="List the effects of the run in the order of their intents, with late answers of replaced workers.",
)


@dataclass(frozen=True)
class ListLedger(OperationRequest[EffectList]):
    """List the effects of all runs, newest first."""

    _: KW_ONLY
    status: Annotated[
        EffectStatus | None, Field(description="Only this status. `uncertain` effects wait for a person.")
    ] = None
    unknown: Annotated[
        bool, Field(description="Only effects that a person gave up: they may have happened. Not with `status`.")
    ] = False
    activity: Annotated[str, Field(max_length=100, description="Only effects of this activity.")] = ""
    run: Annotated[str, Field(max_length=100, description="Only effects of this run.")] = ""
    since: Since = None
    cursor: Cursor = ""
    limit: Limit = 50


LIST_LEDGER: Final = Operation(
    "list_ledger",
    ListLedger,
    EffectList,
    "GET",
    "/effects",
    ("viewer",),
    ListLedger(status=EffectStatus.UNCERTAIN, activity="pay", run=RUN, since="24h"),
    summary="List effects",
    tag="operators",
    description="List the effects of all runs, newest first, with the outcome of each call.",
)


@dataclass(frozen=True)
class ResolveEffect(OperationRequest[None]):
    """Settle an uncertain effect."""

    run: Annotated[str, OF_EFFECT]
    key: Annotated[str, OF_EFFECT]
    answer: Annotated[Verb, Sent("outcome")]
    _: KW_ONLY
    reason: Reasoned
    external_id: Annotated[
        str, StringConstraints(max_length=500), Field(description="Id at the receiver, if it happened.")
    ] = ""
    response: Annotated[Any, Field(description="Return value of the call, if it happened.")] = None
    version: int = 0
    visit: Annotated[int | None, OF_EFFECT] = None
    correct: Annotated[bool, Field(description="Replace another answer of a person, which nothing has used yet.")] = (
        False
    )

    @property
    def effect(self) -> str:
        """Id of the effect, as lists show it. Needs a visit."""
        assert self.visit is not None
        return effect_id(self.run, self.visit, self.key)


RESOLVE_EFFECT: Final = Operation(
    "resolve_effect",
    ResolveEffect,
    recorded(EffectRecord),
    "POST",
    "/effects/{effect}/resolve",
    ("operator",),
    ResolveEffect(RUN, "pay", "happened", visit=1, reason="the bank confirms it", external_id="P-1"),
    people_only=True,
    conditional="effect",
    summary="Settle an uncertain effect",
    tag="operators",
)
