"""Sample purchases, adapted to today and to a running market: `python -m examples.negotiation.samples leverage`."""

import argparse
import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

PURCHASES = Path(__file__).parent / "purchases"
MARKET = "http://127.0.0.1:7169"
"""The market's address in the sample files."""


Answer = Literal["approve", "other", "again", "reject"]
"""Decision of the approver: approve, approve the first alternative, ask for another round, or reject."""


class SampleRun(NamedTuple):
    """Parameters of a sample run: purchase, market, speed, decisions, and expected end."""

    purchase: str
    scenario: str
    rate: int
    """Seconds of business time per second while the run waits for suppliers."""
    answers: tuple[Answer, ...]
    ends: Literal["AWARDED", "FAILED", "CANCELLED", "REFUSED"]
    about: str
    times: int = 1
    """Number of concurrent requests to start the same purchase."""


SAMPLES: dict[str, SampleRun] = {
    "spot": SampleRun("spot", "spot", 60, (), "AWARDED", "chairs: one round, minutes, the best landed price"),
    "spot-threshold": SampleRun(
        "spot-threshold", "spot-threshold", 60, (), "AWARDED", "an order at the threshold needs no approval"
    ),
    "spot-twice": SampleRun("spot", "spot", 60, (), "AWARDED", "two identical purchases are one run", times=2),
    "leverage-again": SampleRun(
        "leverage", "leverage-again", 40_000, ("again", "approve"), "AWARDED", "a person asks for one more round"
    ),
    "leverage-nobody": SampleRun("leverage-nobody", "leverage-nobody", 60_000, (), "FAILED", "no supplier bids"),
    "bottleneck": SampleRun(
        "bottleneck",
        "bottleneck",
        150_000,
        ("approve",),
        "AWARDED",
        "seals: full, substitute or partial delivery",
    ),
    "bottleneck-other": SampleRun(
        "bottleneck",
        "bottleneck",
        150_000,
        ("other",),
        "AWARDED",
        "the approver chooses a partial offer",
    ),
    "bottleneck-declined": SampleRun(
        "bottleneck-declined", "bottleneck-declined", 150_000, (), "FAILED", "all decline"
    ),
    "strategic": SampleRun(
        "strategic", "strategic", 150_000, ("approve",), "AWARDED", "battery cells: negotiated for weeks"
    ),
    "strategic-withdrawn": SampleRun(
        "strategic-withdrawn",
        "strategic-withdrawn",
        150_000,
        ("approve", "approve"),
        "AWARDED",
        "the winner withdraws after the award was approved; the others are evaluated again",
    ),
    "inconsistent": SampleRun("bad", "spot", 60, (), "REFUSED", "a purchase with contradictory fields"),
}
"""Samples for `outlast demo --sample NAME`; `leverage` is the demo itself."""

PROGRAMS: tuple[str, ...] = ("acquisition", "desk", "researcher")
"""Samples that other examples play; `_program` in `demo/driver.py` imports them."""


def names() -> list[str]:
    """Return the names of all sample purchases."""
    return sorted(path.stem for path in PURCHASES.glob("*.json"))


def sample(name: str, *, market: str = MARKET, today: date | None = None) -> dict[str, Any]:
    """Return a sample as a JSON document with its mailboxes on `market`.

    If `today` is given, all dates move so that the purchase is requested today. Raises FileNotFoundError for an
    unknown name.
    """
    raw: dict[str, Any] = json.loads((PURCHASES / f"{name}.json").read_text(encoding="utf-8"))
    for candidate in raw["candidates"]:
        candidate["mailbox"] = candidate["mailbox"].replace(MARKET, market.rstrip("/"))
    if today is not None:
        ahead = today - date.fromisoformat(raw["requested_on"])
        for field in ("requested_on", "need_by"):
            raw[field] = (date.fromisoformat(raw[field]) + ahead).isoformat()
    return raw


def main() -> int:
    """Print a sample that can be used as the input of a run."""
    cli = argparse.ArgumentParser(prog="negotiation.samples", description=__doc__)
    cli.add_argument("name", choices=names())
    cli.add_argument("--market", default=MARKET, help="the market's address")
    given = cli.parse_args()
    json.dump(sample(given.name, market=given.market, today=datetime.now(UTC).date()), sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
