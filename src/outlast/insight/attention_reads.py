"""Attention of runs: its items with their choices as commands, and the answers of people."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from shlex import quote
from typing import NamedTuple, Protocol

from outlast.core.assignments import Assignment, Assignments, assignment_of
from outlast.core.attention import raise_command
from outlast.core.commit import Instant
from outlast.core.durations import HOUR, RUN_CEILING
from outlast.core.machine import CHOICES, RULES, Choice, Reason, consequence_of
from outlast.core.rows.effect_rows import Effect
from outlast.core.rows.limit_rows import Pause
from outlast.core.rows.run_columns import Attention, until_of
from outlast.core.rows.run_rows import Run
from outlast.errors import OutlastError
from outlast.insight.labels import happened_options
from outlast.insight.row_models import late_evidence
from outlast.insight.tenant_rows import EffectEvidence, TenantRows, effect_name
from outlast.models import exact_instant, instant
from outlast.models.attention import (
    AnswerFor,
    AnswerList,
    AnswerOutcome,
    AnyAttention,
    AttentionChoice,
    ProviderAttention,
    RunAttention,
    why_not,
)
from outlast.store.port import Store

AT_ONCE = 50  # concurrent answers, because they share the store's batches
WHY = "--reason …"
AWAY = "provider_away"
"""Reason of an item that belongs to no run: an open circuit breaker."""
BREAKER_IGNORED = "one run at a time tries the provider; when it answers, all continue"
RELEASED, PAUSED = "all runs that wait for it continue", "no run calls it until a person resumes it"
MORE_TIME = f"{RUN_CEILING // HOUR}h"


_RESOLVE = {Choice.DID_NOT_HAPPEN: "--did-not-happen", Choice.GIVE_UP: f"--give-up {WHY}"}
"""Options of `effects resolve` for the outcomes that need no answer of the receiver."""
NOT_FOR_ALL = (Choice.HAPPENED, Choice.DID_NOT_HAPPEN, Choice.RAISE)
"""Choices that a job cannot give. `did_not_happen` can be given to runs that a person has ticked."""


class ChoiceCommand(NamedTuple):
    """One choice, its command, its consequence, and the real instant from which it is accepted (0: now)."""

    choice: Choice
    command: str
    consequence: str
    from_real: int = 0


class CallInDoubt(NamedTuple):
    """Effect that a person is asked about, and the choices with their commands."""

    effect: Effect
    ways: tuple[ChoiceCommand, ...]


async def call_in_doubt(store: Store, run: Run, entry: Attention) -> CallInDoubt:
    """Return the effect that an entry of the run's attention asks about. Raises NotFound."""
    rows = TenantRows(store, run.tenant)
    effect = (await rows.effect(run.run, entry.key, visit=entry.visit)).effect
    asked = (await rows.asked_effects([effect])).get(effect_name(effect))
    return CallInDoubt(effect, choice_commands(run, entry, effect, takes_response=asked is None or bool(asked.returns)))


def choice_commands(
    run: Run, entry: Attention, effect: Effect | None = None, *, takes_response: bool = False
) -> tuple[ChoiceCommand, ...]:
    """Return the choices that an entry of the run's attention offers; `effect`: the effect it concerns.

    `takes_response`: if that call happened, its return value is needed.
    """
    named = _named(run.attention, entry)
    resolve = f"outlast effects resolve {run.run} {quote(entry.key)}"

    def command(choice: Choice) -> str:
        if entry.reason is Reason.EFFECT_UNCERTAIN:
            return f"{resolve} {_RESOLVE.get(choice) or happened_options(takes_response)}"
        if choice is Choice.RAISE:
            return raise_command(run.run, entry.trigger)
        return f"outlast attention resolve {run.run} {choice.value}{named}{_more(choice)} {WHY}"

    call = effect.activity if effect is not None else entry.name if entry.key else ""
    return tuple(
        ChoiceCommand(
            choice,
            command(choice),
            consequence_of(choice, entry.reason, call=call, node=run.node),
            effect.settle_after if effect is not None and choice is Choice.DID_NOT_HAPPEN else 0,
        )
        for choice in entry.choices(run.attention)
    )


def choice_commands_for_all(reason: Reason) -> tuple[ChoiceCommand, ...]:
    """Return the choices that can be made for all runs flagged with this reason at once."""
    alike = [choice for choice in CHOICES[reason] if choice not in NOT_FOR_ALL]
    return tuple(
        ChoiceCommand(
            choice,
            f"outlast attention resolve --all {reason.value} {choice.value}{_more(choice)} {WHY}",
            consequence_of(choice, reason),
        )
        for choice in alike
    )


def _named(entries: Sequence[Attention], entry: Attention) -> str:
    """Return the options that distinguish the entry from the run's other entries."""
    if len(entries) < 2:
        return ""
    named = f" --reason-name {entry.reason.value}"
    alike = [a for a in entries if a.reason is entry.reason]
    return f"{named} --key {quote(entry.key)}" if len(alike) > 1 and entry.key else named


def _more(choice: Choice) -> str:
    return f" --by {MORE_TIME}" if choice is Choice.EXTEND else ""


def offered_choice(
    choice: str, command: str, consequence: str, from_real: int = 0, now_real: int = 0
) -> AttentionChoice:
    """Return one choice with its command. `from_real`: from when it is accepted; 0 = now."""
    return AttentionChoice(
        choice=choice,
        consequence=consequence,
        command=command,
        from_real=instant(from_real),
        accepted_in_ms=max(0, from_real - now_real),
    )


class AsksForPeople(Protocol):
    """Part of a tenant that may need a person and belongs to no run."""

    async def attention(self) -> Sequence[AnyAttention]:
        """Return its items of attention, if there are any."""
        ...


async def general_attention(of: TenantRows, webhooks: AsksForPeople, reason: Reason | None) -> list[AnyAttention]:
    """Return open circuit breakers and webhooks that need a person, of one reason or any."""
    items: list[AnyAttention] = []
    if reason is None:
        items += [breaker_item(pause, n) for pause, n in await of.breakers()]
    if reason in (None, Reason.WEBHOOK_DEAD):
        items += await webhooks.attention()
    return items


async def run_attention(
    of: TenantRows,
    runs: Sequence[Run],
    assigned: Assignments | None = None,
    is_for: Callable[[Run, Attention], bool] = lambda run, entry: True,
) -> list[RunAttention]:
    """Return the reasons of these runs' attention, with the choices as commands.

    `assigned`: the assignments of the tenant, if the caller has read them. `is_for`: tells which reasons of a run are
    asked for.
    """
    uncertain, now = await of.uncertain_evidence(runs), await of.store.now()
    holds_up = await of.held_up_by(runs)
    if assigned is None:
        assigned = await of.assignments() if any(run.attention_text for run in runs) else {}
    return [
        attention_item(
            run,
            entry,
            uncertain.get((run.run, entry.visit, entry.key)),
            now,
            assignment_of(assigned, run, entry),
            holds_up.get(run.run, 0),
        )
        for run in runs
        for entry in run.attention
        if is_for(run, entry)
    ]


def attention_item(
    run: Run,
    entry: Attention,
    evidence: EffectEvidence | None,
    now: Instant,
    assigned: Assignment | None = None,
    holds_up: int = 0,
) -> RunAttention:
    """Return one reason of a run's attention, with its choices as commands.

    `evidence`: the uncertain effect. `holds_up`: number of runs of its tree that wait for it. `accepted_in_ms` of a
    choice: time for which it is still refused, because a call that was sent may arrive until then.
    """
    takes_response = evidence is not None and evidence.takes_response
    ways = choice_commands(run, entry, evidence.effect if evidence else None, takes_response=takes_response)
    return RunAttention(
        run=run.run,
        reason=entry.reason.value,
        detail=entry.detail,
        since=exact_instant(entry.since),
        until=instant(until_of(entry)),
        if_ignored=RULES[entry.reason].if_ignored,
        choices=[
            offered_choice(way.choice.value, way.command, way.consequence, way.from_real, now.real) for way in ways
        ],
        workflow=run.workflow,
        forked_from=run.forked_from,
        parent=run.parent,
        holds_up=holds_up,
        node=run.node,
        visit=run.visit,
        version=run.version,
        trigger=entry.trigger,
        key=entry.key,
        name=entry.name,
        cause=entry.cause or entry.reason.value,
        missing=list(entry.missing),
        evidence=[late_evidence(each) for each in evidence.evidence] if evidence else [],
        assigned_to=assigned.to if assigned is not None else "",
        assigned_by=assigned.by if assigned is not None else "",
        assigned_at=instant(assigned.at) if assigned is not None else None,
        assigned_note=assigned.note if assigned is not None else "",
    )


def breaker_item(pause: Pause, runs: int) -> ProviderAttention:
    """Return an open circuit breaker as an item of the attention list, with its number of waiting runs."""
    provider = pause.key.partition("/")[2]
    return ProviderAttention(
        run="",
        reason=AWAY,
        detail=pause.reason,
        since=exact_instant(pause.since),
        until=None,
        if_ignored=BREAKER_IGNORED,
        choices=[
            offered_choice("release", f"outlast resume provider {quote(provider)}", RELEASED),
            offered_choice("pause", f"outlast pause provider {quote(provider)} {WHY}", PAUSED),
        ],
        provider=provider,
        runs=runs,
    )


async def answer_each(runs: Sequence[AnswerFor], one: Callable[[AnswerFor], Awaitable[None]]) -> AnswerList:
    """Call `one` for each run, and return the outcomes in the same order. Answers to one run come one after another."""
    of_run: dict[str, list[int]] = {}
    for i, given in enumerate(runs):
        of_run.setdefault(given.run, []).append(i)
    outcomes: list[AnswerOutcome | None] = [None] * len(runs)

    async def answer(places: Sequence[int]) -> None:
        seen = False  # the first answer to a run changes it, so its version is checked once
        for i in places:
            outcomes[i] = found = await _outcome(runs[i].model_copy(update={"version": 0}) if seen else runs[i], one)
            seen = seen or found.answered

    several = list(of_run.values())
    for i in range(0, len(several), AT_ONCE):
        await asyncio.gather(*map(answer, several[i : i + AT_ONCE]))
    return AnswerList(answers=[each for each in outcomes if each is not None])


async def _outcome(given: AnswerFor, one: Callable[[AnswerFor], Awaitable[None]]) -> AnswerOutcome:
    error: OutlastError | None = None
    try:
        await one(given)
    except OutlastError as refused:
        error = refused
    return AnswerOutcome(
        run=given.run,
        key=given.key,
        answered=error is None,
        error=why_not(error) if error else "",
        code=error.code if error else "",
        refusal=error.refusal if error else "",
    )
