"""Questions of `outlast dev` in its terminal: a call that may have happened, its traceback, and the two commands."""

from collections.abc import Sequence

import click

from outlast.cli.global_options import CliSettings
from outlast.cli.text import inert
from outlast.core.durations import span
from outlast.core.machine import Choice, Reason
from outlast.core.rows.run_columns import Attention
from outlast.core.rows.run_rows import Run
from outlast.engine.call_errors import CallErrors
from outlast.insight.attention_reads import ChoiceCommand, call_in_doubt
from outlast.store.port import Store

ASKED = {
    Reason.EFFECT_UNCERTAIN: (Choice.DID_NOT_HAPPEN, Choice.HAPPENED),
    Reason.UNDO_FAILED: (Choice.RETRY, Choice.DONE_BY_HAND),
}
MEANING = {
    Choice.DID_NOT_HAPPEN: "  did not happen, call it again",
    Choice.HAPPENED: "  happened, with this result   ",
    Choice.RETRY: "  call the undo again",
    Choice.DONE_BY_HAND: "  done by hand",
}


class DeveloperQuestions:
    """Notifier that prints questions about calls to stderr."""

    def __init__(self, store: Store, errors: CallErrors, settings: CliSettings) -> None:
        self._store = store
        self._errors = errors
        self._where = settings.where()

    async def notify(self, run: Run, reasons: Sequence[Attention]) -> None:
        """Print each reason that asks whether a call happened."""
        asked = [entry for entry in reasons if entry.reason in ASKED]
        if not asked:
            return
        for entry in asked:
            await self._ask(run, entry)

    async def _ask(self, run: Run, entry: Attention) -> None:
        effect, ways = await call_in_doubt(self._store, run, entry)
        traceback = self._errors.of(run.tenant, run.run, entry.key)
        left = effect.settle_after - (await self._store.now()).real
        lines = [
            f"{run.run} needs you: {effect.activity} {entry.key} may or may not have happened ({entry.detail})",
            *(f"  {line}" for line in traceback.splitlines()),
            *(f"{MEANING[way.choice]} → {self._located(way)}" for way in ways if way.choice in ASKED[entry.reason]),
        ]
        if left > 0:
            lines.append(f"  «did not happen» is accepted in {span(left)}: until then a sent request may still arrive")
        elif traceback:
            lines.append("  its call has returned and sends nothing more; a request that it sent may have arrived")
        click.echo(inert("\n".join(lines), lines=True), err=True)

    def _located(self, way: ChoiceCommand) -> str:
        return way.command.replace("outlast ", f"outlast{self._where} ", 1)
