"""Cases of the first answer of a call, each of which these functions take away (`core/first_answer.py`)."""

from collections.abc import Callable
from typing import Any

from outlast.core.first_answer import (
    AskPerson,
    Compare,
    Compared,
    Contradiction,
    Drive,
    GiveStated,
    RaiseRefused,
    RaiseUnfit,
    ReadOwner,
    ReadShared,
    Replay,
    UseShared,
    WaitForOther,
    answer_of,
)
from outlast.core.rows.effect_rows import Effect
from tests.removals import Patch, replace


def calls_not_compared(patch: Patch) -> None:
    _instead(patch, Compare, lambda answer: Contradiction(answer.row))


def contradictions_not_asked(patch: Patch) -> None:
    def decide(row: Any, call: Any, rules: Any, visit: Any, gathered: Any) -> Any:
        compared = gathered.compared and Compared.CHOSEN
        return answer_of(row, call, rules, visit, gathered._replace(compared=compared))

    replace(patch, answer_of, decide)


def keys_of_other_activities(patch: Patch) -> None:
    def decide(row: Any, *rest: Any) -> Any:
        row = row._replace(activity=rest[1].name) if isinstance(row, Effect) else row
        return answer_of(row, *rest)

    replace(patch, answer_of, decide)


def calls_under_way_joined(patch: Patch) -> None:
    _blind(patch, first_digest="")


def choices_not_joined(patch: Patch) -> None:
    _blind(patch, joins=False)


def new_calls_not_held(patch: Patch) -> None:
    _blind(patch, holds=False)


def tasks_left_behind_begin(patch: Patch) -> None:
    _blind(patch, lingering=False)


def caught_errors_forgotten(patch: Patch) -> None:
    _blind(patch, observed=None)


def recorded_answers_not_replayed(patch: Patch) -> None:
    _instead(patch, Replay, lambda answer: Drive())


def reopened_calls_refused(patch: Patch) -> None:
    def decide(row: Any, *rest: Any) -> Any:
        answer = answer_of(row, *rest)
        reopened = isinstance(row, Effect) and row.error_text and isinstance(answer, Drive)
        return RaiseRefused(row) if reopened else answer

    replace(patch, answer_of, decide)


def uncertain_calls_refused(patch: Patch) -> None:
    _instead(patch, AskPerson, lambda answer: RaiseRefused(answer.row))


def refused_calls_made_again(patch: Patch) -> None:
    _instead(patch, RaiseRefused, lambda answer: Drive())


def stated_answers_replayed(patch: Patch) -> None:
    _instead(patch, GiveStated, lambda answer: Replay(answer.row))


def recorded_arguments_dropped(patch: Patch) -> None:
    _instead(patch, Drive, lambda answer: Drive())


def shared_rows_not_read(patch: Patch) -> None:
    _instead(patch, ReadShared, lambda answer: Drive())


def others_not_waited_for(patch: Patch) -> None:
    _instead(patch, WaitForOther, lambda answer: UseShared(answer.row, records=False))


def uses_not_recorded(patch: Patch) -> None:
    _instead(patch, UseShared, lambda answer: answer._replace(records=False))


def refusals_of_others_not_counted(patch: Patch) -> None:
    _blind(patch, counts_failures=False)


def owners_not_asked(patch: Patch) -> None:
    _instead(patch, ReadOwner, lambda answer: RaiseUnfit())


def unfit_answers_wait(patch: Patch) -> None:
    def decide(*facts: Any) -> Any:
        answer = answer_of(*facts)
        return WaitForOther(facts[-1].shared.row) if isinstance(answer, RaiseUnfit) else answer

    replace(patch, answer_of, decide)


def _instead(patch: Patch, kind: type, other: Callable[[Any], Any]) -> None:
    """Give another answer in place of each one of a kind."""

    def decide(*facts: Any) -> Any:
        answer = answer_of(*facts)
        return other(answer) if isinstance(answer, kind) else answer

    replace(patch, answer_of, decide)


def _blind(patch: Patch, **changes: Any) -> None:
    """Decide without some facts of the visit."""

    def decide(row: Any, call: Any, rules: Any, visit: Any, gathered: Any) -> Any:
        return answer_of(row, call, rules, visit._replace(**changes), gathered)

    replace(patch, answer_of, decide)
