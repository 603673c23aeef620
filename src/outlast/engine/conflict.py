"""A key recorded for other arguments: a person is called, who may say that the recorded answer is used (S-18)."""

import json
from typing import Any

from outlast.core.machine import Reason
from outlast.core.overlay import Attention
from outlast.core.rows import Effect, Memo
from outlast.engine.reasons import attention
from outlast.engine.run_session import EffectKey, RunSession
from outlast.flow.activity import Activity, BoundCall
from outlast.flow.callee import Callee

ARGUMENTS_SHOWN = 200


def contradiction(session: RunSession, callee: Callee, call: BoundCall, row: Effect | Memo) -> Attention:
    """The reason to call a person. Its recorded answer can be used where the same activity made it."""
    given = f" with {row.args.decode(errors='replace')[:ARGUMENTS_SHOWN]}" if isinstance(row, Effect) else ""
    detail = (
        f"key {row.key} is recorded for {row.activity}{given}; "
        f"now {callee.name} asks for it with {call.args_bytes.decode(errors='replace')[:ARGUMENTS_SHOWN]}"
    )
    usable = call.digest if row.activity == callee.name else ""
    entry = attention(session, Reason.CONTRADICTION, detail)
    return entry._replace(key=row.key, visit=row.visit, digest=usable)


def under_way(session: RunSession, callee: Callee, call: BoundCall, ident: EffectKey) -> Attention:
    """The reason to call a person while the first call of this walk has no row yet."""
    detail = f"key {call.key} is under way; now {callee.name} asks for it with other arguments"
    entry = attention(session, Reason.CONTRADICTION, detail)
    return entry._replace(key=call.key, visit=ident[0], digest=call.digest)


def uses_recorded(session: RunSession, ident: EffectKey, digest: str) -> bool:
    """Did a person say that this key's recorded answer is used for exactly this call? The message that says so stays."""
    named = [*ident, digest]
    return any(
        message.kind == "answer"
        and message.name == Reason.CONTRADICTION
        and named in json.loads(message.payload).get("recorded", ())
        for message in session.messages
    )


def recorded_call(activity: Activity[Any, Any], effect: Effect) -> BoundCall:
    """The call as it was recorded: what is open settles as what it is. Raises NotStorable: it fits no longer."""
    args, kwargs = activity.load_args(effect.args) if effect.settled_at == 0 else ((), {})
    return BoundCall(args, kwargs, effect.key, effect.args, effect.digest)
