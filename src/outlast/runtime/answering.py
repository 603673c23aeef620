"""Which entry of a run's attention a person answers, and the answer itself, the same for every surface."""

from datetime import timedelta

from outlast.core.machine import CHOICES, Choice, Reason
from outlast.core.overlay import Attention, attention_of
from outlast.core.route import meant
from outlast.core.rows import Run
from outlast.errors import Conflict, InvalidInput
from outlast.runtime.attention import verb_of
from outlast.runtime.attention_answers import choice_commands
from outlast.runtime.operations import Operations


def entry_of(run: Run, choice: Choice, reason: Reason | None, key: str) -> Attention:
    """The one entry that is answered. Raises Conflict (none such, not offered), InvalidInput (which one?)."""
    entries = attention_of(run)
    look = f"outlast attention show {run.run}"
    if not entries:
        raise Conflict(
            f"run {run.run} needs no attention", "nobody has to answer anything", f"outlast explain {run.run}"
        )
    found = [a for a in entries if reason in (None, a.reason) and key in ("", a.key)]
    if not found:
        named = ", ".join(f"{a.reason.value} {a.key}".strip() for a in entries)
        raise Conflict(f"run {run.run} is not flagged so", f"its attention: {named}", look)
    if len({a.reason for a in found}) > 1:
        names = ", ".join(dict.fromkeys(a.reason.value for a in found))
        raise InvalidInput(f"run {run.run} has several open reasons", names, f"name one with --reason-name; {look}")
    entry = found[0]
    if meant(entry.reason, choice) not in CHOICES[entry.reason]:
        offered = ", ".join(c.value for c in CHOICES[entry.reason])
        raise Conflict(f"{entry.reason.value} does not offer {choice.value}", f"it offers {offered}", look)
    if entry.reason is Reason.EFFECT_UNCERTAIN and len(found) > 1:
        keys = ", ".join(a.key for a in found)
        raise InvalidInput(f"run {run.run} has several uncertain effects", keys, f"name one with --key; {look}")
    return entry._replace(key=key or entry.key) if entry.reason is Reason.EFFECT_UNCERTAIN else entry._replace(key=key)


async def answer_entry(
    ops: Operations, run: Run, entry: Attention, choice: Choice, text: str, by: timedelta | None, version: int = 0
) -> None:
    """Make a choice for this entry of a run's attention; `version`: of the run as it was shown. Raises what
    `Operations.answer` and `resolve_effect` raise."""
    if entry.reason is not Reason.EFFECT_UNCERTAIN:
        await ops.answer(run.run, entry.reason, choice, text=text, key=entry.key, by=by, version=version)
        return
    if choice is Choice.HAPPENED:
        command = next(way.command for way in choice_commands(run, entry) if way.choice is choice)
        raise Conflict(f"{entry.key}: what happened has an id at the receiver", "it is recorded", f"say it: {command}")
    await ops.resolve_effect(run.run, entry.key, verb_of(choice), reason=text, run_version=version)
