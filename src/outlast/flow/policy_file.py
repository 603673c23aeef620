"""Policies as Cedar rules in a file, which is read, checked and hashed when it is loaded.

A request becomes `principal` = Person::"<requested_by>", `action` = Action::"<activity>" and `resource` =
Workflow::"<workflow>". `context` holds arguments, key, tenant, version, run_id, node, visit, occasion, moment (ms
since 1970) and proposed_by, and approved_by (a set of names) if the write would use up an approval.
"""

import hashlib
import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from outlast.core.approver_rule import Rule
from outlast.core.durations import SECOND
from outlast.errors import DefinitionError, InvalidInput, to_install
from outlast.flow.policy import VERSION_CHARS, Allow, Deny, NeedsApproval, PolicyRequest, Verdict

NO_RULE: Final = "no-rule"  # nothing permits it
CANNOT_JUDGE: Final = "cannot-judge"  # a rule could not be evaluated
_ANNOTATIONS: Final = frozenset({"id", "ask", "summary", "quorum", "not_requester", "detail"})
_LARGEST: Final = 2**63 - 1  # Cedar's whole numbers
_DECIMALS: Final = 4  # of Cedar's decimals


class PolicyFile:
    """Rules of a file as a policy: `Workflow(policy=policy_from_file("refunds.cedar"))`. Made by `policy_from_file`.

    A request that no rule permits is denied. So is one that a rule cannot evaluate, because that rule might forbid it.
    """

    def __init__(
        self, path: Path, version: str, cedar: Any, rules: Any, notes: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.path: Final = path
        self.version: Final = version
        """The first twelve digits of the SHA-256 of the file."""
        self._cedar: Final = cedar
        self._rules: Final = rules
        self._notes: Final = notes

    def __call__(self, asked: PolicyRequest) -> Verdict:
        """Return the verdict of the rules."""
        try:
            context = _context(asked)
        except InvalidInput as error:
            return Deny(CANNOT_JUDGE, f"{error.what}: {error.why}")
        answer = self._cedar.is_authorized(
            {
                "principal": {"type": "Person", "id": asked.requested_by},
                "action": {"type": "Action", "id": asked.activity},
                "resource": {"type": "Workflow", "id": asked.workflow},
                "context": context,
            },
            self._rules,
            [],
        )
        found, errors = answer.diagnostics.reasons, answer.diagnostics.errors
        names = ", ".join(sorted(self._notes[each]["id"] for each in found))
        if not answer.allowed and found:
            details = [self._notes[each]["detail"] for each in found if "detail" in self._notes[each]]
            return Deny(names, "; ".join(details))
        if errors and asked.occasion == "offer":
            return Allow(names or "depends on its arguments")  # the arguments are judged once they are known
        if errors:
            return Deny(CANNOT_JUDGE, "; ".join(errors))
        if not answer.allowed:
            return Deny(NO_RULE, f"no rule of {self.path.name} permits {asked.activity} here")
        asking = [note for each in sorted(found) if "ask" in (note := self._notes[each])]
        return _asks(names, asking) if asking else Allow(names)


def policy_from_file(path: str | Path) -> PolicyFile:
    """Return the rules of the Cedar file at `path` as a policy whose version is the hash of the file.

    A `permit` with `@ask("finance & lead")` needs the approval of such people; `@quorum("2")`, `@not_requester` and
    `@summary("…")` refine it. Every rule has an `@id("…")`, which verdicts name. Raises InvalidInput if the file cannot
    be read, and DefinitionError if a rule is wrong or the extra `policy` is missing.
    """
    if not isinstance(cast(object, path), str | Path):
        raise InvalidInput(f"policy_from_file(path={path!r})", "it is the path of a file", 'e.g. "rules.cedar"')
    where = Path(path)
    try:
        data = where.read_bytes()
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the rules {path} cannot be read", str(error), "name a file of Cedar rules") from error
    cedar = _cedar(where)
    try:
        rules = cedar.PolicySet.from_str(text)
        parsed = json.loads(cedar.policies_to_json_str(text))
    except ValueError as error:
        raise _wrong(
            where, "cannot be read", str(error), "correct the rule; Cedar's grammar: docs/policy.md"
        ) from error
    if parsed["templates"]:
        raise _wrong(where, "has templates", "Outlast does not fill their slots", "write rules without ?principal")
    notes = {name: _notes(where, name, rule) for name, rule in parsed["staticPolicies"].items()}
    if not notes:
        raise _wrong(where, "has no rule", "it would deny everything", 'write e.g. @id("all") permit(principal, …);')
    ids = [note["id"] for note in notes.values()]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise _wrong(where, f"has two rules of id {', '.join(twice)}", "verdicts name a rule by its id", "rename one")
    return PolicyFile(where, hashlib.sha256(data).hexdigest()[:VERSION_CHARS], cedar, rules, notes)


def _cedar(where: Path) -> Any:
    try:
        return importlib.import_module("cedarpy")
    except ImportError as error:
        raise DefinitionError(
            f"the rules {where} need the extra `policy`",
            "it brings cedarpy, the engine that evaluates them",
            to_install("policy"),
        ) from error


def _notes(where: Path, name: str, rule: Mapping[str, Any]) -> dict[str, str]:
    """Return the annotations of a rule, checked."""
    notes: dict[str, str] = {key: value or "" for key, value in rule.get("annotations", {}).items()}
    if not notes.get("id"):
        n = int(name.removeprefix("policy")) + 1
        raise _wrong(where, f"has no @id on rule {n}", "verdicts name a rule by its id", '@id("small-refunds")')
    subject = f'has rule "{notes["id"]}", whose'
    if unknown := sorted(set(notes) - _ANNOTATIONS):
        raise _wrong(
            where,
            f"{subject} @{unknown[0]} is unknown",
            "a mistyped @ask would allow without asking",
            f"there are {', '.join(f'@{each}' for each in sorted(_ANNOTATIONS))}",
        )
    about_people = {"ask", "quorum", "not_requester", "summary"} & set(notes)
    if about_people and ("ask" not in notes or rule["effect"] != "permit"):
        fix = 'permit(…) with @ask("finance"), or take it out'
        raise _wrong(where, f"{subject} @{min(about_people)} has no @ask", "only a permit with @ask asks people", fix)
    if "ask" in notes:
        try:
            Rule.parse(notes["ask"])
        except InvalidInput as error:
            raise _wrong(
                where,
                f"{subject} @ask is no rule of roles and persons",
                error.why,
                '@ask("lead | person:ana")',
            ) from error
    if "quorum" in notes and (not notes["quorum"].isascii() or not notes["quorum"].isdigit() or notes["quorum"] == "0"):
        raise _wrong(where, f"{subject} @quorum is {notes['quorum']!r}", "it is a number of people", '@quorum("2")')
    return notes


def _asks(names: str, asking: list[Mapping[str, str]]) -> NeedsApproval:
    """Combine all demands: the roles and the name of every rule in one person, and the largest quorum."""
    by = Rule.parse(asking[0]["ask"])
    for note in asking[1:]:
        by = by & Rule.parse(note["ask"])
    return NeedsApproval(
        names,
        by,
        summary=next((note["summary"] for note in asking if "summary" in note), ""),
        quorum=max(int(note.get("quorum", "1")) for note in asking),
        not_requester=any("not_requester" in note for note in asking),
    )


def _context(asked: PolicyRequest) -> dict[str, Any]:
    context = {
        "key": asked.key,
        "tenant": asked.tenant,
        "version": asked.version,
        "run_id": asked.run_id,
        "node": asked.node,
        "visit": asked.visit,
        "occasion": asked.occasion,
        "moment": int(asked.moment.timestamp() * SECOND),
        "proposed_by": asked.proposed_by,
    }
    if asked.occasion != "offer":
        context["arguments"] = _plain(dict(asked.arguments), "arguments")
    if asked.approval is not None:
        context["approved_by"] = list(asked.approval.by)
    return context


def _plain(value: Any, path: str) -> Any:
    """Convert JSON to Cedar values: null is left out, and decimals have four places. Raises InvalidInput."""
    if isinstance(value, dict):
        if any(name.startswith("__") for name in value):
            raise InvalidInput(f"{path} has a name that begins with __", "Cedar reads those as entities and functions")
        return {name: _plain(each, f"{path}.{name}") for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each, path) for each in value if each is not None]
    if isinstance(value, float):
        if round(value, _DECIMALS) != value or abs(value) > _LARGEST / 10**_DECIMALS:
            raise InvalidInput(f"{path} is {value!r}", f"Cedar's decimals have {_DECIMALS} places")
        return {"__extn": {"fn": "decimal", "arg": f"{value:.{_DECIMALS}f}"}}
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _LARGEST:
        raise InvalidInput(f"{path} is {value}", "Cedar's whole numbers have 64 bits")
    return value


def _wrong(where: Path, what: str, why: str, fix: str) -> DefinitionError:
    return DefinitionError(f"{where} {what}", why, fix)
