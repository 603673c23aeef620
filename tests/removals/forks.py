"""Safeguards of forks (S-28)."""

from typing import Any

from outlast.core import effect_verbs, fork_starts, forks, living_forks
from outlast.core.commit import Commit, Expect
from outlast.core.fork_starts import ForkStart
from outlast.core.forks import ForkLedger, ForkPoint, ForkTerms, FromRecording, answer_in_fork
from outlast.core.rows.store_rows import META, STORE
from outlast.core.run_transition import fence
from outlast.engine import child_runs, fork_calls, fork_start, fork_start_removal, held_run
from outlast.engine.activity_calls import answer_of_fork
from outlast.engine.fork_calls import CallInFork
from outlast.telemetry import redact
from tests.removals import Patch, replace


def forks_ask_nobody(patch: Patch) -> None:
    patch.setattr(ForkTerms, "asks", False)


def living_children_adopted(patch: Patch) -> None:
    copied = forks._copied_effect

    def ended(run: Any, point: ForkPoint, effect: Any, visit: int) -> forks.CopiedCall:
        call = copied(run, point, effect, visit)
        if call.child is None or not call.is_open:
            return call
        return call._replace(status="done", response=b'"it"', child=call.child._replace(settled_at=1))

    replace(patch, forks._copied_effect, ended)


def asks_not_handed_down(patch: Patch) -> None:
    def none(held: Any, child: str, at: int) -> tuple[()]:
        return ()

    replace(patch, child_runs._asks_too, none)


def fork_uses_forgotten(patch: Patch) -> None:
    def forgets(self: ForkLedger, memo: Any) -> None:
        return None

    replace(patch, ForkLedger.add, forgets)
    patch.setattr(fork_calls, "use_of", _fresh_use)


_uses = [0]


def _fresh_use(run: Any, call: Any, visit: int, at: int) -> Any:
    _uses[0] += 1
    return forks.use_of(run, call._replace(n=900_000 + _uses[0]), visit, at)


def undone_pasts_accepted(patch: Patch) -> None:
    def accepts(point: ForkPoint, *, accepted: bool) -> None:
        return None

    replace(patch, forks.check_accepted, accepts)


def lineages_share_nothing(patch: Patch) -> None:
    def own(execution: Any, ledger: Any, activity: Any, call: Any) -> CallInFork:
        return CallInFork(activity, call)

    replace(patch, fork_calls._to_make, own)


def pasts_not_answered(patch: Patch) -> None:
    async def own(execution: Any, ledger: Any, activity: Any, call: Any) -> CallInFork:
        return CallInFork(activity, call)

    replace(patch, answer_of_fork, own)


def recordings_not_used(patch: Patch) -> None:
    def never(call: Any, terms: ForkTerms) -> bool:
        return False

    replace(patch, forks._is_replayable, never)


def pasts_not_known(patch: Patch) -> None:
    def none(session: Any, activity: Any, key: str) -> dict[int, Any]:
        return {}

    replace(patch, fork_calls.rows_known_in_fork, none)


def futures_known(patch: Patch) -> None:
    def known(session: Any, effect: Any) -> bool:
        return False

    replace(patch, fork_calls.is_new_to_fork, known)


def runs_in_flight_forked(patch: Patch) -> None:
    def forkable(run: Any, asked: Any) -> None:
        return None

    replace(patch, fork_start._check_forkable, forkable)


def notes_not_read(patch: Patch) -> None:
    def none(memos: Any) -> tuple[()]:
        return ()

    patch.setattr(held_run, "notes_of", none)


def intents_without_version(patch: Patch) -> None:
    def without(run: Any, *, inbox_seq: Any = None, mapping: Any = None, version: Any = None) -> Any:
        return fence(run, inbox_seq=inbox_seq, mapping=mapping)

    patch.setattr(effect_verbs, "fence", without)


def purges_not_seen(patch: Patch) -> None:
    async def before(store: Any, run: Any) -> bool:
        return False

    replace(patch, fork_start.ledger_purged, before)


def forks_not_kept(patch: Patch) -> None:
    def nothing(notes: Any, effect: Any) -> str:
        return ""

    replace(patch, living_forks.kept_by_forks, nothing)


def reopened_made_by_a_fork(patch: Patch) -> None:
    async def never(session: Any, run: str) -> bool:
        return False

    replace(patch, fork_calls._may_act, never)


def pasts_of_every_attempt(patch: Patch) -> None:
    def one(calls: Any) -> str:
        return "one"

    replace(patch, forks.past_of, one)


def fork_before_its_copies(patch: Patch) -> None:
    async def later(store: Any, run: str, portion: Any) -> None:
        return None

    replace(patch, fork_start._copy, later)


def given_up_starts_go_on(patch: Patch) -> None:
    patch.setattr(ForkStart, "expects", property(lambda self: Expect(META, (STORE, "never there"), 0)))


def starts_of_one_name(patch: Patch) -> None:
    patch.setattr(ForkStart, "key", property(lambda self: (STORE, f"{fork_starts.STARTS}{self.tenant}/{self.run}")))


def given_up_starts_stay(patch: Patch) -> None:
    async def none(store: Any) -> bool:
        return True

    replace(patch, fork_start_removal.remove_given_up, none)


def starts_after_the_run(patch: Patch) -> None:
    def begin(start: ForkStart) -> Commit:
        return before(start)._replace(expects=())

    before = fork_starts.begin
    replace(patch, before, begin)


def uses_not_counted(patch: Patch) -> None:
    replace(patch, forks.as_used, lambda run, shared, usages, events: [*shared])


def first_notes_kept(patch: Patch) -> None:
    def any_terms(notes: Any, fork: str, terms: ForkTerms) -> Any:
        return next((note for note in notes if note.fork == fork), None)

    replace(patch, living_forks.note_of, any_terms)


def purged_calls_made(patch: Patch) -> None:
    async def none(execution: Any, shared: Any, of: str) -> None:
        return None

    replace(patch, fork_calls._take_over, none)


def redacted_marks_kept(patch: Patch) -> None:
    replace(patch, redact.restored, lambda given, before: given)


def answers_previewed_for_ever(patch: Patch) -> None:
    def never_used(ledger: Any, kind: Any, once_per: Any, visit: int, key: str, same: Any) -> Any:
        found = answer_in_fork(ledger, kind, once_per, visit, key, same)
        return found._replace(records=False) if isinstance(found, FromRecording) else found

    replace(patch, forks.answer_in_fork, never_used)
