"""The `outlast` command itself: its global options, its commands loaded late, its errors and exit codes."""

import importlib
import logging
import os
import re
import sys
from typing import Any

import click

from outlast.cli.exit_codes import OK, Unwritten, interrupted, lost, report
from outlast.cli.settings import Group, Settings, complete

HEADER = re.compile(r"(?s)((?:--header=)?[^=]*=).*")
"""What `webhooks add --header` is given: its value is a secret, whatever its name is (S24)."""


def tell(ctx: click.Context, words: list[str], code: int) -> None:
    """Say it, where a file for such lines is named (OUTLAST_AUDIT)."""
    if not logging.getLogger("outlast.audit").handlers:
        return
    from outlast.cli.session import local_actor
    from outlast.telemetry.audit import audit

    settings = ctx.ensure_object(Settings)
    audit(
        "command",
        tenant=settings.tenant,
        by=local_actor(()).name,
        at=os.environ.get("SSH_CONNECTION", "").partition(" ")[0] or "local",
        outcome=code,
        roles=list(settings.role),
        on=settings.url or settings.store,
        asked=" ".join(_told(words)),
    )


def _told(words: list[str]) -> list[str]:
    from outlast.telemetry.redact import GONE

    return [
        HEADER.sub(rf"\1{GONE}", word) if before == "--header" or word.startswith("--header=") else word
        for before, word in zip(["", *words], words, strict=False)
    ]


# Command → (where it is, what it does). What stands here is all that `outlast --help` loads.
LAZY: dict[str, tuple[str, str]] = {
    "demo": ("outlast.cli.demo:demo", "Play an auction that is killed, taken over, approved and awarded."),
    "init": ("outlast.cli.init:init", "Write a first workflow of 25 lines."),
    "dev": ("outlast.cli.dev:dev", "Serve a file while you write it; every change begins anew, runs go on."),
    "serve": ("outlast.cli.serve:serve", "Serve HTTP, walk runs and send webhooks, until stopped."),
    "worker": ("outlast.cli.worker:worker", "Serve the workflows of a module until stopped."),
    "run": ("outlast.cli.run:run", "Start a run."),
    "signal": ("outlast.cli.run:signal", "Leave a signal for a run."),
    "runs": ("outlast.cli.runs:runs", "List, look at and follow runs; continue, extend or cancel one."),
    "effects": ("outlast.cli.effects:effects", "List what was done to the world; settle what is uncertain."),
    "approvals": ("outlast.cli.approvals:approvals", "List, look at and decide what waits for people."),
    "policy": ("outlast.cli.policy:policy", "Try a policy on what has happened."),
    "attention": ("outlast.cli.attention:attention", "List and answer what needs a person."),
    "pause": ("outlast.cli.pauses:pause", "Stop new calls of an activity, a workflow or the tenant."),
    "resume": ("outlast.cli.pauses:resume", "End a pause; the runs that wait for it continue."),
    "pauses": ("outlast.cli.pauses:pauses", "List the pauses and the runs that wait for them."),
    "webhooks": ("outlast.cli.webhooks:webhooks", "List and change who is told of what happens."),
    "dispatcher": ("outlast.cli.worker:dispatcher", "Send what webhooks are told of, until stopped."),
    "workers": ("outlast.cli.workers:workers", "List the workers and what they serve."),
    "db": ("outlast.cli.db:db", "Migrate, check and export, by the names of databases."),
    "fsck": ("outlast.cli.maintenance:fsck", "Check every invariant over the whole store."),
    "export": ("outlast.cli.export:export_command", "Write everything of a run as one JSON document."),
    "verify": ("outlast.cli.export:verify_command", "Check such a document, without any store."),
    "backup": ("outlast.cli.maintenance:backup", "Copy the store to a file while workers run."),
    "recover": ("outlast.cli.maintenance:recover", "Begin a new generation after a backup was restored."),
    "purge": ("outlast.cli.maintenance:purge_command", "Forget runs that ended long ago."),
    "check": ("outlast.cli.versions:check_command", "Say which runs in flight new code would not carry on."),
    "versions": ("outlast.cli.versions:versions", "List versions of workflows; move runs between them."),
    "token": ("outlast.cli.token:token", "Make a token for a person or a program that calls the service."),
    "config": ("outlast.cli.config:config", "Show every setting, its value, and who said it."),
    "whoami": ("outlast.cli.config:whoami", "Show as whom you act, and which roles that caller holds."),
    "doctor": ("outlast.cli.maintenance:doctor", "Look whether everything here can work, and say what cannot."),
    "explain": ("outlast.cli.explain:explain", "Say in one sentence where a run stands, and why."),
}


class Root(Group):
    """Loads a command when it is called, and turns errors into sentences and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of a first acquaintance."""
        return list(LAZY)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, loaded now."""
        if cmd_name not in LAZY:
            return None
        module, _, name = LAZY[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands, without loading any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in LAZY.items()])

    def main(self, *args: Any, **more: Any) -> Any:
        """The whole of it, from the line to the exit code, also where the answer finds no place."""
        try:
            return super().main(*args, **more)
        except Unwritten as error:
            sys.exit(lost(error))

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments; --help and --version are answered here."""
        self._words = [*args]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and say in the audit that it ran."""
        code = OK
        try:
            return self._run(ctx)
        except (click.exceptions.Exit, click.ClickException) as end:
            code = end.exit_code
            raise
        except Unwritten as error:
            code = error.code
            raise
        finally:
            tell(ctx, self._words, code)

    def _run(self, ctx: click.Context) -> Any:
        """Run the command; a mistake of the user ends in a sentence and its exit code, never in a traceback."""
        try:
            complete(ctx)
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, Unwritten):
            raise
        except KeyboardInterrupt:
            ctx.exit(interrupted())
        except Exception as error:  # the one place where every error of a command is told to its user
            ctx.exit(report(error, self._words))


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 ok · 1 the run failed · 2 usage or bad input · 3 not found · 4 conflict · 5 it waits "
    "(run --wait) · 6 not allowed · 7 the store or service cannot be reached.",
)
@click.version_option(package_name="outlast", message="outlast %(version)s")
def cli() -> None:
    """Durable execution for agentic workflows: at most one uncertain, never two, and you can see which."""
