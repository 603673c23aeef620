"""`any_story`: Hypothesis makes up stories of a run until one breaks a sentence, and shrinks it to the shortest.

A story is drawn while it is played, because its next act depends on the run: an approval must be asked before it can
be decided. Each choice is one number, and the smallest means "nothing more" or "as usual". So Hypothesis makes a story
shorter and calmer by making numbers smaller. The same draws give the same story, because time, the store and the
receivers are those of the story alone.
"""

import ast
import functools
import inspect
import logging
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from pydantic import BaseModel
from typing_extensions import override

from outlast.core.argument_checks import Arguments
from outlast.core.machine import Choice, Reason
from outlast.errors import InvalidInput, OutlastError
from outlast.flow.activity import Activity
from outlast.flow.workflow import Workflow
from outlast.testing.plugin import option
from outlast.testing.story import (
    AnswerRecord,
    Check,
    Script,
    Story,
    StoryOptions,
    default_answer,
    hint_of,
    loaded_answer,
    open_story,
    plain,
    text_of_ms,
)
from outlast.testing.story_signals import signals_of
from outlast.testing.story_values import values_of
from outlast.testing.story_world import AnswerKind, WorldAnswer, WorldCall

STORIES: Final = 200
STEPS: Final = 25
SHRINKS_MAX: Final = 800  # stories that are played to make the first failure shorter
NUMBER_MAX: Final = 2**31
POINTS_MAX: Final = 16  # crash points from here to the one at which the process dies
MOODS: Final = {"fair": 0, "calm": 20, "harsh": 7}
"""How many usual answers there are for each set of unusual ones; 0: every answer is usual, and nothing crashes."""
SPANS: Final = (3_600_000, 86_400_000, 7 * 86_400_000, 30 * 86_400_000)
UNUSUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "call": ("refuses", "refuses", "lost", "late", "unknown", "later", "unsent"),
    "undo": ("refuses", "lost", "late", "unknown", "later", "unsent"),
    "lookup": ("fails", "refuses"),
    "reconcile": ("fails",),
}
KINDS: Final = {
    (what, mood): st.sampled_from(("executes",) * usual + kinds)
    for what, kinds in UNUSUAL.items()
    for mood, usual in MOODS.items()
    if usual
}
NOT_CHOSEN: Final = frozenset({Choice.MOVE, Choice.RAISE, Choice.REDELIVER, Choice.DISABLE})
"""Choices that need another workflow, a number, or a webhook."""


@dataclass(frozen=True)
class StorySources:
    """The sources of a story: strategies of the input and of signals, and how many acts it has at most."""

    asked: StoryOptions
    given: st.SearchStrategy[Any]
    signals: Mapping[str, st.SearchStrategy[Any]]
    steps: int


class _Enough(BaseException):
    """The shortest story so far is short enough. No Exception, so that Hypothesis ends at once."""


@dataclass
class StoryReport:
    """Result of a campaign: how many stories were told, and the shortest that failed."""

    stories: int = 0
    failed_at: int = 0
    """Number of the first story that failed; 0 if none did."""
    lines: list[str] = field(default_factory=list)
    error: BaseException | None = None

    def keep(self, played: "_Played") -> None:
        """Keep the shorter one of two stories that failed."""
        self.failed_at = self.failed_at or self.stories
        if self.error is None or played.size <= _size(self.lines):
            self.lines, self.error = played.lines, played.error


class _Played:
    """A story that was played, and the error that ended it, if any."""

    def __init__(self, story: Story, error: Exception | None) -> None:
        self.lines = story.lines
        self.error = error

    @property
    def size(self) -> tuple[int, int]:
        """The number of acts, and the length of their text."""
        return _size(self.lines)

    @override
    def __repr__(self) -> str:
        return "; ".join(self.lines)


def _size(lines: Sequence[str]) -> tuple[int, int]:
    return len(lines), sum(map(len, lines))


class _DrawnAnswers(AnswerRecord):
    """An oracle that draws each answer when its request arrives."""

    def __init__(self, draw: Any, asked: StoryOptions, mood: str) -> None:
        super().__init__()
        self._draw = draw
        self._asked = asked
        self._mood = mood

    def answer(self, call: WorldCall) -> WorldAnswer:
        """Draw the answer to a request."""
        kind: AnswerKind = "executes" if self._mood == "fair" else self._draw(KINDS[call.what, self._mood])
        value = default_answer(self._asked, call)
        if kind in ("executes", "lost", "late") and (strategy := self._values(call)) is not None:
            value = self._draw(strategy)
            shown = plain(hint_of(call), value)
            self.keep(call, kind, shown)
            return WorldAnswer(kind, loaded_answer(call, shown))
        if kind != "executes":
            self.keep(call, kind)
        return WorldAnswer(kind, value)

    def _values(self, call: WorldCall) -> st.SearchStrategy[Any] | None:
        """Return the strategy of a response; None if it has one value only."""
        if call.what in ("undo", "reconcile"):
            return None
        given = self._asked.answers.get(call.activity)
        if isinstance(given, st.SearchStrategy):
            return given
        hint = hint_of(call)
        return None if given is not None or hint in (str, None, type(None)) else _values_of(call.activity, hint)


def _values_of(activity: str, hint: Any) -> st.SearchStrategy[Any]:
    try:
        return _kept_values(hint)
    except InvalidInput as error:
        raise InvalidInput(error.what, error.why, f"say answers={{{activity}: …}}: a value or a strategy") from None
    except TypeError:  # a type that cannot be hashed
        return values_of(hint)


_kept_values = functools.lru_cache(maxsize=500)(values_of)


# --- one story -------------------------------------------------------------------------------------
@st.composite
def _stories(draw: Any, sources: StorySources) -> _Played:
    asked = sources.asked
    mood = draw(st.sampled_from(tuple(MOODS)))
    with open_story(asked, _DrawnAnswers(draw, asked, mood)) as story:
        try:
            given = draw(sources.given)
            if mood == "harsh" and draw(st.booleans()):
                story.crash(draw(st.integers(1, POINTS_MAX)))
            story.start(given)
            for _ in range(sources.steps):
                if story.ended or not _act(draw, story, sources, mood):
                    break
        except OutlastError:
            raise  # a mistake in the use of any_story, not a story that breaks a sentence
        except Exception as error:  # of a check of the author: Hypothesis gets it from the test itself
            if type(error).__module__.startswith("hypothesis"):
                raise
            return _Played(story, error)
        return _Played(story, None)


def _act(draw: Any, story: Story, sources: StorySources, mood: str) -> bool:
    """Draw the next act and carry it out. Returns False if nothing more happens."""
    acts = [_end, *_acts(story, sources, mood)]
    act = draw(st.sampled_from(acts))
    return bool(act(draw, story, sources))


def _acts(story: Story, sources: StorySources, mood: str) -> list[Callable[[Any, Story, StorySources], bool]]:
    """Return the acts that are possible now, each as often as its weight."""
    acts: list[Callable[[Any, Story, StorySources], bool]] = []
    if story.pending():
        acts += [*[_approve] * 6, _reject]
    if story.flagged():
        acts += [_answer] * 8
    acts += [_wait] * 6
    if sources.signals:
        acts += [_signal] * (8 if story.open_signals() else 2)
    if mood != "fair":
        acts += [*[_crash] * (3 if mood == "harsh" else 1), _cancel]
    return acts


def _end(draw: Any, story: Story, sources: StorySources) -> bool:
    return False


def _approve(draw: Any, story: Story, sources: StorySources) -> bool:
    row = _one(draw, story.pending())
    alternative = _one(draw, range(len(row.plans)))
    changes = {}
    if row.editable and draw(st.booleans()):
        name = _one(draw, row.editable)
        activity = sources.asked.workflow.activity(row.plans[0].activity)
        hint = inspect.get_annotations(activity.fn, eval_str=True).get(name)
        changes = {name: plain(hint, draw(values_of(hint)))}
    story.approve(row.wait if len(story.pending()) > 1 else "", alternative=alternative, changes=changes or None)
    return True


def _reject(draw: Any, story: Story, sources: StorySources) -> bool:
    row = _one(draw, story.pending())
    again = bool(row.again) and draw(st.booleans())
    story.reject(row.wait if len(story.pending()) > 1 else "", again=again)
    return True


def _answer(draw: Any, story: Story, sources: StorySources) -> bool:
    entry = _one(draw, story.flagged())
    if entry.reason is Reason.EFFECT_UNCERTAIN:
        story.resolve(entry.key, give_up=draw(st.booleans()))
        return True
    choices = [choice for choice in entry.choices(story.flagged()) if choice not in NOT_CHOSEN]
    if entry.reason is Reason.UNDO_FAILED and story.may_have_happened(entry.key):
        choices = [Choice.DONE_BY_HAND]  # a person who looks at the receiver's record asks for no second undo
    if choices:
        story.answer(entry.reason.value, _one(draw, choices).value, key=entry.key)
    return True


def _wait(draw: Any, story: Story, sources: StorySources) -> bool:
    ahead = story.instants()
    spans = [*ahead, *ahead, *(at - 1 for at in ahead if at > 1), *SPANS]
    story.wait(text_of_ms(_one(draw, spans)))
    return True


def _signal(draw: Any, story: Story, sources: StorySources) -> bool:
    opened = [wait.name for wait in story.open_signals() if wait.name in sources.signals]
    names = [*opened, *(name for name in sources.signals if name not in opened)]
    name = _one(draw, names)
    story.signal(name, draw(sources.signals[name]))
    return True


def _crash(draw: Any, story: Story, sources: StorySources) -> bool:
    story.crash(draw(st.integers(1, POINTS_MAX)))
    return True


def _cancel(draw: Any, story: Story, sources: StorySources) -> bool:
    story.cancel()
    return True


def _one(draw: Any, of: Any) -> Any:
    found = list(of)
    return found[0] if len(found) == 1 else draw(st.sampled_from(found))


# --- many stories ----------------------------------------------------------------------------------
def tell(sources: StorySources, *, stories: int, seed: int, shrinks: int = SHRINKS_MAX) -> StoryReport:
    """Play stories until one fails, and shrink it. Raises Flaky if a story ends differently when it is played again."""
    report = StoryReport()

    @hypothesis.seed(seed)
    @settings(
        max_examples=stories,
        database=None,
        deadline=None,
        derandomize=False,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @hypothesis.given(_stories(sources))
    def one(played: _Played) -> None:
        report.stories += 1
        if played.error is not None:
            report.keep(played)
            raise played.error
        if report.failed_at and report.stories > report.failed_at + shrinks:
            raise _Enough

    with quiet():
        try:
            one()
        except Flaky:
            raise
        except (Exception, _Enough):  # Hypothesis raises what the story raised, which the report has
            if report.error is None:
                raise
    if report.error is not None:
        _check_fails_again(sources.asked, report)
    return report


def _check_fails_again(asked: StoryOptions, report: StoryReport) -> None:
    """Raise Flaky unless the story fails when the printed test tells it."""
    with quiet(), open_story(asked, Script(asked)) as story:
        try:
            for line in report.lines:
                act: Any = ast.parse(line, mode="eval").body
                given = [ast.literal_eval(each) for each in act.args]
                getattr(story, act.func.attr)(*given, **{k.arg: ast.literal_eval(k.value) for k in act.keywords})
        except Exception:  # of the engine's check or the author's
            return
    raise Flaky(
        f"the story failed with {report.error!r} and passed when it was played again: {'; '.join(report.lines)}"
    )


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the logs of the engine, which tell of each process that dies."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def any_story(
    workflow: Workflow[Any, Any, Any],
    given: BaseModel | Mapping[str, Any] | Any = None,
    *,
    invariants: Sequence[Check] = (),
    answers: Mapping[Activity[..., Any] | str, Any] | None = None,
    signals: Mapping[str, Any] | None = None,
    stories: int = STORIES,
    steps: int = STEPS,
    seed: int = 0,
) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Test a workflow with stories that Hypothesis makes up: whatever may happen to a run, in any order.

    A story is played in this process, over a store in memory and in virtual time. It starts the `workflow`, sends
    signals, decides approvals, answers attention, lets time pass, kills the process, and cancels. Receivers execute a
    call, refuse it, lose its answer, or are late. No activity, undo, lookup or reconcile function is called.

    The decorated function is called with the `Story` after each act, and raises if a sentence about it does not hold.
    Its other parameters are fixtures. The first failure is shrunk to the shortest story and printed as a test.

    - `given` is the input: a model, a dict, or a Hypothesis strategy (default: drawn from the declared types).
    - `invariants` are further functions like the decorated one.
    - `answers` has the responses of activities: a value, a function of the arguments, or a strategy.
    - `signals` has the model or a strategy of each signal that any_story cannot read from the source.
    - `stories` is the number of stories, `steps` the number of acts in one, and `seed` chooses them.
    """
    check = Arguments("any_story")
    check.instance("workflow", workflow, Workflow, "any_story(orders, {…})", optional=False)
    check.number("stories", stories, 1, NUMBER_MAX)
    check.number("steps", steps, 1, NUMBER_MAX)
    check.number("seed", seed, 0, NUMBER_MAX)
    for each in invariants:
        check.function("invariants", each, "invariants=[paid_once]")
    check.mapping("answers", answers, "answers={charge: 7}")
    check.mapping("signals", signals, 'signals={"stop": Stop}')

    def decorate(fn: Callable[..., object]) -> Callable[..., None]:
        named = {(key.name if isinstance(key, Activity) else key): value for key, value in (answers or {}).items()}
        asked = StoryOptions(workflow.validate(), tuple(invariants), named)
        return _decorated(fn, asked, given, dict(signals or {}), stories=stories, steps=steps, seed=seed)

    return decorate


def sources_of(asked: StoryOptions, given: Any, signals: Mapping[str, Any], steps: int) -> StorySources:
    """Return the sources of stories. Raises InvalidInput for a type of which no value can be made."""
    workflow = asked.workflow
    models = {**signals_of(workflow), **signals}
    if given is None:
        given = values_of(workflow.input or workflow.state)
    elif not isinstance(given, st.SearchStrategy):
        given = st.just(given)
    drawn = {name: each if isinstance(each, st.SearchStrategy) else values_of(each) for name, each in models.items()}
    return StorySources(asked, given, drawn, steps)


def _decorated(
    fn: Callable[..., object],
    asked: StoryOptions,
    given: Any,
    signals: Mapping[str, Any],
    *,
    stories: int,
    steps: int,
    seed: int,
) -> Callable[..., None]:
    """Return the test that pytest calls: it has the other parameters of the function, which are fixtures."""
    if inspect.iscoroutinefunction(fn):
        raise TypeError(f"{fn.__name__} is async, and a check of a story awaits nothing: write def {fn.__name__}")
    wanted = list(inspect.signature(fn).parameters.values())
    if not wanted:
        raise TypeError(f"{fn.__name__} takes no parameter: write def {fn.__name__}(story): assert …")

    def options(fixtures: Mapping[str, Any]) -> StoryOptions:
        own = functools.partial(fn, **fixtures) if fixtures else fn
        return StoryOptions(asked.workflow, (own, *asked.checks), asked.answers)

    @functools.wraps(fn)
    def test(request: pytest.FixtureRequest, **fixtures: Any) -> None:
        sources = sources_of(options(fixtures), given, signals, steps)
        most = int(option(request.config, "stories") or stories)
        chosen = option(request.config, "story_seed")
        wrong = ""
        try:
            report = tell(sources, stories=most, seed=seed if chosen is None else int(chosen))
            if report.error is not None:
                wrong = text_of(report, fn)
        except Flaky as error:
            wrong = f"one story ends differently when it is played again: {error}\n→ {FLAKY}"
        except OutlastError as error:
            wrong = str(error)
        if wrong:
            pytest.fail(wrong, pytrace=False)

    ours = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    vars(test)["__signature__"] = inspect.Signature([ours, *(p for p in wanted[1:] if p.name != "request")])
    vars(test)["outlast_story"] = options
    return test


FLAKY: Final = "a node and a check must not use clocks, random numbers, or variables that outlive a run"


def text_of(report: StoryReport, fn: Callable[..., object]) -> str:
    """Return the failure of a campaign: the sentence that broke, and the story as a test."""
    error = report.error
    assert error is not None
    where = traceback.extract_tb(error.__traceback__)[-1]
    message = "".join(traceback.format_exception_only(error)).strip()
    return "\n".join(
        [
            f"story {report.failed_at} breaks a sentence; the shortest such story has {len(report.lines)} acts:",
            "",
            *(f"    {line}" for line in message.splitlines()),
            f"    {where.filename}:{where.lineno}: {where.line}",
            "",
            "as a test, for a file beside this one:",
            "",
            test_of(report.lines, fn),
        ]
    )


def test_of(lines: Sequence[str], fn: Callable[..., object]) -> str:
    """Return a story as a test that fails alone."""
    module = fn.__module__.rpartition(".")[2]
    body = "\n".join(f"        {line}" for line in lines)
    return (
        f"from {module} import {fn.__name__} as _checks\n\nfrom outlast.testing import retell\n\n\n"
        f"def test_story() -> None:\n    with retell(_checks) as story:\n{body}\n"
    )


@contextmanager
def retell(test: Callable[..., Any], **fixtures: Any) -> Iterator[Story]:
    """Play a story again, act by act, with the workflow and the checks of a `test` that `any_story` has decorated.

    `fixtures` are the values of the test's other parameters. Each act raises what a check raises after it.
    """
    options = getattr(test, "outlast_story", None)
    if options is None:
        raise TypeError(f"{getattr(test, '__name__', test)} is not decorated with any_story")
    asked: StoryOptions = options(fixtures)
    with quiet(), open_story(asked, Script(asked)) as story:
        yield story
