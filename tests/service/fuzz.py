"""Requests made up from the OpenAPI document, good and bad, against a real service: none may be answered with 5xx.

`scripts/fuzz --requests 20000` prints what was sent, how it was answered, and each request that was answered 5xx.
"""

import argparse
import json
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import requests
import schemathesis
import schemathesis.specs.openapi.schemas  # now: pytest rewrites it, and late in a run Python 3.11 may fail to parse it
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode

from tests.measured import unmeasured
from tests.service.conftest import Running, Service

ENDLESS = {"stream_events"}  # a stream has no end to wait for
OPEN_ENDED = {"test_webhook"}  # sends to whatever address was made up
TIMEOUT_S = 60


@dataclass
class Report:
    """Result of a fuzz run."""

    sent: int = 0
    by_status: Counter[int] = field(default_factory=Counter)
    by_operation: dict[str, Counter[int]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def add(self, operation: str, answer: Any, said: str) -> None:
        """Count one answer of the service."""
        self.sent += 1
        self.by_status[answer.status_code] += 1
        self.by_operation.setdefault(operation, Counter())[answer.status_code] += 1
        if answer.status_code >= 500:
            self.faults.append(f"{answer.status_code} {said}")
        elif answer.status_code >= 400 and not _is_problem(answer):
            self.faults.append(f"no problem+json: {answer.status_code} {said}")


def _is_problem(answer: Any) -> bool:
    if "application/problem+json" not in str(answer.headers.get("content-type")):
        return answer.status_code == 400 and b"Invalid HTTP request" in answer.content  # refused before it was HTTP
    return bool(answer.json().get("code"))


def play(service: Service, n: int, seed_: int = 0) -> Report:
    """Send about `n` requests over all operations, half of them valid."""
    report = Report()
    document = service.get("/openapi.json").json()
    schema = schemathesis.openapi.from_dict(document)
    found = [each.ok() for each in schema.get_all_operations()]
    operations = [each for each in found if each.definition.raw["operationId"] not in ENDLESS | OPEN_ENDED]
    known = _known(service)
    each = -(-n // (2 * len(operations)))  # rounded up: operations are added
    session = requests.Session()
    for operation in operations:
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                _play(operation, mode, each, seed_, session, service, known, report)
    return report


def _has_parts(operation: Any) -> bool:
    """Return True if the operation has parameters to generate."""
    raw = operation.definition.raw
    return bool(raw.get("parameters") or raw.get("requestBody"))


def _play(
    operation: Any, mode: Any, n: int, seed_: int, session: requests.Session, service: Service,
    known: dict[str, list[str]], report: Report,
) -> None:  # fmt: skip
    name = operation.definition.raw["operationId"]
    turn = _turns(known)

    @seed(seed_)
    @settings(
        max_examples=n, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck),
        print_blob=False,
    )  # fmt: skip
    @given(case=operation.as_strategy(generation_mode=mode))
    def one(case: Any) -> None:
        parts = next(turn)
        for part, id_ in parts.items():
            if part in (case.path_parameters or {}) and id_:
                case.path_parameters[part] = id_
        if mode is GenerationMode.POSITIVE and parts:
            _fit(case, name, service, known)
        try:
            answer = case.call(base_url=service.url, session=session, timeout=TIMEOUT_S)
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError, ValueError):
            return  # no client can send it
        said = f"{case.method} {case.formatted_path} {str(case.query)[:200]} {str(case.body)[:300]}"
        report.add(name, answer, said)

    try:
        one()
    except schemathesis.errors.SchemathesisError:
        pass  # nothing of this kind can be made: an operation without a parameter takes no bad one
    except Exception as error:  # of hypothesis, where an operation has nothing to break
        if "Unsatisfiable" not in type(error).__name__ and "skip" not in type(error).__name__.lower():
            raise


def _fit(case: Any, operation: str, service: Service, known: dict[str, list[str]]) -> None:
    """Fill in values that the document cannot express: workflow input, an open run, an allowed URL."""
    path, body = case.path_parameters or {}, case.body
    if operation == "start_run" and isinstance(body, dict):
        path["name"] = "refund"
        body["input"] = {"order_id": "F", "cents": 1}
        body.pop("id", None)
    elif operation == "add_webhook" and isinstance(body, dict):
        body |= {"url": "https://93.184.216.34/hook", "types": [], "workflows": [], "headers": {}}
    elif operation == "add_notification" and isinstance(body, dict):
        body |= {"address": "ntfys://93.184.216.34/t", "role": "lead", "person": "", "every": False, "workflows": []}
    elif operation == "remove_webhook":
        path["webhook"] = service.post("/v1/webhooks", {"url": "https://93.184.216.34/gone"}).json()["webhook"]
    elif operation == "enable_webhook":
        service.post(f"/v1/webhooks/{path['webhook']}/disable", {"reason": "for a test"})
    elif operation in ("disable_webhook", "rotate_webhook"):
        service.post(f"/v1/webhooks/{path['webhook']}/enable")
    elif operation in ("pause", "resume"):
        body["what"] = "provider"  # a tenant that is held would answer nothing that is asked for here
    elif "run" in path and case.method == "POST":
        path["run"] = service.start("wish", text="?")
    elif operation == "decide_approval":
        path["approval"], tag = service.asked()
        case.headers = {**(case.headers or {}), "If-Match": tag}
        body.pop("changes", None)


def _known(service: Service) -> dict[str, list[str]]:
    """Return existing ids, so that requests pass the check for existence."""
    runs = [service.start("wish", text=str(n)) for n in range(3)] + [service.start() for _ in range(3)]
    approvals = [service.asked(run)[0] for run in runs[3:]]
    done = service.start("job", rounds=2)
    service.ended(done)
    decided = service.asked(service.start())
    service.decide(*decided)
    run = service.get(f"/v1/approvals/{decided[0]}").json()["run"]
    service.ended(run)
    effects = [each["id"] for each in service.get(f"/v1/runs/{run}/effects").json()["effects"]]
    asks = [{"url": f"https://93.184.216.34/{n}"} for n in range(4)]
    webhooks = [service.post("/v1/webhooks", ask).json()["webhook"] for ask in asks]
    for each in webhooks:  # would send requests to a generated URL
        service.post(f"/v1/webhooks/{each}/disable", {"reason": "for a test"})
    return {"run": [*runs, done, run], "approval": [*approvals, decided[0]], "effect": effects, "webhook": webhooks,
            "delivery": [f"{webhooks[0]}:{run}:1"], "name": ["refund", "job", "wish", "said"]}  # fmt: skip


def _turns(known: dict[str, list[str]]) -> Iterator[dict[str, str]]:
    """Yield existing ids for two of three requests, in turn."""
    n = 0
    while True:
        n += 1
        yield {} if n % 3 == 0 else {name: ids[n % len(ids)] if ids else "" for name, ids in known.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print the result, and return 1 if a request was answered 5xx."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--requests", type=int, default=2_000, help="about so many [2000]")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="the whole report")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder, Running(f"sqlite:{folder}/fuzz.db") as service:
        report = play(service, args.requests, args.seed)
        healthy = service.get("/healthz").status_code == 200
    sys.stdout.write(f"{report.sent} requests to {len(report.by_operation)} operations\n")
    for status, n in sorted(report.by_status.items()):
        sys.stdout.write(f"  {status}  {n}\n")
    report.faults += unmeasured(requests=report.sent, operations=len(report.by_operation))
    for each in report.faults[:50]:
        sys.stdout.write(f"FAULT {each}\n")
    sys.stdout.write(f"{len(report.faults)} faults; healthy at the end: {healthy}\n")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"sent": report.sent, "by_status": report.by_status, "by_operation": report.by_operation,
                       "faults": report.faults}, file, indent=1)  # fmt: skip
    return 1 if report.faults or not healthy else 0


if __name__ == "__main__":
    sys.exit(main())
