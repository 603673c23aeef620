"""Every list, page and command that reads a store: their answers before and after rows of other runs were spoilt."""

import asyncio
import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import chdir
from typing import Any, Final, NamedTuple

import httpx2
from click.testing import CliRunner

import outlast
from outlast.cli import cli
from outlast.models.effects import effect_id
from outlast.runtime.stores import open_store
from outlast.upkeep.fsck import Fsck

READ_S: Final = 30
NAMED: Final = re.compile(r"\bok-[a-z]+")
FAULTS: Final = ("OUT-900", "Traceback", "bug in Outlast")
"""Words of an answer that blames Outlast for a stored value."""
STREAMS: Final = ("/v1/events", "/v1/runs/{run}/events")
FILTERS: Final = {
    "/v1/runs": ["attention=true", "q=o", "status=waiting", "status=queued", "status=completed",
                 "waiting_for=approval", "waiting_for=signal", "workflow=goods"],
    "/v1/approvals": ["status=pending", "overdue=true", "person=ana"],
    "/v1/attention": ["reason=effect_uncertain", "assigned_to=none"],
    "/v1/effects": ["status=uncertain", "status=done", "activity=order"],
}  # fmt: skip


class Answer(NamedTuple):
    """Answer to one read: its status or exit code, and its text."""

    status: int
    text: str

    def json(self) -> Any:
        """Return its JSON."""
        return json.loads(self.text)

    def named(self) -> frozenset[str]:
        """Return the healthy runs that it names."""
        return frozenset(NAMED.findall(self.text))


Answers = dict[str, Answer]


def addresses(paths: Iterator[str], ids: dict[str, str]) -> Iterator[str]:
    """Return each path with these ids in place of its parameters."""
    for path in paths:
        names = re.findall(r"{(\w+)[^}]*}", path)
        if all(name in ids for name in names):
            yield re.sub(r"{(\w+)[^}]*}", lambda found: ids[found[1]], path)


def _page(route: Any) -> str:
    """Return the path of a page of the UI; '' for another route."""
    path = getattr(route, "path", "")
    return path if path.startswith("/ui") and "GET" in (getattr(route, "methods", None) or ()) else ""


class Site:
    """The service and its pages over a store, in this process and without a worker."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.runner = asyncio.Runner()
        self.runner.run(self._open())

    async def _open(self) -> None:
        self.store = await open_store(self._url)
        app = outlast.asgi(self.store, [])
        local = httpx2.ASGITransport(app=app, client=("127.0.0.1", 1))
        self.client = httpx2.AsyncClient(transport=local, base_url="http://127.0.0.1")
        document = (await self.client.get("/openapi.json")).json()
        self.paths = [path for path, methods in document["paths"].items() if "get" in methods]
        self.pages = [
            path for path in map(_page, app.routes) if path and not re.search("live|login|static|schema", path)
        ]
        approvals = (await self.client.get("/v1/approvals")).json()["approvals"]
        hook = (await self.client.get("/v1/webhooks")).json()["webhooks"][0]["webhook"]
        self.approvals = {row["run"]: row["approval"] for row in approvals}
        self.shared = {"webhook": hook, "name": "goods"}

    def close(self) -> None:
        """Close the store."""
        self.runner.run(self.client.aclose())
        self.runner.run(self.store.close())
        self.runner.close()

    def ids(self, run: str) -> dict[str, str]:
        """Return the ids of a run's parts."""
        approval = {"approval": self.approvals[run]} if run in self.approvals else {}
        number = {"number": "1", "part": "request"}
        return {"run": run, "effect": effect_id(run, 1, f"order/{run}"), **approval, **number, **self.shared}

    def lists(self) -> list[str]:
        """Return the addresses that name no run."""
        plain = [each for each in (*self.paths, *self.pages) if each not in STREAMS]
        whole = list(addresses(iter(plain), self.shared))
        return [*whole, *(f"{path}?{query}" for path, queries in FILTERS.items() for query in queries)]

    def of_run(self, run: str) -> list[str]:
        """Return the addresses that name a run, or a part of one."""
        plain = [each for each in (*self.paths, *self.pages) if "{" in each]
        return [
            each
            for each in addresses(iter(plain), self.ids(run))
            if run in each or self.approvals.get(run, "?") in each
        ]

    def read(self, addresses: list[str]) -> Answers:
        """Return the answer of each address."""
        return self.runner.run(self._read(addresses))

    async def _read(self, addresses: list[str]) -> Answers:
        answers: Answers = {}
        for each in addresses:
            accept = "text/html" if each.startswith("/ui") else "application/json"
            async with asyncio.timeout(READ_S):
                answer = await self.client.get(each, headers={"Accept": accept})
            answers[each] = Answer(answer.status_code, answer.text)
        return answers

    def fsck(self) -> list[str]:
        """Return the keys of what fsck finds."""
        report = self.runner.run(Fsck(self.store, chain=True).look())
        return [f"{f.check} {f.kind} {f.key} {f.text}" for f in report.findings]


LISTS: Final = (
    "runs ls", "runs ls --attention", "runs ls --waiting-for approval", "runs ls --search o", "approvals ls",
    "approvals ls --all", "approvals ls --overdue", "attention ls", "effects ls", "effects ls --uncertain", "status",
    "workers ls", "versions ls", "budgets ls", "pauses", "webhooks ls", "notify ls", "doctor",
)  # fmt: skip
OF_RUN: Final = (
    "runs show", "runs effects", "runs results", "runs steps", "runs timeline", "runs events", "explain", "export",
    "effects ls --run", "input", "attention show",
)  # fmt: skip


def command(url: str, words: str, *, as_json: bool = False) -> Answer:
    """Return what a command prints."""
    given = {"OUTLAST_STORE": url, "COLUMNS": "200"}
    with chdir(tempfile.gettempdir()):  # because each command would parse the project's pyproject.toml
        found = CliRunner().invoke(cli, [*(["-o", "json"] if as_json else []), *words.split()], env=given)
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return Answer(found.exit_code, found.stdout + found.stderr)


def commands(url: str, words: tuple[str, ...], run: str = "") -> Answers:
    """Return what these commands print, as text and as JSON."""
    lines = [f"{each} {run}".strip() for each in words]
    return {
        f"{line}{' json' * as_json}": command(url, line, as_json=as_json) for line in lines for as_json in (False, True)
    }
