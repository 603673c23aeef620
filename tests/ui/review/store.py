"""The runs of the review in a real service: `filled` starts them and waits until each has stopped."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from outlast.core.approvals import Actor
from outlast.runtime.operations import Operations
from tests.service.conftest import Service
from tests.ui.review.flows import NODES, PARALLEL, REGIONS, former

FAULTS: Final = (("key", 1311), ("zero", 402), ("card", 300), ("json", 60), ("arabic", 15))
"""Failing orders by their fault: 2,088, as in the review."""
DONE: Final = 400
PAYOUTS: Final = 67
APPROVALS: Final = 44
CUSTOMERS: Final = (
    "acme",
    "hooli",
    "initech",
    "umbrella",
    "جمعية النور",
    "pay to \u202evil\u202c acme",
    "<b>bold & co</b>",
)
CALLER: Final = "wayne"
"""Customer of one order, of the cause `card`."""
BEFORE: Final = 20
"""Orders that the version before has shipped."""
SHARES: Final = {"small": 10, "whole": 1}
"""Divisors of the numbers of runs."""


class Filled(NamedTuple):
    """Runs that pages of the review show."""

    failed: str
    agent: str
    long: str
    parallel: str
    approval: str
    uncertain: str
    share: int


def filled(service: Service, size: str = "whole") -> Filled:
    """Start the runs and return those that pages show. Their numbers are those of the review, or a part."""
    share = SHARES[size]
    _shipped_before(service)
    orders = list(_orders(share))
    for at in range(0, len(orders), 200):
        _started(service, "order-fulfilment", orders[at : at + 200])
    payouts = []
    for n in range(PAYOUTS // share):  # between good ones, else the breaker of the bank opens
        payouts += _started(service, "payout", [{"seller": f"lost-{n}", "cents": 900 + n}])
        service.ended(_started(service, "payout", [{"seller": f"seller-{n}", "cents": 900 + n}])[0])
    asked = [_refund(n) for n in range(max(8, APPROVALS // share))]
    _started(service, "refund", asked)
    long = [_started(service, f"pipeline-{n}", [{"stop_at": 37}])[0] for n in NODES]
    (parallel,) = _started(service, "slow-import", [{"parts": PARALLEL}])
    (agent,) = _started(service, "incident", [{"objective": "The search of the shop answers slowly. Find out why."}])
    service.ended(agent)
    for run in (*long, parallel):  # each in the node that waits
        service.waits(run)
    flagged = sum(1 for order in orders if order["fault"]) + len(payouts)
    service.until("/v1/summary", lambda body: body["attention_runs"] >= flagged and body["uncertain"] >= len(payouts))
    pending = service.until("/v1/approvals?status=pending", lambda body: len(body["approvals"]) >= min(50, len(asked)))
    failed = service.get("/v1/attention?reason=exception&limit=1").json()["attention"][0]["run"]
    return Filled(failed, agent, long[-1], parallel, pending["approvals"][0]["approval"], payouts[0], share)


def _shipped_before(service: Service) -> None:
    """Start the orders of the version before, and wait until they are shipped."""
    ops = Operations(
        service.state.store, tenant="default", actor=Actor("ana"), workflows={former.name: former}, versions=[former]
    )
    for number in range(BEFORE):
        given = {"number": -number, "customer": CUSTOMERS[number % len(CUSTOMERS)]}
        run = service.call(ops.start_run(former.name, given)).run
    service.ended(run)


def _orders(share: int) -> Iterator[dict[str, Any]]:
    number = 0
    for fault, count in (*FAULTS, ("", DONE)):
        for n in range(count // share):
            number += 1
            customer, region = CUSTOMERS[number % len(CUSTOMERS)], REGIONS[number % len(REGIONS)]
            customer = CALLER if fault == "card" and n == 0 else customer
            yield {"number": number, "customer": customer, "region": region, "fault": fault}


def _refund(n: int) -> dict[str, Any]:
    why = "the parcel arrived damaged; photos are in the ticket " * (1 + n % 9)
    return {"customer": f"{CUSTOMERS[n % len(CUSTOMERS)]} {n}", "cents": 99_900 - 1_700 * n, "why": why}


def _started(service: Service, workflow: str, inputs: Sequence[dict[str, Any]]) -> list[str]:
    return [service.start(workflow, **given) for given in inputs]
