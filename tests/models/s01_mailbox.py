"""S-1: posting, parking, ending and calling a person. One run, two workers, a few messages, no crashes (S-2 has them).

A walk: claim, read the mailbox, perhaps one commit whose answer carries the inbox, then give the run back.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from outlast.core import attention, effect_verbs, mailbox, verbs
from outlast.core.commit import AppendMessage, Commit, Fence
from outlast.core.machine import ENDED, Reason, RunStatus
from outlast.core.rows.effect_rows import MEMO, Memo
from outlast.core.rows.run_columns import Attention, WaitingFor
from outlast.core.rows.run_rows import MESSAGE, RUN, Run
from outlast.store.batch import Batch, CommitChanges, RowChange
from tests.models.explore import Variant
from tests.models.world import MAPPING, SLICE, TENANT, Rows, at, born, find, fresh, land, nameless, run_of, seen_by

NOW = at(1)
GIVES = ("park", "finish", "flag", "hand_back")


class W(NamedTuple):
    """One worker: where it is in its program, the run as it knows it, and the mailbox as its execution read it."""

    pc: str = "idle"  # idle, load, inbox (only if the messages are read first), walk, give
    view: Run | None = None
    snap: int = 0  # messages the walk has really looked at
    named: int = 0  # mailbox that its return will name


class S(NamedTuple):
    """The world."""

    rows: Rows
    left: int  # messages still to be posted
    read: int = 0  # messages that the execution before the return had read
    w: tuple[W, W] = (W(), W())
    err: str = ""


class AlwaysDue(Batch):
    """A post makes the run due, owned or not."""

    def _due_by_now(self, run: Run) -> int | None:
        return self.now.real


class NeverDue(Batch):
    """A post leaves due_at alone."""

    def _due_by_now(self, run: Run) -> int | None:
        return run.due_at


class Spends(Batch):
    """A post spends a version of the run row."""

    def _append_message(self, write: AppendMessage, mine: CommitChanges, fence: Fence | None) -> None:
        super()._append_message(write, mine, fence)
        left = mine[RUN.name, write.message[:2]]
        assert isinstance(left.row, Run)
        mine[RUN.name, write.message[:2]] = left._replace(row=left.row._replace(version=left.row.version + 1))


class TakesAll(Batch):
    """A post lands on a run that has ended."""

    def _append_message(self, write: AppendMessage, mine: CommitChanges, fence: Fence | None) -> None:
        run, stored = self._existing_run(write.message[:2], mine)
        note = write.message._replace(n=run.inbox_seq + 1)
        mine[MESSAGE.name, note[:3]] = RowChange(MESSAGE, note, 0)
        mine[RUN.name, note[:2]] = RowChange(RUN, run._replace(inbox_seq=note.n, due_at=self._due_by_now(run)), stored)


@dataclass(frozen=True)
class Mailbox:
    """The rule, or the rule with a safeguard removed."""

    messages: int = 3
    names: tuple[str, ...] = GIVES  # the give-backs that name the inbox
    judge: type[Batch] = Batch
    seen: str = "walk start"  # or "last answer"
    order: str = "one snapshot"  # or "messages then inbox"

    def first(self) -> tuple[S, ...]:
        return (S(fresh(land((), born(), 1).rows), self.messages),)

    def bad(self, s: S) -> str:
        run = run_of(s.rows)
        if s.err:
            return s.err
        if run.owner == "" and (run.due_at is None or run.due_at > NOW.real) and s.read < run.inbox_seq:
            return f"asleep with unread messages: {run.inbox_seq} messages, the walk had read {s.read}"
        if run.owner == ENDED and s.read < run.inbox_seq:
            return "ended with a message accepted and never looked at"
        return ""

    def good(self, s: S) -> bool:
        run = run_of(s.rows)
        return run.owner in ("", ENDED) and s.read >= run.inbox_seq

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        if s.left:
            yield self._append_message(s)
        for i in (0, 1):
            yield from getattr(self, f"_{s.w[i].pc}")(s, i)

    def _next(self, s: S, i: int, w: W, rows: Rows, broke: str, **more: object) -> S:
        ws = (w, s.w[1]) if i == 0 else (s.w[0], w)
        run = run_of(rows)
        ws = tuple(x._replace(view=seen_by(x.view, run)) for x in ws)  # type: ignore[assignment]
        return s._replace(rows=fresh(rows), w=ws, err=broke or str(more.pop("err", "")), **more)

    def _append_message(self, s: S) -> tuple[str, S]:
        commit = mailbox.append_message(tenant=TENANT, run="r", kind="signal", name="n", actor="a", now=NOW)
        left = land(s.rows, commit, 1, self.judge)
        after = self._next(s, 0, s.w[0], left.rows, left.broke, left=s.left - 1)
        return f"a note is posted ({left.refused or 'accepted'})", after

    def _idle(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        run, me = run_of(s.rows), f"w{i + 1}"
        commit = verbs.claim(run, worker=me, now=NOW, claim_ms=SLICE)
        if commit is not None:
            left = land(s.rows, commit, 1, self.judge)
            err = f"stolen from {run.owner}, who is in good health" if run.owner not in ("", me) else ""
            w = W("load", run_of(left.rows))
            yield f"{me} takes the run", self._next(s, i, w, left.rows, left.broke, err=err)

    def _load(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        run, w = run_of(s.rows), s.w[i]
        assert w.view is not None
        if run.epoch != w.view.epoch:
            yield f"w{i + 1} has lost the run", self._next(s, i, W(), s.rows, "")
            return
        pc = "walk" if self.order == "one snapshot" else "inbox"
        w = w._replace(pc=pc, view=run, snap=run.inbox_seq, named=run.inbox_seq)
        yield f"w{i + 1} begins a walk, {run.inbox_seq} messages", self._next(s, i, w, s.rows, "")

    def _inbox(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        w = s.w[i]._replace(pc="walk", named=run_of(s.rows).inbox_seq)
        yield f"w{i + 1} reads inbox_seq = {w.named}", self._next(s, i, w, s.rows, "")

    def _walk(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        w = s.w[i]
        assert w.view is not None
        yield f"w{i + 1} looks nothing up", self._next(s, i, w._replace(pc="give"), s.rows, "")
        if find(s.rows, MEMO, "r", w.view.visit, "m") is None:
            memo = Memo(TENANT, "r", w.view.visit, "m", "look", "d", b"1", "", 1)
            left = land(s.rows, effect_verbs.remember(w.view, memo), 1, self.judge)
            named = left.inbox_seq if self.seen == "last answer" and not left.refused else w.named
            after = w._replace(pc="give", named=named) if not left.refused else W()
            yield (
                f"w{i + 1} remembers a value ({left.refused or 'landed'})",
                self._next(s, i, after, left.rows, left.broke),
            )

    def _give(self, s: S, i: int) -> Iterator[tuple[str, S]]:
        w = s.w[i]
        assert w.view is not None
        for kind in GIVES:
            commit = give(kind, w.view, w.named)
            if kind not in self.names:
                commit = nameless(commit)
            left = land(s.rows, commit, 1, self.judge)
            label = f"w{i + 1}: {kind} naming {w.named} ({left.refused or 'landed'})"
            if not left.refused:
                yield label, self._next(s, i, W(), left.rows, left.broke, read=w.snap)
            elif left.refused == "inbox_seq":
                yield label, self._next(s, i, w._replace(pc="load"), s.rows, "")
            else:
                healthy = w.view.epoch == run_of(s.rows).epoch
                err = "a note made a healthy holder's commit fail" if healthy and left.refused == "version" else ""
                yield label, self._next(s, i, W(), s.rows, "", err=err)


def give(kind: str, view: Run, inbox_seq: int) -> Commit:
    """The verb that gives the run back so."""
    if kind == "park":
        waiting = [WaitingFor("signal", "n")]
        return verbs.park(view, "park", inbox_seq=inbox_seq, waiting=waiting, timers=(), now=NOW, mapping=MAPPING)
    if kind == "flag":
        return attention.flag(view, [Attention(Reason.EXCEPTION, 1)], inbox_seq=inbox_seq, now=NOW, mapping=MAPPING)
    if kind == "hand_back":  # due at once, so it need not name the inbox
        return verbs.hand_back(view, inbox_seq=None, now=NOW, mapping=MAPPING, why="drained")
    return verbs.finish(
        view, RunStatus.COMPLETED, inbox_seq=inbox_seq, state=b"{}", result=None, reason="", not_undone=(),
        approvals=(), slots=(), now=NOW,
    )  # fmt: skip


LARGE = (Variant("as built, six messages", Mailbox(messages=6)),)
VARIANTS = (
    Variant("as built", Mailbox()),
    Variant("park does not name the inbox", Mailbox(names=("finish", "flag")), "asleep with unread messages"),
    Variant("flag does not name the inbox", Mailbox(names=("park", "finish")), "asleep with unread messages"),
    Variant("finish does not name the inbox", Mailbox(names=("park", "flag")), "ended with a message accepted"),
    Variant(
        "inbox_seq as the last answer carried it, not as the walk read it",
        Mailbox(seen="last answer"),
        "unread messages",
    ),
    Variant("the messages are read before the inbox", Mailbox(order="messages then inbox"), "unread messages"),
    Variant("a post makes an owned run due", Mailbox(judge=AlwaysDue), "stolen from"),
    Variant("a post leaves due_at alone", Mailbox(judge=NeverDue), "asleep with unread messages"),
    Variant("a post spends a version", Mailbox(judge=Spends), "a version without an event"),
    Variant("a post lands on a run that has ended", Mailbox(judge=TakesAll), "terminal run was written"),
)
