"""The operators' board on a terminal: one group a reason, and one run's reasons in full."""

from itertools import groupby
from typing import Any

from outlast.cli.failure import shown_traceback
from outlast.cli.progress import trigger_text
from outlast.cli.screen import Screen
from outlast.core.machine import Reason
from outlast.runtime.answers import ways_of_all
from outlast.runtime.spans import span
from outlast.runtime.words import late_words


def print_away(screen: Screen, views: list[dict[str, Any]]) -> None:
    """A provider that is away is one item, however many runs wait for it; a webhook, however many events are dead."""
    for view in views:
        since = screen.ago(view["since"])
        if "webhook" in view:
            count = f"{view['events']}{' or more' if view['more'] else ''} event{'' if view['events'] == 1 else 's'}"
            screen.line(f"{view['reason']} {view['webhook']}, since {since}: {count} given up")
            screen.line(f"  {view['url']}")
        else:
            waits = f"{view['runs']} run{'' if view['runs'] == 1 else 's'} wait{'s' if view['runs'] == 1 else ''}"
            screen.line(f"{view['reason']} {view['provider']}, since {since}: {waits}")
        screen.line(f"  {view['detail']}")
        screen.line(f"  ignored: {view['if_ignored']}")
        for each in view["choices"]:
            screen.line(f"  → {each['command']}")
        screen.line()


def print_board(screen: Screen, views: list[dict[str, Any]], runs: int, cursor: str, *, also: bool = False) -> None:
    """Every group: the runs, then the choices as commands to copy; sorted by reason, oldest first.

    `also`: something else was listed, so an empty board is not said to be empty.
    """
    if not views and not also:
        further = " on this page" if cursor else ""
        screen.line(f"nothing needs a person{further} → outlast runs ls")
    for reason, items in groupby(views, key=lambda view: str(view["reason"])):
        _group(screen, Reason(reason), list(items))
    if views:
        screen.advice(f"{runs} run{'' if runs == 1 else 's'} need{'s' if runs == 1 else ''} a person")
    screen.further("runs", cursor)


def _group(screen: Screen, reason: Reason, items: list[dict[str, Any]]) -> None:
    screen.line(f"{reason.value} ({len(items)}) · ignored: {items[0]['if_ignored']}")
    screen.table(("RUN", "WORKFLOW", "SINCE", "LEFT", "WHAT"), [_row(screen, view) for view in items])
    first = items[0]
    for each in first["choices"]:
        screen.line(f"  → {each['command']}{not_yet(screen, each)}")
    if len(items) > 1:
        screen.line(f"  all {len(items)}:")
        for way in ways_of_all(reason):
            screen.line(f"  → {way.command}")
    screen.line()


def _row(screen: Screen, view: dict[str, Any]) -> tuple[str, ...]:
    detail = (view["detail"].splitlines() or [""])[0]
    left = screen.left(view["until"])
    own = view["trigger"] if view["trigger"] != view["reason"] else ""
    what = " ".join(filter(None, (view["key"], f"({own})" if own else "", detail)))
    return view["run"], view["workflow"], screen.ago(view["since"]), left, what


def not_yet(screen: Screen, choice: dict[str, Any]) -> str:
    """From when on a choice is accepted; nothing where it is accepted now."""
    if not choice["accepted_in_ms"]:
        return ""
    return f"   (from {screen.clock(choice['from_real'])} on, in {span(choice['accepted_in_ms'])})"


def print_run(screen: Screen, run: str, sentence: str, views: list[dict[str, Any]]) -> None:
    """Each reason of one run: the whole detail, what happens if it is ignored, and every choice as a command."""
    screen.line(sentence)
    if not views:
        screen.line(f"{run} needs no attention → outlast runs show {run}")
    for view in views:
        first, *rest = shown_traceback(view["detail"]) or [""]
        left = f", in {screen.left(view['until'])}" if view["until"] else ""
        screen.line()
        screen.line(f"{trigger_text(view)}, since {screen.ago(view['since'])}: {first}")
        for line in rest:
            screen.line(f"  {line}")
        for late in view["evidence"]:
            screen.line(f"  {late_words(late)}")
        screen.line(f"  ignored: {view['if_ignored']}{left}")
        for each in view["choices"]:
            screen.line(f"  {each['choice']:<15}→ {each['command']}{not_yet(screen, each)}")
