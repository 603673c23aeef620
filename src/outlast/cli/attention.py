"""`outlast attention`: what needs a person, by reason, and the answers of people: one, or one for many (S-21, S-23)."""

from datetime import timedelta
from typing import Any

import click

from outlast.cli.acting import says, unsure, warn_unserved
from outlast.cli.attention_page import print_away, print_board, print_run
from outlast.cli.bulk import answer_many
from outlast.cli.desk.port import Desk
from outlast.cli.failure import OK
from outlast.cli.screen import Screen
from outlast.cli.session import on_desk, reads_desk
from outlast.cli.settings import Group
from outlast.cli.text import duration
from outlast.cli.webhooks import warn_unsent
from outlast.core.machine import Choice, Reason
from outlast.errors import InvalidInput

REASONS = click.Choice([reason.value for reason in Reason])
ENDS_IT = frozenset({Choice.CANCEL, Choice.FAIL})  # asked about first


@click.group(cls=Group)
def attention() -> None:
    """List and answer what needs a person."""


@attention.command("ls")
@click.option("--reason-name", type=REASONS, metavar="REASON", help="Only this reason.")
@click.option("--workflow", default="", metavar="NAME", help="Only runs of this workflow.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=200, help="Stop after about so many runs [200].")
@click.option("--cursor", default="", help="Go on where the last page ended.")
@reads_desk
async def ls(desk: Desk, screen: Screen, reason_name: str | None, workflow: str, limit: int, cursor: str) -> int:
    """List what needs a person, grouped by reason: since when, how long still, and the choices as commands."""
    reason = Reason(reason_name) if reason_name else None
    items: list[dict[str, Any]] = []
    first = True
    while True:
        found, cursor = await desk.attention(reason=reason, workflow=workflow, cursor=cursor, first=first)
        items, first = [*items, *found], False
        runs = len({item["run"] for item in items if item["run"]})
        if not cursor or runs >= limit:
            break
    away = [item for item in items if not item["run"]]
    views = sorted((item for item in items if item["run"]), key=lambda view: (view["reason"], view["since"]))
    if not screen.listing("attention", [*away, *views], cursor=cursor):
        print_away(screen, away)
        print_board(screen, views, runs, cursor, also=bool(away))
        await warn_unsent(desk, screen)
    return OK


@attention.command("show")
@click.argument("run")
@reads_desk
async def show(desk: Desk, screen: Screen, run: str) -> int:
    """Show every reason why a person must look at RUN, whole, with its choices as commands."""
    views = await desk.attention_of(run)
    explained = await desk.explain(run)
    if not screen.data({"run": run, "attention": views, "explained": explained}):
        print_run(screen, run, explained["sentence"], views)
    return OK


@attention.command("resolve")
@click.argument("words", nargs=-1, required=True, metavar="[RUN] CHOICE")
@click.option("--all", "every", type=REASONS, metavar="REASON", help="Answer every run flagged so, instead of one RUN.")
@click.option("--workflow", default="", metavar="NAME", help="With --all: only runs of this workflow.")
@click.option(
    "--reason-name", type=REASONS, metavar="REASON", help="Which reason is answered; needed where RUN has several."
)
@click.option("--key", default="", metavar="KEY", help="Which effect's, where the same reason stands for several.")
@click.option("--by", type=duration, metavar="DURATION", help="With the choice extend: by how much [168h].")
@click.option("--reason", required=True, help="For the history; people will read it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@on_desk
async def resolve(
    desk: Desk,
    screen: Screen,
    words: tuple[str, ...],
    every: str | None,
    workflow: str,
    reason_name: str | None,
    key: str,
    by: int | None,
    reason: str,
    yes: bool,
) -> int:
    """Answer what a person is asked.

    \b
    outlast attention resolve RUN CHOICE --reason …
    outlast attention resolve --all REASON CHOICE --reason …
    """
    if len(words) != (1 if every else 2):
        raise click.UsageError("say RUN CHOICE, or --all REASON CHOICE")
    if not reason.strip():
        raise InvalidInput("an answer needs a reason", "people will read it in the run's history", "say --reason …")
    choice = _choice(words[-1])
    if by is not None and choice is not Choice.EXTEND:
        raise click.UsageError(f"--by belongs to the choice {Choice.EXTEND.value}")
    more = timedelta(milliseconds=by) if by is not None else None
    if every:
        if reason_name or key:
            raise click.UsageError("--all names the reason; --reason-name and --key belong to one RUN")
        return await answer_many(desk, screen, Reason(every), choice, text=reason, workflow=workflow, by=more, yes=yes)
    if workflow:
        raise click.UsageError("--workflow belongs to --all")
    run, named = words[0], Reason(reason_name) if reason_name else None
    about = await desk.reason_of(run, choice, named, key)
    if choice in ENDS_IT and not yes and (code := await unsure(screen, f"{choice.value} {run}?")) is not None:
        return code
    await desk.answer(run, choice, reason=named, key=key, text=reason, by=more)
    if not screen.data({"run": run, "reason": about.value, "choice": choice.value, "by": await desk.caller()}):
        screen.line(f"{run} {about.value}: {choice.value.replace('_', ' ')}{await says(desk)}")
    await warn_unserved(desk, screen, run)
    return OK


def _choice(word: str) -> Choice:
    try:
        return Choice(word.replace("-", "_"))
    except ValueError:
        raise click.UsageError(f"{word!r} is no choice; there are {', '.join(c.value for c in Choice)}") from None
