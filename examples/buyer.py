"""A client that uses only the HTTP API: start a purchase, follow its events, decide, print the outcome.

Run `python examples/buyer.py purchase.json` with OUTLAST_URL and two tokens. BUYER_TOKEN may start runs (roles starter
and viewer). LEAD_TOKEN belongs to an approver (roles approver and procurement-lead). Every request may be sent again,
because each carries an idempotency key.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

ENDINGS = ("completed", "failed", "cancelled")
WITHIN_S = 60.0
"""Time without any event or answer from the service after which `events` gives up."""


class Event(NamedTuple):
    """One event of a run: its sequence number and the CloudEvent."""

    seq: int
    body: dict[str, Any]

    @property
    def name(self) -> str:
        """The last part of the event type, such as `parked`."""
        return str(self.body["type"]).rpartition(".")[2]


def client(url: str, token: str) -> httpx2.Client:
    """Return an HTTP client that authenticates with a bearer token."""
    return httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=30)


def start(http: httpx2.Client, workflow: str, given: dict[str, Any], *, key: str, traceparent: str = "") -> str:
    """Start a run and return its id. The same key returns the run that it started before."""
    headers = {"Idempotency-Key": key} | ({"traceparent": traceparent} if traceparent else {})
    answer = http.post(f"/v1/workflows/{workflow}/runs", json={"input": given}, headers=headers)
    raised(answer)
    return str(answer.json()["run"])


def events(http: httpx2.Client, run: str, *, after: int = 0) -> Iterator[Event]:
    """Yield the events of a run until it has ended. A broken stream is reopened after the last event received."""
    give_up = time.monotonic() + WITHIN_S
    while time.monotonic() < give_up:
        try:
            for event in _stream(http, run, after):
                after, give_up = event.seq, time.monotonic() + WITHIN_S
                yield event
                if event.name in ENDINGS:
                    return
        except httpx2.TransportError:
            pass  # the service restarts
        time.sleep(0.2)
    raise TimeoutError(f"no event of {run} after event {after} within {WITHIN_S:.0f} s")


def _stream(http: httpx2.Client, run: str, after: int) -> Iterator[Event]:
    """Yield the events of one HTTP response."""
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": f"{after}"} if after else {})
    with http.stream("GET", f"/v1/runs/{run}/events", headers=headers) as stream:
        if not stream.is_success:
            stream.read()
            raised(stream)
        for line in stream.iter_lines():
            if line.startswith("data: "):
                body = json.loads(line.removeprefix("data: "))
                yield Event(int(body["sequence"]), body)


def waiting(http: httpx2.Client, run: str) -> str:
    """Return the id of a pending approval of the run that this caller may decide, or an empty string."""
    answer = http.get("/v1/approvals", params={"status": "pending", "mine": True})
    raised(answer)
    return next((str(each["approval"]) for each in answer.json()["approvals"] if each["run"] == run), "")


def decide(http: httpx2.Client, approval: str, decision: str, reason: str) -> dict[str, Any]:
    """Read an approval and decide that version of it. The key makes repeated requests one decision."""
    seen = http.get(f"/v1/approvals/{approval}")
    raised(seen)
    headers = {"If-Match": seen.headers["ETag"], "Idempotency-Key": f"decide-{approval}-{seen.json()['version']}"}
    answer = http.post(
        f"/v1/approvals/{approval}/decision", json={"decision": decision, "reason": reason}, headers=headers
    )
    raised(answer)
    decided: dict[str, Any] = answer.json()
    return decided


def raised(answer: httpx2.Response) -> None:
    """Exit with the code, title, detail and hint of the problem if the request was refused."""
    if not answer.is_success:
        said = answer.json()
        raise SystemExit(f"{said['code']}  {said['title']}\n         {said['detail']}\n         → {said['hint']}")


def main() -> None:
    """Start the purchase in the file and approve each request as the lead."""
    url, given = os.environ["OUTLAST_URL"], json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with client(url, os.environ["BUYER_TOKEN"]) as buyer, client(url, os.environ["LEAD_TOKEN"]) as lead:
        run = start(buyer, "negotiation", given, key=given["reference"], traceparent=os.environ.get("TRACEPARENT", ""))
        print(f"run {run}")
        for event in events(buyer, run):
            print(f"  {event.seq:>3}  {event.name:<20} {event.body['data'].get('node', '')}", flush=True)
            if event.name == "parked" and (approval := waiting(lead, run)):
                decided = decide(lead, approval, "approve", "under budget")["approval"]
                print(f"       {decided['asks'].partition('. ')[0]}: {decided['status']} by {decided['decided_by']}")
        whole = buyer.get(f"/v1/runs/{run}").json()
        print(f"{whole['shown']}: {json.dumps(whole['outcome'])}")


if __name__ == "__main__":
    main()
