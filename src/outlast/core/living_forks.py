"""Forks of a run that has not ended: the notes that tell the run, and what it does otherwise because of them (S-28).

Theory of operation. A caller who forks a run in flight first lands a note: a memo of the ancestor, with an event. The
note raises the version of the ancestor's row. Three things can go wrong:

1. *The ancestor makes a call once per run that the fork makes, too.* An ancestor that has a note makes new calls once
   per run under the key of the lineage, as each fork does. A holder that has not read the note cannot intend one under
   its own key: that intent names the version of the run's row, which the note has raised. So each row under its own key
   is older than the note, and the copies are read after the note.
2. *The ancestor undoes an effect that the fork relies on.* The note says which effects these are. Each is withheld, as
   one that another run has used (S-18), and a person decides. The commit that decides the end names the version of the
   run's row, so it is refused if a note has landed since.
3. *Other runs pay for it.* A run without a note reads no further row: its memos are read with each claim anyhow.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from outlast.core.codec import compact
from outlast.core.commit import Commit, Instant, Put
from outlast.core.events import EventType
from outlast.core.forks import PREFIX, Effects, ForkTerms, made_in
from outlast.core.limits import FORKS_NOTED_MAX
from outlast.core.rows.columns import decoded
from outlast.core.rows.effect_rows import MEMO, Effect, Memo
from outlast.core.rows.run_rows import Run
from outlast.core.run_transition import transition
from outlast.errors import Corrupt, LimitExceeded

NOTES: Final = f"{PREFIX}note/"
"""Beginning of the keys of the memos of notes."""


class ForkNote(NamedTuple):
    """Note in the ledger of a run: a fork of it was started before it had ended."""

    fork: str
    by: str
    reason: str
    """Reason that the caller gave why both go on."""
    seq: int
    """Number of the checkpoint."""
    visit: int
    """Visit of the checkpoint: effects of earlier visits are the past of the fork."""
    until: int
    """Visit of the run when the note landed. The fork copies no call of a later visit."""
    effects: Effects


def notes_of(memos: Mapping[tuple[int, str], Memo]) -> tuple[ForkNote, ...]:
    """Return the notes of a run by its memos, oldest first. Raises Corrupt."""
    return tuple(_notes(memos)) if (0, _key(1)) in memos else ()


def _notes(memos: Mapping[tuple[int, str], Memo]) -> Iterator[ForkNote]:
    n = 1
    while (memo := memos.get((0, _key(n)))) is not None:
        plain = decoded(memo.response or b"", f"the note in memo {memo.key}")
        try:
            yield ForkNote(**plain)
        except TypeError as error:
            raise Corrupt(f"memo {memo.run}/{memo.key}: it keeps no note of a fork: {error!r}") from error
        n += 1


def note_of(notes: Iterable[ForkNote], fork: str, terms: ForkTerms) -> ForkNote | None:
    """Return the note of a fork with these terms; None if none was written.

    A start that was interrupted may be repeated with other terms. Then its first note says too little.
    """
    found = [note for note in notes if (note.fork, note.seq, note.effects) == (fork, terms.seq, terms.effects)]
    return found[-1] if found else None


def _key(n: int) -> str:
    return f"{NOTES}{n:03d}"


def note_fork(run: Run, note: ForkNote, noted: int, *, now: Instant) -> Commit:
    """Note a fork in the ledger and the history of its ancestor, whose status and visit stay. `noted`: earlier notes.

    Raises LimitExceeded, and IllegalMove if the run undoes its effects or has ended.
    """
    if noted >= FORKS_NOTED_MAX:
        raise LimitExceeded(
            f"run {run.run} cannot be forked again",
            f"{FORKS_NOTED_MAX} forks of it were started before it has ended",
            "wait until it has ended",
        )
    data: dict[str, object] = {"fork": note.fork, "by": note.by, "reason": note.reason, "checkpoint": note.seq}
    memo = Memo(run.tenant, run.run, 0, _key(noted + 1), "", "", compact(note._asdict()).encode(), "", now.business)
    puts = transition(run, "note_fork", EventType.FORKED, now, data)
    return Commit((*puts, Put(MEMO, memo, 0)), label=f"{run.run} note_fork {note.fork}")


def kept_by_forks(notes: tuple[ForkNote, ...], effect: Effect) -> str:
    """Return why a person must decide about an undo of an ancestor: a fork relies on the effect; else ''.

    A fork relies on its past, on each call once per run that it has copied, and with `recorded` on each copied call.
    """
    for note in notes:
        visit = made_in(effect)
        copied = (not effect.visit or note.effects == "recorded") and visit <= note.until
        if visit < note.visit or copied:
            return f"run {note.fork}, a fork of this run, relies on it"
    return ""
