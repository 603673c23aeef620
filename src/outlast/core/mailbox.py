"""The verbs of callers outside the holder. Each leaves a message in the inbox of a run."""

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Literal

from outlast.core.approvals import withdraw
from outlast.core.commit import EMPTY, AppendMessage, Commit, Instant, Put, When, append_to_inbox, in_portions
from outlast.core.durations import SECOND
from outlast.core.events import iso
from outlast.core.keys import check_reason
from outlast.core.limits import KEY_BYTES_MAX, TEXT_CHARS_MAX
from outlast.core.machine import (
    CHOICES,
    Choice,
    EffectStatus,
    Reason,
    effect_target,
)
from outlast.core.row_checks import check_effect
from outlast.core.rows.columns import stored_text
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import BY_ITSELF, EFFECT, STATED, Approval, Effect
from outlast.core.rows.run_columns import PERSON_ANSWER, REASON, STATED_ANSWER, PersonAnswer, StatedAnswer
from outlast.core.rows.run_rows import TOKEN, Message, Run, Token, is_over
from outlast.errors import Conflict

EffectAnswer = Literal["happened", "did_not_happen", "give_up"]


def over(run: str) -> Conflict:
    """Return the error for a run that has ended."""
    return Conflict(
        f"run {run} has ended",
        "a run that has ended does not change",
        f"look at it with: outlast runs show {run}",
        refusal="ended",
    )


def check_unfinished(run: Run) -> None:
    """Raise Conflict if the run has ended."""
    if is_over(run):
        raise over(run.run)


def append_message(
    *,
    tenant: str,
    run: str,
    kind: str,
    name: str,
    actor: str,
    now: Instant,
    payload: bytes = EMPTY,
    signal_id: str = "",
) -> Commit:
    """Leave a message. A second one with the same `signal_id` is refused as Stale ("version")."""
    message = append_to_inbox(tenant, run, kind, name, actor, payload, signal_id)
    if not signal_id:
        return Commit((message,), label=f"{run} post {name}")
    once = Put(TOKEN, Token(tenant, run, f"signal/{signal_id}", "", name, now.business), 0)
    return Commit((message, once), label=f"{run} post {name}")


def cancel(run: Run, approvals: Sequence[Approval], *, actor: str, reason: str, now: Instant) -> Commit:
    """Ask the holder to end the run. Its open approvals are withdrawn in the same commit (S-20).

    No approval can be requested after this commit. The caller must withdraw the approvals for which the commit has no
    room, and those that were requested after `approvals` was read, before it reports that the cancel was accepted.
    """
    withdrawn = _withdrawn(approvals, now)
    message = append_to_inbox(run.tenant, run.run, "cancel", "cancel", actor, REASON.encode(reason).encode())
    return Commit((message, *withdrawn), label=f"{run.run} post cancel")


def resolve_effect(
    effect: Effect,
    verb: str,
    *,
    by: str,
    reason: str,
    now: Instant,
    response: bytes | None = None,
    external_id: str = "",
    in_visit: int = 0,
) -> Commit:
    """Record a person's answer on an uncertain effect, or correct one that nothing has used; make the run due.

    The verb is `happened`, `did_not_happen` or `give_up`. `did_not_happen` reopens the effect for another attempt. It
    is accepted only once a sent call can no longer arrive, by the store's clock (S-17, EFF-3). `in_visit`: the visit of
    the run, in whose history a correction is written. Raises InvalidInput or LimitExceeded for the reason, Corrupt for
    `happened` without a response.
    """
    check_reason(reason)
    corrects = effect.settled_by if effect.shared == STATED else ""
    status = effect_target(f"correct_to_{verb}" if effect.shared == STATED else verb, effect.status)
    code = {"did_not_happen": REOPENED, "give_up": GIVEN_UP}.get(verb, "")
    row = effect._replace(
        version=effect.version + 1,
        status=status,
        response=response if status is EffectStatus.DONE else None,
        external_id=external_id and stored_text(external_id, KEY_BYTES_MAX),
        error_text=ERROR.encode(EffectError(code, reason) if code else None),
        settled_at=now.business,
        settled_by=by,
        shared=STATED,
    )
    check_effect(row)
    quiet = (When(effect.settle_after, True, "real", "settle"),) if verb == "did_not_happen" else ()
    answer = StatedAnswer(
        verb, effect.key, effect.visit, reason, external_id, _kept(response), effect.version, corrects, in_visit
    )
    payload = STATED_ANSWER.encode(answer).encode()
    run = effect.by_run or effect.run
    return Commit(
        (Put(EFFECT, row, effect.version), append_to_inbox(effect.tenant, run, "resolve", effect.key, by, payload)),
        whens=quiet,
        label=f"{run} {verb} {effect.key}",
    )


def answer_command(run: str, reason: Reason) -> str:
    """Return the command that answers a reason of a run with its first choice, and the other choices."""
    first, *others = (choice.value for choice in CHOICES[reason])
    return f"outlast attention resolve {run} {first} --reason …  (or {', '.join(others)})"


def may_answer(effect: Effect) -> bool:
    """Return True if a person may say what became of the effect, or correct what a person has said."""
    return not effect.undoes and (effect.status is EffectStatus.UNCERTAIN or effect.shared == STATED)


def check_resolvable(effect: Effect, verb: EffectAnswer, now: Instant, *, correct: bool = False) -> None:
    """Raise Conflict if a person may not resolve this effect: it is an undo, not uncertain, or it is too early.

    An answer of a person may be corrected until it is used. To state another response or id of a call that happened
    cannot lead to a second call. Another answer can, so it needs `correct`, from a person who has seen the first one.
    """
    if effect.undoes:
        raise Conflict(
            f"{effect.key} is the undo of another effect",
            "answer the attention of the run instead",
            answer_command(effect.run, Reason.UNDO_FAILED),
        )
    restates = verb == "happened" and effect.status is EffectStatus.DONE
    if effect.shared == STATED and not (correct or restates):
        raise Conflict(
            f"effect {effect.key} is not uncertain",
            f"{effect.settled_by} has answered: {_answered(effect)}",
            "if that is wrong, correct the answer before the run uses it: add --correct, or set `correct`",
        )
    if effect.status is not EffectStatus.UNCERTAIN and effect.shared != STATED:
        settled = f", settled by {effect.settled_by}" if effect.settled_by else ""
        why = f"it is {effect.status}{settled}"
        raise Conflict(
            f"effect {effect.key} is not uncertain", why, f"outlast runs effects {effect.by_run or effect.run}"
        )
    if verb == "did_not_happen":
        check_settled(effect, now, "to say that it did not happen")


def check_correction(effect: Effect, verb: EffectAnswer, response: bytes | None, external_id: str) -> None:
    """Raise Conflict if a person has stated exactly this answer before."""
    if effect.shared != STATED or (effect.response, effect.external_id) != (response, external_id):
        return
    if effect.code == {"did_not_happen": REOPENED, "give_up": GIVEN_UP}.get(verb, ""):
        raise Conflict(
            f"effect {effect.key} is not uncertain",
            f"{effect.settled_by} has given the same answer",
            f"outlast runs show {effect.by_run or effect.run}",
        )


def _answered(effect: Effect) -> str:
    if effect.status is EffectStatus.DONE:
        return "it happened" + (f", as {effect.external_id}" if effect.external_id else "")
    return "it did not happen" if effect.code == REOPENED else "given up"


def _kept(response: bytes | None) -> str:
    """Return a response as the inbox keeps it: a large one by its digest, because the ledger has the last one."""
    text = response.decode(errors="replace") if response is not None else ""
    return text if len(text) <= TEXT_CHARS_MAX else f"sha256:{sha256(response or b'').hexdigest()}"


def stated(messages: Iterable[Message], *, after: int = 0) -> list[tuple[Message, StatedAnswer]]:
    """Return the answers of people on effects among these messages, later than message `after`."""
    return [(m, m.stated) for m in messages if m.kind == "resolve" and m.n > after and m.payload != EMPTY]


def check_settled(effect: Effect, now: Instant, what: str) -> None:
    """Raise Conflict while a call that was sent may still arrive (S-17)."""
    if now.real < effect.settle_after:
        left = (effect.settle_after - now.real) / SECOND
        raise Conflict(
            f"{effect.key}: it is too early {what}",
            f"a call in flight may still arrive for another {left:.0f} s, until {iso(effect.settle_after)}",
            "check the receiver after that, then resolve it",
        )


def settled_elsewhere(effect: Effect, run: str) -> Commit:
    """Notify a run that waits for another run's shared effect that the effect is settled (S-18)."""
    return Commit(
        (append_to_inbox(effect.tenant, run, "resolve", effect.key, effect.by_run),), label=f"{run} post {effect.key}"
    )


GIVEN_UP = "given_up"
"""Error code of a refused effect that a person gave up."""


REOPENED = "did_not_happen"
"""Error code of a refused effect that a person reopened: the next re-run intends it again."""


def is_unknown(effect: Effect) -> bool:
    """Return True if a person gave up the uncertain effect: its call may have happened.

    An effect without attempts left that a person gave up did certainly not happen; no person has settled that one.
    """
    gave_up = effect.status is EffectStatus.REFUSED and effect.code == GIVEN_UP
    return gave_up and effect.settled_by not in BY_ITSELF


def is_reopened(effect: Effect) -> bool:
    """Return True if an operator answered that the effect did not happen or may be tried again."""
    return effect.status is EffectStatus.REFUSED and effect.code == REOPENED


def go_on(run: Run, refused: Sequence[Effect], *, actor: str, reason: str, now: Instant) -> Commit:
    """Record the operator's `continue` of a run in attention; refused effects without attempts left are reopened.

    The message is named `exception` if it answers one, because recorded errors of lookups then count no more.
    """
    payload = REASON.encode(reason).encode()
    after_exception = any(a.reason is Reason.EXCEPTION for a in run.attention)
    name = Reason.EXCEPTION.value if after_exception else Choice.CONTINUE.value
    message = append_to_inbox(run.tenant, run.run, Choice.CONTINUE.value, name, actor, payload)
    return Commit((message, *_reopened(refused, REOPENED, reason)), label=f"{run.run} post continue")


def _reopened(refused: Sequence[Effect], code: str, reason: str) -> tuple[Put, ...]:
    error = ERROR.encode(EffectError(code, reason))
    rows = [
        e._replace(version=e.version + 1, status=effect_target("reopen", e.status), error_text=error) for e in refused
    ]
    return tuple(Put(EFFECT, row, row.version - 1) for row in rows)


def answer(
    run: Run,
    reason: Reason,
    choice: Choice,
    *,
    key: str,
    actor: str,
    text: str,
    by_ms: int,
    now: Instant,
    refused: Sequence[Effect] = (),
    approvals: Sequence[Approval] = (),
    recorded: Sequence[tuple[int, str, str]] = (),
) -> Commit:
    """Record a person's choice for one reason of attention; the holder acts on it.

    `refused` are effects without attempts left: `retry` reopens them, `give_up` leaves them refused under the code
    `given_up`, which a node may handle. `approvals` are withdrawn because the choice ends the run (S-20). `recorded`
    lists (visit, key, digest) of each call that `use_recorded` answers from its row for the rest of the run.
    """
    assert choice in CHOICES[reason]
    payload = PERSON_ANSWER.encode(PersonAnswer(choice, key, text, by_ms, tuple(recorded)))
    message = append_to_inbox(run.tenant, run.run, "answer", reason.value, actor, payload.encode())
    reopened = _reopened(refused, GIVEN_UP if choice is Choice.GIVE_UP else REOPENED, text)
    withdrawn = _withdrawn(approvals, now)
    return Commit((message, *reopened, *withdrawn), label=f"{run.run} post answer")


def _withdrawn(approvals: Sequence[Approval], now: Instant) -> tuple[Put, ...]:
    """Return the writes that withdraw open approvals, as many as one commit has room for."""
    portions = in_portions(put for a in approvals if (put := withdraw(a, now)) is not None)
    return portions[0] if portions else ()


def of_job(commit: Commit, job: str) -> Commit:
    """Return the commit of an answer with its job in the message: the audit lists the job, and not each answer."""
    if not job:
        return commit
    sent = [each for each in commit.writes if isinstance(each, AppendMessage)]
    named = [AppendMessage(each.message._replace(signal_id=f"job/{job}")) for each in sent]
    return commit._replace(writes=(*named, *(each for each in commit.writes if each not in sent)))


def before_message(commit: Commit) -> tuple[list[Commit], Commit]:
    """Split a commit that reopens many effects: all but the last portion land before the message.

    If the caller dies in between, the message can be sent again: `person_answers` takes the effects that are left.
    """
    message, *rest = commit.writes
    puts = [write for write in rest if isinstance(write, Put)]
    *first, last = in_portions(puts) or [()]
    if not first or len(puts) < len(rest):
        return [], commit
    return [commit._replace(writes=portion) for portion in first], commit._replace(writes=(message, *last))
