"""`every_crash`: the decorator that tests a workflow against every crash."""

import asyncio
import functools
import inspect
import shlex
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, get_args

import pytest
from pydantic import BaseModel

from outlast.core.argument_checks import Arguments
from outlast.core.durations import Duration, ms_of
from outlast.errors import OutlastError
from outlast.flow.workflow import Workflow
from outlast.testing.answers import Decide, no_answer, to_json
from outlast.testing.campaign import ATTEMPT_TIMEOUT_MS, CrashOptions, Pairs, RunEnd
from outlast.testing.crash_values import CheckFailed
from outlast.testing.fake_receivers import FakeReceivers
from outlast.testing.plugin import CrashReports, option, report_case

NUMBER_MAX: Final = 2**31
WORKERS_MAX: Final = 64


def every_crash(
    workflow: Workflow[Any],
    given: BaseModel | dict[str, Any],
    *,
    decide: Decide = no_answer,
    receivers: FakeReceivers | None = None,
    pairs: Pairs = 0,
    seed: int = 0,
    workers: int = 2,
    batched: bool = False,
    slots: int = 0,
    attempt_timeout: Duration = timedelta(milliseconds=ATTEMPT_TIMEOUT_MS),
    cases: int = 0,
) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Test a workflow against a crash at every place where one matters.

    The `workflow` runs once with the input `given`, without a crash. Then, for each durable commit (before, inside and
    after its transaction) and each call (before it is sent, in flight, executed, answered), a real process is killed
    there with SIGKILL. A new process takes over. The end must be the same: status, outcome, nodes, effects, approvals,
    and the receivers' record. The decorated function is called with each `RunEnd`, the one without a crash first. Its
    other parameters are fixtures.

    - `decide` answers the items that the run waits for; sleeps and deadlines pass at once.
    - `receivers` are the fake receivers that the activities call; their record decides whether a call happened twice.
    - `pairs` kills the recovery a second time, at a point drawn by `seed` ("sampled") or at every point ("all").
    - `workers` is the number of cases that run at the same time.
    - `batched` lets commits share transactions as in production: fewer crash points, larger steps.
    - `slots` sets an admission limit.
    - `attempt_timeout` bounds calls of activities that declare no timeout.
    - `cases` limits the number of cases, drawn by `seed` (0: all). `--crash-all` runs all, `--crash-cases` so many.
    """
    check = Arguments("every_crash")
    check.instance("workflow", workflow, Workflow, "every_crash(orders, {…})", optional=False)
    if not isinstance(given, BaseModel):
        check.instance("given", given, dict, 'every_crash(orders, {"n": 1})', optional=False)
    check.function("decide", decide, "decide=approve_all")
    check.instance("receivers", receivers, FakeReceivers, "receivers=bank")
    if isinstance(pairs, bool | float) or pairs not in get_args(Pairs):
        raise check.wrong("pairs", pairs, 'the values are 0, "sampled" and "all"', 'pairs="sampled"')
    check.number("seed", seed, 0, NUMBER_MAX)
    check.number("workers", workers, 1, WORKERS_MAX)
    check.flag("batched", batched)
    check.number("slots", slots, 0, NUMBER_MAX)
    check.duration("attempt_timeout", attempt_timeout, optional=False)
    check.number("cases", cases, 0, NUMBER_MAX)
    asked = CrashOptions(
        workflow,
        to_json(given),
        decide,
        receivers,
        pairs,
        seed,
        workers,
        batched,
        slots,
        ms_of("attempt_timeout", attempt_timeout),
        cases,
    )

    return decorated(asked)


def decorated(asked: CrashOptions) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Return the decorator of a crash test with these options."""
    return functools.partial(_decorated, asked)


def _decorated(asked: CrashOptions, fn: Callable[..., Any]) -> Callable[..., None]:
    """Return the test that pytest calls: it has the other parameters of the function, which are fixtures."""
    wanted = list(inspect.signature(fn).parameters.values())
    if not wanted:
        raise TypeError(f"{fn.__name__} takes no parameter: write def {fn.__name__}(end): assert end.outcome == …")
    ours = inspect.Parameter("request", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    passes_request = any(p.name == "request" for p in wanted[1:])

    @functools.wraps(fn)
    def test(request: pytest.FixtureRequest, **fixtures: Any) -> None:
        __tracebackhide__ = True
        if passes_request:
            fixtures["request"] = request
        _test(asked, fn, request, fixtures)

    rest = [p for p in wanted[1:] if p.name != "request"]
    test.__signature__ = inspect.Signature([ours, *rest])  # type: ignore[attr-defined]
    return test


def _test(
    asked: CrashOptions, fn: Callable[..., Any], request: pytest.FixtureRequest, fixtures: dict[str, Any]
) -> None:
    __tracebackhide__ = True
    node, config = request.node, request.config
    jobs, only = int(option(config, "crash_jobs") or asked.jobs), str(option(config, "crash_case") or "")

    def body(end: RunEnd) -> None:
        result = fn(end, **fixtures)
        if inspect.iscoroutine(result):
            asyncio.run(result)

    def replay(name: str) -> str:
        return f"pytest {shlex.quote(node.nodeid)} --crash-case={shlex.quote(name)}"

    pairs, cases = option(config, "crash_pairs") or asked.pairs, 0 if option(config, "crash_all") else asked.cases
    cases = int(option(config, "crash_cases") or cases)

    def on_case(line: str) -> None:
        report_case(config, f"{node.nodeid}\t{line}")

    mine = CrashOptions(**{**vars(asked), "jobs": jobs, "pairs": pairs, "cases": cases, "on_case": on_case})
    wrong = ""
    try:
        report = mine.run(fn.__module__, body, only)
        config.stash.setdefault(CrashReports.key, []).append((node.nodeid, report))
        report.check(replay)
    except (OutlastError, CheckFailed) as error:
        wrong = str(error)
    if wrong:
        pytest.fail(wrong, pytrace=False)
