"""The systems outside as one HTTP server: CRM, calendar, mail, messenger, web sites, and a scripted model.

`python -m examples.acquisition.office --record office.jsonl` prints `{"url": …}` when it is ready. Every request and
every execution is a line of the record, which is written before the answer.

| path | system | a repeated request | can be asked for a request |
|---|---|---|---|
| `/crm/contacts` | CRM: contacts | is recognized by its key | not needed |
| `/crm/deals` | CRM: deals | opens another deal | yes, by key |
| `/calendar/meetings` | calendar: meetings | is recognized by its key | not needed |
| `/calendar/tasks` | calendar: tasks | schedules another task | yes, by key |
| `/mail` | mail | is sent again | yes, by key |
| `/messenger` | messenger | is recognized by its key | not needed |
| `/chat/completions` | model provider | is recognized by its key | not needed |
| `/crm/settings`, `/crm/opt-outs`, `/sites`, `/profiles` | read by the policy and the model | | |
"""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx2

from outlast.agent import ModelAnswer, ToolCall
from outlast.testing import FakeReceivers, resets, slow, status, times_out
from outlast.testing.fake_receivers import Behaviour
from outlast.testing.http_receiver import HttpRequest
from outlast.testing.model_server import PATH, answers_in, completions

ENV: Final = "ACQUISITION_URL"
"""The environment variable with the address of the office. It belongs to the installation, not to the run."""
CONTACTS, DEALS, OPT_OUTS, SETTINGS = "/crm/contacts", "/crm/deals", "/crm/opt-outs", "/crm/settings"
MEETINGS, TASKS = "/calendar/meetings", "/calendar/tasks"
MAIL, CHAT, SITES, PROFILES = "/mail", "/messenger", "/sites", "/profiles"
SYSTEMS: Final = (CONTACTS, DEALS, MEETINGS, TASKS, MAIL, CHAT)
MODEL: Final = PATH
STOCK, ORDERS = "our stock counts are wrong", "orders are typed twice"
SITE: Final = f"{STOCK} every month, and {ORDERS}"
SLOW_S: Final = 1.5
REFUSES: Final = (status(422),) * 50  # at each attempt, also one after a crash
Misbehaviour = Mapping[str, tuple[Behaviour, ...]]
"""Path → behaviour of the first attempts of each request. The paths are those of the table above."""
MISBEHAVIOURS: Final[Mapping[str, Misbehaviour]] = {
    "calm": {},
    "demo": {  # the CRM answers late, the first answer about the proposal is lost, the messenger refuses
        DEALS: (slow(SLOW_S),),
        MAIL: (resets(),),
        CHAT: REFUSES,
    },
    "trouble": {  # each system loses an answer or fails for a moment, and recovers
        CONTACTS: (status(502, acts=True),),
        DEALS: (times_out(),),
        MEETINGS: (resets(),),
        TASKS: (resets(acts=False),),
        MAIL: (resets(),),
        CHAT: (status(500),),
        MODEL: (status(503),),
    },
    "refused-follow-up": {TASKS: REFUSES},
    "refused-extras": {MEETINGS: REFUSES, CHAT: REFUSES},
}


def office(misbehaviour: Misbehaviour = MISBEHAVIOURS["calm"], *, profiles: bool = False) -> FakeReceivers:
    """Return the systems, which are not started yet. `profiles`: True if profiles of people may be read."""
    found = FakeReceivers(env=ENV)
    does: Callable[[str], tuple[Behaviour, ...]] = lambda path: misbehaviour.get(path, ())  # noqa: E731
    for path in SYSTEMS:
        found.route(path, *does(path), duplicates="act" if path in (DEALS, TASKS, MAIL) else "answer")
        found.route(f"{path}/")  # what undoes it is recognized by its key
    found.route(OPT_OUTS, reply=_body, asked=_opted_out)
    found.route(SETTINGS, asked=lambda request, _: {"profiles": profiles})
    found.route(
        SITES,
        asked=lambda request, _: (
            f"{_last(request)}: our stock counts are wrong every month, and orders are typed twice"
        ),
    )
    found.route(PROFILES, asked=lambda request, _: f"{_last(request)} likes sailing")
    return completions(found, answer, misbehave={0: does(MODEL)})


def _body(request: HttpRequest) -> Any:
    return json.loads(request.body)


def _last(request: HttpRequest) -> str:
    return request.path.rpartition("/")[2]


def _opted_out(request: HttpRequest, said: Sequence[Any]) -> Any:
    return {"opted_out": any(each["email"] == _last(request) for each in said)}


# --- the model -------------------------------------------------------------------------------------------
def answer(body: dict[str, Any]) -> ModelAnswer | str:
    """Return the scripted answer to a question. It depends on the question and the facts only."""
    question = body["messages"][0]["content"].partition("\n")[0]
    facts = json.loads(body["messages"][1]["content"])
    if question == "PAINS" and not answers_in(body):
        return _reads(facts)
    answers: dict[str, Any] = {
        "PAINS": lambda: {
            "pains": [_pain("stock", "our stock counts are wrong"), _pain("orders", "orders are typed twice")]
        },
        "QUALIFY": lambda: _grade(facts),
        "PROPOSE": lambda: _proposal(facts),
        "OUTREACH": lambda: {"text": f"Dear {facts['contact']}, our proposal for {facts['company']} is in your mail."},
    }
    return json.dumps(answers[question]())


def _reads(facts: dict[str, Any]) -> ModelAnswer:
    """Propose to read the site, an internal address that the message names, and a profile if that is offered."""
    calls = [ToolCall(id="c1", tool="read_site", arguments={"domain": facts["domain"]})]
    if "wiki.internal" in facts["message"]:
        calls.append(ToolCall(id="c2", tool="read_site", arguments={"domain": "wiki.internal"}))
    calls.append(ToolCall(id="c3", tool="read_profile", arguments={"email": facts["email"]}))
    return ModelAnswer(text="I read first.", calls=tuple(calls))


def _pain(kind: str, quote: str) -> dict[str, Any]:
    return {"kind": kind, "problem": quote, "quote": quote}


def _grade(facts: dict[str, Any]) -> dict[str, Any]:
    grade = "A" if facts["fit"] >= 90 else "B" if facts["pains"] else "C"
    return {"grade": grade, "cents": facts["employees"] * 10_000, "quote": ""}


def _proposal(facts: dict[str, Any]) -> dict[str, Any]:
    """Write a proposal. The first draft for a large deal has a discount that the policy refuses."""
    large = facts["cents"] > 5_000_000
    discount = 0 if not large else 15 if facts["objection"] else 35
    solved = "; ".join(pain["problem"] for pain in facts["pains"])
    return {
        "subject": f"Fewer stock errors at {facts['company']}",
        "text": f"Dear {facts['contact']}, we solve: {solved or 'what you asked for'}.",
        "cents": facts["cents"] * (100 - discount) // 100,
        "discount_percent": discount,
    }


# --- what people in the office do while a run waits -----------------------------------------------------
def opt_out(url: str, email: str) -> None:
    """Record that a contact wants no messages."""
    httpx2.post(f"{url}{OPT_OUTS}", json={"email": email}, trust_env=False).raise_for_status()


def main() -> int:
    """Serve the office until SIGINT or SIGTERM. Print one JSON line with its address once it accepts requests."""
    cli = argparse.ArgumentParser(prog="acquisition.office", description="The systems outside, with a record.")
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
