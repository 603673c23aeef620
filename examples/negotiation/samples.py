"""The sample purchases, moved to today and to a running market: `python -m examples.negotiation.samples leverage`."""

import argparse
import json
import sys
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

PURCHASES = Path(__file__).parent / "purchases"
MARKET = "http://127.0.0.1:7169"
"""The market's address in the sample files."""


def names() -> list[str]:
    """The samples there are."""
    return sorted(path.stem for path in PURCHASES.glob("*.json"))


def sample(name: str, *, market: str = MARKET, today: date | None = None) -> dict[str, Any]:
    """A sample as a JSON document: mailboxes on `market`; with `today`, its dates moved so that it is asked for today.

    FileNotFoundError when there is none of this name.
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
