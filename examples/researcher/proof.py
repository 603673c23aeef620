"""Proof of a run: its rows, its events and the record of the world, compared with a run that was never killed."""

import hmac
import json
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from standardwebhooks import Webhook

from outlast import Client
from outlast.core.events import EventType

from ..negotiation.demo.proof import Claim, claim
from .fetching import AGENT
from .robots import Robots
from .world.record import Hit, busiest

PAGE = 200
WINDOW_S = 5.0
"""Time over which requests are counted. The clocks of two processes and their turns do not matter in it."""
CRASHES = {EventType.TAKEN_OVER.value}
"""Events that only a run has whose worker died."""
HELD = CRASHES | {
    each.value
    for each in (
        EventType.ADMITTED,
        EventType.CLAIMED,
        EventType.HANDED_BACK,
        EventType.PARKED,
        EventType.QUEUED,
        EventType.REQUEUED,
    )
}
"""Events about the workers that hold a run. A slow machine has more: a run parks when a page must be read again."""


class Outcome(NamedTuple):
    """A finished run as its callers see it: rows in order, events as the history has them, and the status."""

    run: str
    status: str
    reason: str
    said: int
    """Number of results beside the status."""
    rows: list[tuple[str, Any]]
    events: list[dict[str, Any]]
    answered: list[float]
    """Times at which the answers of the model were stored, in seconds."""


async def outcome(client: Client, run: str) -> Outcome:
    """Read a finished run."""
    detail = await client.run(run)
    rows: list[tuple[str, Any]] = []
    after = 0
    while page := (await client.results(run, after=after, limit=PAGE)).results:
        rows += [(row.key, row.data) for row in page]
        after = page[-1].ordinal
    events: list[dict[str, Any]] = []
    while found := (await client.events(run, after=len(events), limit=PAGE)).events:
        events += [event.model_dump(mode="json") for event in found]
    answered: list[float] = []
    cursor = ""
    while True:
        steps = await client.steps(run, kind="model_decision", cursor=cursor)
        answered += [step.ended.timestamp() for step in steps.steps if step.ended]
        if not (cursor := steps.next_cursor or ""):
            return Outcome(run, detail.shown, detail.reason, detail.results, rows, events, answered)


def accepted(hits: Sequence[Hit], run: str) -> list[tuple[dict[str, str], str]]:
    """Return headers and body of the accepted deliveries of a run, in order of arrival.

    A delivery whose acceptance a killed dispatcher could not record arrives again under its id, as a receiver expects.
    """
    taken = [hit.body for hit in hits if hit.server == "receiver" and 200 <= hit.status < 300]
    first = {headers["webhook-id"]: (headers, body) for headers, body in reversed(taken)}
    kept = {id(body) for _, body in first.values()}
    return [(headers, body) for headers, body in taken if id(body) in kept and json.loads(body)["subject"] == run]


def deliveries(hits: Sequence[Hit], run: str, secret: str) -> list[dict[str, Any]]:
    """Return the events of these deliveries, each with the number before it and whether its signature is right."""
    return [
        json.loads(body) | {"previous": int(headers["outlast-previous"]), "signed": _signed(body, headers, secret)}
        for headers, body in accepted(hits, run)
    ]


def _signed(body: str, headers: dict[str, str], secret: str) -> bool:
    """Return True if a delivery has the signature of its secret. Its age does not count: a demo may take long."""
    sent_at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    expected = Webhook(secret).sign(headers["webhook-id"], sent_at, body)
    return any(hmac.compare_digest(expected, each) for each in headers["webhook-signature"].split())


def essence(events: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the content of events, without the ids, times and workers in which two runs of one question differ."""
    kept = []
    for event in events:
        data = event["data"] or {}
        if event["type"] not in HELD:
            kept.append(
                (event["type"], data.get("node"), data.get("visit"), json.dumps(data.get("results")), data.get("text"))
            )
    return kept


def claims(
    killed: Outcome,
    whole: Outcome,
    *,
    hits: Sequence[Hit],
    secrets: tuple[str, str],
    kills: int,
    held: Collection[str] | None,
    site: str,
) -> list[Claim]:
    """Return the claims about a killed run, and whether they hold.

    `whole`: the run that was never killed. `held`: the workers that held the run when they were killed, from which
    another took over; None if they are not known, so that no takeover need follow.
    """
    keys = [key for key, _ in killed.rows]
    sent, others = deliveries(hits, killed.run, secrets[0]), deliveries(hits, whole.run, secrets[1])
    signed = all(event["signed"] for event in (*sent, *others))
    numbers = [number_of(event) for event in sent]
    in_order = numbers == list(range(1, len(killed.events) + 1)) and all(
        e["previous"] == number_of(e) - 1 for e in sent
    )
    same = essence(sent) == essence(killed.events) == essence(whole.events)
    same = same and essence(others) == essence(whole.events)
    over = [event["data"].get("from") for event in killed.events if event["type"] in CRASHES]
    taken, least = (len(over), 0) if held is None else (len(set(over) & {*held}), min(len(held), 1))
    asked, lost, paid_twice = answers(hits, killed.answered, site)
    return [
        claim(
            f"{len(killed.rows):,} rows, equal to those of a run that was never killed",
            killed.rows == whole.rows,
            of=len(killed.rows),
        ),
        claim(
            f"the status says {killed.said:,}, and no page has two rows",
            killed.said == len(keys) == len(set(keys)),
            of=len(keys),
        ),
        claim(
            f"{len(sent)} events delivered in order, signed, none missing; they say what the other run's say",
            in_order and signed and same,
            of=len(sent),
        ),
        claim(
            f"{asked} answers of the model, {paid_twice} paid twice; {lost} lost in a kill and asked again",
            paid_twice == 0,
            of=asked,
        ),
        claim(f"{kills} kills, {taken} takeovers", least <= taken <= kills, of=kills),
    ]


def answers(hits: Sequence[Hit], stored: Sequence[float], site: str) -> tuple[int, int, int]:
    """Count requests to the model about a site: different ones, those whose answer a kill lost, those paid twice.

    `stored`: when each answer was stored. A request that arrived after its answer was stored is paid twice.
    """
    requests: dict[str, list[float]] = {}
    for hit in sorted(hits, key=lambda each: each.at):
        if hit.server == "model" and hit.body == site:
            requests.setdefault(hit.key, []).append(hit.at)
    if len(requests) != len(stored):
        return len(requests), 0, len(hits)
    twice = sum(at > known for times, known in zip(requests.values(), sorted(stored), strict=True) for at in times)
    return len(requests), sum(map(len, requests.values())) - len(requests) - twice, twice


def manners(hits: Sequence[Hit], site: str, robots: Robots) -> list[Claim]:
    """Return the claims about the requests to a site, from its own record."""
    mine = [hit for hit in hits if hit.server == f"site:{site.rpartition(':')[2]}"]
    forbidden = [hit.path for hit in mine if not robots.allows(hit.path)]
    most, allowed = busiest(mine, WINDOW_S), round(WINDOW_S / robots.delay)
    rules_first = bool(mine) and min(mine, key=lambda hit: hit.at).path == "/robots.txt"
    return [
        claim(
            f"{len(mine):,} requests to the site, {len(forbidden)} to pages that its robots.txt forbids",
            not forbidden and rules_first and {hit.agent for hit in mine} == {AGENT},
            of=len(mine),
        ),
        claim(
            f"at most {most} requests within {WINDOW_S:g} s; its crawl delay allows {allowed}",
            most <= allowed + 1,
            of=len(mine),
        ),
    ]


def counted(equal: int, unequal: int) -> Claim:
    """Return the claim about the polls at which the count beside the status was, or was not, that of the rows."""
    polls = equal + unequal
    return claim(f"the count of the status was equal to the rows at {equal} of {polls} polls", unequal == 0, of=polls)


def number_of(event: dict[str, Any]) -> int:
    """Return the number of an event in its run."""
    return int(event["id"].rpartition("/")[2])
