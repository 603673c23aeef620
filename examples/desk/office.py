"""The systems that the desk works with, as one HTTP server: tickets, mail, services, a bank, and facts for policy.

`python -m examples.desk.office --record office.jsonl` prints `{"url": …}` when it is ready. Every request and every
execution is a line of the record, which is written before the answer. The state of the systems is computed from it.

| path | system | a repeated request | can be asked for a request |
|---|---|---|---|
| `/tickets` | ticket system: tickets | opens another ticket | yes, by key |
| `/tickets/N/comments`, `/tickets/N/close` | ticket system: changes | is recognized by its key | not needed |
| `/services/NAME/restarts` | service platform | restarts again | yes, by key |
| `/refunds` | bank | is recognized by its key | not needed |
| `/mail` | mail | is sent again | no |
| `/model` | model provider with a scripted model | is recognized by its key | not needed |
| `/logs`, `/runbooks`, `/calendar`, `/people` | read by the desk and its policy | | |
"""

import argparse
import functools
import hashlib
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx2

from outlast.testing import FakeReceivers, slow, status, times_out
from outlast.testing.fake_receivers import Behaviour
from outlast.testing.http_receiver import HttpRequest

from . import incident

ENV: Final = "DESK_URL"
"""The environment variable with the address of the office. It belongs to the installation, not to the run."""
TICKETS, REQUESTS, MAIL, REFUNDS, MODEL = "/tickets", "/tickets/requests", "/mail", "/refunds", "/model"
COMMENTS: Final = f"{TICKETS}/{incident.NUMBER}/comments"
SLOW_S: Final = 1.5
Misbehaviour = Mapping[str, tuple[Behaviour, ...]]
"""Path → behaviour of the first attempts of each request. The paths are those of the table above."""
MISBEHAVIOURS: Final[Mapping[str, Misbehaviour]] = {
    "calm": {},
    "demo": {  # the ticket system answers late; the first answer to a comment is lost
        TICKETS: (slow(SLOW_S),),
        COMMENTS: (status(502, acts=True),),
    },
    "trouble": {
        TICKETS: (times_out(),),
        COMMENTS: (status(502, acts=True), status(503)),
        REFUNDS: (times_out(), status(500)),
        MAIL: (times_out(),),
        "/services": (times_out(acts=False),),
    },
}


def office(misbehaviour: Misbehaviour = MISBEHAVIOURS["calm"], *, leads: bool = True) -> FakeReceivers:
    """Return the systems, which are not started yet. `leads`: False if every approver has lost the right to approve."""
    found = FakeReceivers(env=ENV)
    does: Callable[[str], tuple[Behaviour, ...]] = lambda path: misbehaviour.get(path, ())  # noqa: E731
    found.route(TICKETS, *does(TICKETS), duplicates="act", reply=_open)
    found.route(REQUESTS)
    found.route(f"{TICKETS}/FU-", reply=_change)
    found.route(f"{TICKETS}/{incident.NUMBER}", reply=_change, asked=_ticket)
    found.route(COMMENTS, *does(COMMENTS), reply=_change)
    found.route("/services", *does("/services"), duplicates="act", reply=_change)
    found.route(REFUNDS, *does(REFUNDS))
    found.route(MAIL, *does(MAIL), duplicates="act", askable=False)
    found.route(MODEL, *does(MODEL), reply=_model)
    found.route("/logs", asked=lambda request, _: incident.LOGS.get(_last(request)))
    found.route("/runbooks", asked=lambda request, _: incident.RUNBOOKS.get(_last(request)))
    found.route("/calendar", reply=_change, asked=lambda _, changes: {"frozen": _latest(changes, "frozen", [])})
    return found.route("/people", reply=_change, asked=functools.partial(_person, leads))


def _body(request: HttpRequest) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(request.body or b"{}")
    return found


def _last(request: HttpRequest) -> str:
    return request.path.rpartition("/")[2]


def _open(request: HttpRequest) -> Any:
    """Return a new ticket; its number depends on its content, so that each run of the demo shows the same one."""
    return {"number": f"FU-{int(hashlib.sha256(request.body).hexdigest()[:8], 16) % 9000 + 1000}", **_body(request)}


def _change(request: HttpRequest) -> Any:
    return {"id": f"{hashlib.sha256(request.path.encode() + request.body).hexdigest()[:8]}", "path": request.path} | (
        _body(request)
    )


def _latest(changes: Sequence[Any], name: str, default: Any) -> Any:
    return next((change[name] for change in reversed(changes) if name in change), default)


def _model(request: HttpRequest) -> Any:
    """Return the answer of the script that follows the answers in the transcript."""
    given = sum(message["role"] == "assistant" for message in _body(request)["messages"])
    return incident.SCRIPT[min(given, len(incident.SCRIPT) - 1)]


def _ticket(request: HttpRequest, changes: Sequence[Any]) -> Any:
    if _last(request) != incident.NUMBER:
        return None
    closed = any(change["path"].endswith("/close") for change in changes)
    comments = [change["text"] for change in changes if change["path"].endswith("/comments")]
    return {**incident.TICKET, "status": "closed" if closed else "open", "comments": comments}


def _person(leads: bool, request: HttpRequest, changes: Sequence[Any]) -> Any:
    mine = [change for change in changes if change["path"] == request.path]
    return {"name": _last(request), "leads": _latest(mine, "leads", leads)}


# --- what people in the office do while a run waits -------------------------------------------------
def freeze(url: str, *services: str) -> None:
    """Begin a deploy freeze for these services."""
    _post(f"{url}/calendar", {"frozen": services})


def close_ticket(url: str, number: str) -> None:
    """Close a ticket."""
    _post(f"{url}{TICKETS}/{number}/close", {})


def revoke(url: str, person: str) -> None:
    """Take the right to approve from a person."""
    _post(f"{url}/people/{person}", {"leads": False})


def _post(url: str, body: dict[str, Any]) -> None:
    httpx2.post(url, json=body, trust_env=False).raise_for_status()


def main() -> int:
    """Serve the office until SIGINT or SIGTERM. Print one JSON line with its address once it accepts requests."""
    cli = argparse.ArgumentParser(prog="desk.office", description="The systems of the desk, with a record.")
    cli.add_argument("--record", type=Path, required=True, help="file to append the record to (JSON lines)")
    cli.add_argument("--misbehaves", choices=MISBEHAVIOURS, default="calm", help="how the systems misbehave [calm]")
    given = cli.parse_args()
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    here = office(MISBEHAVIOURS[given.misbehaves])
    here.listen(given.record)
    print(json.dumps({"url": here.url}), flush=True)
    signal.sigwait(stops)
    here.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
