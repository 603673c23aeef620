"""The workflow of the researcher: survey the site, plan with a model, collect one list of entries at a time.

Each visit is one checkpoint. The state has a cursor and counters; records leave it as results.
"""

from typing import Any, Literal, TypeVar

from outlast import Context, Fail, Failures, Refused, Workflow
from outlast.flow.outcomes import Refusal

from .fetching import AGENT, PACES, read_robots, reader_for
from .planning import plan_next
from .records import Conclusion, Page, Question, Research
from .robots import Robots, parse

HOPS_MAX = 4
AT_ONCE = 16
REFUSED_MAX = 10
"""Refused proposals after which the run fails."""
R = TypeVar("R", bound=Research)
LISTS_MAX = 200
"""Lists of one topic: a hostile site could chain them without end."""


def conclusion_of(state: Research) -> Conclusion:
    """Return the outcome of a run from its last state."""
    return Conclusion(topics_read=state.topics_read, conclusion=state.conclusion)


research = Workflow(
    "research",
    state=Research,
    input=Question,
    outcome=conclusion_of,
    # Half of the pages unread: the source is broken. Fewer, and no record on the others: there was nothing.
    fails_if=Failures(0.5, at_least=3, of=[read_robots, *PACES.values()]),
    when_empty="complete",
)


@research.node(start=True, status="SURVEYING")
async def survey(ctx: Context[Research]) -> Literal["plan"]:
    """Read the rules and the front page of the site. Without them there is no source, and the run fails."""
    await survey_site(ctx)
    return "plan"


@research.node(status="PLANNING", max_visits=200)
async def plan(ctx: Context[Research]) -> Literal["collect", "plan"] | None:
    """Let the model choose the next topic."""
    state, robots = ctx.state, await robots_of(ctx)
    may_read = {t.title: t.path for t in state.topics if t.title not in state.topics_read and robots.allows(t.path)}
    choice = await plan_next(ctx, may_read)
    if choice.conclusion:
        state.conclusion = choice.conclusion[:1_000]
        return None
    if choice.topic:
        state.topic, state.cursor, state.why = choice.topic, may_read[choice.topic], choice.why
        state.lists = 0
        return "collect"
    ctx.log("refused", "; ".join(choice.refused)[:1_000])
    state.refused += choice.refused
    if len(state.refused) > REFUSED_MAX:
        raise Fail(f"the model proposes nothing that can be done: {state.refused[-1]}")
    return "plan"


@research.node(status="COLLECTING", max_visits=10_000)
async def collect(ctx: Context[Research]) -> Literal["collect", "plan"]:
    """Read one list of entries and their pages, and emit a record for each page that has one."""
    state, robots = ctx.state, await robots_of(ctx)
    listed = (await _read(ctx, [state.cursor])).get(state.cursor)
    if listed is None:
        ctx.log("list", f"a list of {state.topic} cannot be read", path=state.cursor)
    if listed and not state.lists:
        ctx.log(
            "topic", f"{state.topic}: {listed.count} entries ({state.why})", topic=state.topic, entries=listed.count
        )
    seen: set[str] = set()
    todo = listed.entries if listed else []
    for _ in range(HOPS_MAX):
        todo = [path for path in dict.fromkeys(todo) if path not in seen and robots.allows(path)]
        seen.update(todo)
        pages = await _read(ctx, todo)
        for path, page in pages.items():
            if page.record:
                await ctx.emit(page.record, key=path)
        todo = [page.moved_to for page in pages.values() if page.moved_to]
    state.lists += 1
    state.cursor = listed.more if listed and state.lists < LISTS_MAX and robots.allows(listed.more) else ""
    if state.cursor:
        return "collect"
    state.topics_read.append(state.topic)
    return "plan"


async def survey_site(ctx: Context[R]) -> None:
    """Read the rules and the front page of the site into the state. Raises Fail if the site may not be read."""
    try:
        robots = await robots_of(ctx)
        reader = reader_for(robots.delay)
        if reader is None:
            raise Fail(f"the site asks for {robots.delay:g} s between requests, which would take too long")
        if not robots.allows("/"):
            raise Fail("the site does not want to be read by programs")
        front: Page = await ctx.do(reader, ctx.state.site, "/")
    except Refused as broken:
        raise Fail(f"the site cannot be read: {broken.code}") from None
    ctx.state.delay = robots.delay
    ctx.state.topics = front.topics


async def robots_of(ctx: Context[R]) -> Robots:
    """Return the rules of the site. The ledger has their text, so this asks the site once."""
    return parse(await ctx.do(read_robots, ctx.state.site), AGENT)


async def _read(ctx: Context[Research], paths: list[str]) -> dict[str, Page]:
    """Return the pages that could be read, by address. The others are refusals in the ledger, which are counted."""
    reader = reader_for(ctx.state.delay)
    plans: dict[str, Any] = {path: reader.plan(ctx.state.site, path) for path in paths}
    answers = await ctx.do_all(plans, at_most=AT_ONCE, refused="return")
    return {path: page for path, page in answers.items() if not isinstance(page, Refusal)}
