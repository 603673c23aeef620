"""One text that finds runs: words, and terms such as `status:failed customer:acme since:2h`.

`parse_query` turns the text into the filters of a list, and `query_terms` turns filters into its terms. Values with
spaces have quotes: `customer:"Acme Inc"`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, NamedTuple, get_args

from outlast.core.durations import milliseconds, ms_of, span
from outlast.core.lanes import version_in, workflow_in
from outlast.core.limits import QUERY_CHARS_MAX
from outlast.core.machine import Reason, RunStatus
from outlast.core.rows.run_columns import WaitingKind
from outlast.core.run_filters import RunOrder, interval_of, where_of
from outlast.errors import InvalidInput
from outlast.operations.run_operations import ListRuns

TEXT_CHARS_MAX: Final = 100
"""Characters of the words of a query, which a list searches for as one text."""
_TOKEN: Final = re.compile(r'(?:([A-Za-z_][A-Za-z0-9_]*):(?!//))?("(?:[^"\\]|\\.)*"?|\S+)?')
_PLAIN: Final = re.compile(r'[^\s":\\]+')
_BEGINS_AS_DATE: Final = re.compile(r"\d{4}-")
_FLAGS: Final = {"flagged": "attention", "top": "no_children"}
_VERSION_MAX: Final = 2**31


class QueryTerm(NamedTuple):
    """One term of a query. `name`: '' for words to search for."""

    name: str
    value: str

    @property
    def text(self) -> str:
        """Return the term as a query spells it."""
        if not self.name:
            return " ".join(_spelled(word, is_word=True) for word in self.value.split())
        return f"{self.name}:{_spelled(self.value)}"


class _Term(NamedTuple):
    field: str
    read: Callable[[str], Any]
    meaning: str


def _one_of(name: str, values: Sequence[str]) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value.lower() not in values:
            raise InvalidInput(f"{name}:{value} is not known", f"{name} is one of {', '.join(values)}", "choose one")
        return value.lower()

    return read


def _number(value: str) -> int:
    if not value.isascii() or not value.isdigit() or not 0 < int(value[:11]) < _VERSION_MAX:
        raise InvalidInput(f"version:{value} is no version", "a version is a number from 1", "e.g. version:7")
    return int(value)


def _duration(value: str) -> str:
    try:
        milliseconds(value)
    except ValueError as error:
        raise InvalidInput(
            f"since:{value} is neither a duration nor a date",
            str(error),
            "e.g. since:90m, since:7d or since:2026-05-04",
        ) from None
    return value


def _interval(name: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        interval_of(name, value)
        return value

    return read


TERMS: Final[Mapping[str, _Term]] = {
    "status": _Term("status", _one_of("status", [*RunStatus]), "status of the engine"),
    "workflow": _Term("workflow", str, "name of the workflow; order@7 also names its version"),
    "version": _Term("version", _number, "version of the workflow"),
    "node": _Term("node", str, "present or last node"),
    "cause": _Term("cause", str, "id of a cause of failures"),
    "reason": _Term("reason", _one_of("reason", [*Reason]), "reason for which a run needs a person"),
    RunStatus.WAITING.value: _Term("waiting_for", _one_of(RunStatus.WAITING, get_args(WaitingKind)), "kind of a wait"),
    "since": _Term("since", _duration, "started within this time, or from this date or instant"),
    "started": _Term(
        "started", _interval("started"), "started on this day, or in this interval: two instants with a slash"
    ),
    "stopped": _Term("stopped", _interval("stopped"), "ended, or called a person, in this interval"),
    "ended": _Term("ended", _interval("ended"), "ended in this interval"),
    "flagged": _Term("flagged", _interval("flagged"), "began to need a person in this interval, answered or not"),
    "fork": _Term("forked_from", str, "forks of this run"),
    "parent": _Term("parent", str, "runs that this run has started"),
    "root": _Term("root", str, "runs of the tree below this run"),
    "sort": _Term("sort", _one_of("sort", get_args(RunOrder)), "order, with -asc the least value first"),
}
"""Terms with one value each, by name. `is:flagged`, `is:top` and attributes of workflows come besides."""
KNOWN: Final = (*TERMS, *(f"is:{name}" for name in _FLAGS))


def parse_query(text: str) -> ListRuns:
    """Return the filters that a text asks for. Raises InvalidInput that names the term and what exists.

    A name that is no term is the name of an attribute. Whether a workflow declares it is checked by the list.
    """
    if len(text) > QUERY_CHARS_MAX:
        raise InvalidInput("the query is too long", f"at most {QUERY_CHARS_MAX:,} characters are read", "shorten it")
    given: dict[str, Any] = {}
    words: list[str] = []
    where: dict[str, str] = {}
    for found in _TOKEN.finditer(text):
        name, written = found[1], found[2] or ""
        if not name:
            words += _unquoted(written).split()
            continue
        value = _unquoted(written)
        if not value:
            raise InvalidInput(
                f"{name}: has no value", "a term is NAME:VALUE without a space", f"e.g. {_example(name)}"
            )
        if name == "is":
            field = _FLAGS.get(value.lower())
            if field is None:
                raise InvalidInput(f"is:{value} is not known", f"is: takes {' or '.join(_FLAGS)}", "choose one")
            given[field] = True
        elif name in TERMS:
            if name == "since" and _BEGINS_AS_DATE.match(value):
                name, value = "started", f"{value}/"
            term = TERMS[name]
            if term.field in given:
                raise InvalidInput(f"{name}: is given twice", "a term has one value", "leave one out")
            if name == "workflow" and version_in(value):
                given |= {"workflow": workflow_in(value), "version": version_in(value)}
            else:
                given[term.field] = term.read(value)
        elif where.setdefault(name, value) != value:
            raise InvalidInput(f"{name}: is given twice", "an attribute has one value", "leave one out")
    q = " ".join(words)
    if len(q) > TEXT_CHARS_MAX:
        raise InvalidInput(
            "the words are too long", f"at most {TEXT_CHARS_MAX} characters are searched for", "shorten them"
        )
    asked = tuple(f"{name}={value}" for name, value in where.items())
    where_of(asked)
    return ListRuns(q=q, where=asked, **given)


def merged(of: ListRuns, **given: Any) -> ListRuns:
    """Return the filters with further ones. '', None, 0, () and False leave a filter as it is.

    Raises InvalidInput if a filter already has another value.
    """
    found: dict[str, Any] = {name: value for name, value in given.items() if value or isinstance(value, timedelta)}
    if "where" in found:
        found["where"] = tuple(dict.fromkeys((*of.where, *found["where"])))
    for name, value in found.items():
        before = getattr(of, name)
        if before and name != "where" and before != value:
            raise InvalidInput(f"{name} is given twice", f"{before} and {value}", "leave one out")
    return replace(of, **found)


def beyond_flagged(text: str) -> str:
    """Return a query without its terms about why runs need a person, or '' if it has none or no other terms."""
    of = parse_query(text)
    wider = replace(of, attention=False, reason="", cause="", flagged="")
    return query_text(query_terms(wider)) if wider != of else ""


def filters_of(of: ListRuns) -> dict[str, Any]:
    """Return the filters of a list as keywords of `Client.runs`."""
    return {name: value for name, value in vars(of).items() if name not in ("cursor", "limit")}


def query_terms(of: ListRuns) -> tuple[QueryTerm, ...]:
    """Return the terms of the filters, in the order of `TERMS`, and the words last."""
    found: list[QueryTerm] = []
    for name, term in TERMS.items():
        value = getattr(of, term.field)
        if value:
            text = span(ms_of("since", value)) if isinstance(value, timedelta) else str(value)
            found.append(QueryTerm(name, text))
    found += [QueryTerm("is", name) for name, field in _FLAGS.items() if getattr(of, field)]
    found += [QueryTerm(*each.split("=", 1)) for each in of.where]
    return (*found, QueryTerm("", of.q)) if of.q else tuple(found)


def query_text(terms: Sequence[QueryTerm]) -> str:
    """Return the text of these terms, from which `parse_query` returns the same filters."""
    return " ".join(each.text for each in terms)


def _spelled(value: str, *, is_word: bool = False) -> str:
    if _PLAIN.fullmatch(value) or (not is_word and value and not re.search(r'[\s"\\]', value)):
        return value
    return json.dumps(value, ensure_ascii=False)


def _unquoted(written: str) -> str:
    if not written.startswith('"'):
        return written
    closed = len(written) > 1 and written.endswith('"')
    return re.sub(r"\\(.)", r"\1", written[1 : -1 if closed else None])


def _example(name: str) -> str:
    return {"status": "status:failed", "since": "since:2h", "is": "is:flagged"}.get(name, f"{name}:acme")
