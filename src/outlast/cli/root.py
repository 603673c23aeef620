"""The `outlast` command: its groups of lazily imported commands, its audit line, its errors and exit codes."""

import logging
import os
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from typing_extensions import override

from outlast.cli.exit_codes import ENDING, OK, Unwritten, interrupted, lost, report
from outlast.cli.global_options import CliSettings, Group, complete

if TYPE_CHECKING:
    from outlast.cli.serving import CommandEnd

# Section → command → (where it is, its help line). `outlast --help` imports no command.
SECTIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "Start here": {
        "demo": ("outlast.cli.demo:demo", "Play an auction that survives a crash and waits for you."),
        "init": ("outlast.cli.init:init", "Write a first workflow of 25 lines."),
        "dev": ("outlast.cli.dev:dev", "Serve a file and reload it on every change."),
        "run": ("outlast.cli.start_commands:run", "Start a run of a workflow."),
        "signal": ("outlast.cli.start_commands:signal", "Send a signal to a run."),
    },
    "Inspect": {
        "status": ("outlast.cli.attention_commands:status", "Count what needs a person and what cannot continue."),
        "runs": ("outlast.cli.run_commands:runs", "List, show and follow runs; continue, extend or cancel one."),
        "views": ("outlast.cli.view_commands:views", "List, save and remove named queries of runs."),
        "explain": ("outlast.cli.explain_commands:explain", "Explain the state of a run in one sentence."),
        "effects": ("outlast.cli.effect_commands:effects", "List and show effects; resolve uncertain ones."),
        "prompts": ("outlast.cli.agent_commands:prompts", "List and compare prompts of requests to models."),
        "tools": ("outlast.cli.agent_commands:tools", "List tools with their calls, refusals and times."),
        "metrics": ("outlast.cli.metric_commands:metrics", "Measure runs, nodes and decisions."),
        "audit": ("outlast.cli.audit_commands:audit", "List who did what, on which run, and why."),
        "workers": ("outlast.cli.workers:workers", "List workers and what they serve; drain one."),
    },
    "Decide": {
        "approvals": ("outlast.cli.approval_commands:approvals", "List, show and decide approvals."),
        "attention": ("outlast.cli.attention_commands:attention", "List, assign and answer runs that need a person."),
        "causes": ("outlast.cli.cause_commands:causes", "List the causes for which runs need a person."),
        "policy": ("outlast.cli.policy_commands:policy", "Test a policy on recorded effects."),
    },
    "Operate": {
        "worker": ("outlast.cli.worker_commands:worker", "Serve the workflows of a module until stopped."),
        "serve": ("outlast.cli.serve:serve", "Serve HTTP, run workflows and send webhooks until stopped."),
        "dispatcher": (
            "outlast.cli.worker_commands:dispatcher",
            "Send webhooks and messages to approvers until stopped.",
        ),
        "notify": ("outlast.cli.notify:notify", "Tell approvers by mail, Slack, Teams or ntfy."),
        "webhooks": ("outlast.cli.webhook_commands:webhooks", "List and change webhooks; send failed events again."),
        "pause": ("outlast.cli.pause_commands:pause", "Pause calls or runs until they are resumed."),
        "resume": ("outlast.cli.pause_commands:resume", "End a pause or a circuit breaker; waiting runs continue."),
        "threads": ("outlast.cli.thread_commands:threads", "List, show, export and delete threads of LangGraph."),
        "budgets": ("outlast.cli.budget_commands:budgets", "List and set what the runs of a tenant may use each day."),
        "pauses": ("outlast.cli.pause_commands:pauses", "List the pauses and the runs that wait for them."),
        "versions": ("outlast.cli.version_commands:versions", "List versions of workflows; move runs between them."),
        "check": ("outlast.cli.version_commands:check_command", "List the unfinished runs that new code would break."),
        "lint": ("outlast.cli.lint_commands:lint", "Find mistakes of workflows in their source."),
    },
    "Administer": {
        "config": ("outlast.cli.config:config", "Show every setting with its value and source."),
        "whoami": ("outlast.cli.config:whoami", "Show your name, tenant and roles."),
        "doctor": ("outlast.cli.maintenance_commands:doctor", "Check store, clocks, workers and settings."),
        "token": ("outlast.cli.token:token", "Create access tokens for the service."),
        "fsck": ("outlast.cli.maintenance_commands:fsck", "Check every invariant of the store."),
        "export": ("outlast.cli.export_commands:export_command", "Write all data of a run as one JSON document."),
        "verify": ("outlast.cli.export_commands:verify_command", "Check an exported run without a store."),
        "backup": ("outlast.cli.maintenance_commands:backup", "Copy the store to a file while workers run."),
        "recover": ("outlast.cli.maintenance_commands:recover", "Make a restored or moved store usable again."),
        "purge": ("outlast.cli.maintenance_commands:purge_command", "Delete runs that ended long ago."),
    },
}
LAZY: Final = {name: where for section in SECTIONS.values() for name, where in section.items()}
HEADER: Final = re.compile(r"(?s)((?:--header=)?[^=]*=).*")
"""Argument of `webhooks add --header`: its value is a secret whatever its name is (S24)."""
SCHEME: Final = re.compile(r"(?i)[a-z]{1,20}://")
FLAGS: Final = frozenset({"--", "--every", "--from-start"})
"""Options of `notify add` and `webhooks add` without a value. The address is the word that is no option's value."""


class Root(Group):
    """The root group: imports a command when it is called, and turns errors into sentences and exit codes."""

    _ending: "CommandEnd | None" = None  # of a command that serves

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(LAZY)

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, LAZY))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in section.items()])

    @override
    def main(self, args: Sequence[str] | None = None, *rest: Any, **more: Any) -> Any:
        """Run the command of `args`; without them that of this process, which a command that serves leaves."""
        try:
            try:
                return super().main(args, *rest, **more)
            except Unwritten as error:
                sys.exit(lost(error))
        except SystemExit as end:
            if self._ending is not None and args is None:
                from outlast.cli.serving import leave

                leave(self._ending, end.code if isinstance(end.code, int) else OK)
            raise
        finally:
            if self._ending is not None:
                self._ending.set()

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        self._words = [*args]
        return super().parse_args(ctx, args)

    @override
    def invoke(self, ctx: click.Context) -> Any:
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
            self._ending = ctx.meta.get(ENDING)
            _audit(ctx, self._words, code)

    def _run(self, ctx: click.Context) -> Any:
        """Run the command; an error ends in a sentence and its exit code, never in a traceback of the user's."""
        try:
            complete(ctx)
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, Unwritten):
            raise
        except KeyboardInterrupt:
            ctx.exit(interrupted())
        except Exception as error:  # every error of a command is reported here
            ctx.exit(report(error, self._words))


def _audit(ctx: click.Context, words: list[str], code: int) -> None:
    """Write the audit line of a command: user, arguments, store and exit code (S32), if OUTLAST_AUDIT names a file."""
    if not logging.getLogger("outlast.audit").handlers:
        return
    from outlast.runtime.execution_runtime import local_actor
    from outlast.telemetry.audit import audit

    settings = ctx.ensure_object(CliSettings)
    audit(
        "command",
        tenant=settings.tenant,
        by=local_actor(()).name,
        at=os.environ.get("SSH_CONNECTION", "").partition(" ")[0] or "local",
        outcome=code,
        roles=list(settings.role),
        on=settings.url or settings.store,
        asked=" ".join(_without_secrets(words)),
    )


def _without_secrets(words: list[str]) -> list[str]:
    from outlast.telemetry.redact import GONE

    shown = [
        HEADER.sub(rf"\1{GONE}", word) if before == "--header" or word.startswith("--header=") else word
        for before, word in zip(["", *words], words, strict=False)
    ]
    if "add" not in words or not {"notify", "webhooks"} & set(words):
        return shown
    at = words.index("add") + 1
    return [*shown[:at], *(_hidden(word, before) for before, word in zip(words[at - 1 :], shown[at:], strict=False))]


def _hidden(word: str, before: str) -> str:
    """Return a word after `add` without the address that it may be, also a mistyped one; @FILE stays."""
    from outlast.telemetry.redact import GONE

    valued = before.startswith("-") and "=" not in before and before not in FLAGS
    scheme = SCHEME.match(word)
    if scheme is None and (word.startswith(("-", "@")) or valued):
        return word
    return (scheme[0] if scheme else "") + GONE


@click.group(
    cls=Root,
    lazy={name: where for name, (where, _) in LAZY.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit codes: 0 ok · 1 the run failed · 2 usage or bad input · 3 not found · 4 conflict · 5 it waits "
    "(run --wait) · 6 not allowed · 7 the store or service cannot be reached "
    "· 8 it may have been done; do not repeat it without the same key.",
)
@click.version_option(package_name="outlast", message="outlast %(version)s")
def cli() -> None:
    """Durable execution for agentic workflows: at most one uncertain, never two, and you can see which."""
