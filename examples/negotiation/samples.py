"""The sample purchases, moved to today and to a running market: `python -m examples.negotiation.samples leverage`."""

import argparse
import hashlib
import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

PURCHASES = Path(__file__).parent / "purchases"
MARKET = "http://127.0.0.1:7169"
"""The market's address in the sample files."""


Answer = Literal["approve", "other", "again", "reject"]
"""What the person says: yes · yes, but to the first alternative · no, and once more · no."""


class Story(NamedTuple):
    """Script of a sample: its purchase, market, speed, decisions and expected end."""

    purchase: str
    scenario: str
    rate: int
    """Seconds of business time in a second, while suppliers are waited for."""
    answers: tuple[Answer, ...]
    ends: Literal["COMPLETED", "FAILED", "CANCELLED", "REFUSED"]
    about: str
    times: int = 1
    """How often the same purchase is asked for at once."""


STORIES: dict[str, Story] = {
    "spot": Story("spot", "spot", 60, (), "COMPLETED", "chairs: one round, minutes, the best landed price"),
    "spot-threshold": Story(
        "spot-threshold", "spot-threshold", 60, (), "COMPLETED", "an order of exactly the threshold needs no approval"
    ),
    "spot-twice": Story("spot", "spot", 60, (), "COMPLETED", "two identical purchases at once are one run", times=2),
    "leverage-again": Story(
        "leverage", "leverage-again", 40_000, ("again", "approve"), "COMPLETED", "a person asks for one more round"
    ),
    "leverage-nobody": Story("leverage-nobody", "leverage-nobody", 60_000, (), "FAILED", "nobody bids"),
    "bottleneck": Story(
        "bottleneck", "bottleneck", 150_000, ("approve",), "COMPLETED", "seals: all of it, the like, or a part"
    ),
    "bottleneck-other": Story(
        "bottleneck", "bottleneck", 150_000, ("other",), "COMPLETED", "the approver chooses the part over the like"
    ),
    "bottleneck-declined": Story("bottleneck-declined", "bottleneck-declined", 150_000, (), "FAILED", "all decline"),
    "strategic": Story(
        "strategic", "strategic", 150_000, ("approve",), "COMPLETED", "battery cells: haggled over for weeks"
    ),
    "strategic-withdrawn": Story(
        "strategic-withdrawn",
        "strategic-withdrawn",
        150_000,
        ("approve", "approve"),
        "COMPLETED",
        "the winner withdraws after the award was approved; the others are evaluated again",
    ),
    "inconsistent": Story("bad", "spot", 60, (), "REFUSED", "a purchase that contradicts itself"),
}
"""What `outlast demo --sample NAME` plays; `leverage` is the demo itself."""


def start_key(purchase: dict[str, Any]) -> str:
    """Return the identity of a purchase: category, items and deadline (node 1's key)."""
    same = json.dumps([purchase["category"], purchase["items"], purchase["need_by"]], sort_keys=True)
    return hashlib.sha256(same.encode()).hexdigest()[:32]


def names() -> list[str]:
    """Return the names of all samples."""
    return sorted(path.stem for path in PURCHASES.glob("*.json"))


def sample(name: str, *, market: str = MARKET, today: date | None = None) -> dict[str, Any]:
    """Return a sample as a JSON document with mailboxes on `market`. `today`: move its dates to a request of today.

    Raises FileNotFoundError for an unknown name.
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
    """Prints a sample, ready to start a run from."""
    cli = argparse.ArgumentParser(prog="negotiation.samples", description=__doc__)
    cli.add_argument("name", choices=names())
    cli.add_argument("--market", default=MARKET, help="the market's address")
    given = cli.parse_args()
    json.dump(sample(given.name, market=given.market, today=datetime.now(UTC).date()), sys.stdout, indent=2)
    print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
