"""S-7: the chain of a holder's commits, their order in batches, and rows merged as the batch leaves them.

The holder submits `record` (which it does not await), then `advance`. Another caller posts a message through the same
batcher. The record may be refused for good (it is beyond the bounds), fail with Unavailable, or find its rows held by
another session. The holder hears of a refusal later.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from outlast.core import effect_verbs, mailbox, verbs
from outlast.core.commit import Chain, Commit, Put
from outlast.core.limits import ROW_BYTES_MAX
from outlast.core.machine import EffectStatus
from outlast.core.rows.all_kinds import Row
from outlast.core.rows.effect_rows import EFFECT, Effect
from outlast.core.rows.row_kind import key_of
from outlast.core.rows.run_rows import RUN, Run
from outlast.errors import StoreError, Unavailable
from outlast.store.batch import Batch, CommitChanges
from outlast.store.bounds import check
from tests.models.explore import Variant
from tests.models.world import KIND_OF, SLICE, TENANT, Rows, at, born, broken, find, land, merged, run_of

NOW = at(1)
HOLDER = ("record", "advance")
WORDS = {"record": "the record", "advance": "the advance", "post": "the note"}


class S(NamedTuple):
    """The world."""

    rows: Rows
    poison: bool  # the record is beyond the bounds
    queue: tuple[str, ...] = ()
    batch: tuple[str, ...] = ()
    todo: tuple[str, ...] = HOLDER
    post: bool = True
    unheard: tuple[str, ...] = ()  # refused, and its submitter has not heard yet
    heard: bool = False
    dead: bool = False  # the chain
    skips: int = 1
    err: str = ""


class AsSubmitted(Batch):
    """The run row is written as its holder submitted it, mail included."""

    def _put_run(self, write: Put, mine: CommitChanges) -> None:
        super()._put_run(write, mine)
        key = write.row[:2]
        assert isinstance(write.row, Run)
        mine[RUN.name, key] = mine[RUN.name, key]._replace(row=write.row)


@dataclass(frozen=True)
class Batches:
    """The rule, or the rule with a safeguard removed."""

    chain: str = "until the holder heard"  # or "within the batch", "none"
    unavailable_breaks: bool = True
    successors_wait: bool = True  # of a commit whose rows are held by another session
    posts_in_chain: bool = False
    judge: type[Batch] = Batch

    def first(self) -> tuple[S, ...]:
        rows = _held()
        return (S(rows, False), S(rows, True))

    def good(self, s: S) -> bool:
        return not s.queue and not s.batch and not s.unheard

    def bad(self, s: S) -> str:
        effect = find(s.rows, EFFECT, "r", 1, "k")
        assert isinstance(effect, Effect)
        if s.err:
            return s.err
        if run_of(s.rows).visit == 2 and effect.status is EffectStatus.INTENDED:
            return "advance landed without the record before it: an open effect that no holder settles"
        return "a good note was refused with its run's chain" if "post" in s.unheard else ""

    def step(self, s: S) -> Iterator[tuple[str, S]]:
        if s.todo and not s.heard:
            yield f"the holder submits {s.todo[0]}", s._replace(todo=s.todo[1:], queue=(*s.queue, s.todo[0]))
        if s.post:
            yield "somebody posts", s._replace(post=False, queue=(*s.queue, "post"))
        for i, name in enumerate(s.unheard):
            rest = s.unheard[:i] + s.unheard[i + 1 :]
            yield f"its submitter hears: {name} refused", s._replace(unheard=rest, heard=True)
        if not s.batch:
            for n in range(1, len(s.queue) + 1):
                yield f"a batch opens with {s.queue[:n]}", s._replace(batch=s.queue[:n], queue=s.queue[n:])
            return
        if "record" in s.batch and s.skips:
            yield self._postponed(s)
        for alone in (False, True):
            for away in (False, True) if alone and "record" in s.batch else (False,):
                yield self._lands(s, alone, away)

    def _postponed(self, s: S) -> tuple[str, S]:
        i = s.batch.index("record")
        later = tuple(name for name in s.batch[i:] if name in HOLDER)
        held = later if self.successors_wait else ("record",)
        rest = tuple(name for name in s.batch if name not in held)
        return f"rows of the record are held: {held} wait", s._replace(batch=rest, queue=(*held, *s.queue), skips=0)

    def _lands(self, s: S, alone: bool, away: bool) -> tuple[str, S]:
        """The batch judged as a whole, or each commit in its own transaction; `away`: the record fails there."""
        rows, refused, err, dead = s.rows, list[str](), "", s.dead and self.chain == "until the holder heard"
        for names in [(name,) for name in s.batch] if alone else [s.batch]:
            chain = Chain()
            chain.broken = dead
            found: dict[tuple[str, tuple[str | int, ...]], Row] = {
                (KIND_OF[type(row)].name, key_of(KIND_OF[type(row)], row)): row for row in rows
            }
            batch = self.judge(lambda kind, key, found=found: found.get((kind.name, key)), NOW)  # type: ignore[misc]
            refused += [name for name in names if not self._judged(batch, name, s, away, chain)]
            dead = chain in batch.broken or dead
            err = err or broken(rows, batch)
            rows = merged(found, batch)
        what = ("one by one" if alone else "as a whole") + (", the record Unavailable" if away else "")
        after = s._replace(rows=rows, batch=(), unheard=(*s.unheard, *refused), dead=dead or s.dead, err=err)
        return f"{s.batch} {what}; refused: {refused}", after

    def _judged(self, batch: Batch, name: str, s: S, away: bool, chain: Chain) -> bool:
        """True if it landed. A refused commit breaks its chain, as in a store."""
        mine = self.chain != "none" and (name in HOLDER or self.posts_in_chain)
        commit = _commits(s.poison)[name]
        try:
            check(commit)
            if away and name == "record":
                raise Unavailable("this statement failed")
            batch.land(commit, chain if mine else None)
        except StoreError as error:
            if mine and (self.unavailable_breaks or not isinstance(error, Unavailable)):
                batch.broken.add(chain)
            return False
        return True


@cache
def _held() -> Rows:
    """A run that is held, with one effect intended."""
    rows = land((), born(), 1).rows
    claim = verbs.claim(run_of(rows), worker="w", now=NOW, claim_ms=SLICE)
    assert claim is not None
    rows = land(rows, claim, 1).rows
    what = effect_verbs.Intent(1, "k", "pay", "d", b"", "", 1, 2, 1)
    return land(rows, effect_verbs.intend(run_of(rows), what, None, ordinal=1, now=NOW), 1).rows


@cache
def _commits(poison: bool) -> dict[str, Commit]:
    """Return the commits that the holder submits, made from its copies."""
    rows = _held()
    run, effect = run_of(rows), find(rows, EFFECT, "r", 1, "k")
    assert isinstance(effect, Effect)
    return {
        "record": effect_verbs.record(run, effect, b"1" * (ROW_BYTES_MAX + 1 if poison else 1), now=NOW),
        "advance": verbs.advance(run, node="b", status_label="", state=b"{}", now=NOW, claim_ms=SLICE),
        "post": mailbox.append_message(tenant=TENANT, run="r", kind="signal", name="n", actor="a", now=NOW),
    }


LARGE = ()
VARIANTS = (
    Variant("as built", Batches()),
    Variant("no chain", Batches(chain="none"), "advance landed without"),
    Variant("a chain is broken within its batch only", Batches(chain="within the batch"), "advance landed without"),
    Variant("Unavailable breaks no chain", Batches(unavailable_breaks=False), "advance landed without"),
    Variant("a postponed commit leaves its successors", Batches(successors_wait=False), "advance landed without"),
    Variant("notes are in the chain", Batches(posts_in_chain=True), "a good note was refused"),
    Variant("rows are written as submitted", Batches(judge=AsSubmitted), "mail does not count the notes"),
)
