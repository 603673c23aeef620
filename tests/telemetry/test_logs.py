"""Log lines at start, checkpoint and end, with the ids of the run and without secrets (OBS-3, S29)."""

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Literal

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Tracer
from pydantic import BaseModel

from outlast.cli.text import inert
from outlast.core.rows.all_kinds import KINDS
from outlast.flow import Context, Refused, Workflow, activity, lookup, role
from outlast.telemetry import Counters, Observer
from outlast.telemetry.logs import RunLog, SentenceFormatter, configure_logs, json_formatter
from outlast.telemetry.redact import GONE, SHOWN_CHARS_MAX, redact, redacted
from outlast.telemetry.traces import Traces, parent_of
from tests.engine.world import Go, World, one_node
from tests.mutants import remove
from tests.removals import replace

CANARIES = {
    "key": "sk-canary1234567890abcdef",
    "header": "Authorization: Bearer canary.token-abcdef123456",
    "dsn": "postgres://app:canary-pass@db.internal:5432/outlast",
    "password": 'password="canary-word"',
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJjYW5hcnkifQ.canarysignature",
    "webhook": "whsec_Y2FuYXJ5Y2FuYXJ5",
    "json": '{"api_key": "canary-json-value"}',
    "pem": "-----BEGIN PRIVATE KEY-----\ncanary\n-----END PRIVATE KEY-----",
}
MARKS = ("canary",)
LONG = "x" * 1_000_000


class Lines(io.StringIO):
    def isatty(self) -> bool:
        return False

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Collect the JSON lines of this process."""
    logger, stream = logging.getLogger("outlast"), Lines()
    before = (list(logger.handlers), logger.level)
    logger.handlers = []
    configure_logs(stream, lambda text: text)
    yield stream
    logger.handlers, logger.level = before[0], before[1]
    logging.getLogger("outlast").manager._clear_cache()  # type: ignore[attr-defined]


def two_nodes(act: Any, what: str = "a1") -> Workflow[Any]:
    flow = Workflow("logged", state=Go)

    @flow.node(start=True)
    async def first(ctx: Context[Go]) -> Literal["second"]:
        await ctx.do(act, what)
        return "second"

    @flow.node
    async def second(ctx: Context[Go]) -> None:
        pass

    return flow.validate()


class Login(BaseModel):
    password: str


def _with_password(body: Any) -> Workflow[Any]:
    flow = Workflow("breaks-login", state=Login)

    @flow.node(start=True)
    async def only(ctx: Context[Login]) -> None:
        await body(ctx)

    return flow.validate()


def world_rows(world: World) -> str:
    """Return every row of the store as text."""
    return "".join(str(row) for kind in KINDS for row in world.core.rows.under(kind, ()))


def played(watch: Observer, act: Any, what: str = "a1") -> World:
    async def body(world: World) -> None:
        flow = two_nodes(act, what)
        process = world.worker(flow)
        worker = process.worker
        worker._executors.services = worker._claims._services = worker._services._replace(watch=watch)
        worker._services.caller._traces = watch.traces
        await world.start(flow)

    world = World()
    asyncio.run(world.live(lambda: body(world)))
    return world


@activity(key="act/{name}", no_undo="nothing to undo")
async def fine(name: str) -> str:
    return name


@activity(key="act/{name}", no_undo="nothing to undo")
async def leaks(name: str) -> str:
    raise ValueError(" ".join(CANARIES.values()))


@pytest.mark.req("OBS-3")
def test_a_run_is_logged_at_start_checkpoint_and_end_with_its_ids(lines: Lines) -> None:
    played(Observer(Counters(), None, RunLog.wanted()), fine)
    said = [line for line in lines.all() if line["logger"] == "outlast.run"]
    assert [line["event"] for line in said] == ["workflow.start", "workflow.checkpoint", "workflow.end"]
    for line in said:
        assert line["tenant"] == "t" and line["run_id"] == "r1" and line["correlation_id"] == "r1"
        assert "trace_id" in line and line["level"] == "info" and line["timestamp"].endswith("Z")
    assert said[1]["completed"] == "first" and said[1]["next"] == "second" and said[2]["status"] == "completed"


@pytest.mark.req("OBS-3")
def test_a_process_without_logging_builds_no_lines() -> None:
    logging.getLogger("outlast").setLevel(logging.WARNING)
    assert RunLog.wanted() is None


@pytest.fixture
def redacted_chars(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of all texts that are redacted."""
    found: list[int] = []

    def redacted_text(text: str, known: Any = ()) -> str:
        found.append(len(text))
        return redact(text, known)

    replace(monkeypatch, redact, redacted_text)
    return found


@pytest.mark.req("OBS-3")
@pytest.mark.parametrize("as_json", [True, False])
def test_a_long_text_of_an_author_is_cut_before_it_is_redacted(as_json: bool, redacted_chars: list[int]) -> None:
    """1 MB in an exception, and its traceback that repeats it, blocked the service for 5 s."""
    try:
        raise ValueError(f"token=canary {LONG} its end")
    except ValueError as error:
        given = (type(error), error, error.__traceback__)
    record = logging.LogRecord("outlast.service", logging.ERROR, "f.py", 1, "it raised %s", (given[1],), given)
    line = (json_formatter() if as_json else SentenceFormatter(lambda text: text)).format(record)
    assert redacted_chars and max(redacted_chars) <= SHOWN_CHARS_MAX + 100
    assert len(line) < 4 * SHOWN_CHARS_MAX and "characters left out" in line and "its end" in line
    assert "canary" not in line


@pytest.mark.req("OBS-3")
def test_a_long_error_of_a_call_or_node_is_cut_before_it_is_redacted(redacted_chars: list[int]) -> None:
    """It blocked the worker, and delayed the renewal of its lease."""

    @activity(key="act/{name}", no_undo="nothing to undo")
    async def act(name: str) -> str:
        raise ValueError(LONG)

    @lookup
    async def look(name: str) -> str:
        raise KeyError(LONG)

    async def body(ctx: Context[Go]) -> None:
        with contextlib.suppress(KeyError):
            await ctx.do(look, "a")
        raise LookupError(LONG)

    world = played(Observer(Counters(), None, RunLog.wanted()), act)
    assert world.reasons() == ["effect_uncertain"]
    other = World()

    async def raised() -> None:
        flow = one_node(body)
        other.worker(flow)
        await other.start(flow)

    asyncio.run(other.live(raised))
    (entry,) = other.attention()
    assert entry.reason == "exception" and entry.detail.startswith("LookupError: xxx") and len(entry.detail) < 10_000
    assert redacted_chars and max(redacted_chars) <= SHOWN_CHARS_MAX + 100


@pytest.mark.req("OBS-3")
@pytest.mark.parametrize("canary", CANARIES.values(), ids=CANARIES)
def test_secrets_are_removed_from_texts(canary: str) -> None:
    said = redact(f"the call failed: {canary} (attempt 2)")
    assert not [mark for mark in MARKS if mark in said] and GONE in said and said.endswith("(attempt 2)")
    assert redact(said) == said, "once is enough"


@pytest.mark.parametrize(
    "harmless",
    [
        "run neg_7f3a: task-list, risk-based, disk-usage", "sk-1", "https://example.com/a:b@c/d", "tokens used: many",
        "the basics of authorization", "r1 act/sku-4711", "postgres://db/outlast",
    ],
)  # fmt: skip
def test_harmless_texts_are_kept(harmless: str) -> None:
    assert redact(harmless) in (harmless, "tokens used: [redacted]")


def test_fields_with_the_name_of_a_secret_are_removed() -> None:
    told = redacted({"user": "ana", "password": "plain", "deep": [{"api_key": "plain", "n": 1}]})
    assert told == {"user": "ana", "password": GONE, "deep": [{"api_key": GONE, "n": 1}]}


def traced() -> tuple[InMemorySpanExporter, Traces, Tracer]:
    """Return an exporter in memory, the spans, and the tracer."""
    memory = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("outlast")
    return memory, Traces(tracer, trace), tracer


@pytest.mark.req("OBS-1", "OBS-3")
def test_canaries_reach_neither_logs_nor_spans(lines: Lines) -> None:
    """The engine logs the exception of an activity with its traceback, and records it in the call's span."""
    memory, traces, _ = traced()
    world = played(Observer(Counters(), traces, RunLog.wanted()), leaks)
    logging.getLogger("outlast.engine").warning("as logged: %s", " ".join(CANARIES.values()))
    try:
        raise ValueError(CANARIES["dsn"])
    except ValueError:
        logging.getLogger("outlast.engine").exception("with a traceback")
    assert world.reasons() == ["effect_uncertain"]
    stored = world_rows(world)
    assert "canary" not in stored and GONE in stored, "what is stored is shown: attention, history, export, fsck"
    spans = [span.to_json() for span in memory.get_finished_spans()]
    assert any("activity.leaks" in span for span in spans)
    everything = lines.getvalue() + "".join(spans)
    assert "canary" not in everything and GONE in everything


@activity(key="quotes/{user}", no_undo="nothing to undo")
async def quotes(user: str, password: str) -> str:
    raise ValueError(f"no {user}/{password} here")


@pytest.mark.req("OBS-1", "OBS-3")
def test_a_secret_argument_is_not_repeated_by_the_error_of_the_call(lines: Lines) -> None:
    """The argument is passed by position, without a name. It is neither in the ledger nor in the span."""
    memory, traces, tracer = traced()

    async def body(world: World) -> None:
        async def calls(ctx: Context[Any]) -> None:
            await ctx.do(quotes, "ana", "plain-canary-77AQ")

        flow = one_node(calls, name="quotes")
        worker = world.worker(flow).worker
        worker._services.caller._traces = traces
        await world.start(flow)
        assert world.reasons() == ["effect_uncertain"]
        assert "canary" not in str(world.attention()) and f"no ana/{GONE} here" in str(world.attention())

    world = World()
    asyncio.run(world.live(lambda: body(world)))
    assert "canary" not in lines.getvalue()
    span = tracer.start_span("failed")
    traces.failed(span, ValueError(f"{' '.join(CANARIES.values())} plain-canary-77AQ"), ["plain-canary-77AQ"])
    span.end()
    for said in memory.get_finished_spans():
        assert "canary" not in said.to_json()
    assert GONE in memory.get_finished_spans()[-1].to_json()


@pytest.mark.req("OBS-3")
def test_a_refused_lookup_stores_no_secret() -> None:
    @lookup
    async def ask(name: str) -> str:
        raise Refused("denied", " ".join(CANARIES.values()))

    async def body(world: World) -> None:
        async def asks(ctx: Context[Any]) -> None:
            with contextlib.suppress(Refused):
                await ctx.do(ask, "ana")

        flow = one_node(asks, name="asks")
        world.worker(flow)
        await world.start(flow)
        assert world.status() == "completed"
        assert "canary" not in world_rows(world) and GONE in world_rows(world)

    world = World()
    asyncio.run(world.live(lambda: body(world)))


def test_a_sentence_has_no_secret_and_no_control_sequence() -> None:
    record = logging.LogRecord("outlast.run", logging.INFO, "", 0, "as \x1b[2J%s", (CANARIES["dsn"],), None)
    record.outlast = {"event": "x", "run_id": "r1", "note": f"\x1b]0;{CANARIES['key']}"}
    said = SentenceFormatter(inert).format(record)
    assert "canary" not in said and said.count(GONE) == 2 and "run_id=r1" in said
    assert "\x1b" not in said


@pytest.mark.req("OBS-1")
def test_attention_is_seen_in_the_tracer_while_it_waits() -> None:
    """No one has answered, so no `interrupt.waiting` was sent. The reason of the wait was: once, as a span."""
    memory, traces, _ = traced()
    world = played(Observer(Counters(), traces, None), leaks)
    (entry,) = world.run().attention
    spans = memory.get_finished_spans()
    assert [span.name for span in spans if span.name == "interrupt.waiting"] == []
    (asked,) = [span for span in spans if span.name == "interrupt.requested"]
    assert asked.attributes is not None and asked.start_time == entry.since * 1_000_000
    shown = [asked.attributes[f"outlast.{name}"] for name in ("waits_for", "wait", "node")]
    assert shown == ["attention", entry.reason.value, world.run().node]


@pytest.mark.req("OBS-1", "OBS-3")
def test_a_secret_in_a_key_or_in_a_wait_is_in_no_span() -> None:
    memory, traces, _ = traced()
    world = played(Observer(Counters(), traces, None), fine, CANARIES["key"])
    traces.waited(world.run(), "signal", f"said/{CANARIES['key']}", 1, 2, {})
    spans = [span.to_json() for span in memory.get_finished_spans()]
    for name in ("activity.fine", "interrupt.waiting"):
        (told,) = [span for span in spans if f'"{name}"' in span]
        assert GONE in told and "canary" not in told, told


@pytest.mark.req("OBS-3")
@pytest.mark.parametrize("where", ["arguments", "approval", "state"])
def test_values_of_secret_fields_of_the_run_are_removed_from_errors(where: str, lines: Lines) -> None:
    """The value is an argument of an effect, part of a plan that was shown to an approver, or part of the state."""
    secret = "plain-canary-77AQ"

    @activity(name="told-secret", key="told/{user}", no_undo="nothing to undo")
    async def log_in(user: str, password: str) -> str:
        return "in"

    async def body(world: World) -> None:
        async def breaks(ctx: Context[Any]) -> None:
            plan = log_in.plan("ana", secret)
            if where == "arguments":
                await ctx.do(plan)
            elif where == "approval":
                await ctx.approval(plan, summary="log in", by=role("boss"), within=timedelta(hours=1))
            raise RuntimeError(f"cannot go on as ana/{secret}")

        flow = one_node(breaks, name="breaks-told")
        if where == "state":
            flow = _with_password(breaks)
        world.worker(flow)
        await world.start(flow, **({"password": secret} if where == "state" else {}))
        if where == "approval":
            await world.decide(world.pending())
        assert world.reasons() == ["exception"]
        assert secret not in str(world.attention()) and GONE in str(world.attention())

    world = World()
    asyncio.run(world.live(lambda: body(world)))
    assert secret not in lines.getvalue()


@pytest.mark.req("OBS-3")
def test_an_unexpected_exception_is_stored_without_secrets(lines: Lines) -> None:
    async def body(world: World) -> None:
        async def breaks(ctx: Context[Any]) -> None:
            raise RuntimeError(" ".join(CANARIES.values()))

        flow = one_node(breaks, name="breaks")
        world.worker(flow)
        await world.start(flow)
        assert world.reasons() == ["exception"]
        assert "canary" not in world_rows(world) and GONE in world_rows(world)

    world = World()
    asyncio.run(world.live(lambda: body(world)))
    assert "canary" not in lines.getvalue()


def test_each_line_is_one_json_object_even_with_control_characters() -> None:
    record = logging.LogRecord("outlast.engine", 30, "f", 1, "said %s", ("a\nb\x1b[31mred \u202e",), None)
    line = json_formatter().format(record)
    assert "\n" not in line and "\x1b" not in line and "\u202e" not in line
    assert json.loads(line)["event"] == "said a\nb\x1b[31mred \u202e"


@pytest.mark.req("RUN-4", "OBS-1")
@pytest.mark.parametrize("given", ["", "a" * 32, f"00-{'b' * 32}-{'c' * 16}-01", "ticket-17"])
def test_the_trace_of_the_starting_call_is_kept(given: str) -> None:
    memory, traces, _ = traced()
    begun = traces.start(workflow="w", tenant="t", run="r1", trace_id=given)
    begun.landed()
    kept = parent_of(begun.trace_id)
    if given == "ticket-17":
        assert begun.trace_id == given and kept is None, "an id that is no W3C id stays what it is"
        return
    (span,) = memory.get_finished_spans()
    assert kept is not None and kept.span == span.context.span_id and kept.trace == span.context.trace_id
    if given:
        assert f"{kept.trace:032x}" == given.removeprefix("00-")[:32]
    assert (span.parent is not None) == given.startswith("00-")


@pytest.mark.req("OBS-3")
@pytest.mark.parametrize("guarded", [True, False])
def test_without_the_cut_a_long_text_is_redacted_whole(
    monkeypatch: pytest.MonkeyPatch, redacted_chars: list[int], guarded: bool
) -> None:
    if not guarded:
        remove("long_texts_redacted_whole", monkeypatch)
    record = logging.LogRecord("outlast.service", logging.ERROR, "f.py", 1, "it raised %s", (LONG,), None)
    SentenceFormatter(lambda text: text).format(record)
    assert (max(redacted_chars) < 2 * SHOWN_CHARS_MAX) is guarded
