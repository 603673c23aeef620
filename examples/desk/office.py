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
| `/model` | model provider with the stand-in of `stand_in.py` | is recognized by its key | not needed |
| `/logs`, `/runbooks`, `/orders`, `/health`, `/calendar`, `/people` | read by the desk and its policy | | |
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

from . import stand_in
from .incident import NUMBER, WORLD, World

ENV: Final = "DESK_URL"
"""The environment variable with the address of the office. It belongs to the installation, not to the run."""
TICKETS, REQUESTS, MAIL, REFUNDS, MODEL = "/tickets", "/tickets/requests", "/mail", "/refunds", "/model"
COMMENTS: Final = f"{TICKETS}/{NUMBER}/comments"
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


def office(
    misbehaviour: Misbehaviour = MISBEHAVIOURS["calm"], *, leads: bool = True, world: World = WORLD
) -> FakeReceivers:
    """Return the systems, which are not started yet.

    `leads`: False if every approver has lost the right to approve. `world`: the incidents.
    """
    found = FakeReceivers(env=ENV)
    does: Callable[[str], tuple[Behaviour, ...]] = lambda path: misbehaviour.get(path, ())  # noqa: E731
    found.route(TICKETS, *does(TICKETS), duplicates="act", reply=_open)
    found.route(REQUESTS)
    found.route(f"{TICKETS}/FU-", reply=_change)
    for number in world.tickets:
        path = f"{TICKETS}/{number}"
        found.route(path, reply=_change, asked=functools.partial(_ticket, world))
        found.route(f"{path}/comments", *does(f"{path}/comments"), reply=_change)
    found.route("/services", *does("/services"), duplicates="act", reply=_change)
    found.route(REFUNDS, *does(REFUNDS), reply=_change)
    found.route(MAIL, *does(MAIL), duplicates="act", askable=False, reply=_change)
    found.route(MODEL, *does(MODEL), reply=_model)
    found.route("/logs", asked=lambda request, _: world.services.get(_last(request)))
    found.route("/runbooks", asked=lambda request, _: world.runbooks.get(_last(request)))
    found.route("/orders", asked=functools.partial(_order, world))
    found.route("/health", asked=lambda request, _: {"ailing": _last(request) in world.ailing})
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
    return stand_in.answer(_body(request))


def _ticket(world: World, request: HttpRequest, changes: Sequence[Any]) -> Any:
    if (number := _last(request)) not in world.tickets:
        return None
    mine = [change for change in changes if change["path"].startswith(f"{TICKETS}/{number}/")]
    closed = any(change["path"].endswith("/close") for change in mine)
    comments = [change["text"] for change in mine if change["path"].endswith("/comments")]
    return {"number": number, **world.tickets[number], "status": "closed" if closed else "open", "comments": comments}


def _order(world: World, request: HttpRequest, _: Sequence[Any]) -> Any:
    order = _last(request)
    return {"order": order, "charges": world.orders[order]} if order in world.orders else None


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
    cli.add_argument(
        "--world", type=Path, help="file with the incidents (JSON of `incident.World`) [those of the demo]"
    )
    given = cli.parse_args()
    stops = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    world = World.model_validate_json(given.world.read_bytes()) if given.world else WORLD
    here = office(MISBEHAVIOURS[given.misbehaves], world=world)
    here.listen(given.record)
    print(json.dumps({"url": here.url}), flush=True)
    signal.sigwait(stops)
    here.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
