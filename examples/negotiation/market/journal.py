"""Writer of the market's record: one line per event, written before the market acts on it."""

import time
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from ..letters import Bid
from ..record import Answered, Arrived, Entry, Executed, Kind, Offered, line, read


class Journal:
    """An append-only file. Each line is flushed, so that readers see it at once."""

    def __init__(self, path: Path) -> None:
        """Open the file. Arrival numbers continue after those in it."""
        self.path = path
        self._n = max((e.n for e in read(path) if isinstance(e, Arrived)), default=0)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a", encoding="utf-8")

    def arrived(
        self, *, supplier: str, kind: Kind, key: str, sha256: str, size: int, run_id: str, round_number: int
    ) -> Arrived:
        """Record a request and return its entry with a new number."""
        self._n += 1
        arrival = Arrived(
            n=self._n,
            at=time.time(),
            supplier=supplier,
            kind=kind,
            key=key,
            sha256=sha256,
            bytes=size,
            run_id=run_id,
            round=round_number,
        )
        self._write(arrival)
        return arrival

    def executed(self, arrival: Arrived, made: str, letter: BaseModel, bids: Literal["soon", "late", "never"]) -> None:
        """Record that the supplier acts on a request."""
        said = letter.model_dump(mode="json")
        self._write(Executed(n=arrival.n, at=time.time(), id=made, letter=said, bids=bids))

    def answered(self, arrival: Arrived, status: int, *, deduped: bool = False) -> None:
        """Record the answer before it is sent. Status 0 is a broken connection."""
        self._write(Answered(n=arrival.n, at=time.time(), status=status, deduped=deduped))

    def offered(self, bid: Bid, run_id: str, status: int) -> None:
        """Record one attempt to deliver a bid."""
        what = bid.model_dump(include={"bid_id", "round", "cents"})
        self._write(Offered(at=time.time(), supplier=bid.supplier_id, run_id=run_id, status=status, **what))

    def close(self) -> None:
        """Close the file; later calls fail."""
        self._file.close()

    def _write(self, entry: Entry) -> None:
        self._file.write(line(entry))
        self._file.flush()
