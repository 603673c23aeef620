"""The first answer of a call is the one that the code gave before `core/first_answer.py`, for any rows.

Drawn rows, messages and facts of an execution go to the frozen code of `former_calls.py` and to the present one.
Both act on an execution that records what they do. `python -m tests.lockstep.test_first_answers 50000` plays that many
seeds.
"""

import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn, get_args
from unittest.mock import patch

import pytest

from outlast import activity, lookup
from outlast.core.codec import digest
from outlast.core.commit import IDENTITY, Commit, Instant
from outlast.core.effect_verbs import observed_key
from outlast.core.first_answer import FirstAnswer
from outlast.core.machine import Choice, EffectStatus, Reason, RunStatus
from outlast.core.mailbox import GIVEN_UP, REOPENED
from outlast.core.rows.effect_columns import ERROR, EffectError
from outlast.core.rows.effect_rows import EFFECT, STATED, UNDO_RESERVED, USED, Effect, Memo
from outlast.core.rows.run_columns import PERSON_ANSWER, PersonAnswer
from outlast.core.rows.run_rows import Message, Run
from outlast.engine import activity_calls, lookups
from outlast.flow.activity import BoundCall
from tests.insight import situations
from tests.lockstep import former_calls
from tests.mutants import remove
from tests.slices import params

SEEDS_OF_A_TEST = 1_000
TESTS = 20
T = situations.T
NOW = Instant(T, T, 0)
RUN = situations.RUN._replace(status=RunStatus.RUNNING, owner="w1", inbox_seq=3)
VISIT, KEY = RUN.visit, "k/1"
CALLED = "outlast.errors.Conflict"
"""Class of an error that a lookup raised."""


@activity(name="former_visit", key="k/{n}", no_undo="a test undoes nothing")
async def in_visit(n: int, amount: int = 1) -> int:
    return amount


@activity(name="former_tagged", key="k/{n}", once_per="run", no_undo="a test undoes nothing")
async def tagged(n: int, tags: frozenset[str] = frozenset(), amount: int = 1) -> int:
    return amount


@activity(name="former_shared", key="k/{n}", once_per="tenant", no_undo="a test undoes nothing")
async def shared(n: int, tags: frozenset[str] = frozenset(), amount: int = 1) -> int:
    return amount


@lookup(name="former_free", key="k/{n}")
async def free(n: int, tags: frozenset[str] = frozenset(), amount: int = 1) -> int:
    return amount


@lookup(name="former_paid", key="k/{n}", durable=True)
def paid(n: int, amount: int = 1) -> int:
    return amount


@lookup(name="former_compared", key="k/{n}", once_per="run")
async def compared(n: int, amount: int = 1) -> int:
    return amount


compared.compare = lambda of, response: f"not {of}" if of < "8" else None
ACTIVITIES: Sequence[Any] = (in_visit, tagged, shared, shared, shared, shared, free, paid, compared)


class Never(Exception):
    """The call is never answered."""


class Expected:
    """Calls that the visit has recorded; which of them the body has asked for is drawn."""

    def __init__(self, names: Sequence[str], *, holds: bool, lingering: bool, lingers_then: bool, log: Any) -> None:
        self.missing = {name: {"x"} for name in names}
        self.lingering = lingering
        self._holds, self._lingers_then, self._log = holds, lingers_then, log

    def holds(self, name: str) -> bool:
        return self._holds or name in self.missing

    async def hold(self, name: str, call: BoundCall) -> None:
        self._log("hold", name, call)
        self.missing.clear()
        self._holds = False
        if self._lingers_then:
            raise Never


class Execution:
    """Execution whose rows are drawn, and which records what is done with them. Reads nothing, sends nothing."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = random.Random(seed)
        self.log: list[tuple[object, ...]] = []
        self.activity = dice.choice(ACTIVITIES)
        tags = {} if self.activity in (in_visit, paid, compared) else {"tags": frozenset("abc")}
        self.call = self.activity.bind((1,), {"amount": dice.choice((1, 2)), **tags})._replace(proposed=self.maybe(0.3))
        self.session = self.held = self.chain = self.clock = self
        self.fork = None
        self.fork_notes = ()
        self.run = RUN
        self.tenant = RUN.tenant
        self.visit = VISIT if self.activity.once_per == "visit" else 0
        self.now, self.inbox_read = NOW, 3
        self.store = SimpleNamespace(load=self.load, mapping=lambda: IDENTITY)
        self.workflow = SimpleNamespace(counts_failures=self.maybe())
        self.closing = self.maybe(0.03)
        self.continued_after = dice.choice((0, 2))
        self.effects = {(e.visit, e.key): e for e in self._effects()}
        self.memos = {(m.visit, m.key): m for m in self._memos()}
        self.stored = self._row(by_run="r2") if self.maybe(0.8) else None
        if self.stored is not None and self.maybe(0.1):
            self.stored = self.stored._replace(by_run="r1", status=EffectStatus.UNDONE)
        known = self.stored if self.maybe() else self._row(by_run="r2")
        self.others = {KEY: known} if known is not None and self.maybe() else {}
        self.noted = {KEY} if self.maybe() else set()
        self.owner = dice.choice((None, RUN, RUN._replace(status=RunStatus.COMPLETED)))
        self.messages = [self._choice() for _ in range(dice.choice((0, 0, 1, 2)))]
        self.approvals = {"a": self._approval()} if self.maybe(0.3) else {}
        self.observed = {(1, "x"): None} if self.maybe(0.3) else {}
        self.first_digests = {(self.visit, KEY): dice.choice(self._digests())} if self.maybe(0.2) else {}
        self.calls_in_flight = {(self.visit, KEY): None} if self.maybe() else {}
        self.expected = self._expected() if self.maybe(0.4) else None

    # --- what is drawn ------------------------------------------------------------------------------
    def maybe(self, chance: float = 0.5) -> bool:
        return self.dice.random() < chance

    def _former(self) -> bytes:
        """Return the arguments as a process wrote them that iterated sets in another order."""
        plain = json.loads(self.call.args_bytes)
        if "tags" in plain:
            plain["tags"] = plain["tags"][::-1]
        return json.dumps(plain, separators=(",", ":")).encode()

    def _arguments(self) -> bytes:
        others = (b'{"n":1,"amount":7}', self._former(), self._former(), b'{"of another version":1}')
        return self.dice.choice((*others, *[self.call.args_bytes] * 4))

    def _digest(self, arguments: bytes) -> str:
        return str(
            self.call.digest if arguments == self.call.args_bytes else digest(self.activity.name, KEY, arguments)
        )

    def _digests(self) -> list[str]:
        return [self.call.digest, self._digest(self._former()), digest("other")]

    def _row(self, *, by_run: str = "", visit: int = 0) -> Effect:
        dice, status = self.dice, self.dice.choice([*EffectStatus, EffectStatus.DONE, EffectStatus.DONE])
        arguments = self._arguments()
        is_open = status in (EffectStatus.INTENDED, EffectStatus.UNCERTAIN)
        marks = {EffectStatus.DONE: (0, USED, UNDO_RESERVED, STATED, STATED), EffectStatus.REFUSED: (0, STATED)}
        code = dice.choice((REOPENED, GIVEN_UP, "http_400", "")) if status is EffectStatus.REFUSED else ""
        mark = dice.choice(marks.get(status, (0,)))
        return situations.EFFECT._replace(
            run="" if by_run else RUN.run,
            by_run=by_run,
            visit=visit,
            key=KEY,
            status=status,
            activity=self.activity.name if self.maybe(0.9) else "another",
            digest=self._digest(arguments),
            args=arguments,
            response=dice.choice((b"5", b'"no number"', None)) if status is EffectStatus.DONE else None,
            error_text=ERROR.encode(EffectError(code, "a reason")) if code else "",
            settled_at=0 if is_open else T - 5,
            settled_by="" if is_open else dice.choice(("call", "local:ana")),
            shared=mark if by_run or mark == STATED else 0,
            first_visit=dice.choice((0, 1, VISIT)),
        )

    def _effects(self) -> Iterator[Effect]:
        if self.maybe(0.2 if self.activity is shared else 0.6):
            yield self._row(by_run=RUN.run if self.activity is shared else "", visit=self.visit)
        if self.maybe(0.3):
            yield self._row(visit=1)

    def _memo(self, key: str, error: str, of: str) -> Memo:
        response = None if error else self.dice.choice((b"5", b'"no number"', None))
        text = ERROR.encode(EffectError(error, "a reason")) if error else ""
        return Memo(
            RUN.tenant, RUN.run, self.visit, key, self.dice.choice((self.activity.name, "x")), of, response, text, T
        )

    def _memos(self) -> Iterator[Memo]:
        if self.maybe():
            yield self._memo(KEY, self.dice.choice(("", "refused")), self.dice.choice(self._digests()))
        if self.maybe(0.3):
            yield self._memo(observed_key(KEY, 0), CALLED, "")

    def _choice(self) -> Message:
        """Return the message of a person who chose the recorded answer, perhaps for this call."""
        visit = self.dice.choice((0, VISIT, self.visit, self.visit))
        chosen = ((visit, KEY, self.dice.choice(self._digests())),)
        payload = PERSON_ANSWER.encode(PersonAnswer(self.dice.choice(CHOICES), "", "", 0, chosen)).encode()
        name = self.dice.choice((Reason.CONTRADICTION.value, Reason.CONTRADICTION.value, Reason.EXCEPTION.value))
        return Message(RUN.tenant, RUN.run, 1, "answer", name, payload, "", "local:ana", T)

    def _approval(self) -> Any:
        text = self.dice.choice((self._former(), self.call.args_bytes)).decode()
        return SimpleNamespace(plans=(SimpleNamespace(activity=self.activity.name, key=KEY, arguments_text=text),))

    def _expected(self) -> Expected:
        names = [self.activity.name] if self.maybe(0.3) else ["another"]
        lingering, then = self.maybe(0.3), self.maybe(0.2)
        return Expected(names, holds=self.maybe(0.2), lingering=lingering, lingers_then=then, log=self.record)

    # --- what is done ---------------------------------------------------------------------------------
    def record(self, *entry: object) -> None:
        self.log.append(entry)

    @property
    def lingering(self) -> bool:
        return self.expected is not None and self.expected.lingering

    def note_progress(self) -> None:
        self.record("progress")

    async def never(self) -> NoReturn:
        self.record("never")
        raise Never

    def may_begin(self) -> bool:
        return self.continued_after == 0

    def record_observed(self) -> None:
        self.record("observed")

    def call_person(self, attention: object) -> None:
        self.record("person", attention)
        self.closing = True

    def park(self, parked: object) -> None:
        self.record("park", parked)

    async def deduplicate(self, ident: object, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        self.record("flight", ident, dict(self.first_digests))
        return await make()

    async def look_up(self, ident: object, make: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        self.record("in the task of its awaiter", ident)
        return await make()

    def visit_of(self, name: str, key: str) -> int:
        row = self.effects.get((1, key))
        return 1 if row is not None and row.activity == name else 0

    def add_shared(self, row: Effect) -> None:
        self.others[row.key] = row

    async def load(self, kind: object, key: object) -> Effect | Run | None:
        self.record("load", key)
        return self.stored if kind is EFFECT else self.owner

    async def land(self, commit: Commit) -> None:
        self.record("land", commit)

    def submit(self, commit: Commit) -> None:
        self.record("submit", commit)

    @staticmethod
    def executor_of(execution: "Execution", of: object, call: BoundCall, ident: object) -> Any:
        execution.record("executor", of, call, ident)

        async def drive() -> str:
            execution.record("drive", call)
            return "made now"

        return SimpleNamespace(drive=drive)

    @staticmethod
    async def make_lookup(execution: "Execution", of: object, call: BoundCall, ident: object) -> str:
        execution.record("look up", of, call, ident)
        return "looked up"


CHOICES = (Choice.USE_RECORDED, Choice.ACCEPT)
Calls = Callable[[Any, Any, BoundCall], Awaitable[Any]]


async def played(seed: int, effects: Calls, lookups: Calls) -> tuple[list[tuple[object, ...]], object, object]:
    """Return what the code did with the rows of a seed, and the answer that the body got."""
    execution = Execution(seed)
    ask = lookups if execution.activity.kind == "lookup" else effects
    digests: object = None
    try:
        answer: object = await ask(execution, execution.activity, execution.call)
        digests = execution.first_digests
    except Exception as error:
        answer = (type(error), str(error), getattr(error, "ident", None))
    return execution.log, answer, digests


@contextmanager
def recording(seen: Counter[str]) -> Iterator[None]:
    """Let the present code act on a recording execution, and count its answers."""
    decide: Callable[..., FirstAnswer] = activity_calls.answer_of

    def counted(*facts: Any) -> FirstAnswer:
        answer = decide(*facts)
        seen[type(answer).__name__] += 1
        return answer

    with (
        patch.object(activity_calls, "EffectExecutor", Execution.executor_of),
        patch.object(lookups, "_make_lookup", Execution.make_lookup),
        patch.object(activity_calls, "answer_of", counted),
        patch.object(lookups, "answer_of", counted),
    ):
        yield


def compare(seeds: Sequence[int]) -> Counter[str]:
    """Compare both decisions for each seed, and return how often each answer was given."""
    seen: Counter[str] = Counter()

    async def both() -> None:
        for seed in seeds:
            before = await played(seed, former_calls.perform, former_calls.look_up)
            assert await played(seed, activity_calls.perform, lookups.look_up) == before, seed

    with recording(seen):
        asyncio.run(both())
    return seen


@pytest.mark.req("EFF-1", "EFF-9")
@pytest.mark.parametrize("first", params(range(0, TESTS * SEEDS_OF_A_TEST, SEEDS_OF_A_TEST), 2, "first answers"))
def test_the_answer_is_that_of_before_and_each_one_is_given(first: int) -> None:
    seen = compare(range(first, first + SEEDS_OF_A_TEST))
    assert seen.keys() == {answer.__name__ for answer in get_args(FirstAnswer)}


REMOVED = (
    "calls_not_compared",
    "contradictions_not_asked",
    "keys_of_other_activities",
    "calls_under_way_joined",
    "choices_not_joined",
    "new_calls_not_held",
    "tasks_left_behind_begin",
    "caught_errors_forgotten",
    "recorded_answers_not_replayed",
    "reopened_calls_refused",
    "uncertain_calls_refused",
    "refused_calls_made_again",
    "stated_answers_replayed",
    "recorded_arguments_dropped",
    "shared_rows_not_read",
    "others_not_waited_for",
    "uses_not_recorded",
    "refusals_of_others_not_counted",
    "owners_not_asked",
    "unfit_answers_wait",
)


@pytest.mark.parametrize("removed", REMOVED)
def test_a_removed_case_is_noticed(removed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remove(removed, monkeypatch)
    with pytest.raises(AssertionError):
        compare(range(3 * SEEDS_OF_A_TEST))


if __name__ == "__main__":
    total: Counter[str] = Counter()
    count = int(sys.argv[1])
    for n in range(0, count, 1000):
        total += compare(range(n, min(n + 1000, count)))
        sys.stdout.write(f"{min(n + 1000, count):,} seeds: equal\n")
    sys.stdout.write("".join(f"{name:16} {times:>8,}\n" for name, times in sorted(total.items())))
