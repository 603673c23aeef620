"""On every page: axe-core finds no violation in both themes, nothing scrolls sideways, each command exists."""

import asyncio
import html
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect
from pydantic import SecretStr

from outlast.cli.root import cli
from outlast.clocks import SystemClock
from outlast.core.addresses import AddressPolicy
from outlast.runtime.graph_threads import GraphThreads
from outlast.runtime.webhooks import new_dispatcher
from outlast.service.identity import AuthSettings, authenticator, new_token
from outlast.store.port import Store
from outlast.ui.app import pages
from tests.ui.conftest import Running, Service
from tests.ui.test_installation import Receiver
from tests.ui.test_threads import put

NO_PAGES = re.compile(
    r"/ui/(static/.*|nav|live|login.*|effects/\{effect\}/\{part\}|workflows/\{name\}/schema"
    r"|runs/\{run\}/(events/.*|results/.*|visits/.*|step|input|outcome|fork/state|export|.*\.json))"
)
"""Routes that answer with a part of a page, a document or a redirect, and the sign-in, which has its own test."""
THREAD = "customer-" + "0123456789" * 12
NEWEST = "1f0cc9a5-8f3e-6d2a-8001-c0ffee5eed00"
NARROW = (360, 640)  # a phone, and a window of 1,280 pixels at a zoom of 200 %
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")


@pytest.fixture(scope="module")
def samples(service: Service) -> Iterator[dict[str, list[str]]]:
    """Objects that fill every page, by the name of their parameter in the path of a route."""
    service.state.reach = reach = AddressPolicy.of(private=True, plain=True)
    sender = new_dispatcher(service.state.store, reach=reach)
    sending = asyncio.run_coroutine_threadsafe(sender.run(), service.loop)
    with Receiver(400) as receiver:
        url = f"http://127.0.0.1:{receiver.server_port}/hook"
        hook = service.post("/v1/webhooks", {"url": url, "name": "ledger"}).json()["webhook"]
        ended = service.start("job", rounds=3)
        service.ended(ended)
        for n in range(10):
            service.post("/v1/views", {"name": f"view {n}", "query": f"status:waiting since:{n + 1}d"})
        approval, _ = service.asked()
        waiting = service.get(f"/v1/approvals/{approval}").json()["run"]
        wish = service.start("wish", text="?")
        flagged = [service.start("call", order=order) for order in ("A-1", "broken")]
        for run in flagged:
            service.flagged(run)
        decided, tag = service.asked(service.start(order_id="A-18", cents=9900))
        service.decide(decided, tag)
        asyncio.run_coroutine_threadsafe(forked(service.state.store), service.loop).result(30)
        asked = {"attention": "exception", "choice": "continue", "reason": "the line works", "workflow": "call"}
        job = service.post("/v1/bulk-answers", asked).json()["run"]
        service.ended(job)
        service.flagged(flagged[1])  # it raises again
        (effect,) = service.get(f"/v1/runs/{flagged[0]}/effects").json()["effects"]
        service.until(f"/v1/webhooks/{hook}/deliveries?status=dead", lambda body: body["deliveries"])
        service.loop.call_soon_threadsafe(sender.drain)
        sending.result(30)
        yield {
            "": [""],
            "/ui/runs/{run}/signals/{name}": [f"/ui/runs/{wish}/signals/said"],
            "/ui/runs/{run}/fork": [f"/ui/runs/{each}/fork{at}" for each in (ended, wish) for at in ("", "?from=1")],
            "/ui/runs/{run}/steps": [f"/ui/runs/{ended}/steps?step=start/1"],
            "/ui/answers/{run}": [f"/ui/answers/{job}"],
            "cause": [each["cause"] for each in service.get("/v1/causes").json()["causes"]][:2],
            "/ui/thread": [f"/ui/thread?thread={THREAD}"],
            "run": [flagged[0], flagged[1], waiting, wish, ended],
            "approval": [approval, decided],
            "effect": [effect["id"]],
            "prompt": [each["prompt"] for each in service.get("/v1/prompts").json()["uses"] if each["prompt"]][:2],
            "webhook": [hook],
            "name": ["refund"],
            "reason": ["effect_uncertain", "exception"],
        }
        receiver.shutdown()


async def forked(store: Store) -> None:
    """Put checkpoints with long names on two branches of a thread, and one of a subgraph."""
    threads = GraphThreads(store, "default")
    for name, parent, ns in (
        (NEWEST, "", ""),
        (f"{NEWEST}1", NEWEST, ""),
        (f"{NEWEST}2", NEWEST, ""),
        ("s", "", "a:1"),
    ):
        await put(threads, THREAD, name, parent, ns, text="channel_" * 9, branches=True)


def addresses(samples: dict[str, list[str]]) -> Iterator[str]:
    """Yield an address of every page, and several of those whose content depends on the state of their object."""
    for route in pages():
        path, methods = getattr(route, "path", ""), getattr(route, "methods", ())
        if "GET" not in methods or NO_PAGES.fullmatch(path):
            continue
        if path in samples:
            yield from samples[path]
            continue
        (name, *others) = [*re.findall(r"\{(\w+)\}", path), ""]
        assert len(others) < 2, path
        whole = path.endswith(("}", "/actions", "/timeline"))
        yield from (path.format(**{name: each}) for each in samples[name][: None if whole else 1])


def complaints(page: Page, where: str) -> Iterator[str]:
    """Yield violations on the open page in both themes, and the width of the page if it scrolls sideways."""
    page.evaluate(Axe().axe_script)
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    for scheme, only in (
        ("light", {"type": "tag", "values": RULES}),
        ("dark", {"type": "rule", "values": ["color-contrast"]}),
    ):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        # Read into the page once, because axe-core is 0.5 MB: `Axe.run` reads it each time.
        found: Any = page.evaluate("only => axe.run({resultTypes: ['violations'], runOnly: only})", only)
        for each in found["violations"]:
            nodes = [(node["target"], node["any"][0]["message"] if node["any"] else "") for node in each["nodes"]]
            yield f"{where} {scheme}: {each['id']}: {each['help']} {nodes[:3]}"
    for width in NARROW:
        page.set_viewport_size({"width": width, "height": 900})
        if (wide := page.evaluate("document.documentElement.scrollWidth")) > width:
            yield f"{where} is {wide} pixels wide at {width}: {page.evaluate(WIDEST)}"
    page.set_viewport_size({"width": 900, "height": 900})


PARTS = 4
"""The pages take a minute, and three on a busy machine: a test that takes that long is ended as one that hangs."""
WIDEST = """[...document.querySelectorAll("main *, header *")].filter(
    each => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest(".wide, .top nav, .chips, .graph"))
    .slice(0, 3).map(each => each.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("part", range(PARTS))
def test_no_page_violates_a_rule(
    service: Service, samples: dict[str, list[str]], open_page: Callable[..., Page], part: int
) -> None:
    page, found = open_page(reduced_motion="reduce", expects="404.*/ui/nothing|409.*/fork"), []
    for address in [*dict.fromkeys([*addresses(samples), "/ui/nothing"])][part::PARTS]:
        page.goto(service.url + address)
        if page.locator("#live-state[data-state=connecting]").count():
            expect(page.locator("#live-state")).to_have_text(re.compile("live|ended"))
        found += complaints(page, address)
        assert page.evaluate("document.getAnimations().length") == 0, address
    assert not found, "\n".join(found)


SEND_STALE = """button => {
    const form = button.form, version = form.elements.version;
    form.noValidate = true;
    if (version) version.value = "999";
    for (const box of document.querySelectorAll("input[name=run]")) box.checked = true;
    button.click();
}"""


def test_no_page_of_a_sent_form_violates_a_rule(
    service: Service, samples: dict[str, list[str]], open_page: Callable[..., Page]
) -> None:
    """Forms that are refused, because they are empty or about a former version, and the preview of an action."""
    page, found = open_page(reduced_motion="reduce", expects="status of 4(09|22)"), []
    for address, button in (
        (f"/ui/approvals/{samples['approval'][0]}", "#reject"),
        (f"/ui/effects/{samples['effect'][0]}", "#give-up"),
        (f"/ui/webhooks/{samples['webhook'][0]}", "#rotate"),
        (f"/ui/runs/{samples['run'][1]}", "button[name=choice]"),
        ("/ui/", "button[name=choice]"),
        ("/ui/workflows/refund", "#start-send"),
        ("/ui/runs", "#many-cancel"),
    ):
        page.goto(service.url + address)
        expect(page.locator(button).first).to_be_enabled()  # those of a decision, after a second
        with page.expect_navigation():
            page.locator(button).first.evaluate(SEND_STALE)
        if button != "#many-cancel":
            expect(page.locator("main [role=alert]").first, address).to_be_visible()
        found += complaints(page, f"form of {address}")
    assert not found, "\n".join(found)


def test_the_sign_in_violates_no_rule(tmp_path: Path, open_page: Callable[..., Page]) -> None:
    _, line = new_token("ana", tenant="default", roles=["viewer"], person=True)
    who = authenticator(AuthSettings(tokens=SecretStr(line)), SystemClock())
    with Running(f"sqlite:{tmp_path / 'outlast.db'}", authenticator=who, worker=False) as running:
        page = open_page()
        page.goto(f"{running.url}/ui/runs")
        expect(page.locator("#credential")).to_be_focused()
        assert list(complaints(page, "/ui/login")) == []


PLACEHOLDER = re.compile(r"…|\b[A-Z]{2,}\b")


def test_each_command_on_a_page_is_one_of_the_command_line(service: Service, samples: dict[str, list[str]]) -> None:
    shown = {
        " ".join(html.unescape(re.sub("<[^>]*>", "", each)).split()): address
        for address in dict.fromkeys(addresses(samples))
        for each in re.findall(r'<p class="command"><code>(.*?)</code>', service.get(address).text)
    }
    assert len({each.split()[1] for each in shown}) >= 12, shown
    wrong = []
    for command, address in shown.items():
        name, *words = [PLACEHOLDER.sub("1", each.replace("FILE", os.devnull)) for each in shlex.split(command)]
        assert name == "outlast", (address, command)
        try:
            parse(cli, words)
        except click.UsageError as error:
            wrong.append(f"{address} shows {command!r}: {error.format_message()}")
    assert not wrong, "\n".join(wrong)


def parse(command: click.Command, words: list[str], parent: click.Context | None = None) -> None:
    """Parse the words of a command and execute nothing. Raises UsageError."""
    with command.make_context(command.name, words, parent) as context:  # it closes the files that it opened
        if isinstance(command, click.Group):
            _, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
            assert found is not None
            parse(found, rest, context)
