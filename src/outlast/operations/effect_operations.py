"""Operations on effects: list those of one run or of all, settle one that is uncertain."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Any, Final

from outlast.core.machine import EffectStatus
from outlast.models.attention import Verb
from outlast.models.effects import EffectList, EffectRecord, effect_id
from outlast.operations.declaration import Operation, OperationRequest, Sent, Since
from outlast.operations.run_operations import RUN


@dataclass(frozen=True)
class ListEffects(OperationRequest[EffectList]):
    """List the effects of a run in the order of their intents."""

    run: str


LIST_EFFECTS: Final = Operation(
    "list_effects", ListEffects, EffectList, "GET", "/runs/{run}/effects", ("viewer",), ListEffects(RUN)
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
class ResolveEffect(OperationRequest[EffectRecord]):
    """Settle an uncertain effect. `effect` is its id, as lists show it."""

    effect: str
    answer: Annotated[Verb, Sent("outcome")]
    _: KW_ONLY
    reason: str
    external_id: str = ""
    response: Any = None
    correct: bool = False
    version: int = 0


RESOLVE_EFFECT: Final = Operation(
    "resolve_effect",
    ResolveEffect,
    EffectRecord,
    "POST",
    "/effects/{effect}/resolve",
    ("operator",),
    ResolveEffect(effect_id(RUN, 1, "pay"), "happened", reason="the bank confirms it", external_id="P-1"),
    people_only=True,
    conditional="effect",
)
