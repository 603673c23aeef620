"""One agent of 1,000 steps whose transcript grows to 2 MB: bytes and time of a step, early and late."""

import asyncio
import random
import time
from itertools import pairwise

from bench.engines import Setup
from bench.figures import Figures, Goal, Size, percentile
from bench.serving import ACTOR, TENANT, opened, served, until_let_go
from bench.usage import usage
from outlast import lookup
from outlast.agent import AgentState, ModelAnswer, ModelRequest, ScriptedModel, ToolCall, agent_workflow
from outlast.core.rows.effect_rows import MEMO
from outlast.core.rows.run_rows import EVENT, STATE_CHUNK
from outlast.engine import commands
from outlast.engine.snapshots import state_of_rows

STORES = ("sqlite",)
REPEATS = 1
RESULT_CHARS = 1_600
ANSWER_CHARS = 200
MEGA = 1_000_000
GOALS = (
    Goal("transcript_mb", "MB", digits=2),
    Goal("times_transcript", "× transcript", gate=5, digits=2),
    Goal("kept_mb", "MB", digits=2),
    Goal("snapshots_mb", "MB", digits=2),
    Goal("chunks_mb", "MB", digits=2),
    Goal("memos_mb", "MB", digits=2),
    Goal("written_kb", "KB/step", digits=1),
    Goal("first_ms", "ms", digits=1),
    Goal("last_ms", "ms", digits=1),
    Goal("cpu_ms", "ms CPU/step", digits=1),
)

steps = 1_000
asked_at: list[float] = []


@lookup
async def read(n: int) -> str:
    """Return some text that compresses to half."""
    return random.Random(n).randbytes(RESULT_CHARS // 2).hex()


def answer(request: ModelRequest) -> ModelAnswer | str:
    """Ask for one page after the other."""
    asked_at.append(time.monotonic())
    n = len(asked_at)
    if n > steps:
        return "done"
    words = random.Random(-n).randbytes(ANSWER_CHARS // 2).hex()
    return ModelAnswer(text=words, calls=(ToolCall(id=f"c{n}", tool="read", arguments={"n": n}),))


reader = agent_workflow("bench-agent", model=ScriptedModel(answer), tools=[read], max_steps=5_000)


def measure(size: Size, setup: Setup) -> Figures:
    """Let the agent work to its end in this process."""
    global steps
    steps = size.of(1_000, 200, 3)
    asked_at.clear()
    with setup.engine.place() as place:
        figures = asyncio.run(_work(place.url))
        figures["kept_mb"] = setup.engine.kept(place) / MEGA
    figures["times_transcript"] = figures["kept_mb"] / figures["transcript_mb"]
    return figures


async def _work(url: str) -> Figures:
    async with opened(url) as store:
        given = {"objective": "read all pages"}
        await commands.start(store, reader, given, tenant=TENANT, actor=ACTOR, run="agent")
        before = usage()
        async with served(store, reader) as serving:
            await until_let_go(serving, store, "completed", 1)
        took = usage().minus(before)
        key = (TENANT, "agent")
        (rows,) = await store.run_rows([key])
        assert rows is not None
        state = AgentState.model_validate_json(await state_of_rows(store, rows))
        events = await store.rows(EVENT, key, limit=100_000)
        chunks = await store.rows(STATE_CHUNK, key, limit=100_000)
        memos = await store.rows(MEMO, key, limit=100_000)
    spans = [(b - a) * 1_000 for a, b in pairwise(asked_at)]
    tenth = max(1, len(spans) // 10)
    return {
        "transcript_mb": len(state.model_dump_json()) / MEGA,
        "snapshots_mb": sum(len(event.snapshot or b"") for event in events) / MEGA,
        "chunks_mb": sum(len(chunk.body) for chunk in chunks) / MEGA,
        "memos_mb": sum(len(memo.response or b"") for memo in memos) / MEGA,
        "written_kb": took.written / steps / 1_000,
        "first_ms": percentile(spans[:tenth], 0.5),
        "last_ms": percentile(spans[-tenth:], 0.5),
        "cpu_ms": took.cpu_s / steps * 1_000,
    }
