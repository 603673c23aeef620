"""Spans of runs: one connected trace from start to end, across processes and days.

Nothing is kept in memory to connect spans. The run's row stores the W3C context of its start, and the id of a visit's
span is computed from run and visit, so spans sent by a process that died have the right parent. Times are the store's
business time. Spans are sent only if the process has loaded OpenTelemetry's SDK.
"""

import os
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from outlast.core.keys import MODEL
from outlast.core.rows.run_rows import Run
from outlast.core.usage import Used
from outlast.telemetry.redact import redact, redact_shown

NANOS: Final = 1_000_000  # in a millisecond
SAMPLED: Final = 1
_TRACEPARENT: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
GEN_AI: Final = "gen_ai_latest_experimental"
PROVIDERS: Final[Mapping[str, str]] = {
    "azure": "azure.ai.openai", "bedrock": "aws.bedrock", "google": "gcp.gemini", "google-cloud": "gcp.vertex_ai",
    "google-gla": "gcp.gemini", "google-vertex": "gcp.vertex_ai", "grok": "x_ai", "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai", "openai-chat": "openai", "openai-responses": "openai", "xai": "x_ai",
}  # fmt: skip
"""Providers by the prefix of a model's name, if the GenAI conventions spell them in another way."""


def model_attributes(asked: str, used: Sequence[Used]) -> dict[str, str | int]:
    """Return the GenAI attributes of a call: the model it asked, written `provider:model`, and what it has used."""
    provider, colon, name = asked.partition(":")
    found: dict[str, str | int] = {"gen_ai.request.model": name if colon else asked} if asked else {}
    if colon and provider:
        found["gen_ai.provider.name"] = PROVIDERS.get(provider, provider)
    if answered := next((each.model for each in reversed(used) if each.model), ""):
        found["gen_ai.response.model"] = answered.partition(":")[2] or answered
    for direction, tokens in (
        ("input", sum(each.input_tokens for each in used)),
        ("output", sum(each.output_tokens for each in used)),
    ):
        if tokens:
            found[f"gen_ai.usage.{direction}_tokens"] = tokens
    return found


class Parent(NamedTuple):
    """Ids and flags of a parent span."""

    trace: int
    span: int
    flags: int


def traceparent(parent: Parent) -> str:
    """Return the W3C form, as stored in the run's row."""
    return f"00-{parent.trace:032x}-{parent.span:016x}-{parent.flags:02x}"


def parent_of(text: str) -> Parent | None:
    """Parse a W3C traceparent. Returns None for any other text."""
    found = _TRACEPARENT.fullmatch(text)
    if found is None or not int(found[1], 16) or not int(found[2], 16):
        return None
    return Parent(int(found[1], 16), int(found[2], 16), int(found[3], 16) & SAMPLED)


def _number(size: int, *parts: object) -> int:
    """Return an id that every process computes alike."""
    made = sha256("\0".join(map(str, parts)).encode()).digest()[:size]
    return int.from_bytes(made) or 1


def visit_span(run: Run, visit: int) -> int:
    """Return the span id of a visit. It is known before the visit ends, and to every worker that takes the run over."""
    return _number(8, "visit", run.tenant, run.run, visit)


def lineage(run: Run) -> dict[str, str]:
    """Return the attribute that names the ancestor of a fork; empty for other runs.

    It is no link, because the row of a fork does not have the trace of its ancestor.
    """
    return {"outlast.forked_from": run.forked_from} if run.forked_from else {}


class _Ids:
    """Id generator that returns preset ids once, and otherwise those of the original generator."""

    def __init__(self, before: Any) -> None:
        self.before = before
        self._next = threading.local()

    def use_next(self, trace: int, span: int) -> None:
        self._next.trace, self._next.span = trace, span

    def generate_trace_id(self) -> int:
        trace, self._next.trace = getattr(self._next, "trace", 0), 0
        return trace or int(self.before.generate_trace_id())

    def generate_span_id(self) -> int:
        span, self._next.span = getattr(self._next, "span", 0), 0
        return span or int(self.before.generate_span_id())

    def is_trace_id_random(self) -> bool:
        return False


class _Held(NamedTuple):
    run: Run
    root: Parent


class Traces:
    """The spans of one process."""

    def __init__(self, tracer: Any, api: Any) -> None:
        self._tracer = tracer
        self._api = api
        if not isinstance(tracer.id_generator, _Ids):
            tracer.id_generator = _Ids(tracer.id_generator)
        self._ids: _Ids = tracer.id_generator
        self._runs: dict[tuple[str, str], _Held] = {}
        self._gen_ai = GEN_AI in os.environ.get("OTEL_SEMCONV_STABILITY_OPT_IN", "").split(",")

    @classmethod
    def wanted(cls) -> "Traces | None":
        """Return the spans of this process if it has loaded and configured OpenTelemetry's SDK."""
        sdk = sys.modules.get("opentelemetry.sdk.trace")
        if sdk is None:
            return None
        api = import_module("opentelemetry.trace")
        provider = api.get_tracer_provider()
        tracer = provider.get_tracer("outlast") if isinstance(provider, sdk.TracerProvider) else None
        return cls(tracer, api) if isinstance(tracer, sdk.Tracer) else None

    # --- the start -----------------------------------------------------------------------------
    def start(self, *, workflow: str, tenant: str, run: str, trace_id: str) -> "StartSpan":
        """Open the span of a start, as child of the current span unless `trace_id` names another trace."""
        given = parent_of(trace_id)
        here = self._api.get_current_span().get_span_context().trace_id
        context = self._under(given) if given and given.trace != here else None
        if _TRACE_ID.fullmatch(trace_id):
            self._ids.use_next(int(trace_id, 16), 0)
            context = self._api.set_span_in_context(self._api.INVALID_SPAN)
        span = self._tracer.start_span("workflow.start", context=context, attributes=self._about(workflow, tenant, run))
        self._ids.use_next(0, 0)
        made = span.get_span_context()
        keep = trace_id if trace_id and given is None and not _TRACE_ID.fullmatch(trace_id) else ""
        return StartSpan(
            span, keep or traceparent(Parent(made.trace_id, made.span_id, int(made.trace_flags) & SAMPLED))
        )

    def _about(self, workflow: str, tenant: str, run: str) -> dict[str, Any]:
        about: dict[str, Any] = {"outlast.workflow": workflow, "outlast.tenant": tenant, "outlast.run": run}
        if self._gen_ai:
            about |= {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": workflow}
        return about

    def _root(self, run: Run) -> Parent:
        """Return the parent of every span of a run: the start's span, or one made from its ids if none was sent.

        All runs of a tree have the trace of their root.
        """
        stored = parent_of(run.trace_id)
        if stored is not None:
            return stored
        given = int(run.trace_id, 16) if _TRACE_ID.fullmatch(run.trace_id) else 0
        trace = given or _number(16, "run", run.tenant, run.root or run.run)
        decided = self._tracer.sampler.should_sample(None, trace, "workflow.start")
        return Parent(trace, _number(8, "start", run.tenant, run.run), SAMPLED if decided.decision.is_sampled() else 0)

    # --- holders --------------------------------------------------------------------
    def held(self, run: Run) -> None:
        """Record the start of a holder. The first one sends the start's span if the caller could not."""
        root = self._root(run)
        self._runs[run.tenant, run.run] = _Held(run, root)
        if run.epoch == 1 and parent_of(run.trace_id) is None:
            self._ids.use_next(root.trace, root.span)
            at = run.created_at * NANOS
            above = root._replace(span=_number(8, "start", run.tenant, run.parent)) if run.parent else None
            context = self._under(above) if above else self._api.set_span_in_context(self._api.INVALID_SPAN)
            about = self._about(run.workflow, run.tenant, run.run) | lineage(run)
            span = self._tracer.start_span("workflow.start", context=context, attributes=about, start_time=at)
            self._ids.use_next(0, 0)
            span.end(at)

    def let_go(self, key: tuple[str, str]) -> None:
        """Record that the holder of this run has ended."""
        self._runs.pop(key, None)

    def entered(self, run: Run) -> None:
        """Set the visit that further calls belong to."""
        held = self._runs.get((run.tenant, run.run))
        if held is not None:
            self._runs[run.tenant, run.run] = held._replace(run=run)

    def checkpoint(self, run: Run, at: int, *, next_: str) -> None:
        """Send the span of a visit, from entry to checkpoint. `run` is the row during that visit."""
        about = {"outlast.node": run.node, "outlast.visit": run.visit, "outlast.next": next_}
        self._past(
            "workflow.checkpoint", run, self._root(run), run.entered_at, at, about, span=visit_span(run, run.visit)
        )

    def end(self, run: Run, at: int, status: str) -> None:
        """Send the spans of the last visit and of the run's end."""
        self.checkpoint(run, at, next_="")
        about = {"outlast.status": status, "outlast.node": run.node}
        self._past("workflow.end", run, self._root(run), at, at, about)

    def asked_person(self, run: Run, kind: str, what: str, at: int) -> None:
        """Send a span of no duration when a person is asked: a tracer sees the wait before it ends."""
        attributes = {"outlast.waits_for": kind, "outlast.wait": redact(what), "outlast.node": run.node}
        self._past("interrupt.requested", run, self._root(run), at, at, attributes)

    def waited(self, run: Run, kind: str, what: str, since: int, until: int, about: Mapping[str, str]) -> None:
        """Send the span of a wait over its whole duration, across all processes that took part."""
        attributes = {"outlast.waits_for": kind, "outlast.wait": redact(what), "outlast.node": run.node, **about}
        self._past("interrupt.waiting", run, self._root(run), since, until, attributes)

    def _past(
        self, name: str, run: Run, parent: Parent, since: int, until: int, about: Mapping[str, Any], *, span: int = 0
    ) -> None:
        attributes = {
            "outlast.workflow": run.workflow,
            "outlast.tenant": run.tenant,
            "outlast.run": run.run,
            **lineage(run),
            **about,
        }
        self._ids.use_next(0, span)
        context = self._under(parent)
        made = self._tracer.start_span(name, context=context, attributes=attributes, start_time=since * NANOS)
        self._ids.use_next(0, 0)
        made.end(max(since, until) * NANOS)

    def _under(self, parent: Parent) -> Any:
        api = self._api
        flags = api.TraceFlags(parent.flags)
        context = api.SpanContext(parent.trace, parent.span, is_remote=True, trace_flags=flags)
        return api.set_span_in_context(api.NonRecordingSpan(context))

    # --- calls ---------------------------------------------------------------------------------
    @contextmanager
    def call(
        self,
        tenant: str,
        run: str,
        name: str,
        key: str,
        attempt: int,
        *,
        model: bool,
        asks: bool,
        tool_call: str = "",
        secrets: Callable[[], Collection[str]] = tuple,
    ) -> Iterator[Any]:
        """Open the span of one attempt of a call, current while the author's code runs.

        `model` marks a durable lookup. `asks` marks a question about an earlier attempt. `tool_call` is the id that a
        model gave the call.
        """
        held = self._runs.get((tenant, run))
        if held is None:
            yield None
            return
        about: dict[str, Any] = {
            "outlast.activity": name,
            "outlast.key": redact(key),
            "outlast.attempt": attempt,
            "outlast.run": run,
            "outlast.workflow": held.run.workflow,
            **lineage(held.run),
        }
        if asks:
            about["outlast.reconcile"] = True
        if name == MODEL or (self._gen_ai and model):
            about["gen_ai.operation.name"] = "chat"
        elif self._gen_ai or tool_call:
            about |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        if tool_call:
            about["gen_ai.tool.call.id"] = redact(tool_call)
        parent = Parent(held.root.trace, visit_span(held.run, held.run.visit), held.root.flags)
        title = "activity.retry" if attempt > 1 and not asks else f"activity.{name}"
        kind = self._api.SpanKind.CLIENT
        span = self._tracer.start_span(title, context=self._under(parent), kind=kind, attributes=about)
        try:
            with self._api.use_span(span, record_exception=False, set_status_on_exception=False):
                yield span
        except BaseException as error:  # recorded in the span, and raised again
            self.failed(span, error, secrets())
            raise
        finally:
            span.end()

    def asked(self, span: Any, model: str, used: Sequence[Used]) -> None:
        """Record the model that a call asked, and what the call has used."""
        for name, value in model_attributes(model, used).items():
            span.set_attribute(name, value)

    def judged(self, span: Any, outcome: Any) -> None:
        """Record the outcome of an attempt of an effect. An outcome other than an answer has a code."""
        code = getattr(outcome, "code", "")
        span.set_attribute("outlast.outcome", type(outcome).__name__.lower())
        if code:
            span.set_attribute("error.type", code)
            span.set_status(self._api.Status(self._api.StatusCode.ERROR, redact_shown(outcome.detail)[:500]))

    def failed(self, span: Any, error: BaseException, secrets: Collection[str] = ()) -> None:
        """Record the type and the redacted message of an error."""
        text = redact_shown(f"{type(error).__name__}: {error}", secrets)[:500]
        span.set_attribute("error.type", type(error).__name__)
        span.set_status(self._api.Status(self._api.StatusCode.ERROR, text))


class StartSpan(NamedTuple):
    """The open span of a start, and the trace that the run's row stores."""

    span: Any
    trace_id: str

    def landed(self) -> None:
        """End the span: the run was created."""
        self.span.end()


def _without_secrets(_: Any, span: Any, parent_context: Any = None) -> None:
    """Redact addresses that libraries put into a new span: they may contain keys (S29)."""
    for name, value in (span.attributes or {}).items():
        if name.startswith(("url.", "http.", "db.")) and isinstance(value, str) and (clean := redact(value)) != value:
            span.set_attribute(name, clean)


def configure_traces() -> None:
    """Send spans as the OTEL_… variables say. Without them, nothing is sent.

    Needs the extra `otel`. OTEL_TRACES_EXPORTER may be `otlp` (the default if an endpoint is set), `console` or `none`.
    """
    exporter = os.environ.get("OTEL_TRACES_EXPORTER", "")
    endpoint = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    exporter = exporter or ("otlp" if endpoint else "none")
    if exporter not in ("otlp", "console") or find_spec("opentelemetry.sdk") is None:
        return
    os.environ.setdefault("OTEL_SERVICE_NAME", "outlast")
    api, sdk = import_module("opentelemetry.trace"), import_module("opentelemetry.sdk.trace")
    if isinstance(api.get_tracer_provider(), sdk.TracerProvider):
        return  # the application has configured its own
    export = import_module("opentelemetry.sdk.trace.export")
    if exporter == "console":
        processor = export.SimpleSpanProcessor(export.ConsoleSpanExporter(out=sys.stderr))
    else:
        otlp = import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
        processor = export.BatchSpanProcessor(otlp.OTLPSpanExporter())
    provider = sdk.TracerProvider()
    provider.add_span_processor(type("RedactingProcessor", (sdk.SpanProcessor,), {"on_start": _without_secrets})())
    provider.add_span_processor(processor)
    api.set_tracer_provider(provider)
