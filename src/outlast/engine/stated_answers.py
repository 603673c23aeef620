"""Answers of people about uncertain effects, at the moment at which the run is given one (S-17).

JSON Schema does not know the validators of a type. So a person's answer is loaded here, before the author's code sees
it. If it does not load, the effect is uncertain again and the person is asked again. If it does, a commit ends the time
in which it may be corrected. Only answers of people need that commit.
"""

from typing import Any

from outlast.core import effect_verbs
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.machine import EffectStatus
from outlast.core.rows.effect_rows import BY_ITSELF, Effect
from outlast.engine.node_execution import NodeExecution, Unresolved
from outlast.engine.node_result import EffectRefused, answer_not_stored, refusal_of, uncertain
from outlast.errors import NotStorable
from outlast.flow.activity import Activity


async def given_answer(execution: NodeExecution, activity: Activity[Any, Any], effect: Effect) -> Any:
    """Return a person's answer of this run's effect, after a commit that says so.

    Raises Refused if the person gave the call up, Unresolved if the answer does not fit or was just corrected.
    """
    value = None
    if effect.status is EffectStatus.DONE:
        try:
            value = activity.response_codec.load(effect.response or b"null")
        except NotStorable as error:
            ask_again(execution, effect, error)
            raise Unresolved from None
    if not execution.may_begin():
        raise Unresolved
    await execution.session.chain.land(effect_verbs.give(execution.session.held.run, effect))
    if effect.status is EffectStatus.REFUSED:
        raise EffectRefused(refusal_of(effect), (effect.visit, effect.key))
    return value


def ask_again(execution: NodeExecution, effect: Effect, error: NotStorable) -> None:
    """Make an effect uncertain again whose stated answer cannot be loaded, and call a person."""
    session = execution.session
    session.chain.submit(effect_verbs.reject_answer(session.held.run, effect, _does_not_fit(effect, error)))
    execution.call_person(uncertain(session, session.held.effects[effect.visit, effect.key]))


def _does_not_fit(effect: Effect, error: NotStorable) -> str:
    named = f"the answer stated by {effect.settled_by}"
    return f"{named} does not fit the type that {effect.activity} returns: {error.why}"[:TEXT_CHARS_MAX]


def load_answer(activity: Activity[Any, Any], effect: Effect) -> Any:
    """Return the recorded answer of an effect. Raises AnswerNotStored, NotStorable that says whose answer it is."""
    if effect.response is None:
        raise answer_not_stored(effect)
    try:
        return activity.response_codec.load(effect.response)
    except NotStorable as error:
        if effect.settled_by in BY_ITSELF:
            raise
        what = f"the answer stated by {effect.settled_by} to {effect.key} does not fit what {activity.title} returns"
        raise NotStorable(what, error.why, error.fix) from error
