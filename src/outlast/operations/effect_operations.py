"""Operations on effects: list those of one run or of all, settle one that is uncertain."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final

from outlast.core.machine import EffectStatus
from outlast.models.attention import Verb
from outlast.models.effects import EffectList, EffectRecord, effect_id
from outlast.operations.declaration import Operation, OperationRequest, Sent, Since, part, recorded
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
)


@dataclass(frozen=True)
class ListLedger(OperationRequest[EffectList]):
    """List the effects of all runs, newest first."""

    _: KW_ONLY
    status: EffectStatus | None = None
    activity: str = ""
    run: str = ""
    since: Since = None
    cursor: str = ""
    limit: int = 50


LIST_LEDGER: Final = Operation(
    "list_ledger",
    ListLedger,
    EffectList,
    "GET",
    "/effects",
    ("viewer",),
    ListLedger(status=EffectStatus.UNCERTAIN, activity="pay", run=RUN, since="24h"),
)


@dataclass(frozen=True)
class ResolveEffect(OperationRequest[None]):
    """Settle an uncertain effect. HTTP names it by its id, which has a visit: see `effect`."""

    run: Annotated[str, OF_EFFECT]
    key: Annotated[str, OF_EFFECT]
    answer: Annotated[Verb, Sent("outcome")]
    _: KW_ONLY
    reason: str
    external_id: str = ""
    response: Any = None
    version: int = 0
    visit: Annotated[int | None, OF_EFFECT] = None
    correct: bool = False

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
)
