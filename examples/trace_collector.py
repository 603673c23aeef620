"""An OTLP/HTTP collector that prints each trace as a tree.

`python examples/trace_collector.py 4318` listens on that port. Set OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 in
your processes, and OTEL_SERVICE_NAME to see which process sent a span. Ctrl-C prints the traces. Spans are kept in
memory, so use it for development and tests only.
"""

import gzip
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

NANOS = 1_000_000_000
SHOWN = {
    "workflow.start": ("outlast.workflow",),
    "workflow.checkpoint": ("outlast.node",),
    "workflow.end": ("outlast.status",),
    "interrupt.requested": ("outlast.waits_for", "outlast.wait"),
    "interrupt.waiting": ("outlast.waits_for", "outlast.wait"),
}
"""Attributes shown beside the name of a span. Other spans show the key of the call."""


class Span(NamedTuple):
    """One span, as received."""

    trace: str
    id: str
    parent: str
    name: str
    began: float
    ended: float
    service: str
    about: dict[str, Any]

    @property
    def said(self) -> str:
        """The text of the span in the tree: name, attributes and error."""
        words = [self.name, *(str(self.about.get(each, "")) for each in SHOWN.get(self.name, ("outlast.key",)))]
        asked = ["(asked whether it had happened)"] if self.about.get("outlast.reconcile") else []
        failed = [f" ✗ {self.about['error.type']}"] if "error.type" in self.about else []
        return " ".join(filter(None, [*words, *asked, *failed]))


class Collector:
    """An HTTP server in a background thread, and the spans it has received."""

    def __init__(self, port: int = 0) -> None:
        """Start the server. Port 0 selects a free port."""
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                collector.spans.extend(spans_of(ExportTraceServiceRequest.FromString(body)))
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name http.server gives it
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server and wait for its thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def spans_of(request: ExportTraceServiceRequest) -> Iterator[Span]:
    """Yield the spans of one export request."""
    for resource in request.resource_spans:
        service = next((a.value.string_value for a in resource.resource.attributes if a.key == "service.name"), "")
        for scope in resource.scope_spans:
            for span in scope.spans:
                about = {
                    a.key: getattr(a.value, a.value.WhichOneof("value") or "string_value") for a in span.attributes
                }
                yield Span(
                    span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), span.name,
                    span.start_time_unix_nano / NANOS, span.end_time_unix_nano / NANOS, service, about,
                )  # fmt: skip


def tree(spans: Iterable[Span]) -> list[str]:
    """Return the lines of a trace: each span below its parent, by start time, with its duration and service.

    A parent that was not received gets a line with its id: it belongs to another process or was lost.
    """
    below: defaultdict[str, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda each: (each.began, each.ended)):
        below[span.parent].append(span)
    known = {span.id for children in below.values() for span in children}
    lines: list[str] = []
    for parent in [parent for parent in below if parent not in known]:
        if parent:
            lines.append(f"{parent} (sent elsewhere)")
        lines += _below(parent, below, "", top=not parent)
    return lines


def _below(parent: str, below: dict[str, list[Span]], indent: str, *, top: bool = False) -> Iterator[str]:
    children = below.get(parent, [])
    for n, span in enumerate(children, 1):
        last = n == len(children)
        said = span.said if top else f"{indent}{'└ ' if last else '├ '}{span.said}"
        yield f"{said:<76} {span.ended - span.began:7.2f}s  {span.service}"
        yield from _below(span.id, below, indent if top else indent + ("  " if last else "│ "))


def main() -> None:
    """Collect spans until Ctrl-C, then print the traces."""
    collector = Collector(int(sys.argv[1]))
    print(f"OTEL_EXPORTER_OTLP_ENDPOINT={collector.url}   Ctrl-C shows the traces", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    for trace in dict.fromkeys(span.trace for span in collector.spans):
        print(f"\ntrace {trace}")
        print("\n".join(tree(span for span in collector.spans if span.trace == trace)))
    collector.close()


if __name__ == "__main__":
    main()
