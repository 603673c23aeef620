"""Attention: requests to people in a run row, their answers, and the ceiling (GATE-3, GATE-4, GATE-5, S-21)."""

from collections.abc import Iterable, Sequence
from shlex import quote
from typing import Final, NamedTuple, cast

from outlast.core import compensation, mailbox
from outlast.core.causes import with_causes
from outlast.core.codec import digest
from outlast.core.commit import Commit, Expect, Instant, Mapping
from outlast.core.events import EventType
from outlast.core.keys import check_reason
from outlast.core.limits import ANSWERS_MAX
from outlast.core.machine import CHOICES, OPEN_EFFECT, RULES, Choice, EffectStatus, Reason
from outlast.core.mailbox import EffectAnswer
from outlast.core.route import ANSWERED_BY_CONTINUE, Answer, meant
from outlast.core.rows.effect_columns import NO_ERROR
from outlast.core.rows.effect_rows import Approval, Effect
from outlast.core.rows.row_kind import Key
from outlast.core.rows.run_columns import ATTENTION, Attention, Timer, WaitingFor, attention_timers, fit_attention
from outlast.core.rows.run_rows import Message, Run
from outlast.core.run_transition import LogEntry, SlotChange, fence, give_back, hand_over
from outlast.errors import Conflict, InvalidInput, NotFound


def joined(run: Run, reasons: Sequence[Attention]) -> list[Attention]:
    """Return the attention set with `reasons` added; each replaces an entry of the same reason and key."""
    new = {(r.reason, r.key) for r in reasons}
    kept = [a for a in run.attention if (a.reason, a.key) not in new]
    return [*kept, *with_causes(run, reasons, kept)]


def tripped(run: Run, reason: Attention) -> tuple[Run, LogEntry]:
    """Return the run row after its ceiling: a person is asked, the ceiling is disarmed, the run continues (GATE-4).

    The holder's next transition writes the row and the log entry.
    """
    row, logged = overlaid(run, reason, f"ceiling/{run.ceiling_at}")
    return row._replace(ceiling_at=0), logged


def overlaid(run: Run, reason: Attention, key: str) -> tuple[Run, LogEntry]:
    """Return the run row with a reason that does not stop it, and its entry in the history, once per key.

    The holder's next transition writes both.
    """
    data: dict[str, object] = {"reasons": [reason.reason.value], "detail": reason.detail, "trigger": reason.trigger}
    left = joined(run, [reason])
    logged = LogEntry(key, reason.trigger, data, EventType.FLAGGED, (left[-1],))
    return run._replace(attention_text=ATTENTION.encode(left)), logged


def answered(run: Run, left: Sequence[Attention], answers: Sequence[Answer], *, now: Instant) -> tuple[Run, LogEntry]:
    """Return the run row after people's answers: their entries removed, the ceiling re-armed if extended.

    The holder's next transition writes the row. If that is lost, the messages give the same answers again. A poisoned
    run stays alone on its worker until it advances, so that a further crash affects no other run (S-5).
    """
    extended = sum(a.by_ms for a in answers if a.attention.reason is Reason.TOTAL_TIMEOUT)
    chosen = [
        {"reason": a.attention.reason.value, "choice": a.choice.value, "by": a.by, "text": a.text} for a in answers
    ]
    names = digest(*(f"{a.attention.reason}/{a.attention.key}/{a.attention.seen}" for a in answers))
    logged = LogEntry(f"answer/{names[:16]}", "answered", {"answers": chosen}, EventType.ANSWERED)
    kept = [a.attention for a in answers if a.choice is RULES[a.attention.reason].kept]
    poisoned = any(a.attention.reason is Reason.POISONED for a in answers)
    row = run._replace(
        attention_text=ATTENTION.encode([*left, *kept]),
        ceiling_at=now.business + extended if extended else run.ceiling_at,
        crash_count=0 if poisoned else run.crash_count,
    )
    return row, logged


def corrections(run: Run, messages: Iterable[Message]) -> list[LogEntry]:
    """Return an event for each answer about an effect by which a person corrected an earlier one in this visit."""
    found: list[LogEntry] = []
    for message, given in mailbox.stated(messages):
        if not given.corrects or given.in_visit != run.visit:
            continue
        answer: dict[str, object] = {
            "reason": Reason.EFFECT_UNCERTAIN.value, "choice": given.verb, "by": message.actor, "text": given.reason,
            "key": given.key, "external_id": given.external_id, "response": given.response, "corrects": given.corrects,
        }  # fmt: skip
        found.append(LogEntry(f"corrected/{message.n}", "corrected", {"answers": [answer]}, EventType.ANSWERED))
    return found


def flag(
    run: Run,
    reasons: Sequence[Attention],
    *,
    inbox_seq: int,
    now: Instant,
    mapping: Mapping,
    log_entries: Sequence[LogEntry] = (),
    freed: Sequence[SlotChange] = (),
    uncertain: Sequence[Commit] = (),
    waiting: Sequence[WaitingFor] = (),
    timers: Sequence[Timer] = (),
    expects: Sequence[Expect] = (),
) -> Commit:
    """Ask a person and release the run; status, node and visit are unchanged (RUN-2).

    `freed`: as in `park`. `doubted`: commits that mark effects uncertain, merged into this one. `waiting`, `timers`:
    waits of effects that settle at the same time. `expects`: rows for which a person is asked, as they were read.
    """
    assert reasons
    reasons = fit_attention(reasons)
    left = joined(run, reasons)
    waiting = [*waiting_for(left), *waiting]
    data: dict[str, object] = {"reasons": [a.reason.value for a in reasons], "detail": reasons[0].detail}
    put = give_back(
        run,
        "flag",
        EventType.FLAGGED,
        now,
        data,
        waiting,
        [*(c for c in attention_timers(left) if c.at > now.business), *timers],  # timers in the past have been handled
        mapping,
        log_entries=log_entries,
        attention=left,
        slots=() if freed else None,
    )
    handed, slots = hand_over(freed)
    under = fence(run, inbox_seq=inbox_seq, mapping=mapping.version)
    beside = [write for commit in uncertain for write in commit.writes]
    return Commit((*put, *handed, *beside), under, (*slots, *expects), label=f"{run.run} flag {run.node}#{run.visit}")


def waiting_for(reasons: Iterable[Attention]) -> list[WaitingFor]:
    """Return the waits for a person, without reasons that do not stop the run."""
    return [
        WaitingFor("attention", f"a person: {a.reason.value}" + (f" {a.key}" if a.key else ""), "", a.since, a.until)
        for a in reasons
        if a.stops
    ]


def check_for_all(reason: Reason, choice: Choice) -> None:
    """Raise Conflict unless this choice can be made for many runs at once."""
    if meant(reason, choice) not in CHOICES[reason]:
        offered = ", ".join(c.value for c in CHOICES[reason])
        raise Conflict(f"{reason.value} does not offer {choice.value}", f"it offers {offered}", "choose one of these")
    if choice is Choice.RAISE:
        raise raise_elsewhere("RUN", "")
    if choice is Choice.HAPPENED:
        raise Conflict(
            "«happened» cannot be recorded for many effects at once",
            "each effect has its own id at the receiver",
            "record each one: outlast effects resolve RUN KEY --happened ID --response JSON",
        )


def check_many(runs: int, reason: Reason, choice: Choice) -> None:
    """Raise InvalidInput or Conflict unless one answer with this choice can be given to so many runs."""
    if not 0 < runs <= ANSWERS_MAX:
        why, fix = f"it takes 1 to {ANSWERS_MAX}", "divide them, or list the reason again"
        raise InvalidInput(f"{runs} runs for one answer", why, fix)
    check_for_all(reason, choice)


def raise_command(run: str, names: str) -> str:
    """Return the command that raises the budget of a run. `names`: the limits that are used up."""
    options = " ".join(f"--{name} …" for name in names.split() or ["tokens"])
    return f"outlast runs raise {run} {options} --reason …"


def raise_elsewhere(run: str, names: str) -> Conflict:
    """Return the error for the choice `raise` where no amount can be given."""
    return Conflict("a raise needs amounts", "say how much of what the run may use more", raise_command(run, names))


# --- answers of people --------------------------------------------------------------------------
ENDS: Final = (Choice.CANCEL, Choice.FAIL)
"""Choices that end the run, so that its open approvals are withdrawn."""


class AttentionRows(NamedTuple):
    """Rows on which a person's answer is decided."""

    run: Run
    effects: tuple[Effect, ...] = ()  # those of `effects_named`, and those that they undo
    approvals: tuple[Approval, ...] = ()  # for answers that end the run


class AttentionAnswer(NamedTuple):
    """Answer as a person sent it. `reason` None: the only open one; `key`: '' for every entry of the reason."""

    choice: Choice
    text: str
    reason: Reason | None = None
    key: str = ""
    by_ms: int = 0  # length of an extension


class DecidedAnswer(NamedTuple):
    """Commit of an answer, the reason that it answers, and the effect that it resolves, if any."""

    commit: Commit
    reason: Reason
    resolved: Effect | None = None


def effects_named(run: Run) -> tuple[Key, ...]:
    """Return the row keys of the effects that the run's attention names; with visit 0, shared ones, too."""
    found = [(run.tenant, run.run, a.visit, a.key) for a in run.attention if a.key]
    shared = [(run.tenant, "", 0, a.key) for a in run.attention if a.key and a.visit == 0]
    missing = [key for a in run.attention for name in a.missing if (key := name.partition("?")[2]) and name[0] != "?"]
    places = ((run.run, run.visit), (run.run, 0), ("", 0))
    return (*found, *shared, *((run.tenant, owner, visit, key) for key in missing for owner, visit in places))


def effects_undone(run: Run, effects: Iterable[Effect]) -> tuple[Key, ...]:
    """Return the row keys under which the effects may be that these undo: of the run, or shared in the tenant."""
    names = [undo.undoes.partition(":") for undo in effects if undo.undoes]
    return tuple((run.tenant, owner, int(visit), key) for visit, _, key in names for owner in (run.run, ""))


def person_continues(rows: AttentionRows, *, actor: str, reason: str, now: Instant) -> Commit:
    """Answer a run's attention with `continue`. Raises Conflict if that is no answer to its reasons."""
    check_reason(reason)
    mailbox.check_unfinished(rows.run)
    run, entries = rows.run, rows.run.attention
    if not entries:
        raise Conflict(
            f"run {run.run} needs no attention",
            "continue answers a run that waits for an operator",
            f"outlast runs show {run.run}",
        )
    stops = [a for a in entries if a.stops] or list(entries)
    other = next((a for a in stops if a.reason not in ANSWERED_BY_CONTINUE), None)
    if other is not None:
        raise Conflict(f"continue does not answer {other.reason}", other.detail, _answer_to(other, run.run))
    refused = _exhausted(rows, [a for a in entries if a.reason is Reason.RETRIES_EXHAUSTED])
    return mailbox.go_on(run, refused, actor=actor, reason=reason, now=now)


def person_answers(rows: AttentionRows, answer: AttentionAnswer, *, actor: str, now: Instant) -> DecidedAnswer:
    """Answer one reason of a run's attention.

    Raises Conflict if it is not open, not offered or answered before, InvalidInput if several match.
    """
    check_reason(answer.text)
    mailbox.check_unfinished(rows.run)
    run, entries = rows.run, entries_of(rows.run, answer)
    reason = entries[0].reason
    choice = meant(reason, answer.choice)
    if choice is Choice.CANCEL:
        text = answer.text.strip() or reason.value
        return DecidedAnswer(mailbox.cancel(run, rows.approvals, actor=actor, reason=text, now=now), reason)
    if reason is Reason.EFFECT_UNCERTAIN:
        return _resolve(rows, entries, choice, actor=actor, text=answer.text, now=now)
    if reason is Reason.UNDO_FAILED:
        return DecidedAnswer(_answer_undo(rows, entries[0], choice, actor=actor, text=answer.text, now=now), reason)
    if choice is Choice.RAISE:
        raise raise_elsewhere(run.run, entries[0].trigger)
    if choice is Choice.EXTEND and answer.by_ms <= 0:
        raise InvalidInput("an extension needs a length", f"{answer.by_ms} ms is none", "say by how much")
    recorded: list[tuple[int, str, str]] = []
    if choice is Choice.USE_RECORDED:
        recorded = [(a.visit, a.key, a.digest) for a in entries]
    elif choice is Choice.ACCEPT:
        recorded = _accepted(rows, entries[0], answer.text)
    commit = mailbox.answer(
        run,
        reason,
        choice,
        key=answer.key,
        actor=actor,
        text=answer.text,
        by_ms=answer.by_ms,
        now=now,
        refused=_reopened(rows, entries, choice),
        approvals=rows.approvals if choice in ENDS else (),
        recorded=recorded,
    )
    return DecidedAnswer(commit, reason)


def _accepted(rows: AttentionRows, entry: Attention, text: str) -> list[tuple[int, str, str]]:
    """Return what the answer `accept` names: visit, name and, of a replaced plan, the digest of the new one.

    Raises InvalidInput without a reason, Conflict while a call of these names may still happen.
    """
    run = rows.run
    if not text.strip():
        what, why = "accept needs a reason", "recorded calls need not be asked for again, and held calls are made"
        raise InvalidInput(what, why, "say why this is right, for example that a deploy has removed the call")
    names = set(entry.missing)
    for effect in rows.effects:
        may_happen = effect.status in OPEN_EFFECT and effect.settle_after
        if may_happen and f"{effect.activity}?{effect.key}" in names:
            what = f"{effect.key} is {effect.status}: it may have happened"
            why = "what became of it must be known before the run goes on without it"
            raise Conflict(what, why, f"outlast explain {run.run}")
    return [(run.visit, name, entry.digest) for name in entry.missing]


def entries_of(run: Run, answer: AttentionAnswer) -> list[Attention]:
    """Return the entries that an answer is for, all of one reason.

    Raises Conflict if none matches or the choice is not offered, InvalidInput if they have several reasons.
    """
    show, found = f"outlast attention show {run.run}", entries_named(run, answer.reason, answer.key)
    reason = found[0].reason
    if any(a.reason is not reason for a in found):
        names = ", ".join(dict.fromkeys(a.reason.value for a in found))
        raise InvalidInput(f"run {run.run} has several open reasons", names, f"choose one with --reason-name; {show}")
    choice = meant(reason, answer.choice)
    if choice not in CHOICES[reason]:
        offered = ", ".join(c.value for c in CHOICES[reason])
        raise Conflict(f"{reason.value} does not offer {choice.value}", f"it offers {offered}", show)
    if any(choice not in a.choices() for a in found):
        why = "another activity made the record under this key"
        if any(a.is_detached for a in found):
            why = "a run was detached and goes on alone, so another run would act beside it"
        elif any(a.is_counted for a in found):
            why = "the child is one of a map, whose results do not change"
        raise Conflict(f"{reason.value} does not offer {choice.value} here", why, show)
    return found


def entries_named(run: Run, reason: Reason | None, key: str) -> list[Attention]:
    """Return the entries of a reason (None: any) and a key ('': any). Raises Conflict if there is none."""
    if not run.attention and reason is None:
        raise Conflict(f"run {run.run} needs no attention", "no answer is pending", f"outlast explain {run.run}")
    found = [a for a in run.attention if reason in (None, a.reason) and key in ("", a.key)]
    if not found:
        now = ", ".join(f"{a.reason.value} {a.key}".strip() for a in run.attention) or "none"
        what = f"{reason.value if reason else ''} {key}".strip()
        raise Conflict(
            f"run {run.run} is not flagged {what}", f"its attention: {now}", f"outlast attention show {run.run}"
        )
    return found


def _resolve(
    rows: AttentionRows, entries: list[Attention], choice: Choice, *, actor: str, text: str, now: Instant
) -> DecidedAnswer:
    """Resolve the uncertain effect of the only entry. Raises Conflict, NotFound, InvalidInput."""
    run, entry = rows.run, entries[0]
    if len(entries) > 1:
        keys, show = ", ".join(a.key for a in entries), f"outlast attention show {run.run}"
        raise InvalidInput(f"run {run.run} has several uncertain effects", keys, f"choose one with --key; {show}")
    if choice is Choice.HAPPENED:
        command = f"outlast effects resolve {run.run} {quote(entry.key)} --happened ID --response JSON"
        raise Conflict(f"{entry.key} needs the receiver's id", "a call that happened has one", f"run: {command}")
    effect = _effect_of(rows, entry)
    verb = cast("EffectAnswer", choice.value)
    mailbox.check_resolvable(effect, verb, now)
    commit = mailbox.resolve_effect(effect, verb, by=actor, reason=text, now=now, in_visit=run.visit)
    return DecidedAnswer(commit, entry.reason, effect)


def _answer_undo(
    rows: AttentionRows, entry: Attention, choice: Choice, *, actor: str, text: str, now: Instant
) -> Commit:
    """Let a failed undo be called again, or record that it was done by hand, once. Raises Conflict, InvalidInput."""
    if choice is Choice.DONE_BY_HAND and not text.strip():
        raise InvalidInput("an undo by hand needs a reason", "it appears in the run's history", "say what was done")
    undo = _effect_of(rows, entry)
    visit, _, key = undo.undoes.partition(":")
    original = _find(rows, int(visit), key)
    if original is None:
        raise NotFound(f"{undo.key} undoes {key}, which is gone", "", f"outlast runs effects {undo.run}")
    failed = undo.status is EffectStatus.UNCERTAIN or compensation.is_refused(undo)
    if not failed or original.status is not EffectStatus.DONE:
        by = f", settled by {undo.settled_by}" if undo.settled_by else ""
        why = f"it is {undo.status}{by}"
        raise Conflict(f"{undo.key} was answered before", why, f"outlast runs effects {undo.run}")
    if undo.status is EffectStatus.UNCERTAIN and choice is not Choice.DONE_BY_HAND:
        mailbox.check_settled(undo, now, "to call it again")
    return compensation.answer_undo(rows.run, undo, original, choice, actor=actor, text=text, now=now)


def _find(rows: AttentionRows, visit: int, key: str) -> Effect | None:
    """Return the run's effect of this name, or the one that it shares in the tenant."""
    found = [e for e in rows.effects if (e.visit, e.key) == (visit, key) and e.by_run in ("", rows.run.run)]
    return next((e for e in found if e.run), found[0] if found else None)


def _effect_of(rows: AttentionRows, entry: Attention) -> Effect:
    effect = _find(rows, entry.visit, entry.key)
    if effect is None:
        run = rows.run.run
        raise NotFound(f"run {run} has no effect {entry.key}", "its attention names it", f"outlast runs effects {run}")
    return effect


def _exhausted(rows: AttentionRows, entries: Sequence[Attention]) -> list[Effect]:
    """Return the effects without attempts left of these entries. Raises Conflict if one was answered before.

    Among them are effects shared in the tenant, made by any run.
    """
    keys = {(a.visit, a.key) for a in entries}
    refused = [e for e in rows.effects if (e.visit, e.key) in keys and e.status is EffectStatus.REFUSED]
    left = [e for e in refused if e.code == Reason.RETRIES_EXHAUSTED]
    answered = next((e for e in refused if e.code != Reason.RETRIES_EXHAUSTED), None)
    if answered is not None and not left:  # if some are left, the process that answered died before its message
        error = answered.error or NO_ERROR
        why = f"{error.code}: {error.detail}"
        raise Conflict(f"{answered.key} was answered before", why, f"outlast runs show {rows.run.run}")
    return left


def _reopened(rows: AttentionRows, entries: Sequence[Attention], choice: Choice) -> list[Effect]:
    """Return the effects that an answer opens again, or marks as given up."""
    reason = entries[0].reason
    if reason is Reason.CHILD_FAILED and choice is Choice.RETRY:
        keys = {(a.visit, a.key) for a in entries}
        return [e for e in rows.effects if (e.visit, e.key) in keys and e.child_text and compensation.is_refused(e)]
    return _exhausted(rows, entries) if reason is Reason.RETRIES_EXHAUSTED else []


def _answer_to(entry: Attention, run: str) -> str:
    reason = entry.reason
    if reason is Reason.EFFECT_UNCERTAIN:
        resolve = f"outlast effects resolve {run} {quote(entry.key)}"
        return f"{resolve} --happened ID --response JSON | --did-not-happen | --give-up --reason …"
    if reason is Reason.BUDGET_EXHAUSTED:
        return raise_command(run, "")
    return mailbox.answer_command(run, reason)
