"""Pictures of each page with the data of the review: `python -m tests.ui.review.pictures FOLDER [--against OTHER]`.

Each page is shown at three widths, in both themes and with two fonts. `--against` compares them with the pictures of
an earlier state and exits 1 if one differs.
"""

import base64
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
from playwright.sync_api import Browser, Page, expect

from tests.browsers import HINT, browser, executable
from tests.service.conftest import Running
from tests.ui.review.flows import ALL
from tests.ui.review.store import SHARES, Filled, filled

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


def paths(found: Filled) -> dict[str, str]:
    """Return the addresses of the pages by the names of their pictures."""
    run, agent, long, parallel = (
        f"/ui/runs/{each}" for each in (found.failed, found.agent, found.long, found.parallel)
    )
    return {
        "board": "/ui/", "runs": "/ui/runs", "approvals": "/ui/approvals",
        "approval": f"/ui/approvals/{found.approval}",
        "run": run, "agent": agent, "graph": long, "parallel": parallel, "timeline": f"{parallel}/timeline",
        "events": f"{parallel}/events", "calls": f"{parallel}/effects", "uncertain": f"/ui/runs/{found.uncertain}",
        "effects": "/ui/effects", "workflow": "/ui/workflows/order-fulfilment", "workers": "/ui/workers",
    }  # fmt: skip


def shown(chromium: Browser, url: str, found: Filled, only: str) -> Iterator[tuple[str, Page]]:
    """Yield each page with the name of its picture."""
    for width, height in WIDTHS.items():
        for scheme in SCHEMES:
            size: Any = {"width": width, "height": height}
            page = chromium.new_page(viewport=size, color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
            for name, path in paths(found).items():
                if only and only != name:
                    continue
                page.goto(url + path)
                expect(page.locator("#live-state")).not_to_have_text("connecting")
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
    with tempfile.TemporaryDirectory() as stored, Running(f"sqlite:{stored}/outlast.db", ALL) as service:
        found = filled(service, size)
        click.echo(f"{time.monotonic() - began:.0f} s to fill the store")
        with browser() as chromium:
            compare = chromium.new_page()
            for name, page in shown(chromium, service.url, found, only):
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
