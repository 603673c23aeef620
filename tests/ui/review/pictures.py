"""Pictures of each page with the data of the review: `python -m tests.ui.review.pictures FOLDER [--against OTHER]`.

Each page is shown at three widths, in both themes and with two fonts. `--against` compares them with the pictures of
an earlier state and exits 1 if one differs.
"""

import base64
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
from playwright.sync_api import Browser, Page, expect
from pydantic import SecretStr

from outlast.clocks import SystemClock
from outlast.core.addresses import AddressPolicy
from outlast.service.identity import AuthSettings, authenticator, new_token
from tests.browsers import HINT, browser, executable
from tests.service.conftest import Running, Service
from tests.ui.review.flows import ALL
from tests.ui.review.store import SHARES, Filled, filled
from tests.ui.test_axe import THREAD, forked

WIDTHS: Final = {360: 780, 900: 900, 1440: 900}
SCHEMES: Final = ("light", "dark")
FONTS: Final = {"noto": "Noto Sans", "dejavu": "DejaVu Sans"}
"""Fonts of different widths, as Debian's packages fonts-noto-core and fonts-dejavu have them."""
DIFFERS: Final = """async ([one, other]) => {
    const pixels = async data => {
        const image = new Image();
        image.src = "data:image/png;base64," + data;
        await image.decode();
        const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
        context.drawImage(image, 0, 0);
        return context.getImageData(0, 0, image.width, image.height);
    };
    const [a, b] = [await pixels(one), await pixels(other)];
    if (a.width !== b.width || a.height !== b.height) return 1;
    let differing = 0;
    for (let i = 0; i < a.data.length; i += 4)
        if ([0, 1, 2].some(k => Math.abs(a.data[i + k] - b.data[i + k]) > 16)) differing++;
    return differing / (a.width * a.height);
}"""
"""Script that returns the share of pixels that differ between two pictures."""
SHARE_MAX: Final = 0.02
"""Dates, ids and the order of concurrent calls differ between two sets."""


PAGES: Final[dict[str, dict[str, str]]] = {
    "/ui/": {"board": ""},
    "/ui/answers": {"answer": "?reason=exception&choice=continue&cause={cause}"},
    "/ui/answers/{run}": {"answered": "/ui/answers/{job}"},
    "/ui/approvals": {
        "approvals": "", "approvals-all": "?show=all", "approvals-none": "?show=undecided&text=nothing-like-this",
    },
    "/ui/approvals/{approval}": {"approval": "", "approval-decided": "/ui/approvals/{decided}"},
    "/ui/audit": {"audit": ""},
    "/ui/budgets": {"budgets": ""},
    "/ui/attention/{reason}": {"attention": "/ui/attention/exception", "attention-uncertain": ""},
    "/ui/causes/{cause}": {"cause": ""},
    "/ui/deliveries": {"deliveries": ""},
    "/ui/doctor": {"doctor": ""},
    "/ui/effects": {"effects": ""},
    "/ui/effects/{effect}": {"effect": ""},
    "/ui/keys": {"keys": ""},
    "/ui/login": {"sign-in": ""},
    "/ui/metrics": {"metrics": ""},
    "/ui/metrics/decisions": {"metrics-decisions": ""},
    "/ui/metrics/durations": {"metrics-durations": "?workflow=order-fulfilment"},
    "/ui/metrics/workers": {"metrics-workers": ""},
    "/ui/prompts": {"prompts": ""},
    "/ui/prompts/{prompt}": {"prompt": ""},
    "/ui/runs": {
        "runs": "", "runs-found": "?q=status:completed+workflow:order-fulfilment", "runs-none": "?q=nothing-like-this",
        "runs-refused": "?q=status:wrong",
    },
    "/ui/runs/{run}": {
        "run": "", "agent": "/ui/runs/{agent}", "graph": "/ui/runs/{long}", "parallel": "/ui/runs/{parallel}",
        "uncertain": "/ui/runs/{uncertain}", "run-done": "/ui/runs/{done}",
    },
    "/ui/runs/{run}/actions": {"actions": ""},
    "/ui/runs/{run}/checkpoints": {"checkpoints": "/ui/runs/{long}/checkpoints"},
    "/ui/runs/{run}/compare": {
        "compare-offers": "", "compare": "?other={done}", "compare-all": "?other={done}&every=yes",
    },
    "/ui/runs/{run}/data": {"data": "", "data-done": "/ui/runs/{done}/data"},
    "/ui/runs/{run}/effects": {"calls": "/ui/runs/{parallel}/effects"},
    "/ui/runs/{run}/events": {"events": "/ui/runs/{parallel}/events"},
    "/ui/runs/{run}/fork": {"fork-points": "", "fork": "/ui/runs/{done}/fork?from=1"},
    "/ui/runs/{run}/overview": {"overview": "", "overview-long": "/ui/runs/{long}/overview"},
    "/ui/runs/{run}/people": {"people": "/ui/runs/{approved}/people"},
    "/ui/runs/{run}/results": {"results": "/ui/runs/{parallel}/results"},
    "/ui/runs/{run}/signals/{name}": {"signal": "/ui/runs/{long}/signals/go-on"},
    "/ui/runs/{run}/state": {"state": "/ui/runs/{done}/state?checkpoint=1"},
    "/ui/runs/{run}/steps": {"step": "/ui/runs/{agent}/steps?step={step}"},
    "/ui/runs/{run}/timeline": {
        "timeline": "/ui/runs/{parallel}/timeline", "timeline-agent": "/ui/runs/{agent}/timeline",
    },
    "/ui/thread": {"thread": "?thread={thread}"},
    "/ui/threads": {"threads": ""},
    "/ui/tools": {"tools": ""},
    "/ui/tools/calls": {"tool-calls": ""},
    "/ui/usage": {"usage": ""},
    "/ui/webhooks": {"webhooks": ""},
    "/ui/webhooks/{webhook}": {"webhook": ""},
    "/ui/workers": {"workers": ""},
    "/ui/workflows": {"workflows": ""},
    "/ui/workflows/{name}": {"workflow": "/ui/workflows/order-fulfilment"},
}  # fmt: skip
"""Names of the pictures of each route. An address that begins with `?` or is empty continues that of the route."""
WITHOUT_ROUTE: Final = {"error": "/ui/nothing", "error-run": "/ui/runs/nothing"}
"""Pages of errors."""
LEFT_OUT: Final = {
    "/ui/effects/{effect}/{part}": "JSON", "/ui/live": "a stream", "/ui/login/callback": "redirects",
    "/ui/login/issuer": "redirects", "/ui/nav": "a part of each page", "/ui/runs/{run}/events/{number}": "JSON",
    "/ui/runs/{run}/export": "a file", "/ui/runs/{run}/fork/state": "JSON",
    "/ui/runs/{run}/head": "a part of the pages of a run", "/ui/runs/{run}/input": "JSON",
    "/ui/runs/{run}/outcome": "JSON", "/ui/runs/{run}/results/{number}": "JSON", "/ui/runs/{run}/state.json": "JSON",
    "/ui/runs/{run}/step": "JSON", "/ui/runs/{run}/steps.json": "JSON", "/ui/runs/{run}/visits/{number}": "redirects",
    "/ui/static/{digest}/{name}": "files", "/ui/workflows/{name}/schema": "JSON",
}  # fmt: skip
"""Routes without a picture, and why."""


class Urls(NamedTuple):
    """Addresses of a service that is filled, and of one that asks for a token."""

    service: str
    sign_in: str


def paths(objects: Mapping[str, str]) -> dict[str, str]:
    """Return the addresses of the pages by the names of their pictures."""
    found = {
        name: (address if address.startswith("/") else route + address)
        for route, names in PAGES.items()
        for name, address in names.items()
    } | WITHOUT_ROUTE
    return {name: address.format_map(objects) for name, address in found.items()}


def objects_of(service: Service, found: Filled) -> dict[str, str]:
    """Return the objects that pages show by their names in the addresses of `PAGES`. Some are made here."""
    service.state.reach = AddressPolicy.of(private=True, plain=True)
    hook = service.post("/v1/webhooks", {"url": "http://127.0.0.1:9/outlast", "name": "ledger"}).json()
    asked = service.get("/v1/approvals?status=pending").json()["approvals"][-1]
    tag = service.get(f"/v1/approvals/{asked['approval']}").headers["etag"]
    service.decide(asked["approval"], tag)
    service.ended(asked["run"])
    causes = service.get("/v1/causes").json()["causes"]
    least = min((each for each in causes if each["reason"] == "exception"), key=lambda each: each["runs"])
    wish = {"attention": "exception", "choice": "cancel", "reason": "ordered again", "cause": least["cause"]}
    job = service.post("/v1/bulk-answers", wish).json()["run"]
    service.ended(job)
    service.call(forked(service.state.store))
    (prompt, *_) = [each["prompt"] for each in service.get("/v1/prompts").json()["uses"] if each["prompt"]]
    (effect,) = service.get(f"/v1/runs/{found.uncertain}/effects").json()["effects"]
    done = service.get("/v1/runs?status=completed&workflow=order-fulfilment").json()["runs"][0]["run"]
    steps = service.get(f"/v1/runs/{found.agent}/steps").json()["steps"]
    cause = max(causes, key=lambda each: each["runs"])["cause"]
    return {
        **{name: str(value) for name, value in found._asdict().items()}, "run": found.failed, "done": done,
        "decided": asked["approval"], "approved": asked["run"], "job": job, "cause": cause, "prompt": prompt,
        "effect": effect["id"], "webhook": hook["webhook"], "thread": THREAD, "reason": "effect_uncertain",
        "step": next(each["id"] for each in steps if each["model"]),
    }  # fmt: skip


def shown(chromium: Browser, urls: Urls, addresses: Mapping[str, str], only: str) -> Iterator[tuple[str, Page]]:
    """Yield each page with the name of its picture."""
    for width, height in WIDTHS.items():
        for scheme in SCHEMES:
            size: Any = {"width": width, "height": height}
            page = chromium.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
            for name, path in addresses.items():
                if only and only != name:
                    continue
                page.goto((urls.sign_in if name == "sign-in" else urls.service) + path)
                if (state := page.locator("#live-state")).count():
                    expect(state).not_to_have_text("connecting")
                for font, family in FONTS.items():
                    page.evaluate("family => { document.body.style.fontFamily = family; }", family)
                    yield f"{name}-{width}-{scheme}-{font}", page
            page.close()


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--against", type=click.Path(exists=True, file_okay=False, path_type=Path), help="Pictures to compare with."
)
@click.option("--only", default="", help="Name of one page.")
@click.option("--size", type=click.Choice(list(SHARES)), default="whole", help="Number of runs [whole].")
def main(folder: Path, against: Path | None, only: str, size: str) -> None:
    """Write a picture of each page to FOLDER."""
    if executable() is None:
        raise click.ClickException(f"no Chromium: {HINT}")
    folder.mkdir(parents=True, exist_ok=True)
    began, changed = time.monotonic(), 0
    with ExitStack() as stack:
        stored = stack.enter_context(tempfile.TemporaryDirectory())
        service = stack.enter_context(Running(f"sqlite:{stored}/outlast.db", ALL))
        _, line = new_token("ana", tenant="default", roles=["viewer"], person=True)
        who = authenticator(AuthSettings(tokens=SecretStr(line)), SystemClock())
        closed = stack.enter_context(Running(f"sqlite:{stored}/closed.db", authenticator=who, worker=False))
        addresses = paths(objects_of(service, filled(service, size)))
        click.echo(f"{time.monotonic() - began:.0f} s to fill the store")
        chromium = stack.enter_context(browser())
        compare = chromium.new_page()
        for name, page in shown(chromium, Urls(service.url, closed.url), addresses, only):
            data = page.screenshot(path=folder / f"{name}.png")
            changed += against is not None and _changed(compare, against / f"{name}.png", data)
    click.echo(f"{time.monotonic() - began:.0f} s, {len(list(folder.glob('*.png')))} pictures, {changed} differ")
    sys.exit(1 if changed else 0)


def _changed(compare: Page, former: Path, data: bytes) -> bool:
    """Return True, and say so, if a picture differs from that of the earlier state."""
    if not former.exists():
        return False
    pair = [base64.b64encode(each).decode() for each in (former.read_bytes(), data)]
    share = float(compare.evaluate(DIFFERS, pair))
    if share > SHARE_MAX:
        click.echo(f"{former.stem}: {share:.1%} differs")
    return share > SHARE_MAX


if __name__ == "__main__":
    main()
