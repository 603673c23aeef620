"""Effects on a terminal: a list of them, and one of them whole."""

import json
from collections.abc import Sequence
from typing import Any

from outlast.cli.run_page import doubt_lines
from outlast.cli.screen import Screen
from outlast.cli.text import ms_of
from outlast.core.machine import EffectStatus
from outlast.runtime.spans import span
from outlast.runtime.words import late_words


def print_effects(screen: Screen, views: Sequence[dict[str, Any]], *, across: bool = False, now_real: int = 0) -> None:
    """A table, and below it what a person may say of each that is uncertain. `across`: of several runs."""
    first = ("RUN",) if across else ()
    last = ("WHEN",) if across else ("APPROVAL",) if any(view["approval"] for view in views) else ()
    rows = [
        (
            *((view["run"],) if across else ()),
            *_row(view),
            *((_ago(view["first_at_real"], now_real),) if across else (view["approval"],) if last else ()),
        )
        for view in views
    ]
    screen.table((*first, "EFFECT", "KEY", "OUTCOME", "EXTERNAL ID", *last), rows)
    for view in views:
        if view["status"] == EffectStatus.UNCERTAIN:
            for line in doubt_lines(screen, view):
                screen.line(line)


def _row(view: dict[str, Any]) -> tuple[str, ...]:
    doubtful = view["status"] == EffectStatus.UNCERTAIN
    detail = f": {view['detail']}" if view["detail"] and view["code"] and view["code"] in view["outcome"] else ""
    return view["effect"], view["key"], view["outcome"] + detail, view["external_id"] or ("?" if doubtful else "")


def print_effect(screen: Screen, view: dict[str, Any], now_real: int) -> None:
    """Everything the ledger has of one call."""
    screen.line(f"{view['effect']}  {view['key']}   {view['outcome']}")
    in_visit = f" {view['visit']}" if view["visit"] else ""
    waited = f", {span(view['waited_ms'])} of waits between them" if view["waited_ms"] else ""
    attempts = f"{view['attempts']} attempt{'' if view['attempts'] == 1 else 's'}{waited}"
    why = f"{view['code']}: {view['detail']}" if view["code"] else ""
    screen.pairs(
        (
            ("run", [f"{view['run']}, node {view['node']} → outlast runs show {view['run']}"]),
            ("scope", [f"{view['scope']}{in_visit}"]),
            ("asked by", [view["requested_by"]]),
            ("policy", [view["allowed_by"]] if view["allowed_by"] else []),
            ("approval", _approval(view["decision"])),
            ("digest", [view["digest"]]),
            ("attempts", [attempts]),
            ("first intent", [f"{_ago(view['first_at_real'], now_real)} ago, {view['first_at_real']}"]),
            ("last moment", [f"{view['not_after_real']} to send the latest attempt"]),
            ("settled", _settled(screen, view)),
            ("why", [why] if why else []),
            ("external id", [view["external_id"]] if view["external_id"] else []),
            ("undo", [view["undo"]] if view["undo"] else []),
            ("request", _json(view["arguments"])),
            ("response", _json(view["response"]) if view["status"] == EffectStatus.DONE else []),
            ("evidence", [late_words(each) for each in view["evidence"]]),
        )
    )
    if view["status"] == EffectStatus.UNCERTAIN:
        for line in doubt_lines(screen, {**view, "evidence": []}):
            screen.line(line)


def _approval(view: dict[str, Any] | None) -> list[str]:
    if view is None:
        return []
    by = f" by {view['decided_by']}: {view['reason']}" if view["decided_by"] else ""
    return [f"{view['approval']} {view['status']}{by} → outlast approvals show {view['approval']}"]


def _settled(screen: Screen, view: dict[str, Any]) -> list[str]:
    if not view["settled_at"]:
        return []
    by = {"call": "by its answer", "reconcile": "the receiver was asked"}.get(
        view["settled_by"], f"by {view['settled_by']}"
    )
    return [f"{screen.since(view['settled_at'])}, {by}"]


def _json(value: Any) -> list[str]:
    return json.dumps(value, ensure_ascii=False, indent=2).split("\n")


def _ago(instant: str, now_real: int) -> str:
    return span(max(0, now_real - ms_of(instant)))
