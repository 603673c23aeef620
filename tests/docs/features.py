"""The one list of what this release has and does not have. Pages print it, and `test_features.py` proves each row.

`python -m tests.docs.pages` writes it into the pages, between `<!-- features: NAME -->` and `<!-- features: end -->`.
"""

import os
import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from examples.negotiation.samples import SAMPLES
from tests.docs.pages import ROOT
from tests.docs.reasons import choices, reasons
from tests.docs.routes import routes

_BLOCK: Final = re.compile(r"(<!-- features: (?P<name>\w+) -->\n)(?P<body>.*?)(<!-- features: end -->)", re.DOTALL)
_LINK: Final = re.compile(r"(?<=\]\()(?!\w+:)([^)#]+)")


class Feature(NamedTuple):
    """Feature of this release, as the README prints it. Its proofs exist: see `test_features.py` for their kinds."""

    area: str
    text: str
    proofs: tuple[str, ...]
    words: str = ""
    """Pattern of how a page could deny it. It is not matched if a page names the feature of another product."""


class Missing(NamedTuple):
    """Feature that this release does not have: requirements without it, and names that do not exist without it."""

    text: str
    requirements: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    words: str = ""
    """Pattern of how a page could claim it."""


FEATURES: Final = (
    Feature(
        "stores",
        "SQLite with full durability, several processes on one file",
        ("outlast.store.sqlite.store.open_sqlite",),
    ),
    Feature("stores", "[PostgreSQL](docs/postgres.md), many machines", ("extra postgres",), "PostgreSQL"),
    Feature("stores", "[DynamoDB](docs/dynamodb.md), many machines and no server", ("extra dynamodb",), "DynamoDB"),
    Feature("stores", "memory, for tests", ("outlast.store.memory.MemoryStore",)),
    Feature("effects", "ledger", ("outlast effects ls",), "ledger"),
    Feature(
        "effects", "three ways to handle uncertainty", ("outlast.resend", "outlast.Happened", "outlast effects resolve")
    ),
    Feature("effects", "keys per visit, run or tenant", ("outlast.activity",)),
    Feature("effects", "retries with `Retry-After`", ("outlast.Retry", "outlast.RetryLater"), "retries"),
    Feature("effects", "[undo](docs/compensation.md) in reverse order", ("outlast.flow.Effectful.undo",), "undo|saga"),
    Feature(
        "effects", "circuit breakers and rate limits", ("outlast.RateLimit", "outlast resume"), "rate limits?|breakers?"
    ),
    Feature("effects", "transactions with your own rows in PostgreSQL or SQLite", ("outlast.store.postgres",)),
    Feature("waits", "sleep", ("outlast.Context.sleep",), "timers?"),
    Feature("waits", "signals", ("outlast.Context.receive", "POST /v1/runs/{run}/signals/{name}"), "signals?"),
    Feature(
        "waits",
        "[the first of several](docs/waiting.md#the-first-of-several)",
        ("outlast.Context.first",),
        r"`ctx\.first`|first of several",
    ),
    Feature(
        "waits",
        "[child runs](docs/children.md), cancelled and undone with their parent",
        ("outlast.Context.run", "outlast.Context.start", "outlast.Context.child", "outlast.ChildHandle.result"),
        r"child(?:ren)? (?:runs?|workflows?)|parent run",
    ),
    Feature(
        "waits",
        "[a workflow for each of 10,000 inputs](docs/children.md#run-a-workflow-for-each-of-many), a window at a time",
        ("outlast.Context.map",),
        r"`ctx\.map`",
    ),
    Feature(
        "waits",
        "[approvals](docs/approvals.md) bound to an exact call, with deadlines, quorums and editable values",
        ("outlast.Context.approval", "outlast approvals approve", "POST /v1/approvals/{approval}/decision"),
        "approvals?",
    ),
    Feature(
        "waits",
        "[policy](docs/policy.md) in Python or Cedar",
        ("outlast.flow.policy_from_file", "extra policy"),
        "policy",
    ),
    Feature(
        "waits",
        "[deadlines in business days](docs/waiting.md#business-days) with holidays",
        ("outlast.business_days", "extra calendar"),
        "business days?|holidays",
    ),
    Feature("waits", "limits that alert a person", ("outlast attention ls",)),
    Feature(
        "waits",
        "[runs without an end](docs/endless.md), with a window of their history",
        ("file docs/endless.md",),
        "runs without an end|window of (?:its|their|the) history",
    ),
    Feature(
        "agents",
        "[a loop of a model and your tools](docs/agents.md), with approvals and budgets",
        ("outlast.agent.agent_loop", "outlast.agent.propose", "outlast.Budget"),
        "(?:ready-made |built-in )?agents?(?! (?:memory|framework))|language-model",
    ),
    Feature(
        "agents",
        "[agents that call agents](docs/agents.md#agents-that-call-agents), in the background too",
        ("outlast.agent.SubAgent", "outlast.Context.ended", "outlast.ParentHandle.signal"),
        "sub-agents?|agents? (?:as tools?|that calls? agents)",
    ),
    Feature(
        "agents",
        "[typed answers](docs/agents.md#a-typed-answer), checked and asked for once more",
        ("outlast.agent.TypedAnswer",),
        "typed answers?",
    ),
    Feature(
        "agents",
        "[texts of a model while it writes](docs/client.md)",
        ("outlast.Context.stream", "outlast.RunHandle.updates"),
        "streaming|stream of tokens",
    ),
    Feature(
        "agents",
        "[pydantic-ai](docs/pydantic-ai.md) agents made durable",
        ("outlast.pydantic_ai.OutlastDurability",),
        "pydantic-ai",
    ),
    Feature("operation", "workers with leases and takeover", ("outlast worker", "outlast workers drain"), "takeover"),
    Feature("operation", "attention list and `explain`", ("outlast attention resolve", "outlast explain")),
    Feature(
        "operation",
        "[budgets](docs/budgets.md) of runs and tenants",
        ("outlast budgets set", "outlast runs raise"),
        "budgets?",
    ),
    Feature("operation", "[audit](docs/security.md#audit) over all runs", ("outlast audit ls",), "audit over"),
    Feature("operation", "pauses", ("outlast pause", "outlast pauses")),
    Feature("operation", "`check` before a deploy", ("outlast check",)),
    Feature(
        "operation",
        "`fsck`, export, backup and restore",
        ("outlast fsck", "outlast export", "outlast backup", "outlast recover"),
        "backups?",
    ),
    Feature(
        "operation",
        "[HTTP service](docs/http.md) with [authentication](docs/security.md), [webhooks](docs/webhooks.md) and "
        "[messages to approvers](docs/notifications.md)",
        ("outlast serve", "outlast.asgi", "POST /v1/webhooks", "POST /v1/notifications", "outlast token new"),
        "HTTP API|service|authentication|webhooks?|notifications?",
    ),
    Feature(
        "operation",
        "[metrics, traces and logs](docs/observability.md)",
        ("extra otel", "GET /metrics"),
        "metrics|traces|logs",
    ),
    Feature(
        "operation",
        "[web UI](docs/ui.md) with approvals, runs and what needs a person",
        ("GET /ui/", "GET /ui/approvals", "GET /ui/runs", "POST /ui/login"),
        "(?:web )?UI|web pages?|dashboard",
    ),
    Feature(
        "testing",
        "`every_crash` and fault injection for your own workflows",
        ("outlast.testing.every_crash", "outlast.testing.FaultyStore"),
    ),
    Feature(
        "testing",
        "[a linter](docs/lint.md) for keys of time or chance, I/O in nodes and forgotten awaits",
        ("outlast lint", "outlast.lint.lint_file"),
        "(?<!import-)linter",
    ),
    Feature("testing", "[results of killing every process](RELIABILITY.md)", ("file RELIABILITY.md",)),
    Feature("runtimes", "in-process", ("outlast.runtime.InProcessRuntime",)),
    Feature(
        "runtimes",
        "[LangGraph](docs/langgraph.md)",
        ("outlast.langgraph.LangGraphRuntime", "extra langgraph"),
        "LangGraph",
    ),
    Feature(
        "runtimes",
        "[a checkpointer](docs/langgraph.md) for your own LangGraph graphs",
        ("outlast.langgraph.OutlastSaver",),
        "checkpointer",
    ),
    Feature(
        "runtimes", "[Temporal](docs/temporal.md)", ("outlast.temporal.TemporalRuntime", "extra temporal"), "Temporal"
    ),
    Feature(
        "clients",
        "[Python](docs/client.md), asynchronous or not, over a store or a service",
        ("outlast.connect", "outlast.connect_sync"),
    ),
    Feature("clients", "command line", ("outlast run", "outlast runs ls"), "command line"),
    Feature(
        "examples",
        f"a purchase with four routes and {len(SAMPLES) + 1} samples (`scripts/demo --sample NAME`)",
        ("sample leverage", "sample spot", "sample bottleneck", "sample strategic"),
    ),
    Feature("examples", "[a refund in one file](examples/refund.py)", ("file examples/refund.py",)),
    Feature("examples", "[an agent that works an incident](docs/desk.md) (`--sample desk`)", ("sample desk",)),
    Feature(
        "examples",
        "[a researcher that is killed every few seconds](examples/researcher/README.md) (`--sample researcher`)",
        ("sample researcher",),
    ),
    Feature(
        "examples", "[a sale in two planes](docs/acquisition.md) (`--sample acquisition`)", ("sample acquisition",)
    ),
)
"""Rows of one area follow each other."""

MISSING: Final = (
    Missing("Schedules and cron", absent=("outlast schedules", "outlast cron"), words=r"cron jobs?"),
    Missing("Reset of a run to an earlier step; a fork is a new run", absent=("outlast runs reset",)),
    Missing(
        "Execution of 10,000 runs of one dead worker within 30 s on PostgreSQL: 31 s on two cores, claimed after 22 s",
        ("REC-4",),
    ),
    Missing("Takeover of a dead process before its lease ends", ("REC-8",)),
    Missing("Measurements with more than one machine", ("RT-6",)),
    Missing("A server of the Model Context Protocol", absent=("outlast mcp", "outlast.mcp")),
    Missing("Memory and retrieval for agents", absent=("outlast.agent.Memory", "outlast.agent.Retriever")),
)


def table() -> str:
    """Return the features as a table of areas."""
    rows = [
        f"| {area} | {'; '.join(each.text for each in found)} |"
        for area, found in groupby(FEATURES, key=lambda each: each.area)
    ]
    return "\n".join(["| | this release |", "|---|---|", *rows]) + "\n"


def missing() -> str:
    """Return what this release does not have, as a list."""
    return "".join(f"- {each.text}.\n" for each in MISSING)


PRINTED: Final[dict[str, Callable[[], str]]] = {
    "table": table,
    "missing": missing,
    "routes": routes,
    "reasons": reasons,
    "choices": choices,
}


def with_features(page: Path, text: str) -> str:
    """Return the text of a page with every block as the list is now. Links lead from the page."""

    def current(found: re.Match[str]) -> str:
        def from_page(target: re.Match[str]) -> str:
            return Path(os.path.relpath(ROOT / target[1], page.parent)).as_posix()

        return found[1] + _LINK.sub(from_page, PRINTED[found["name"]]()) + found[4]

    return _BLOCK.sub(current, text)
